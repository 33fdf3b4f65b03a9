"""Scalar operations that every IEEE machine computes alike: sums, products, quotients, powers,
signs and rounding.
"""

from collections.abc import Callable
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..kernel_ir.expressions import (
    BY_ZERO,
    Expr,
    apply,
    cast,
    constant,
    divide_integers,
    integer_power,
    select,
)
from ..kernel_ir.scalar_functions import SCALARS
from ..types.tensor_types import I1, UI8
from . import complex_arithmetic as c, complex_functions
from .scalar_op import ByParts, Numpy, row
from .type_rules import part

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


def zeros(*_: object) -> tuple[None, ...]:
    return (None,) * 3


def by_kind(function: str, on_bool: str) -> Callable[..., Expr]:
    """A scalar function, of i1 another one."""
    return lambda x, *rest: apply(on_bool if x.type is I1 else function, x, *rest)


def _fold(binary: Any) -> Any:
    return lambda *xs: reduce(binary, xs)


def product(x: npt.NDArray[np.number], y: npt.NDArray[np.number]) -> np.ndarray:
    """x y, each product and difference of the parts of complex numbers rounded by itself."""
    if x.dtype.kind != "c":
        return np.multiply(x, y)
    return SCALARS["complex"].numpy(
        x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real
    )


def _others(g: "Node", xs: "Nodes") -> "list[Node]":
    """g times the product of all but one, for each."""
    return [reduce(mul, (*xs[:n], *xs[n + 1 :]), g) for n in range(len(xs))]


row(
    "add",
    None,
    "upcast",
    _fold(np.add),
    _fold(by_kind("add", "or")),
    "x + y + ...",
    on_complex="same",
    reduction="add",
    gradient=lambda g, xs, y: (g,) * len(xs),
)
row(
    "mul",
    None,
    "upcast",
    _fold(product),
    _fold(by_kind("mul", "and")),
    "x y ...",
    on_complex="same",
    reduction="mul",
    gradient=lambda g, xs, y: _others(g, xs),
)
row(
    "sub",
    2,
    "difference",
    np.subtract,
    lambda x, y: x - y,
    "x - y",
    on_complex="same",
    gradient=lambda g, xs, y: (g, -g),
)


# Quotients


def _some_zero(x: np.ndarray, y: np.ndarray) -> str | None:
    return BY_ZERO if y.dtype.kind in "biu" and (y == 0).any() else None


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
        return divide_integers("floordiv", x, y)
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
        return divide_integers("floormod", x, y)
    r = apply("rem", x, y)
    return select(
        r.ne(0) & ((y < 0.0) ^ (r < 0.0)),
        r + y,
        select(r.eq(0), select(y < 0.0, -(r * r), r * r), r),
    )


def _integers(ufunc: np.ufunc) -> Numpy:
    """The function of integers, i1 being taken as ui8."""
    return lambda x, y: (
        ufunc(x.astype(np.uint8), y.astype(np.uint8)) if x.dtype == bool else ufunc(x, y)
    )


row(
    "true_div",
    2,
    "quotient",
    np.true_divide,
    _divide,
    "x / y as floats",
    on_complex="same",
    gradient=lambda g, xs, y: (g / xs[1], -(g * y) / xs[1]),
)
for _name in ("int_div", "floor_div"):  # Theano has both names
    row(
        _name,
        2,
        "upcast real",
        _integers(np.floor_divide),
        _int_div,
        "the quotient rounded toward minus infinity",
        check=_some_zero,
        gradient=zeros,
    )
row(
    "mod",
    2,
    "upcast real",
    _integers(np.remainder),
    _mod,
    "the remainder with the sign of y",
    check=_some_zero,
    gradient=lambda g, xs, y: (g, -(xs[0].scalar("int_div", xs[1])) * g),
)
row(
    "inv",
    1,
    "float",
    lambda x: 1 / x,
    lambda x: _divide(constant(1, x.type), x),
    "1 / x",
    on_complex="same",
    gradient=lambda g, xs, y: (-(g * y * y),),
)


# Powers


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "fc":
        return SCALARS["pow"].numpy(x, y) if x.dtype.kind == "f" else _complex_power(x, y)
    modulus = 1 << (x.dtype.itemsize * 8)
    powers = np.frompyfunc(lambda a, n: pow(int(a), int(n), modulus) if n >= 0 else 0, 2, 1)(x, y)
    return np.asarray(powers, object).astype(np.uint64).astype(x.dtype)


def _complex_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    wide, power = x.astype(np.clongdouble), y.astype(np.clongdouble)
    powers = np.where(
        x == 0,
        np.where(power.real > 0, 0, np.nan),
        np.exp(power * np.log(np.where(x == 0, 1, wide))),
    )
    return np.where(y == 0, 1, powers).astype(x.dtype)


def _power_gradient(g: "Node", xs: "Nodes", y: "Node") -> "Cotangents":
    base, exponent = (x.cast(y.element) for x in xs)
    to_base = g * exponent * base.scalar("pow", exponent - 1)
    return to_base, (base.scalar("eq", 0)).scalar("switch", 0, g * base.scalar("log") * y)


row(
    "pow",
    2,
    "power",
    _power,
    lambda x, y: apply("pow", x, y) if x.type.kind == "float" else integer_power(x, y),
    "x to the power of y: modulo 2^width for integers, 0 where y is negative",
    on_complex=complex_functions.power,
    gradient=_power_gradient,
)
row(
    "sqr",
    1,
    "same",
    lambda x: product(x, x),
    lambda x: by_kind("mul", "and")(x, x),
    "x x",
    on_complex="same",
    gradient=lambda g, xs, y: (g * xs[0] * 2,),
)
row(
    "sqrt",
    1,
    "float",
    np.sqrt,
    lambda x: apply("sqrt", x),
    "the square root, NaN of negative numbers",
    on_complex=complex_functions.sqrt,
    gradient=lambda g, xs, y: (g * 0.5 / y,),
)


row(
    "stop_gradient",
    1,
    "same",
    lambda x: x,
    lambda x: x,
    "x, of which derivatives are 0",
    on_complex="same",
    gradient=zeros,
)


# Signs and rounding


def _sgn(x: Expr) -> Expr:
    one, zero = constant(1, x.type), constant(0, x.type)
    if x.type.kind == "uint":
        return select(x.ne(0), one, zero)
    return select(x > zero, one, select(x < zero, -one, x if x.type.kind == "float" else zero))


def _away(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole).astype(x.dtype)


def _half_away(x: Expr) -> Expr:
    whole = apply("trunc", x)
    rest = x - whole
    return select(rest >= 0.5, whole + 1.0, select(rest <= -0.5, whole - 1.0, whole))


def _direction(x: Any, magnitude: Any) -> Any:
    return x / magnitude.scalar("eq", 0).scalar("switch", 1, magnitude)


row(
    "neg",
    1,
    "same, not bool",
    np.negative,
    lambda x: -x,
    "-x",
    on_complex="same",
    gradient=lambda g, xs, y: (-g,),
)
row(
    "abs_",
    1,
    "part",
    np.abs,
    lambda x: x if x.type.kind in ("bool", "uint") else apply("abs", x),
    "|x|, of a complex number its magnitude",
    on_complex=c.absolute,
    gradient=lambda g, xs, y: (g * xs[0].scalar("sgn"),),
    by_parts=ByParts(
        lambda g, xs, y: (g * _direction(xs[0], y),),
        lambda ts, xs, y: (ts[0] * _direction(xs[0], y).scalar("conj")).scalar("real"),
    ),
)
row(
    "sgn",
    1,
    "sign",
    lambda x: np.where(x == 0, x, np.sign(x)),
    _sgn,
    "1, -1 or x itself where it is 0 or NaN",
    gradient=zeros,
)
for _name, _exact, _function in (
    ("ceil", np.ceil, "ceil"),
    ("floor", np.floor, "floor"),
    ("trunc", np.trunc, "trunc"),
):
    row(
        _name,
        1,
        "float real",
        _exact,
        lambda x, f=_function: apply(f, x),
        f"{_name} of x, as a float",
        gradient=zeros,
    )
row(
    "round_half_to_even",
    1,
    "rounding",
    np.rint,
    lambda x: apply("rint", x),
    "the nearest integer, halves to even",
    gradient=zeros,
)
row(
    "round_half_away_from_zero",
    1,
    "rounding",
    _away,
    _half_away,
    "the nearest integer, halves away from 0",
    gradient=zeros,
)
