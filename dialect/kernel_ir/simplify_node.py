"""Simplify one node of an expression over simplified operands: conditions with constants, and index
arithmetic by its bounds.

    (i + 511) mod 512  =>  i - 1          where 1 <= i < 512
    b * (x // b) + x mod b  =>  x

Index arithmetic is that of indices and sizes alone: it does not wrap, as arithmetic on data
does.
"""

from collections.abc import Iterator

from ..types.linear_form import Bounds
from ..types.sizes import Shape
from ..types.tensor_types import I1, I64
from .affine import Affine, affine, key
from .expressions import ZERO, Apply, Check, Const, Expr, Extent, Index, When, apply, as_index
from .index_bounds import index_bounds


def fold_constants(e: Expr) -> Expr:
    """Simplify a condition or a choice, by the operands that are constants; legal for data, too."""
    match e:
        case Apply("and" | "or", (Const(value), x) | (x, Const(value)), _) if e.type is I1:
            return x if value == (e.function == "and") else Const(value, I1)
        case Apply("not", (Const(value),), _) if e.type is I1:
            return Const(not value, I1)
        case Apply("select", (Const(chosen), a, b), _) | When(Const(chosen), a, b):
            return a if chosen else b
        case Check(Const(True), value, _, _):
            return value
    return e


def simplify_index(e: Expr) -> Expr:
    match e:
        case Apply("lt" | "le" | "gt" | "ge" | "eq" | "ne", (a, b), _) if a.type is I64:
            return _comparison(e, _difference(a, b))
        case Apply("min" | "max" as which, (a, b), _) if a.type is I64:
            low, high = _difference(a, b)
            if low is not None and low >= 0:
                return a if which == "max" else b
            if high is not None and high <= 0:
                return b if which == "max" else a
        case Apply("floormod" | "floordiv" as which, (a, Const(n)), _) if a.type is I64 and n > 0:
            low, high = affine(a).bounds(index_bounds)
            if low is not None and high is not None and low // n == high // n:
                return (
                    Const(low // n, I64)
                    if which == "floordiv"
                    else affine(a).plus(-(low // n) * n).expression()
                )
        case Apply("add" | "sub", _, _) if e.type is I64:
            form = affine(e)
            if all(isinstance(atom, Index) for atom, _ in form.terms.values()):
                return form.expression()
    return e


def _difference(a: Expr, b: Expr) -> Bounds:
    return (affine(a) - affine(b)).bounds(index_bounds)


def _comparison(e: Apply, difference: Bounds) -> Expr:
    """Simplify the comparison of two numbers, given the bounds of their difference."""
    low, high = difference
    below = high is not None and high < 0
    above = low is not None and low > 0
    at_most = high is not None and high <= 0
    at_least = low is not None and low >= 0
    true, false = {
        "lt": (below, at_least),
        "le": (at_most, above),
        "gt": (above, at_most),
        "ge": (at_least, below),
        "eq": (low == high == 0, below or above),
        "ne": (below or above, low == high == 0),
    }[e.function]
    if true:
        return Const(True, I1)
    if false:
        return Const(False, I1)
    return e


def recombine(form: Affine) -> Affine:
    """The form with quotients and remainders of one number, by one divisor, put together to that
    number, which is an atom.
    """
    for atom, factor in form.terms.values():
        match atom:
            case Apply("floormod", (x, Const() | Extent() as divisor), _):
                rest = form.without(atom)
                for quotient, whole in _wholes(rest, x, divisor):
                    left = rest - affine(quotient * divisor) * factor
                    if len(left.terms) < len(rest.terms):
                        return recombine(Affine({key(whole): (whole, factor)}) + left)
    return form


def _wholes(form: Affine, x: Expr, divisor: Const | Extent) -> Iterator[tuple[Expr, Expr]]:
    """The remaining quotient of x, and the number that it forms with the remainder: x, or a
    remainder of x.
    """
    quotient = apply("floordiv", x, divisor)
    yield quotient, x
    extent = divisor.value if isinstance(divisor, Const) else divisor.size
    for atom, _ in form.terms.values():
        part = atom.operands[0] if isinstance(atom, Apply) and atom.function == "mul" else atom
        match part:
            case Apply("floormod", (again, Const(n)), _) if key(again) == key(quotient):
                yield part, x % as_index(extent * n)


def linear_index(at: tuple[Expr, ...], shape: Shape) -> Expr:
    """The specification's flatten_index (MLIR's affine.linearize_index); (t // 3) * 3 + t % 3 is
    t.
    """
    position: Expr = ZERO
    for i, n in zip(at, shape, strict=True):
        position = position * n + i
        form = affine(position)
        whole = recombine(form)
        position = position if whole is form else whole.expression()
    return position
