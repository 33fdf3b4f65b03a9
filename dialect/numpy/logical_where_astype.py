"""Functions that choose, test and convert elements: logical ufuncs, maxima that ignore NaN, `where`
and `astype`.
"""

from typing import Any

import numpy as np

from ..kernel_ir.expressions import Check, Expr, apply, cast, constant, select
from ..theano.complex_arithmetic import INF, choose, is_nan, less_equal
from ..types.tensor_types import I1, ElementType, promoted
from .astype_formula import arrays_like_numpy, cast_like_numpy
from .ufunc_table import UFUNCS, Ufunc, complex_or, row

DOES_NOT_FIT = "a Python integer is out of the range of the other operand's element type"


def _ignoring_nan(function: str) -> Any:
    """The larger or smaller operand; of floats the one that is not NaN."""

    def formula(x: Expr, y: Expr) -> Expr:
        if x.type.kind == "bool":
            return x | y if function == "maximum" else x & y
        if x.type.kind != "float":
            return apply("max" if function == "maximum" else "min", x, y)
        return select(x.ne(x), y, select(y.ne(y), x, apply(function, x, y)))

    return formula


def _heaviside(x: Expr, at_zero: Expr) -> Expr:
    one, zero = constant(1.0, x.type), constant(0.0, x.type)
    return select(x > zero, one, select(x < zero, zero, select(x.eq(zero), at_zero, x)))


_fmax = complex_or(
    _ignoring_nan("maximum"), lambda a, b: choose(less_equal(b, a) | is_nan(b), a, b)
)
_fmin = complex_or(
    _ignoring_nan("minimum"), lambda a, b: choose(less_equal(a, b) | is_nan(b), a, b)
)
row("fmax", _fmax, gradient="maximum", takes_complex=True)
row("fmin", _fmin, gradient="minimum", takes_complex=True)
row("heaviside", _heaviside)
for _name, _function in (
    ("logical_and", "and"),
    ("logical_or", "or"),
    ("logical_xor", "xor"),
    ("logical_not", "not"),
):
    row(_name, lambda *xs, f=_function: apply(f, *(cast(x, I1) for x in xs)), takes_complex=True)


def _is_finite(x: Expr) -> Expr:
    return apply("abs", x) < INF if x.type.kind == "float" else constant(True, I1)


row(
    "isfinite",
    complex_or(_is_finite, lambda z: _is_finite(z.re) & _is_finite(z.im)),
    takes_complex=True,
)


def _chosen(c: ElementType, x: ElementType, y: ElementType) -> tuple[ElementType, ...] | None:
    return I1, *[promoted(x, y)] * 3


UFUNCS["where"] = Ufunc(
    "where",
    3,
    np.where,
    select,
    types=_chosen,
    takes_complex=True,
    keeps_f16=True,
    gradient="switch",
)


def astype(element: ElementType) -> Ufunc:
    """The conversion to an element type."""
    return Ufunc(
        "astype",
        1,
        lambda x: arrays_like_numpy(x, element),
        lambda x: cast_like_numpy(x, element),
        types=lambda x: (x, element),
        takes_complex=True,
        keeps_f16=True,
    )


def in_range(element: ElementType) -> Ufunc:
    """The conversion of a Python integer, which must be in the range of an integer element type
    (NEP 50).
    """
    if not element.is_integer:
        return astype(element)
    low, high = element.limits

    def numpy(x: Any) -> np.ndarray:
        if ((x < low) | (x > high)).any():
            raise OverflowError(DOES_NOT_FIT)
        return np.asarray(x).astype(element.dtype)

    def formula(x: Expr) -> Expr:
        inside = (x >= max(low, x.type.limits[0])) & (x <= min(high, x.type.limits[1]))
        return Check(inside, cast(x, element), DOES_NOT_FIT)

    return Ufunc("in_range", 1, numpy, formula, types=lambda x: (x, element))
