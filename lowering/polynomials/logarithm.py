"""log, log2, log10 and log1p: the argument is 2^e (1 + f), 1 + f in [sqrt 1/2, sqrt 2], and log(1 + f) a polynomial."""

from __future__ import annotations

from typing import NamedTuple

from ...dialect.index import Expr, Operand, constant, select
from ...dialect.types import F32, F64
from .doubled import exact_product, ordered_sum
from .primitives import (
    BIAS,
    INFINITY,
    LEAST_NORMAL,
    LN2,
    MANTISSA,
    NAN,
    as_float,
    bits,
    estrin,
    fma,
    horner,
    shift_right,
)

LOG2_E = {F32: (1.442695, 1.925963e-08), F64: (1.4426950408889634, 2.0355273740931033e-17)}
LOG10_E = {F32: (0.4342945, -1.010305e-08), F64: (0.4342944819032518, 1.098319650216765e-17)}
LOG10_2 = {F32: (0.30103, -1.4320989e-08), F64: (0.3010299956639812, -2.8037281277851704e-18)}

# f32: (log(1 + f) - f + f^2 / 2) / f^3, to 2^-27.3 of log(1 + f)
CUBIC = (
    0.3333333,
    -0.25000823,
    0.2000126,
    -0.16623358,
    0.14201106,
    -0.13159414,
    0.1276527,
    -0.07640891,
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


class Split(NamedTuple):
    """A positive normal number as 2^exponent mantissa, and 2^-exponent."""

    mantissa: Expr
    exponent: Expr
    inverse: Expr


def split(x: Expr) -> Split:
    t = x.type
    width, bias, least = MANTISSA[t], BIAS[t], SQRT_HALF[t]
    k = bits(x) + ((bias << width) - least)
    mantissa = as_float((k & ((1 << width) - 1)) + least)
    # an integer below 2^width becomes a float by being the low bits of 2^width
    big = (width + bias) << width
    exponent = as_float(shift_right(k, width) | big) - (2.0**width + bias)
    inverse = as_float((2 * bias << width) - (k & -(1 << width)))
    return Split(mantissa, exponent, inverse)


def split_any(x: Expr) -> Split:
    """The same of any positive finite number: subnormal ones are scaled first."""
    t = x.type
    tiny = x < LEAST_NORMAL[t]
    by = MANTISSA[t] + 2
    parts = split(select(tiny, x * 2.0**by, x))
    return Split(parts.mantissa, parts.exponent - select(tiny, constant(by, t), 0.0), parts.inverse)


def tail(f: Expr) -> Expr:
    """log(1 + f) - f"""
    square = f * f
    if f.type is F32:
        return square * fma(f, horner(f, CUBIC), -0.5)
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    return fma(s, fma(z, estrin(z, SERIES), half), -half)


def with_limits(x: Expr, pole: float, value: Expr) -> Expr:
    """The value of a logarithm, put right at infinity, at its pole and below it; NaN stays."""
    value = select(x < INFINITY, value, x)
    return select(x > pole, value, select(x.eq(pole), constant(-INFINITY, x.type), NAN))


def log(x: Expr) -> Expr:
    m, e, _ = split_any(x)
    return with_limits(x, 0.0, combined(e, m - 1.0))


def combined(e: Expr, f: Expr, correction: Operand = 0.0) -> Expr:
    """e ln 2 + log(1 + f) + correction."""
    high, low = LN2[f.type]
    rest = fma(e, low, tail(f))
    if isinstance(correction, Expr):
        rest = rest + correction
    return fma(e, high, f + rest)


def log2(x: Expr) -> Expr:
    m, e, _ = split_any(x)
    high, low = LOG2_E[x.type]
    f = m - 1.0
    p = exact_product(f, high)
    s = ordered_sum(e, p.high)
    return with_limits(x, 0.0, s.high + (s.low + fma(f, low, fma(tail(f), high, p.low))))


def log10(x: Expr) -> Expr:
    m, e, _ = split_any(x)
    high, low = LOG10_E[x.type]
    f = m - 1.0
    p = exact_product(f, high)
    q = exact_product(e, LOG10_2[x.type][0])
    s = ordered_sum(q.high, p.high)
    rest = fma(e, LOG10_2[x.type][1], fma(f, low, fma(tail(f), high, p.low + q.low)))
    return with_limits(x, 0.0, s.high + (s.low + rest))


def log_of_one_plus(x: Expr, low: Expr | None = None, doublings: Operand = 0.0) -> Expr:
    """log(1 + x + low) + doublings ln 2 for -1 < x < infinity, |low| being at most an ulp of x."""
    m, e, inverse = split(x + 1.0)
    e = e if isinstance(doublings, float) else e + doublings
    # (1 + x) 2^-e - 1, where 2^-e is a normal number; exact or nearly: the sum cancels unless e = 0, when it is x
    shifted = x * inverse
    huge = x > 2.0**60
    f = select(huge, m - 1.0, shifted + (inverse - 1.0))
    if low is None:
        return combined(e, f)
    rest = select(huge, 0.0, fma(low, inverse, shifted - (f - (inverse - 1.0))))
    return combined(e, f, rest * fma(f, f - 1.0, 1.0))  # 1 / (1 + f), closely enough


def log1p(x: Expr) -> Expr:
    return select(x.eq(0.0), x, with_limits(x, -1.0, log_of_one_plus(x)))


# fmt: skip
