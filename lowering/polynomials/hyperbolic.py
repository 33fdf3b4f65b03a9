"""sinh, cosh, tanh and their relatives from e^x in two parts, with polynomials where e^x and e^-x would cancel; the
inverses from logarithms of arguments in two parts.
"""

from __future__ import annotations

from ...dialect.index import Expr, constant, maximum, minimum, select
from ...dialect.types import F32, F64
from .doubled import exact_product, exact_sum, ordered_sum
from .exponential import exponential
from .logarithm import log_of_one_plus
from .primitives import INFINITY, LEAST_NORMAL, NAN, absolute, flip, fma, polynomial, sign_of, sqrt

# (sinh x - x) / x^3 in x^2, |x| <= 1, to 2^-31.6 and 2^-61.7 of sinh x
SINH = {
    F32: (0.16666667, 0.0083333105, 0.00019842896, 2.7822132e-06),
    F64: (
        0.16666666666666669, 0.008333333333332912, 0.00019841269841593408, 2.7557319106758227e-06,
        2.5052130998357623e-08, 1.605665920712426e-10, 7.776598563725677e-13,
    ),
}  # fmt: skip
# (tanh x - x) / x^3 in x^2, |x| <= 5/8, to 2^-27.7 and 2^-61.1 of tanh x
TANH = {
    F32: (-0.3333328, 0.13331406, -0.053736515, 0.020628165, -0.005692291),
    F64: (
        -0.33333333333333315, 0.1333333333332996, -0.05396825396614944, 0.021869488470698754,
        -0.008863234338742271, 0.0035921142222628357, -0.001455727208279672, 0.0005894566106088594,
        -0.00023702396142132327, 9.157825625288523e-05, -3.020581396071091e-05, 6.050123717169094e-06,
    ),
}  # fmt: skip
# beyond this, x^2 + 1 is x^2, and far enough below it x^2 does not overflow
HUGE = 2.0**60


def _odd(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    z = x * x
    return fma(x * z, polynomial(z, coefficients), x)


def _half_exp(x: Expr) -> tuple[Expr, Expr]:
    """e^x / 2 as high + low."""
    e = exponential(x)
    half = e.scale * 0.5
    return e.high * half * e.scale, e.low * half * e.scale


def sinh(x: Expr) -> Expr:
    size = absolute(x)
    high, low = _half_exp(size)
    large = high + (low - 0.25 / high)
    return flip(select(size < 1.0, _odd(size, SINH[x.type]), large), sign_of(x))


def cosh(x: Expr) -> Expr:
    high, low = _half_exp(absolute(x))
    return high + (low + 0.25 / high)


def tanh(x: Expr) -> Expr:
    size = absolute(x)
    e = exponential(size + size)
    large = 1.0 - 2.0 / fma(e.high * e.scale, e.scale, 1.0)
    return flip(select(size < 0.625, _odd(size, TANH[x.type]), large), sign_of(x))


def _root(square: Expr, low: Expr) -> tuple[Expr, Expr]:
    """sqrt(square + low) as high + low; zero for zero."""
    s = sqrt(square)
    return s, (fma(-s, s, square) + low) / maximum(LEAST_NORMAL[s.type], s + s)


def asinh(x: Expr) -> Expr:
    """log(1 + w), where w = |x| + sqrt(x^2 + 1) - 1; of a huge x, log 2 |x|."""
    size = absolute(x)
    limited = minimum(HUGE, size)
    square = exact_product(limited, limited)
    more = exact_sum(square.high, 1.0)
    root, low = _root(more.high, more.low + square.low)
    less = ordered_sum(root, constant(-1.0, x.type))
    w = ordered_sum(limited, less.high)
    return flip(_log(size, w.high, w.low + (less.low + low)), sign_of(x))


def acosh(x: Expr) -> Expr:
    """log(1 + w), where w = x - 1 + sqrt(x^2 - 1); of a huge x, log 2 x."""
    one = constant(-1.0, x.type)
    limited = minimum(HUGE, x)
    square = exact_product(limited, limited)
    less = ordered_sum(square.high, one)
    root, low = _root(less.high, less.low + square.low)
    start = ordered_sum(limited, one)
    w = ordered_sum(root, start.high)
    return select(x < 1.0, constant(NAN, x.type), _log(x, w.high, w.low + (start.low + low)))


def _log(x: Expr, w: Expr, low: Expr) -> Expr:
    """log(1 + w + low), or log 2 x where x is huge."""
    huge = x > HUGE
    value = log_of_one_plus(select(huge, x, w), select(huge, 0.0, low), select(huge, constant(1.0, x.type), 0.0))
    return select(x < INFINITY, value, x)


def atanh(x: Expr) -> Expr:
    """log(1 + w) / 2, where w = 2 |x| / (1 - |x|)."""
    size = absolute(x)
    divisor = ordered_sum(constant(1.0, x.type), -size)
    inverse = 1.0 / divisor.high
    twice = size + size
    w = twice * inverse
    low = (fma(-w, divisor.high, twice) - w * divisor.low) * inverse
    value = select(size < 1.0, log_of_one_plus(w, low) * 0.5, select(size > 1.0, constant(NAN, x.type), size / 0.0))
    return flip(value, sign_of(x))


def _decay(x: Expr) -> tuple[Expr, Expr]:
    """e^-|x| as high + low."""
    e = exponential(-absolute(x))
    return e.high * e.scale * e.scale, e.low * e.scale * e.scale


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x), which is e^x / (1 + e^x)."""
    high, low = _decay(x)
    divisor = ordered_sum(constant(1.0, x.type), high)
    inverse = 1.0 / divisor.high
    negative = x < 0.0
    dividend, rest = select(negative, high, 1.0), select(negative, low, 0.0)
    quotient = dividend * inverse
    rest = fma(-quotient, divisor.high, dividend) + (rest - quotient * (divisor.low + low))
    return fma(rest, inverse, quotient)


def softplus(x: Expr) -> Expr:
    """log(1 + e^x)"""
    return select(x > 0.0, x, 0.0) + log_of_one_plus(*_decay(x))
