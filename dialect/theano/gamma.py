"""The gamma function of Theano and its relatives, in f64: gamma, gammaln, psi and tri_gamma."""

import math
from typing import TYPE_CHECKING

import numpy as np

from ..kernel_ir.expressions import Expr, apply, constant, select
from ..kernel_ir.scalar_references import by_element
from ..types.tensor_types import F64
from . import complex_arithmetic as c, complex_functions, polynomial_coefficients as k
from .complex_arithmetic import Z
from .erf import in_f64, real_or
from .formula_blocks import INF, polynomial, sine_of_pi
from .scalar_op import of_one, row

if TYPE_CHECKING:
    from ..ir.builder import Node

HALF_LOG_2PI = math.log(2 * math.pi) / 2
# B_2n / (2n (2n - 1)), of Stirling's series
STIRLING = (
    1 / 12,
    -1 / 360,
    1 / 1260,
    -1 / 1680,
    1 / 1188,
    -691 / 360360,
    1 / 156,
    -3617 / 122400,
    43867 / 244188,
)
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
PSI = tuple(b / (2 * n + 2) for n, b in enumerate(BERNOULLI))
SHIFT = 12  # where the asymptotic series are used from


def stirling(x: Expr) -> Expr:
    """The sum of Stirling's series at x >= 8."""
    inverse = 1.0 / x
    return inverse * polynomial(inverse * inverse, STIRLING)


def _gammaln_of_positive(x: Expr) -> Expr:
    small = x < 1.0
    t = select(small, x - 1.0, select(x < 3.0, x - 2.0, 0.0))  # of x + 1 or x, less 2
    first = (t + 1.0) * t * polynomial(t, k.LGAMMA_NEAR)
    first = select(small, first - apply("log", select(small, x, 1.0)), first)
    second = polynomial((select((x >= 3.0) & (x < 8.0), x, 5.5) - 5.5) * 0.4, k.LGAMMA_MIDDLE)
    large = select(x >= 8.0, x, 8.0)
    third = (large - 0.5) * (apply("log", large) - 1.0) + (HALF_LOG_2PI - 0.5) + stirling(large)
    return select(x < 3.0, first, select(x < 8.0, second, third))


def gammaln_of_1_and(x: Expr) -> Expr:
    """log Γ(1 + x) for 0 <= x < 1, as exact as x is."""
    return x * (x - 1.0) * polynomial(x - 1.0, k.LGAMMA_NEAR)


def gammaln(x: Expr) -> Expr:
    """log |Γ(x)|; below 0 by reflection, infinite at the poles."""
    negative = x <= 0.0
    value = _gammaln_of_positive(select(negative, 1.0 - x, x))
    sine = apply("abs", sine_of_pi(select(negative & x.ne(-INF), x, 0.5)))
    pole = sine.eq(0)
    reflected = select(pole, INF, math.log(math.pi) - apply("log", select(pole, 1.0, sine)) - value)
    return select(x.eq(INF) | x.ne(x), x, select(negative, select(x.eq(-INF), x, reflected), value))


def _gamma_of_positive(x: Expr) -> Expr:
    """Stirling's formula at x + 12, divided by the factors between; its power in two halves, which
    do not overflow.
    """
    shifted = x < float(SHIFT)
    z = select(shifted, x + float(SHIFT), x)
    half = apply("pow", z, (z - 0.5) * 0.5)
    whole = half * apply("exp", -z) * apply("exp", stirling(z)) * half * math.sqrt(2 * math.pi)
    factors = math.prod(
        (select(shifted, x + float(n), 1.0) for n in range(1, SHIFT)), start=select(shifted, x, 1.0)
    )
    return select(x > 171.7, INF, whole / factors)


def gamma(x: Expr) -> Expr:
    negative = x <= 0.0
    value = _gamma_of_positive(select(negative, 1.0 - x, x))
    sine = sine_of_pi(select(negative & x.ne(-INF), x, 0.5))
    reflected = select(sine.eq(0), math.nan, math.pi / (select(sine.eq(0), 1.0, sine) * value))
    reflected = select(x.eq(0), 1.0 / x, select(x.eq(-INF), math.nan, reflected))
    return select(x.eq(INF), x, select(negative, reflected, value))


def _in_right_half(z: Z) -> tuple[Expr, Z]:
    """The condition that a number is left of 1/2, and the number or its reflection."""
    left = z.re < 0.5
    return left, Z(select(left, 1.0 - z.re, z.re), select(left, -z.im, z.im))


def _in_squares(x: Z, coefficients: tuple[float, ...]) -> tuple[Z, Z]:
    """A number's square, and the polynomial in it."""
    square = x * x
    sum = Z(constant(coefficients[-1], F64), constant(0, F64))
    for coefficient in coefficients[-2::-1]:
        sum = (sum * square).plus(coefficient)
    return square, sum


def complex_gamma(z: Z) -> Z:
    left, w = _in_right_half(z)
    high = w.plus(float(SHIFT))
    inverse = c.inv(high)
    _, series = _in_squares(inverse, STIRLING)
    logarithm = (high.plus(-0.5) * complex_functions.log(high) - high + series * inverse).plus(
        HALF_LOG_2PI
    )
    value = complex_functions.exp(logarithm)
    value = value / math.prod((w.plus(float(n)) for n in range(1, SHIFT)), start=w)
    reflected = Z(constant(math.pi, F64), constant(0, F64)) / (
        complex_functions.sin(z.times(math.pi)) * value
    )
    return c.choose(left, reflected, value)


def psi(x: Expr) -> Expr:
    """The derivative of log Γ: its series at x + 12 less the reciprocals between; below 0 by
    reflection.
    """
    negative = x <= 0.0
    y = select(negative, 1.0 - x, x)
    shifted = y < float(SHIFT)
    z = select(shifted, y + float(SHIFT), y)
    inverse = 1.0 / z
    series = (
        apply("log", z) - 0.5 * inverse - inverse * inverse * polynomial(inverse * inverse, PSI)
    )
    first = select(shifted, 1.0 / select(shifted, y, 1.0), 0.0)
    value = series - sum(
        (select(shifted, 1.0 / (y + float(n)), 0.0) for n in range(1, SHIFT)), first
    )
    sine = sine_of_pi(select(negative & x.ne(-INF), x, 0.5))
    cosine = sine_of_pi(select(negative & x.ne(-INF), x, 0.5) + 0.5)
    reflected = value - math.pi * cosine / select(sine.eq(0), 1.0, sine)
    poles = select(x.eq(0), -(1.0 / x), select(sine.eq(0) | x.eq(-INF), math.nan, reflected))
    return select(x.eq(INF), x, select(negative, poles, value))


def complex_psi(z: Z) -> Z:
    left, w = _in_right_half(z)
    high = w.plus(float(SHIFT))
    inverse = c.inv(high)
    square, series = _in_squares(inverse, PSI)
    value = complex_functions.log(high) - inverse.times(0.5) - series * square
    for n in range(SHIFT):
        value = value - c.inv(w.plus(float(n)))
    reflected = value - c.inv(complex_functions.tan(z.times(math.pi))).times(math.pi)
    return c.choose(left, reflected, value)


def tri_gamma(x: Expr) -> Expr:
    """The derivative of psi, likewise; infinite at the poles."""
    negative = x <= 0.0
    y = select(negative, 1.0 - x, x)
    shifted = y < float(SHIFT)
    inverse = 1.0 / select(shifted, y + float(SHIFT), y)
    square = inverse * inverse
    value = inverse + 0.5 * square + inverse * square * polynomial(square, BERNOULLI)
    for n in range(SHIFT):
        one = 1.0 / select(shifted, y + float(n), 1.0)
        value = value + select(shifted, one * one, 0.0)
    sine = sine_of_pi(select(negative & x.ne(-INF), x, 0.5))
    pole = sine.eq(0) | x.eq(-INF)
    cosecant = math.pi / select(pole, 1.0, sine)
    return select(
        x.eq(INF), 0.0, select(negative, select(pole, INF, cosecant * cosecant - value), value)
    )


# References


def _exact_psi(x: float) -> float:
    if math.isinf(x):
        return x if x > 0 else math.nan
    if x <= 0:
        if x == round(x):
            return -math.copysign(math.inf, x) if x == 0 else math.nan
        return _exact_psi(1 - x) - math.pi / math.tan(math.pi * (x - round(x)))
    value = np.longdouble(0)
    y = np.longdouble(x)
    while y < 30:
        value, y = value - 1 / y, y + 1
    terms = sum(b / ((2 * n + 2) * y ** (2 * n + 2)) for n, b in enumerate(BERNOULLI))
    return float(value + np.log(y) - 1 / (2 * y) - terms)


def _exact_tri_gamma(x: float) -> float:
    if math.isinf(x):
        return 0.0 if x > 0 else math.inf
    if x <= 0:
        if x == round(x):
            return math.inf
        return (math.pi / math.sin(math.pi * (x - round(x)))) ** 2 - _exact_tri_gamma(1 - x)
    value = np.longdouble(0)
    y = np.longdouble(x)
    while y < 30:
        value = value + 1 / (y * y)
        y = y + 1
    return float(
        value + 1 / y + 1 / (2 * y * y) + sum(b / y ** (2 * n + 3) for n, b in enumerate(BERNOULLI))
    )


def exact_gamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    if math.isinf(x):
        return x if x > 0 else math.nan
    return math.nan if x < 0 and x == math.floor(x) else math.gamma(x)


def _exact_gammaln(x: float) -> float:
    if math.isinf(x):
        return x
    if x <= 0 and x == math.floor(x):
        return math.inf
    return math.lgamma(x)


def _exact_complex_gamma(z: np.ndarray) -> np.ndarray:
    wide = z.astype(np.clongdouble)
    w = np.where(wide.real < 0.5, 1 - wide, wide)
    high = w + 30
    factors = math.prod((w + n for n in range(30)), start=np.ones_like(w))
    series = sum(s / high ** (2 * n + 1) for n, s in enumerate(STIRLING))
    value = np.exp((high - 0.5) * np.log(high) - high + HALF_LOG_2PI + series) / factors
    return np.asarray(
        np.where(wide.real < 0.5, np.pi / (np.sin(np.pi * wide) * value), value)
    ).astype(z.dtype)


def _exact_complex_psi(z: np.ndarray) -> np.ndarray:
    wide = z.astype(np.clongdouble)
    w = np.where(wide.real < 0.5, 1 - wide, wide)
    high = w + 30
    value = np.log(high) - 1 / (2 * high) - sum(p / high ** (2 * n + 2) for n, p in enumerate(PSI))
    for n in range(30):
        value = value - 1 / (w + n)
    return np.asarray(
        np.where(wide.real < 0.5, value - np.pi / np.tan(np.pi * wide), value)
    ).astype(z.dtype)


def _psi_gradient(g: "Node", x: "Node", y: "Node") -> "Node":
    if x.element.kind == "complex":
        raise NotImplementedError("theano.elemwise of psi of complex numbers")
    return g * x.scalar("tri_gamma")


row(
    "gamma",
    1,
    "float",
    real_or(by_element(exact_gamma), _exact_complex_gamma),
    in_f64(gamma),
    "Γ(x)",
    on_complex=complex_gamma,
    gradient=of_one(lambda g, x, y: g * y * x.scalar("psi")),
)
row(
    "gammaln",
    1,
    "float real",
    by_element(_exact_gammaln),
    in_f64(gammaln),
    "log |Γ(x)|",
    gradient=of_one(lambda g, x, y: g * x.scalar("psi")),
)
row(
    "psi",
    1,
    "float",
    real_or(by_element(_exact_psi), _exact_complex_psi),
    in_f64(psi),
    "the derivative of gammaln",
    on_complex=complex_psi,
    gradient=of_one(_psi_gradient),
)
row(
    "tri_gamma",
    1,
    "float real",
    by_element(_exact_tri_gamma),
    in_f64(tri_gamma),
    "the derivative of psi",
)
