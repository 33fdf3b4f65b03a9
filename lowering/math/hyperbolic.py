"""The hyperbolic functions sinh, cosh, tanh, their inverses, sigmoid and softplus.

From e^x as a double word, with polynomials where e^x and e^-x would cancel; inverses from
logarithms of these.
"""

from ...dialect.kernel_ir.expressions import Expr, constant, maximum, minimum, select
from ...dialect.types.tensor_types import F32, F64
from . import primitives as fp
from .double_word import exact_product, exact_sum, ordered_sum
from .exponential import EXPM1, USUAL, exponential, reduced, scale
from .logarithm import NATURAL, log_of_one_plus, of_any

# (sinh r - r) / r^3 in r^2, |r| <= ln(2) / 2, to 2^-26.1 and 2^-61.6 of sinh r
SINH = {
    F32: (0.16666543, 0.008366541),
    F64: (
        0.16666666666666677,
        0.00833333333332142,
        0.00019841269886646722,
        2.7557243690503086e-06,
        2.5109218553645682e-08,
    ),
}
# (cosh r - 1) / r^2, to 2^-33.2 and 2^-70.0 of cosh r
COSH = {
    F32: (0.5, 0.04166646, 0.0013935443),
    F64: (
        0.5,
        0.041666666666666685,
        0.00138888888888733,
        2.480158734912324e-05,
        2.755725192478983e-07,
        2.0921726482223742e-09,
    ),
}
# (atanh s - s) / s^3 in s^2, |s| <= 0.2837, to 2^-30.1 and 2^-59.0 of atanh s
ATANH = {
    F32: (0.33333302, 0.20003806, 0.14145347, 0.13111857),
    F64: (
        0.3333333333333359, 0.199999999998716, 0.14285714307605132, 0.11111109284577306,
         0.09090995079907424,
        0.07689872730816505, 0.06708845339077717, 0.05448236309449598, 0.07646507150444284,
    ),
}  # fmt: skip
# (tanh x - x) / x^3 in x^2, x <= 0.55, to 2^-28.8 and 2^-62.9 of tanh x: a quotient
TANH = {
    F32: ((-0.33333322, -0.001552161), (1.0, 0.4046493)),
    F64: (
        (-0.3333333333333333, -0.02050046942758885, -0.00019925206126507162),
        (1.0, 0.46150140828276265, 0.023293557592227274, 0.00020661301769723527),
    ),
}
TANH_LIMIT = 0.55
# tanh of more is 1
FLAT = {F32: 10.0, F64: 20.0}


def _halves(x: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """2^n / 2, 2^-n / 2, sinh r and cosh r - 1 of x = n ln 2 + r; none overflows for |x| <
    USUAL.
    """
    t = x.type
    n, shifted, high, low = reduced(x)
    r = fp.fma(n, -fp.LN2[t][1], high) if t is F32 else high + low
    z = r * r
    tail = fp.fma(r * z, fp.polynomial(z, SINH[t]), r if t is F32 else low)
    power = fp.bits(shifted) << fp.MANTISSA[t]
    up = fp.as_float(power - fp.bits_of_power(1 - fp.BIAS[t], t))
    down = fp.as_float(fp.bits_of_power(fp.BIAS[t] - 1, t) - power)
    return up, down, tail if t is F32 else high + tail, z * fp.polynomial(z, COSH[t])


def _half_exp(x: Expr) -> Expr:
    """e^x / 2, for x where it equals sinh x and cosh x to within rounding."""
    e = exponential(x)
    return e.high * (e.scale * 0.5) * e.scale


def sinh(x: Expr) -> Expr:
    """sinh n ln 2 cosh r + cosh n ln 2 sinh r"""
    (up, down, sinh_r, more), size = _halves(x), fp.absolute(x)
    difference = up - down
    usual = difference + fp.fma(up + down, sinh_r, difference * more)
    return fp.keep_zero_sign(
        x, fp.rarely(size > USUAL[x.type], fp.flip(_half_exp(size), fp.sign_of(x)), usual)
    )


def cosh(x: Expr) -> Expr:
    """cosh n ln 2 cosh r + sinh n ln 2 sinh r"""
    size = fp.absolute(x)
    up, down, sinh_r, more = _halves(size)
    usual = up + (down + fp.fma(up + down, more, (up - down) * sinh_r))
    return fp.rarely(size > USUAL[x.type], _half_exp(size), usual)


def tanh(x: Expr) -> Expr:
    """x + x^3 P / Q up to 0.55, otherwise 1 - 2 / (e^2x + 1), with one division for both."""
    t = x.type
    size = minimum(FLAT[t], fp.absolute(x))
    n, shifted, high, _ = reduced(size + size)
    r = fp.fma(n, -fp.LN2[t][1], high)
    more = fp.fma(
        scale(shifted), fp.fma(r * r, fp.polynomial(r, EXPM1[t]), r), scale(shifted) + 1.0
    )
    z = size * size
    over, under = TANH[t]
    small = size < TANH_LIMIT
    quotient = select(small, size * z * fp.horner(z, over), -2.0) / select(
        small, fp.polynomial(z, under), more
    )
    return fp.keep_zero_sign(x, select(small, size, 1.0) + quotient)


def _root(square: Expr, low: Expr) -> tuple[Expr, Expr]:
    """sqrt(square + low) as high + low; zero for zero."""
    s = fp.sqrt(square)
    return s, (fp.fma(-s, s, square) + low) / maximum(fp.LEAST_NORMAL[s.type], s + s)


def asinh(x: Expr) -> Expr:
    """log(1 + w), w = |x| + sqrt(x^2 + 1) - 1; for a huge x, log 2 |x|."""
    size = fp.absolute(x)
    square = exact_product(size, size)
    more = exact_sum(square.high, 1.0)
    root, low = _root(more.high, more.low + square.low)
    less = ordered_sum(root, constant(-1.0, x.type))
    w = ordered_sum(size, less.high)
    usual = log_of_one_plus(w.high, w.low + (less.low + low))
    unusual = fp.outside(size, -fp.BIAS[x.type], fp.MANY)
    return fp.flip(fp.rarely(unusual, of_any(size, NATURAL, 1.0), usual), fp.sign_of(x))


def acosh(x: Expr) -> Expr:
    """log(1 + w), w = x - 1 + sqrt(x^2 - 1); for a huge x, log 2 x."""
    one = x - 1.0
    root, low = _root(fp.fma(one, one, one + one), constant(0.0, x.type))
    w = ordered_sum(root, one)
    unusual = select(x < 1.0, constant(fp.NAN, x.type), of_any(x, NATURAL, 1.0))
    return fp.rarely(fp.outside(x, 0, fp.MANY), unusual, log_of_one_plus(w.high, w.low + low))


def atanh(x: Expr) -> Expr:
    """e ln(2) / 2 + atanh s, with (1 + x) / (1 - x) = 2^e (1 + s) / (1 - s) and e from the bits of
    both sides.
    """
    t = x.type
    width, size = fp.MANTISSA[t], fp.absolute(x)
    # a quarter more, rounded down: e is 0 up to |x| = 1/4, where the sum cancels least
    power = (
        fp.bits(1.0 + size) - fp.bits(1.0 - size) + (fp.bits_of_power(0, t) + (1 << (width - 2)))
    ) & -(1 << width)
    e = fp.as_float(fp.shift_right(power, width) | fp.bits_of_power(width, t)) - (
        2.0**width + fp.BIAS[t]
    )
    y = fp.as_float(power)
    s = fp.fma(size, 1.0 + y, -(y - 1.0)) / fp.fma(size, 1.0 - y, 1.0 + y)
    z = s * s
    usual = fp.fma(e, fp.LN2[t][0] / 2, fp.fma(s * z, fp.polynomial(z, ATANH[t]), s))
    # near the poles y + 1 would be y
    divisor = 1.0 - size
    twice = size + size
    w = twice / divisor
    near = log_of_one_plus(w, fp.fma(-w, divisor, twice) / divisor) * 0.5
    near = select(size < 1.0, near, select(size.eq(1.0), constant(fp.INFINITY, t), fp.NAN))
    return fp.keep_zero_sign(
        x, fp.rarely(size > 1.0 - 2.0**-12, near, usual)
    )  # and the sign of the poles


def _decay(x: Expr) -> tuple[Expr, Expr]:
    e = exponential(-fp.absolute(x))
    return e.high * e.scale * e.scale, e.low * e.scale * e.scale


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x), which is e^x / (1 + e^x)."""
    high, low = _decay(x)
    divisor = ordered_sum(constant(1.0, x.type), high)
    inverse = 1.0 / divisor.high
    negative = x < 0.0
    dividend, rest = select(negative, high, 1.0), select(negative, low, 0.0)
    quotient = dividend * inverse
    rest = fp.fma(-quotient, divisor.high, dividend) + (rest - quotient * (divisor.low + low))
    return fp.fma(rest, inverse, quotient)


def softplus(x: Expr) -> Expr:
    """log(1 + e^x)"""
    return select(x > 0.0, x, 0.0) + log_of_one_plus(*_decay(x))
