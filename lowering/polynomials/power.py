"""pow = 2^(y log2 |x|), the logarithm and the product to about 2^-66 (f32: 2^-36), so that the error before the only
rounding is below half an ulp and exact powers are exact; cbrt and rsqrt.
"""

from __future__ import annotations

from ...dialect.index import Expr, constant, maximum, minimum, select
from ...dialect.types import F32, F64
from .doubled import Doubled, exact_product, exact_sum, ordered_sum, product
from .exponential import EXP2, RANGE2, power_of_two
from .logarithm import split_any
from .primitives import (
    INFINITY,
    LEAST_NORMAL,
    LN2,
    MANTISSA,
    NAN,
    ROUNDER,
    absolute,
    as_float,
    bits,
    flip,
    floor,
    fma,
    polynomial,
    shift_right,
    sign_of,
    sqrt,
)

# log2((1 + s) / (1 - s)) = s (A + z (B + z P(z))), z = s^2: A = 2 / ln 2 and B = A / 3 in two parts, and P to 2^-36.7
# and 2^-66.2 of the whole
A = {F32: (2.88539, 3.851926e-08), F64: (2.8853900817779268, 4.0710547481862066e-17)}
B = {F32: (0.9617967, -7.028462e-09), F64: (0.9617966939259756, 5.0577616648125907e-17)}
P = {
    F32: (0.5770802, 0.41184992, 0.3378208),
    F64: (
        0.577078016355618, 0.4121985830919397, 0.3205989022736023, 0.2623077011240084, 0.2219839977789513,
        0.19125516022266917, 0.19038544876435612,
    ),
}  # fmt: skip


# 1 / cbrt(1 - d) for |d| <= 0.1023, to 2^-18.9
RECIPROCAL_CBRT = (0.99999803, 0.33333102, 0.22373213, 0.17431241)


def doubled_log2(x: Expr) -> Doubled:
    """log2 of a positive finite number."""
    t = x.type
    m, e, _ = split_any(x)
    f, divisor = m - 1.0, m + 1.0
    inverse = 1.0 / divisor
    high = f * inverse
    s = Doubled(high, (fma(-high, divisor, f) - high * (m - (divisor - 1.0))) * inverse)
    square = exact_product(high, high)
    z = Doubled(square.high, fma(high + high, s.low, square.low))
    inner = ordered_sum(constant(B[t][0], t), z.high * polynomial(z.high, P[t]))
    inner = product(Doubled(inner.high, inner.low + B[t][1]), z)
    outer = ordered_sum(constant(A[t][0], t), inner.high)
    y = product(Doubled(outer.high, outer.low + (inner.low + A[t][1])), s)
    total = ordered_sum(e, y.high)
    return Doubled(total.high, total.low + y.low)


def pow(x: Expr, y: Expr) -> Expr:
    t = x.type
    size = absolute(x)
    log = doubled_log2(size)
    high = select(size < INFINITY, select(size.eq(0.0), constant(-INFINITY, t), log.high), size)
    p = y * high
    limited = minimum(RANGE2[t][1], maximum(RANGE2[t][0], p))
    low = select(limited.eq(p), fma(y, high, -p) + y * log.low, 0.0)
    n = (limited + ROUNDER[t]) - ROUNDER[t]
    r = exact_sum(limited - n, low)
    rest = fma(r.high * r.high, polynomial(r.high, EXP2[t]), fma(r.high, LN2[t][1], r.low * LN2[t][0]))
    value = power_of_two(n, fma(r.high, LN2[t][0], rest) + 1.0)
    value = select(size.eq(1.0) | y.eq(0.0), constant(1.0, t), value)
    half = y * 0.5
    whole = floor(y).eq(y)
    odd = whole & floor(half).ne(half)
    value = flip(value, select(odd, sign_of(x), 0))
    return select((x < 0.0) & (size < INFINITY) & ~whole, constant(NAN, t), value)


def cbrt(x: Expr) -> Expr:
    """y + (x - y^3) / (3 y^2), where y = x q^2 and q is near the reciprocal of the root.

    The correction leaves little more than the error of one rounding, so cubes have exact roots.
    """
    t = x.type
    size = absolute(x)
    tiny = size < LEAST_NORMAL[t]
    a = select(tiny, size * 2.0 ** (54 if t is F64 else 24), size)
    # q = x^(-1/3) to 3.5%: the bits of a float, as a number, are about a multiple of its logarithm; here the upper ones
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
    root = fma(residual, square * (1 / 3), y)
    root = root * select(tiny, constant(2.0 ** -(18 if t is F64 else 8), t), 1.0)
    return select(size < INFINITY, flip(root, sign_of(x)), x)


def rsqrt(x: Expr) -> Expr:
    return 1.0 / sqrt(x)
