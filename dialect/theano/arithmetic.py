"""Scalar operations that every IEEE machine computes alike: arithmetic, order, bits, choices, rounding and conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dali.arithmetic import integer_power
from ..index import Check, Expr, apply, cast, constant, select
from ..scalars import SCALARS
from ..types import F64, I1, UI8, UI64, ElementType
from . import complex_numbers as c
from .rules import RULES, Rule, part, upcast
from .scalar_op import SCALAR_OPS, ScalarOp, row

BY_ZERO = "integer division by zero"


def _zeros(g: Any, *_: Any) -> tuple[None, ...]:
    return (None,) * 3


def _or(function: str, on_bool: str) -> Any:
    """A scalar function, of i1 another one."""
    return lambda x, *rest: apply(on_bool if x.type is I1 else function, x, *rest)


def _nary(function: str, on_bool: str) -> Any:
    binary = _or(function, on_bool)

    def formula(first: Expr, *rest: Expr) -> Expr:
        for x in rest:
            first = binary(first, x)
        return first

    return formula


def _fold(ufunc: Any) -> Any:
    def numpy(first: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        for x in rest:
            first = ufunc(first, x)
        return first

    return numpy


def product(x: Any, y: Any) -> np.ndarray:
    """x y, each product and difference of the parts of complex numbers rounded by itself."""
    if x.dtype.kind != "c":
        return np.multiply(x, y)
    return SCALARS["complex"].numpy(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


def _others(g: Any, xs: Any) -> list[Any]:
    """g times the product of all but one, for each."""
    found = []
    for n in range(len(xs)):
        term = g
        for x in (*xs[:n], *xs[n + 1 :]):
            term = term * x
        found.append(term)
    return found


row("add", None, "upcast", _fold(np.add), _nary("add", "or"), "x + y + ...", on_complex="same", fold="add",
    gradient=lambda g, xs, y: (g,) * len(xs))  # fmt: skip
row("mul", None, "upcast", _fold(product), _nary("mul", "and"), "x y ...", on_complex="same", fold="mul",
    gradient=lambda g, xs, y: _others(g, xs))  # fmt: skip
row("sub", 2, "difference", np.subtract, lambda x, y: x - y, "x - y", on_complex="same", gradient=lambda g, xs, y: (g, -g))


# Quotients


def _some_zero(x: np.ndarray, y: np.ndarray) -> str | None:
    return BY_ZERO if y.dtype.kind in "biu" and (y == 0).any() else None


def _guarded(y: Expr) -> Expr:
    return select(y.eq(0), 1, y)


def _divide(x: Expr, y: Expr) -> Expr:
    if x.type.kind != "complex":
        return x / y
    real = part(x.type)
    z = c.Z(apply("real", x), apply("imag", x)) / c.Z(apply("real", y), apply("imag", y))
    return apply("complex", cast(z.re, real), cast(z.im, real))


def _int_div(x: Expr, y: Expr) -> Expr:
    if x.type is I1:
        return cast(_int_div(cast(x, UI8), cast(y, UI8)), I1)
    if x.type.kind != "float":
        return Check(y.ne(0), apply("floordiv", x, _guarded(y)), BY_ZERO)
    r = apply("rem", x, y)
    crossed = r.ne(0) & ((y < 0.0) ^ (r < 0.0))
    quotient = (x - r) / y
    quotient = select(crossed, quotient - 1.0, quotient)
    whole = apply("floor", quotient)
    whole = select((quotient - whole) > 0.5, whole + 1.0, whole)
    return select(y.eq(0), x / y, select(quotient.eq(0), (x / y) * 0.0, whole))


def _mod(x: Expr, y: Expr) -> Expr:
    if x.type is I1:
        return cast(_mod(cast(x, UI8), cast(y, UI8)), I1)
    if x.type.kind != "float":
        return Check(y.ne(0), apply("floormod", x, _guarded(y)), BY_ZERO)
    r = apply("rem", x, y)
    return select(r.ne(0) & ((y < 0.0) ^ (r < 0.0)), r + y, select(r.eq(0), select(y < 0.0, -(r * r), r * r), r))


def _integers(ufunc: Any) -> Any:
    """The function of integers, i1 being taken as ui8."""
    return lambda x, y: ufunc(x.astype(np.uint8), y.astype(np.uint8)) if x.dtype == bool else ufunc(x, y)


row("true_div", 2, "quotient", np.true_divide, _divide, "x / y as floats", on_complex="same",
    gradient=lambda g, xs, y: (g / xs[1], -(g * y) / xs[1]))  # fmt: skip
row("int_div", 2, "upcast real", _integers(np.floor_divide), _int_div, "the quotient rounded toward minus infinity", check=_some_zero, gradient=_zeros)
row("mod", 2, "upcast real", _integers(np.remainder), _mod, "the remainder with the sign of y", check=_some_zero,
    gradient=lambda g, xs, y: (g, -(xs[0].scalar("int_div", xs[1])) * g))  # fmt: skip
row("inv", 1, "float", lambda x: 1 / x, lambda x: 1.0 / x, "1 / x", on_complex=c.inv, gradient=lambda g, xs, y: (-(g * y * y),))


# Powers


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "fc":
        return SCALARS["pow"].numpy(x, y) if x.dtype.kind == "f" else _complex_power(x, y)
    modulus = 1 << (x.dtype.itemsize * 8)
    found = np.frompyfunc(lambda a, n: pow(int(a), int(n), modulus) if n >= 0 else 0, 2, 1)(x, y)
    return np.asarray(found, object).astype(np.uint64).astype(x.dtype)


def _complex_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    wide, exponent = x.astype(np.clongdouble), y.astype(np.clongdouble)
    found = np.where(x == 0, np.where(exponent.real > 0, 0, np.nan), np.exp(exponent * np.log(np.where(x == 0, 1, wide))))
    return np.where(y == 0, 1, found).astype(x.dtype)


def _power_gradient(g: Any, xs: Any, y: Any) -> tuple[Any, Any]:
    base, exponent = xs[0], xs[1].cast(y.element)
    to_base = g * exponent * base.scalar("pow", exponent - 1)
    return to_base, (base.scalar("eq", 0)).scalar("switch", 0, g * base.scalar("log") * y)


row("pow", 2, "power", _power, lambda x, y: apply("pow", x, y) if x.type.kind == "float" else integer_power(x, y),
    "x to the power of y: modulo 2^width for integers, 0 where y is negative", on_complex=c.power, gradient=_power_gradient)  # fmt: skip
row("sqr", 1, "same", lambda x: product(x, x), lambda x: _or("mul", "and")(x, x), "x x", on_complex="same", gradient=lambda g, xs, y: (g * xs[0] * 2,))
row("sqrt", 1, "float", np.sqrt, lambda x: apply("sqrt", x), "the square root, NaN of negative numbers", on_complex=c.sqrt,
    gradient=lambda g, xs, y: (g * 0.5 / y,))  # fmt: skip


# Signs and rounding


def _sgn(x: Expr) -> Expr:
    one, zero = constant(1, x.type), constant(0, x.type)
    if x.type.kind == "uint":
        return select(x.ne(0), one, zero)
    return select(x > zero, one, select(x < zero, -one, x if x.type.kind == "float" else zero))


def _away(x: Any) -> Any:
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0).astype(x.dtype)


def _half_away(x: Expr) -> Expr:
    whole = apply("trunc", x)
    rest = x - whole
    return select(rest >= 0.5, whole + 1.0, select(rest <= -0.5, whole - 1.0, whole))


def _absolute(x: Expr) -> Expr:
    return x if x.type.kind in ("bool", "uint") else apply("abs", x)


row("neg", 1, "same, not bool", np.negative, lambda x: -x, "-x", on_complex="same", gradient=lambda g, xs, y: (-g,))
row("abs_", 1, "part", np.abs, _absolute, "|x|, of a complex number its magnitude", on_complex=c.absolute,
    gradient=lambda g, xs, y: (g * xs[0].scalar("sgn"),))  # fmt: skip
row("sgn", 1, "sign", lambda x: np.where(x == 0, x, np.sign(x)), _sgn, "1, -1 or x itself where it is 0 or NaN", gradient=_zeros)
for _name, _exact, _function in (("ceil", np.ceil, "ceil"), ("floor", np.floor, "floor"), ("trunc", np.trunc, "trunc")):
    row(_name, 1, "float real", _exact, lambda x, f=_function: apply(f, x), f"{_name} of x, as a float", gradient=_zeros)
row("round_half_to_even", 1, "rounding", np.rint, lambda x: apply("rint", x), "the nearest integer, halves to even", gradient=_zeros)
row("round_half_away_from_zero", 1, "rounding", _away, _half_away, "the nearest integer, halves away from 0", gradient=_zeros)


# Order


def _extreme(name: str, on_bool: str) -> Any:
    integers = "max" if name == "maximum" else "min"

    def formula(x: Expr, y: Expr) -> Expr:
        return apply(on_bool if x.type is I1 else name if x.type.kind == "float" else integers, x, y)

    return formula


def _first_of_two(g: Any, xs: Any, y: Any) -> tuple[Any, Any]:
    first = y.scalar("eq", xs[0])
    return first.scalar("switch", g, 0), first.scalar("switch", 0, g)


row("maximum", 2, "upcast", lambda x, y: SCALARS["maximum"].numpy(x, y) if x.dtype.kind == "f" else np.maximum(x, y), _extreme("maximum", "or"),
    "the larger one; NaN if one is", on_complex=c.maximum, gradient=_first_of_two, fold="maximum")  # fmt: skip
row("minimum", 2, "upcast", lambda x, y: SCALARS["minimum"].numpy(x, y) if x.dtype.kind == "f" else np.minimum(x, y), _extreme("minimum", "and"),
    "the smaller one; NaN if one is", on_complex=c.minimum, gradient=_first_of_two, fold="minimum")  # fmt: skip


def _compared(name: str) -> Any:
    """A comparison, exact between integers of any signedness."""

    def formula(x: Expr, y: Expr) -> Expr:
        common = upcast(x.type, y.type)
        if common is not F64 or UI64 not in (x.type, y.type) or not (x.type.is_integer and y.type.is_integer):
            return apply(name, cast(x, common), cast(y, common))
        signed = x if x.type.signed else y  # a negative one is below every ui64, as it is below 0
        below = [o if o is signed else constant(0, signed.type) for o in (x, y)]
        return select(signed < 0, apply(name, *below), apply(name, cast(x, UI64), cast(y, UI64)))

    return formula


def _comparison(ufunc: Any) -> Any:
    return lambda x, y: ufunc(x, y) if "c" in (x.dtype.kind, y.dtype.kind) or x.dtype.kind == y.dtype.kind else ufunc(*_exact_pair(x, y))


def _exact_pair(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    if "f" in (x.dtype.kind, y.dtype.kind):
        common = np.promote_types(x.dtype, y.dtype)
        return x.astype(common), y.astype(common)
    return x.astype(object), y.astype(object)  # Python's integers


_COMPARISONS: tuple[tuple[str, str, Any, Any], ...] = (
    ("eq", "eq", np.equal, lambda a, b: a.re.eq(b.re) & a.im.eq(b.im)),
    ("neq", "ne", np.not_equal, lambda a, b: a.re.ne(b.re) | a.im.ne(b.im)),
    ("lt", "lt", np.less, c.less),
    ("le", "le", np.less_equal, c.less_equal),
    ("gt", "gt", np.greater, lambda a, b: c.less(b, a)),
    ("ge", "ge", np.greater_equal, lambda a, b: c.less_equal(b, a)),
)
for _name, _function, _ufunc, _parts in _COMPARISONS:
    row(_name, 2, "comparison", _comparison(_ufunc), _compared(_function), f"x {SCALARS[_function].symbol} y, an i1; complex numbers by their parts",
        on_complex=_parts, gradient=_zeros)  # fmt: skip


def _only_floats(function: Any) -> Any:
    return lambda x: function(x) if x.type.kind == "float" else constant(False, I1)


row("isnan", 1, "predicate", np.isnan, _only_floats(lambda x: x.ne(x)), "whether x is NaN", on_complex=c.is_nan, gradient=_zeros)
row("isinf", 1, "predicate", np.isinf, _only_floats(lambda x: apply("abs", x).eq(np.inf)), "whether x is infinite", on_complex=c.is_inf, gradient=_zeros)


def _within(low: Any, high: Any) -> Any:
    def formula(x: Expr, a: Expr, b: Expr) -> Expr:
        return apply(low, x, a) & apply(high, x, b)

    return formula


row("inclosedrange", 3, "range", lambda x, a, b: (x >= a) & (x <= b), _within("ge", "le"), "whether a <= x <= b, as an i8", gradient=_zeros)
row("inopenrange", 3, "range", lambda x, a, b: (x > a) & (x < b), _within("gt", "lt"), "whether a < x < b, as an i8", gradient=_zeros)


# Bits

for _name, _function, _ufunc in (("and_", "and", np.bitwise_and), ("or_", "or", np.bitwise_or), ("xor", "xor", np.bitwise_xor)):
    row(_name, 2, "bits", _ufunc, lambda x, y, f=_function: apply(f, x, y), f"the bits of x {_function} y", fold=_function, gradient=_zeros)
row("invert", 1, "bits", np.invert, lambda x: ~x, "the bits not set in x", gradient=_zeros)


# Choices and conversions


def _clip(x: Expr, low: Expr, high: Expr) -> Expr:
    if x.type is I1:
        return cast(_clip(cast(x, UI8), cast(low, UI8), cast(high, UI8)), I1)
    return select(x < low, low, select(x > high, high, x))


def _clip_gradient(g: Any, xs: Any, y: Any) -> tuple[Any, Any, Any]:
    x, low, high = xs
    below, above = x.scalar("lt", low), x.scalar("gt", high)
    outside = below.scalar("or_", above)
    return outside.scalar("switch", 0, g), below.scalar("switch", g, 0), above.scalar("switch", g, 0)


row("identity", 1, "same", np.asarray, lambda x: x, "x", on_complex="same", gradient=lambda g, xs, y: (g,))
row("second", 2, "second", lambda x, y: y, lambda x, y: y, "y, in the shape of both", on_complex="same", gradient=lambda g, xs, y: (None, g))
row("switch", 3, "switch", lambda x, a, b: np.where(x != 0, a, b), lambda x, a, b: select(x.ne(0) if x.type is not I1 else x, a, b),
    "a where x is not 0, else b", on_complex="same",
    gradient=lambda g, xs, y: (None, xs[0].scalar("switch", g, 0), xs[0].scalar("switch", 0, g)))  # fmt: skip
row("clip", 3, "upcast real", lambda x, a, b: np.where(x < a, a, np.where(x > b, b, x)), _clip, "a where x < a, else b where x > b, else x",
    gradient=_clip_gradient)  # fmt: skip


def _without_zeros(x: Expr, y: Expr) -> Expr:
    return select(x.eq(0), y, select(y.eq(0), x, _or("mul", "and")(x, y)))


row("mul_without_zeros", 2, "upcast", lambda x, y: np.where(x == 0, y, np.where(y == 0, x, product(x, y))), _without_zeros,
    "y where x is 0, x where y is 0, else x y", on_complex="same", fold="mul_without_zeros",
    gradient=lambda g, xs, y: tuple(a.scalar("eq", 0).scalar("switch", 0, b.scalar("eq", 0).scalar("switch", g, g * b)) for a, b in (xs, xs[::-1])))  # fmt: skip


# Parts of complex numbers


def _part(name: str) -> Any:
    def formula(x: Expr) -> Expr:
        return apply(name, x) if x.type.kind == "complex" else x if name == "real" else constant(0, x.type)

    return formula


row("real", 1, "part", np.real, _part("real"), "the real part", on_complex="same", gradient=lambda g, xs, y: (g,))
row("imag", 1, "part", np.imag, _part("imag"), "the imaginary part", on_complex="same", gradient=_zeros)
row("conj", 1, "conjugate", np.conjugate, lambda x: x if x.type.kind != "complex" else apply("complex", apply("real", x), -apply("imag", x)),
    "the complex conjugate", on_complex="same", gradient=lambda g, xs, y: (g,))  # fmt: skip
row("complex", 2, "complex", SCALARS["complex"].numpy, lambda x, y: apply("complex", x, y), "x + i y",
    gradient=lambda g, xs, y: (g.scalar("real"), g.scalar("imag")))  # fmt: skip


# Casts: one operation for each element type, its rule made from the attribute `dtype`


def cast_to(element: ElementType) -> ScalarOp:
    """The conversion to an element type; from a complex one only to complex ones."""

    def takes(x: ElementType) -> bool:
        return x.kind != "complex" or element.kind == "complex"

    rule = Rule("a real element type, or dtype complex: use real, imag, angle or abs_", lambda x: element, takes, lambda e, r: e)
    return ScalarOp("cast", 1, rule, np.asarray, lambda x: x, "x in the element type dtype", "same", lambda g, xs, y: (g,))


SCALAR_OPS["cast"] = ScalarOp("cast", 1, RULES["same"], np.asarray, lambda x: x, "x in the element type dtype", "same", lambda g, xs, y: (g,))
