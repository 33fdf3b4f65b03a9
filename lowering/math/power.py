"""The power function pow = e^(y log |x|), and cbrt and rsqrt.

The logarithm and the product are computed to about 2^-66 (f32: 2^-33), so that the error before the
only rounding is below half an ulp and exact powers are exact.
"""

from ...dialect.kernel_ir.expressions import Expr, apply, constant, select
from ...dialect.kernel_ir.integer_lookup_tables import LOG_WIDTH
from ...dialect.types.tensor_types import F32, F64
from . import primitives as fp
from .double_word import Doubled, exact_product, ordered_sum
from .exponential import RANGE, USUAL, clamp, of_reduced, reduced
from .logarithm import LEAST, split, split_any

# f32: bits of the number at which the first of eight cells of mantissas begins. Of each a factor,
# which takes a mantissa to 1 + r,
# |r| < 2^-4, of so few bits that r is exact; and the factor's logarithm, negated, in two parts, the
# first with 16 bits after the point
FIRST, PLACES = 0x3F24A000, 20  # mantissas of a cell have the same upper bits but for so many
FACTOR = (1.5, 1.375, 1.25, 1.1875, 1.0625, 1.0, 0.90625, 0.8125)
START = (
    -0.4054718017578125,
    -0.318450927734375,
    -0.22314453125,
    -0.171844482421875,
    -0.0606231689453125,
    0.0,
    0.0984344482421875,
    0.2076416015625,
)
REST = (
    6.69364954e-06,
    -2.80338418e-06,
    9.79935749e-07,
    -5.77450464e-06,
    -1.45287117e-06,
    0.0,
    5.62457126e-06,
    -2.23678421e-06,
)
# -2 (log(1 + r) - r + r^2 / 2) / r^3 in r, to 2^-35.4 of the logarithm, and of f64 to 2^-67.4
TAIL32 = (-0.66666669, 0.49999839, -0.39998531, 0.33466947, -0.28905523)
TAIL = (
    -0.6666666666666568,
    0.49999999999422546,
    -0.4000000051226019,
    0.3333358699463288,
    -0.28516172354099288,
)
# 1 / cbrt(1 - d) for |d| <= 0.1023, to 2^-18.8
RECIPROCAL_CBRT = (0.99999803, 0.33333102, 0.22373213, 0.17431241)


def _logarithm(size: Expr, any: bool = False) -> Doubled:
    """The logarithm of a positive number; with `any` also of subnormal ones."""
    t = size.type
    m, e, _, place = (split_any if any else split)(size, FIRST if t is F32 else LEAST[t])
    if t is F32:
        cell = fp.Pieces.of_place(fp.shift_right(place, PLACES), len(FACTOR))
        factor, start, low = (cell.at(column, t) for column in (FACTOR, START, REST))
    else:
        factor, start, low = (
            apply(f"pow_{c}", fp.shift_right(place, LOG_WIDTH)) for c in ("factor", "high", "low")
        )
    r = fp.fma(m, factor, -1.0)  # exact, as what the first sum starts from
    first = ordered_sum(fp.fma(e, fp.SHORT_LN2[t][0], start), r)
    half = exact_product(r, r * -0.5)
    second = ordered_sum(first.high, half.high)
    low = (first.low + fp.fma(e, fp.SHORT_LN2[t][1], low)) + (second.low + half.low)
    tail = fp.horner(r, TAIL32) if t is F32 else fp.estrin(r, TAIL)
    return ordered_sum(second.high, low + half.high * r * tail)


def _power(p: Expr, low: Expr, usual: bool) -> Expr:
    """e^(p + low); `usual` marks results that are normal numbers."""
    x = reduced(p)
    return of_reduced(x._replace(low=x.low + low), usual, exactly=True)


def _any_power(size: Expr, y: Expr) -> Expr:
    """The power of a base that is not negative."""
    t = size.type
    log = _logarithm(size, True)
    high = select(
        size < fp.INFINITY, select(size.eq(0.0), constant(-fp.INFINITY, t), log.high), size
    )
    p = y * high
    limited = clamp(p, RANGE[t])
    low = select(limited.eq(p), fp.fma(y, high, -p) + y * log.low, 0.0)
    return select(size.eq(1.0) | y.eq(0.0), constant(1.0, t), _power(limited, low, False))


def _with_sign(x: Expr, y: Expr, value: Expr) -> Expr:
    """x^y for negative x, from |x|^y."""
    whole = fp.floor(y).eq(y)
    half = y * 0.5
    value = fp.flip(value, select(whole & fp.floor(half).ne(half), fp.sign_of(x), 0))
    return select((x < 0.0) & (x > -fp.INFINITY) & ~whole, constant(fp.NAN, x.type), value)


def pow(x: Expr, y: Expr) -> Expr:
    t, size = x.type, fp.absolute(x)
    log = _logarithm(size)
    p = y * log.high
    usual = _power(p, fp.fma(y, log.high, -p) + y * log.low, True)
    small = fp.absolute(p) <= USUAL[t]
    value = fp.rarely(fp.is_not_normal(size) | ~small, _any_power(size, y), usual)
    return fp.rarely(fp.bits(x) < 0, _with_sign(x, y, value), value)


def _root(a: Expr) -> Expr:
    """The cube root of zero, or of a positive normal number."""
    t = a.type
    # q = a^(-1/3) to 3.5%: the bits of a float, as a number, are about a multiple of its logarithm;
    # here the upper ones
    width, shift = fp.MANTISSA[t], 32 if t is F64 else 8
    one = (1023 << 20) if t is F64 else (127 << 15)
    start = fp.as_float(
        fp.shift_right(fp.bits(a), shift) | ((width + (1023 if t is F64 else 127)) << width)
    )
    offset = 2.0**width + round(2.0**width / 3 + one * 4 / 3 - 0.06805 * 2.0 ** (width - shift))
    q = fp.as_float(fp.bits(fp.fma(start, -1 / 3, offset)) << shift)
    d = fp.fma(-(a * q * q), q, 1.0)
    q = q * fp.polynomial(d, RECIPROCAL_CBRT)
    if t is F64:
        d = fp.fma(-(a * q * q), q, 1.0)
        q = fp.fma(q * d, fp.fma(d, 2 / 9, 1 / 3), q)
    square = q * q
    y = a * square
    s = exact_product(y, y)
    return fp.fma(fp.fma(-s.high, y, a) - s.low * y, square * (1 / 3), y)


def cbrt(x: Expr) -> Expr:
    """y + (x - y^3) / (3 y^2), y = x q^2, q near the root's reciprocal: hardly more than one
    rounding.
    """
    t = x.type
    size = fp.absolute(x)
    # of what is not normal, zero is usual
    unusual = fp.is_not_normal(size) & size.ne(0.0)
    subnormal = _root(size * 2.0 ** (54 if t is F64 else 24)) * 2.0 ** -(18 if t is F64 else 8)
    rare = select(
        size < fp.LEAST_NORMAL[t], subnormal, select(size < fp.INFINITY, _root(size), size)
    )
    return fp.flip(fp.rarely(unusual, rare, _root(size)), fp.sign_of(x))


def rsqrt(x: Expr) -> Expr:
    return 1.0 / fp.sqrt(x)
