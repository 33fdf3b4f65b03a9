"""Linearize an index: the row-major position of an element, simplified.

    (t // 3) * 3 + t % 3  =>  t

MLIR's affine.linearize_index; the inverse is delinearization.
"""

from __future__ import annotations

from ...dialect.ir.sizes import Dim, Shape, same_size
from ...dialect.notation.index import ZERO, Apply, Const, Expr, Extent, apply, as_index


def linear_index(at: tuple[Expr, ...], shape: Shape) -> Expr:
    """The specification's flatten_index; quotient and remainder of one number recombine to that number."""
    position: Expr = ZERO
    for i, n in zip(at, shape, strict=True):
        position = _joined(position, n, i)
    return position


def _joined(position: Expr, n: Dim, i: Expr) -> Expr:
    """position * n + i"""
    whole = _whole(position, n, i)
    return position * n + i if whole is None else whole


def _whole(position: Expr, n: Dim, i: Expr) -> Expr | None:
    """The number of which `position` and `i` are quotient and remainder."""
    match i:
        case Apply("floormod", (whole, by), _) if _is(by, n):
            match position:
                case Apply("floordiv", (same, b), _) if same is whole and _is(b, n):
                    return whole
                case Apply("floormod", (Apply("floordiv", (same, b), _), Const(m)), _) if same is whole and _is(b, n):
                    return apply("floormod", whole, as_index(n * m))
        case Apply("mul", (Apply("floormod", (whole, by), _) as part, Const(w)), _) if (
            isinstance(n, int) and n % w == 0
        ):
            if _is(by, n // w) and _whole(position, n // w, part) is whole:
                return whole * w
        case Apply("add", (part, rest), _) if (whole := _whole(position, n, part)) is not None:
            return whole + rest
    return None


def _is(e: Expr, n: Dim) -> bool:
    match e:
        case Const(value):
            return isinstance(n, int) and value == n
        case Extent(size):
            return same_size(size, n)
    return False
