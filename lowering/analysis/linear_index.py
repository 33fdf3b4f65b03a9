"""Linearize an index: the row-major position of an element, simplified.

    (t // 3) * 3 + t % 3  =>  t

MLIR's affine.linearize_index; the inverse is delinearization.
"""

from __future__ import annotations

from ...dialect.ir.sizes import Shape
from ...dialect.notation.affine import affine
from ...dialect.notation.expressions import ZERO, Expr
from ...dialect.notation.simplify import recombine


def linear_index(at: tuple[Expr, ...], shape: Shape) -> Expr:
    """The specification's flatten_index; quotient and remainder of one number recombine to that number."""
    position: Expr = ZERO
    for i, n in zip(at, shape, strict=True):
        position = position * n + i
        form = affine(position)
        whole = recombine(form)
        position = position if whole is form else whole.expression()
    return position
