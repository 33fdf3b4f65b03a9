"""log, log2, log10 and log1p: the argument is 2^e (1 + f), 1 + f in [sqrt 1/2, sqrt 2], and log(1 + f) a polynomial."""

from __future__ import annotations

from typing import NamedTuple

from ...dialect.index import Expr, Operand, constant, select
from ...dialect.types import F32, F64, ElementType
from .primitives import (
    BIAS,
    INFINITY,
    LEAST_NORMAL,
    LN2,
    MANTISSA,
    MANY,
    NAN,
    as_float,
    bits,
    bits_of_power,
    estrin,
    fma,
    outside,
    polynomial,
    rarely,
    shift_right,
    sign_of,
)

# f64: (log((1 + s) / (1 - s)) - 2 s) / s^3 in s^2, to 2^-59.5 of the logarithm
SERIES = (
    0.6666666666666734,
    0.399999999994166,
    0.2857142874204038,
    0.22222198603583637,
    0.18183562936299622,
    0.15314082482342675,
    0.1479565859684711,
)

SQRT_HALF = {F32: 0x3F3504F3, F64: 0x3FE6A09E667F3BCD}


class Base(NamedTuple):
    """Of a logarithm: log e; log 2 in two parts; and of f32, (log(1 + f) - f log e) / f^2 to 2^-24.7 of log(1 + f)."""

    e: dict[ElementType, float]
    two: dict[ElementType, tuple[float, float]]
    tail: tuple[float, ...]


NATURAL = Base(
    {F32: 1.0, F64: 1.0},
    LN2,
    (-0.4999999, 0.3333395, -0.25001794, 0.1996204, -0.16569684, 0.14917801, -0.14312717, 0.08740572),
)
BINARY = Base(
    {F32: 1.442695, F64: 1.4426950408889634},
    {F32: (1.0, 0.0), F64: (1.0, 0.0)},
    (-0.7213474, 0.48090908, -0.36070037, 0.2879487, -0.23901634, 0.21553318, -0.20681113, 0.1257371),
)
DECIMAL = Base(
    {F32: 0.4342945, F64: 0.4342944819032518},
    {F32: (0.30103, -1.4320989e-08), F64: (0.3010299956639812, -2.8037281277851704e-18)},
    (-0.21714722, 0.1447664, -0.10857999, 0.08672037, -0.07200054, 0.06460743, -0.06186006, 0.038042534),
)


class Split(NamedTuple):
    """A positive normal number as 2^exponent mantissa, and 2^-exponent."""

    mantissa: Expr
    exponent: Expr
    inverse: Expr


def split(x: Expr) -> Split:
    t = x.type
    width, bias, least = MANTISSA[t], BIAS[t], SQRT_HALF[t]
    k = bits(x) + (bits_of_power(0, t) - least)
    mantissa = as_float((k & ((1 << width) - 1)) + least)
    # an integer below 2^width becomes a float by being the low bits of 2^width
    exponent = as_float(shift_right(k, width) | bits_of_power(width, t)) - (2.0**width + bias)
    inverse = as_float((2 * bias << width) - (k & -(1 << width)))
    return Split(mantissa, exponent, inverse)


def split_any(x: Expr) -> Split:
    """The same of any positive finite number: subnormal ones are scaled first."""
    t = x.type
    tiny = x < LEAST_NORMAL[t]
    by = MANTISSA[t] + 2
    parts = split(select(tiny, x * 2.0**by, x))
    return Split(parts.mantissa, parts.exponent - select(tiny, constant(by, t), 0.0), parts.inverse)


def of_one_plus(f: Expr, base: Base, correction: Operand = 0.0) -> Expr:
    """log(1 + f) + correction"""
    square = f * f
    corrected = isinstance(correction, Expr)
    if f.type is F32:
        rest = polynomial(f, base.tail)
        if base is NATURAL and not corrected:
            return fma(square, rest, f)
        rest = fma(square, rest, correction) if corrected else square * rest
    else:
        s = f / (f + 2.0)
        z = s * s
        half = square * 0.5
        rest = fma(s, fma(z, estrin(z, SERIES), half), -half)
        if base is not NATURAL:
            rest = fma(rest, base.e[F64], correction) if corrected else rest * base.e[F64]
        elif corrected:
            rest = rest + correction
    return f + rest if base is NATURAL else fma(f, base.e[f.type], rest)


def product(e: Expr, f: Expr, base: Base, correction: Operand = 0.0) -> Expr:
    """log(2^e (1 + f)) + correction; log 2's second part is needed only for powers of ten to be exact."""
    high, low = base.two[e.type]
    if base is BINARY:
        return e + of_one_plus(f, base)
    return fma(e, high, of_one_plus(f, base, e * low if base is DECIMAL else correction))


def with_limits(x: Expr, pole: float, value: Expr) -> Expr:
    """The value of a logarithm, put right at infinity, at its pole and below it; NaN stays."""
    value = select(x < INFINITY, value, x)
    return select(x > pole, value, select(x.eq(pole), constant(-INFINITY, x.type), NAN))


def of_any(x: Expr, base: Base, doublings: float = 0.0) -> Expr:
    """log(2^doublings x), also where x is subnormal, not positive or not finite."""
    m, e, _ = split_any(x)
    return with_limits(x, 0.0, product(e + doublings if doublings else e, m - 1.0, base))


def _logarithm(x: Expr, base: Base) -> Expr:
    m, e, _ = split(x)
    unusual = outside(x, 1 - BIAS[x.type], BIAS[x.type] + 1)
    return rarely(unusual, of_any(x, base), product(e, m - 1.0, base))


def log(x: Expr) -> Expr:
    return _logarithm(x, NATURAL)


def log2(x: Expr) -> Expr:
    return _logarithm(x, BINARY)


def log10(x: Expr) -> Expr:
    return _logarithm(x, DECIMAL)


def log_of_one_plus(x: Expr, low: Operand = 0.0) -> Expr:
    """log(1 + x + low) for 1 + x in [2^-60, 2^60), |low| being at most an ulp of x."""
    _, e, inverse = split(x + 1.0)
    f = fma(x, inverse, inverse - 1.0)  # (1 + x) 2^-e - 1
    if isinstance(low, Expr):
        lost = fma(x, inverse, (inverse - 1.0) - f)  # what f was rounded by
        low = fma(low, inverse, lost) * fma(f, f - 1.0, 1.0)  # 1 / (1 + f), closely enough
    return product(e, f, NATURAL, low)


def log1p(x: Expr) -> Expr:
    beyond = outside(x + 1.0, -MANY, MANY)
    value = rarely(beyond, with_limits(x, -1.0, of_any(x, NATURAL)), log_of_one_plus(x))
    return as_float(bits(value) | sign_of(x))  # of -0
