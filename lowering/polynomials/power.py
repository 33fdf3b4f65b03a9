"""pow = e^(y log |x|) (f32: 2^(y log2 |x|)), the logarithm and the product to about 2^-66 (f32: 2^-36), so that the error before the only
rounding is below half an ulp and exact powers are exact; cbrt and rsqrt.
"""

from __future__ import annotations

from ...dialect.index import Expr, apply, constant, maximum, minimum, select
from ...dialect.rows import LOG_WIDTH
from ...dialect.types import F32, F64
from .doubled import Doubled, exact_product, exact_sum, ordered_sum, product
from .exponential import EXP2, RANGE, RANGE2, USUAL, USUAL2, of_reduced, power_of_two, reduced
from .logarithm import LEAST, Split, split, split_any
from .primitives import (
    BIAS,
    INFINITY,
    LEAST_NORMAL,
    LN2,
    MANTISSA,
    NAN,
    ROUNDER,
    absolute,
    as_float,
    bits,
    estrin,
    flip,
    floor,
    fma,
    outside,
    polynomial,
    rarely,
    shift_right,
    sign_of,
    sqrt,
)

# f32: log2((1 + s) / (1 - s)) = s (A + z (B + z P(z))), z = s^2: A = 2 / ln 2 and B = A / 3 in two parts, and P to 2^-36.7 of the whole
A = (2.88539, 3.851926e-08)
B = (0.9617967, -7.028462e-09)
P = (0.5770802, 0.41184992, 0.3378208)
# f64: -2 (log(1 + r) - r + r^2 / 2) / r^3 in r, to 2^-67.6 of the logarithm
TAIL = (
    -0.6666666666666568, 0.49999999999422546, -0.4000000051226019, 0.3333358699463288, -0.28516172354099288,
)  # fmt: skip
# ln 2 in two parts, the first with so many bits after the point
HIGH, LOW = (0.6931471805598903, 5.497923018708371e-14)


# 1 / cbrt(1 - d) for |d| <= 0.1023, to 2^-18.9
RECIPROCAL_CBRT = (0.99999803, 0.33333102, 0.22373213, 0.17431241)


def _binary(m: Expr, e: Expr) -> Doubled:
    """log2(2^e m) of f32"""
    f, divisor = m - 1.0, m + 1.0
    inverse = 1.0 / divisor
    high = f * inverse
    s = Doubled(high, (fma(-high, divisor, f) - high * (m - (divisor - 1.0))) * inverse)
    square = exact_product(high, high)
    z = Doubled(square.high, fma(high + high, s.low, square.low))
    inner = ordered_sum(constant(B[0], F32), z.high * polynomial(z.high, P))
    inner = product(Doubled(inner.high, inner.low + B[1]), z)
    outer = ordered_sum(constant(A[0], F32), inner.high)
    y = product(Doubled(outer.high, outer.low + (inner.low + A[1])), s)
    total = ordered_sum(e, y.high)
    return Doubled(total.high, total.low + y.low)


def _natural(m: Expr, e: Expr, place: Expr) -> Doubled:
    """log(2^e m) of f64"""
    factor, start, low = (apply(f"pow_{c}", shift_right(place, LOG_WIDTH)) for c in ("factor", "high", "low"))
    r = fma(m, factor, -1.0)  # exact, as what the first sum starts from
    first = ordered_sum(fma(e, HIGH, start), r)
    half = exact_product(r, r * -0.5)
    second = ordered_sum(first.high, half.high)
    low = (first.low + fma(e, LOW, low)) + (second.low + half.low)
    return ordered_sum(second.high, low + half.high * r * estrin(r, TAIL))


def _logarithm(parts: Split) -> Doubled:
    """Of f32 to the base 2, of f64 to the base e."""
    m, e = parts.mantissa, parts.exponent
    return _binary(m, e) if m.type is F32 else _natural(m, e, parts.place)


def _power(p: Expr, low: Expr, usual: bool) -> Expr:
    """The base of the logarithm to the power of a sum, `usual` ones being normal numbers."""
    t = p.type
    if t is F64:
        x = reduced(p)
        return of_reduced(x._replace(low=x.low + low), usual)
    n = (p + ROUNDER[t]) - ROUNDER[t]
    r = exact_sum(p - n, low)
    rest = fma(r.high * r.high, polynomial(r.high, EXP2[t]), fma(r.high, LN2[t][1], r.low * LN2[t][0]))
    return power_of_two(n, fma(r.high, LN2[t][0], rest) + 1.0)


def _any_power(size: Expr, y: Expr) -> Expr:
    """Of what is not negative."""
    t = size.type
    log = _logarithm(split_any(size, LEAST[t]))
    high = select(size < INFINITY, select(size.eq(0.0), constant(-INFINITY, t), log.high), size)
    p = y * high
    least, most = (RANGE if t is F64 else RANGE2)[t]
    limited = minimum(most, maximum(least, p))
    low = select(limited.eq(p), fma(y, high, -p) + y * log.low, 0.0)
    return select(size.eq(1.0) | y.eq(0.0), constant(1.0, t), _power(limited, low, False))


def _with_sign(x: Expr, y: Expr, value: Expr) -> Expr:
    """x^y of negative x, of |x|^y."""
    whole = floor(y).eq(y)
    half = y * 0.5
    odd = whole & floor(half).ne(half)
    value = flip(value, select(odd, sign_of(x), 0))
    return select((x < 0.0) & (x > -INFINITY) & ~whole, constant(NAN, x.type), value)


def pow(x: Expr, y: Expr) -> Expr:
    t, size = x.type, absolute(x)
    log = _logarithm(split(size, LEAST[t]))
    p = y * log.high
    usual = _power(p, fma(y, log.high, -p) + y * log.low, True)
    small = absolute(p) <= (USUAL if t is F64 else USUAL2)[t]
    value = rarely(outside(size, 1 - BIAS[t], BIAS[t] + 1) | ~small, _any_power(size, y), usual)
    return rarely(bits(x) < 0, _with_sign(x, y, value), value)


def _root(a: Expr) -> Expr:
    """Of zero, or of a positive normal number."""
    t = a.type
    # q = a^(-1/3) to 3.5%: the bits of a float, as a number, are about a multiple of its logarithm; here the upper ones
    width, shift = MANTISSA[t], 32 if t is F64 else 8
    one = (1023 << 20) if t is F64 else (127 << 15)
    start = as_float(shift_right(bits(a), shift) | ((width + (1023 if t is F64 else 127)) << width))
    unit = 2.0 ** (width - shift)
    offset = 2.0**width + round(2.0**width / 3 + one * 4 / 3 - 0.06805 * unit)
    q = as_float(bits(fma(start, -1 / 3, offset)) << shift)
    d = fma(-(a * q * q), q, 1.0)
    q = q * polynomial(d, RECIPROCAL_CBRT)
    if t is F64:
        d = fma(-(a * q * q), q, 1.0)
        q = fma(q * d, fma(d, 2 / 9, 1 / 3), q)
    square = q * q
    y = a * square
    s = exact_product(y, y)
    residual = fma(-s.high, y, a) - s.low * y
    return fma(residual, square * (1 / 3), y)


def cbrt(x: Expr) -> Expr:
    """y + (x - y^3) / (3 y^2), where y = x q^2 and q is near the reciprocal of the root.

    The correction leaves little more than the error of one rounding, so cubes have exact roots.
    """
    t = x.type
    size = absolute(x)
    # of what is not normal, zero is usual
    unusual = outside(size, 1 - BIAS[t], BIAS[t] + 1) & size.ne(0.0)
    subnormal = _root(size * 2.0 ** (54 if t is F64 else 24)) * 2.0 ** -(18 if t is F64 else 8)
    value = rarely(
        unusual, select(size < LEAST_NORMAL[t], subnormal, select(size < INFINITY, _root(size), size)), _root(size)
    )
    return flip(value, sign_of(x))


def rsqrt(x: Expr) -> Expr:
    return 1.0 / sqrt(x)
