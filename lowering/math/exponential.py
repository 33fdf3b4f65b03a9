"""The exponential functions exp, exp2 and expm1, by argument reduction to n ln 2 + r and a
polynomial for e^r.

2^n is multiplied in as two factors, so that a subnormal result is rounded once and nothing
overflows early.
"""

from typing import NamedTuple

from ...dialect.kernel_ir.expressions import Expr, constant, maximum, minimum
from ...dialect.types.tensor_types import F32, F64, ElementType
from . import primitives as fp
from .double_word import ordered_sum

LOG2_E = 1.4426950408889634

# (e^r - 1 - r) / r^2 for |r| <= ln 2, to 2^-26.0 and 2^-56.4 of e^r
EXP = {
    F32: (0.50000036, 0.16666616, 0.041661173, 0.0083359135, 0.0014105967, 0.00019641143),
    F64: (
        0.4999999999999993, 0.16666666666666938, 0.04166666666670214, 0.00833333333326972,
        0.0013888888883569338, 0.00019841269892920837, 2.4801590834112533e-05,
         2.7557300603903407e-06,
        2.7556157073738945e-07, 2.5055040601921347e-08, 2.106241238822247e-09,
         1.5935180372793278e-10,
    ),
}  # fmt: skip
# (2^r - 1 - r ln 2) / r^2 for |r| <= 1/2, to 2^-27.7 and 2^-55.5 of 2^r by ln 2 as rounded
EXP2 = {
    F32: (0.24022648, 0.055503614, 0.0096184835, 0.0013390543, 0.0001533628),
    F64: (
        0.24022650695910122, 0.05550410866482083, 0.009618129107597226, 0.0013333558146666439,
        0.00015403530453684083, 1.525273356182918e-05, 1.3215436810184532e-06,
         1.0178179802024979e-07,
        7.073544840529476e-09, 4.436872547891692e-10,
    ),
}  # fmt: skip
# (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2, to 2^-26.1 and 2^-55.5 of e^r - 1
EXPM1: dict[ElementType, tuple[float, ...]] = {
    F32: (0.49999997, 0.16666545, 0.041667465, 0.008366411, 0.0013868003),
    F64: (
        0.5000000000000006, 0.16666666666666619, 0.04166666666657365, 0.00833333333337096,
        0.0013888888932432869, 0.00019841269762080154, 2.4801504327668465e-05,
         2.7557365965307774e-06,
        2.7626386870046243e-07, 2.5067887345533072e-08,
    ),
}  # fmt: skip
# beyond these every result is zero or infinity, also after halving; what lies between needs no
# exponent out of range
RANGE = {F32: (-104.0, 90.0), F64: (-746.0, 711.0)}
RANGE2 = {F32: (-151.0, 129.0), F64: (-1076.0, 1025.0)}
# up to these, plus or minus, e^x and 2^x are normal numbers
USUAL = {F32: 87.0, F64: 708.0}
USUAL2 = {F32: 126.0, F64: 1022.0}


class Exponential(NamedTuple):
    """e^x = (high + low) scale^2, the scale being a power of two and high in [1/2, 2]."""

    high: Expr
    low: Expr
    scale: Expr


def exponential(x: Expr, low: Expr | None = None) -> Exponential:
    """e^(x + low) as an `Exponential`, to about 2^-3 ulp; NaN stays NaN."""
    t = x.type
    x = clamp(x, RANGE[t])
    # n even: both factors of 2^n are then the same one, which costs less than the two terms it adds
    # to the polynomial
    shifted, half = fp.nearest(x, LOG2_E / 2, fp.POWER_ROUNDER)
    start = fp.fma(half, -2 * fp.LN2[t][0], x)  # exact
    rest = half * (-2 * fp.LN2[t][1])
    rest = rest if low is None else rest + low
    r = start + rest
    body = ordered_sum(start, fp.fma(r * r, fp.polynomial(r, EXP[t]), rest))
    high = body.high + 1.0
    return Exponential(high, (body.high - (high - 1.0)) + body.low, scale(shifted))


class Reduced(NamedTuple):
    """x = n ln 2 + high + low, |high + low| <= ln(2) / 2; `shifted` has n, biased, in its low
    bits.
    """

    n: Expr
    shifted: Expr
    high: Expr
    low: Expr


def reduced(x: Expr) -> Reduced:
    t = x.type
    shifted, n = fp.nearest(x, LOG2_E, fp.POWER_ROUNDER)
    return Reduced(n, shifted, fp.fma(n, -fp.LN2[t][0], x), n * -fp.LN2[t][1])  # high is exact


def less_one(high: Expr, low: Expr) -> Expr:
    """e^(high + low) - 1"""
    r = high + low
    return high + fp.fma(r * r, fp.polynomial(r, EXPM1[r.type]), low)


def scale(shifted: Expr) -> Expr:
    """2^n for n in the exponent's range."""
    return fp.as_float(fp.bits(shifted) << fp.MANTISSA[shifted.type])


def power_of_two(n: Expr, value: Expr) -> Expr:
    """value 2^n for an integral float n with 2^(n/2) in range."""
    shifted, half = fp.nearest(n, 0.5, fp.POWER_ROUNDER)
    return value * scale(shifted) * scale((n - half) + fp.POWER_ROUNDER[n.type])


def clamp(x: Expr, range: tuple[float, float]) -> Expr:
    return minimum(range[1], maximum(range[0], x))


def of_reduced(x: Reduced, usual: bool, exactly: bool = False) -> Expr:
    """e^x, a normal number if `usual`; most f32 results are rounded correctly if `exactly`."""
    n, shifted, high, low = x
    t, r = n.type, high + low
    exactly = exactly or t is F64
    less = fp.fma(r * r, fp.polynomial(r, EXPM1[t]), low if exactly else r)
    start = constant(1.0, t)
    if (
        exactly
    ):  # what 1 + high rounds off is added to the rest: nearly all results are the nearest ones
        start = 1.0 + high
        less = (high - (start - 1.0)) + less
    return (
        fp.fma(scale(shifted), less, scale(shifted) * start)
        if usual
        else power_of_two(n, start + less)
    )


def exp(x: Expr) -> Expr:
    unusual = fp.absolute(x) > USUAL[x.type]
    return fp.rarely(
        unusual, of_reduced(reduced(clamp(x, RANGE[x.type])), False), of_reduced(reduced(x), True)
    )


def exp2(x: Expr) -> Expr:
    def value(x: Expr, usual: bool) -> Expr:
        t = x.type
        shifted = x + fp.POWER_ROUNDER[t]
        n = shifted - fp.POWER_ROUNDER[t]
        r = x - n
        less = fp.fma(r, fp.LN2[t][0], r * r * fp.polynomial(r, EXP2[t]))
        return (
            fp.fma(scale(shifted), less, scale(shifted)) if usual else power_of_two(n, 1.0 + less)
        )

    return fp.rarely(
        fp.absolute(x) > USUAL2[x.type], value(clamp(x, RANGE2[x.type]), False), value(x, True)
    )


def expm1(x: Expr) -> Expr:
    t = x.type
    _, shifted, high, low = reduced(x)
    usual = fp.fma(scale(shifted), less_one(high, low), scale(shifted) - 1.0)
    # where e^x is no normal number, one less hardly matters
    return fp.keep_zero_sign(x, fp.rarely(fp.absolute(x) > USUAL[t], exp(x) - 1.0, usual))
