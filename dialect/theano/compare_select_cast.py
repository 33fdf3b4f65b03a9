"""Scalar operations that choose, compare, take bits and parts, and convert."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..kernel_ir.expressions import Expr, apply, cast, compare, constant, select
from ..kernel_ir.scalar_functions import SCALARS
from ..types.tensor_types import I1, UI8, ElementType
from . import complex_arithmetic as c
from .arithmetic import by_kind, product, zeros
from .scalar_op import SCALAR_OPS, ByParts, Numpy, OnComplex, ScalarOp, row
from .type_rules import TypeRule, upcast

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes, Tangents

# Order


def _extreme(name: str, on_bool: str) -> Callable[[Expr, Expr], Expr]:
    integers = "max" if name == "maximum" else "min"

    def extreme(x: Expr, y: Expr) -> Expr:
        if x.type is I1:
            return apply(on_bool, x, y)
        return apply(name if x.type.kind == "float" else integers, x, y)

    return extreme


def _first_of_two(g: "Node", xs: "Nodes", y: "Node") -> "Cotangents":
    first = y.scalar("eq", xs[0])
    return first.scalar("switch", g, 0), first.scalar("switch", 0, g)


row(
    "maximum",
    2,
    "upcast",
    lambda x, y: SCALARS["maximum"].numpy(x, y) if x.dtype.kind == "f" else np.maximum(x, y),
    _extreme("maximum", "or"),
    "the larger one; NaN if one is",
    on_complex=c.maximum,
    gradient=_first_of_two,
    reduction="maximum",
)
row(
    "minimum",
    2,
    "upcast",
    lambda x, y: SCALARS["minimum"].numpy(x, y) if x.dtype.kind == "f" else np.minimum(x, y),
    _extreme("minimum", "and"),
    "the smaller one; NaN if one is",
    on_complex=c.minimum,
    gradient=_first_of_two,
    reduction="minimum",
)


def _comparison(ufunc: np.ufunc) -> Numpy:
    return lambda x, y: (
        ufunc(x, y)
        if "c" in (x.dtype.kind, y.dtype.kind) or x.dtype.kind == y.dtype.kind
        else ufunc(*_exact_pair(x, y))
    )


def _exact_pair(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    if "f" in (x.dtype.kind, y.dtype.kind):
        common = np.promote_types(x.dtype, y.dtype)
        return x.astype(common), y.astype(common)
    return x.astype(object), y.astype(object)  # Python's integers


_COMPARISONS: tuple[tuple[str, str, np.ufunc, OnComplex], ...] = (
    ("eq", "eq", np.equal, lambda a, b: a.re.eq(b.re) & a.im.eq(b.im)),
    ("neq", "ne", np.not_equal, lambda a, b: a.re.ne(b.re) | a.im.ne(b.im)),
    ("lt", "lt", np.less, c.less),
    ("le", "le", np.less_equal, c.less_equal),
    ("gt", "gt", np.greater, lambda a, b: c.less(b, a)),
    ("ge", "ge", np.greater_equal, lambda a, b: c.less_equal(b, a)),
)
for _name, _function, _ufunc, _parts in _COMPARISONS:
    row(
        _name,
        2,
        "comparison",
        _comparison(_ufunc),
        lambda x, y, f=_function: compare(f, x, y, upcast(x.type, y.type)),
        f"x {SCALARS[_function].symbol} y, an i1; complex numbers by their parts",
        on_complex=_parts,
        gradient=zeros,
    )


def _only_floats(function: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    return lambda x: function(x) if x.type.kind == "float" else constant(False, I1)


row(
    "isnan",
    1,
    "predicate",
    np.isnan,
    _only_floats(lambda x: x.ne(x)),
    "whether x is NaN",
    on_complex=c.is_nan,
    gradient=zeros,
)
row(
    "isinf",
    1,
    "predicate",
    np.isinf,
    _only_floats(lambda x: apply("abs", x).eq(np.inf)),
    "whether x is infinite",
    on_complex=c.is_inf,
    gradient=zeros,
)


def _within(low: str, high: str) -> Callable[[Expr, Expr, Expr], Expr]:
    return lambda x, a, b: apply(low, x, a) & apply(high, x, b)


row(
    "inclosedrange",
    3,
    "range",
    lambda x, a, b: (x >= a) & (x <= b),
    _within("ge", "le"),
    "whether a <= x <= b, as an i8",
    gradient=zeros,
)
row(
    "inopenrange",
    3,
    "range",
    lambda x, a, b: (x > a) & (x < b),
    _within("gt", "lt"),
    "whether a < x < b, as an i8",
    gradient=zeros,
)


# Bits

for _name in ("and_", "or_", "xor"):
    _function = _name.rstrip("_")
    row(
        _name,
        2,
        "bits",
        SCALARS[_function].numpy,
        lambda x, y, f=_function: apply(f, x, y),
        f"the bits of x {_function} y",
        reduction=_function,
        gradient=zeros,
    )
row("invert", 1, "bits", np.invert, lambda x: ~x, "the bits not set in x", gradient=zeros)


# Choices and conversions


def _clip(x: Expr, low: Expr, high: Expr) -> Expr:
    if x.type is I1:
        return cast(_clip(cast(x, UI8), cast(low, UI8), cast(high, UI8)), I1)
    return select(x < low, low, select(x > high, high, x))


def _clip_gradient(g: "Node", xs: "Nodes", y: "Node") -> "Cotangents":
    x, low, high = xs
    below, above = x.scalar("lt", low), x.scalar("gt", high)
    return (
        below.scalar("or_", above).scalar("switch", 0, g),
        below.scalar("switch", g, 0),
        above.scalar("switch", g, 0),
    )


row(
    "identity",
    1,
    "same",
    np.asarray,
    lambda x: x,
    "x",
    on_complex="same",
    gradient=lambda g, xs, y: (g,),
)
row(
    "second",
    2,
    "second",
    lambda x, y: y,
    lambda x, y: y,
    "y, in the shape of both",
    on_complex="same",
    gradient=lambda g, xs, y: (None, g),
)
row(
    "switch",
    3,
    "switch",
    lambda x, a, b: np.where(x != 0, a, b),
    lambda x, a, b: select(x.ne(0) if x.type is not I1 else x, a, b),
    "a where x is not 0, else b",
    on_complex="same",
    gradient=lambda g, xs, y: (None, xs[0].scalar("switch", g, 0), xs[0].scalar("switch", 0, g)),
)
row(
    "clip",
    3,
    "upcast real",
    lambda x, a, b: np.where(x < a, a, np.where(x > b, b, x)),
    _clip,
    "a where x < a, else b where x > b, else x",
    gradient=_clip_gradient,
)


row(
    "mul_without_zeros",
    2,
    "upcast",
    lambda x, y: np.where(x == 0, y, np.where(y == 0, x, product(x, y))),
    lambda x, y: select(x.eq(0), y, select(y.eq(0), x, by_kind("mul", "and")(x, y))),
    "y where x is 0, x where y is 0, else x y",
    on_complex="same",
    reduction="mul_without_zeros",
    gradient=lambda g, xs, y: tuple(
        a.scalar("eq", 0).scalar("switch", 0, b.scalar("eq", 0).scalar("switch", g, g * b))
        for a, b in (xs, xs[::-1])
    ),
)


# Parts of complex numbers


def _part(name: str) -> Callable[[Expr], Expr]:
    def part(x: Expr) -> Expr:
        if x.type.kind == "complex":
            return apply(name, x)
        return x if name == "real" else constant(0, x.type)

    return part


def _complex_tangent(tangents: "Tangents", xs: "Nodes", y: "Node") -> "Node":
    re, im = (
        x.scalar("second", 0.0) if t is None else t for t, x in zip(tangents, xs, strict=True)
    )
    return re.scalar("complex", im)


row(
    "real",
    1,
    "part",
    np.real,
    _part("real"),
    "the real part",
    on_complex="same",
    gradient=lambda g, xs, y: (g,),
    by_parts=ByParts(
        lambda g, xs, y: (g.scalar("complex", 0.0),), lambda ts, xs, y: ts[0].scalar("real")
    ),
)
row(
    "imag",
    1,
    "part",
    np.imag,
    _part("imag"),
    "the imaginary part",
    on_complex="same",
    gradient=zeros,
    by_parts=ByParts(
        lambda g, xs, y: ((g * 0.0).scalar("complex", g),), lambda ts, xs, y: ts[0].scalar("imag")
    ),
)
row(
    "conj",
    1,
    "conjugate",
    np.conjugate,
    lambda x: (
        x if x.type.kind != "complex" else apply("complex", apply("real", x), -apply("imag", x))
    ),
    "the complex conjugate",
    on_complex="same",
    gradient=lambda g, xs, y: (g,),
    by_parts=ByParts(lambda g, xs, y: (g.scalar("conj"),), lambda ts, xs, y: ts[0].scalar("conj")),
)
row(
    "complex",
    2,
    "complex",
    SCALARS["complex"].numpy,
    lambda x, y: apply("complex", x, y),
    "x + i y",
    gradient=zeros,
    by_parts=ByParts(lambda g, xs, y: (g.scalar("real"), g.scalar("imag")), _complex_tangent),
)


# Casts: one operation for each element type, its rule made from the attribute `dtype`


def cast_to(element: ElementType) -> ScalarOp:
    """The conversion to an element type; from a complex one only to complex ones."""
    wanted = "a real element type, or dtype complex: use real, imag, angle or abs_"
    rule = TypeRule(
        wanted,
        lambda x: element,
        lambda x: x.kind != "complex" or element.kind == "complex",
        lambda e, r: e,
    )
    return replace(SCALAR_OPS["cast"], rule=rule)


row(
    "cast",
    1,
    "same",
    np.asarray,
    lambda x: x,
    "x in the element type dtype",
    on_complex="same",
    gradient=lambda g, xs, y: (g,),
)
