"""The Bessel functions jv and iv of any order.

The power series where its terms decrease; asymptotic expansions far from 0; integrals between.
"""

import math
from typing import Any

from ..kernel_ir.expressions import Expr, Index, apply, cast, constant, select, total
from ..types.tensor_types import F64
from .formula_blocks import INF, polynomial, polynomial_sine, sine_of_pi
from .gamma import gammaln

SERIES, NODES = 80, 256


def _series(v: Expr, x: Expr, sign: float) -> Expr:
    """(x/2)^v / Γ(v+1) (1 ± t/(1 (v+1)) (1 ± t/(2 (v+2)) (...))), where t = x²/4"""
    t = x * x * 0.25 * sign
    sum: Expr = constant(1, F64)
    for n in range(SERIES, 0, -1):
        sum = 1.0 + t / ((v + float(n)) * float(n)) * sum
    whole = apply("floor", v + 1.0)
    below = (v < -1.0) & (whole - 2.0 * apply("floor", whole * 0.5)).ne(
        0
    )  # where Γ(v+1) is negative
    return select(below, -sum, sum) * apply("exp", v * apply("log", x * 0.5) - gammaln(v + 1.0))


def _nodes(low: float, high: float) -> tuple[Index, Expr, float]:
    n = Index("n", NODES)
    step = (high - low) / NODES
    return n, cast(n, F64) * step + low, step


def _about_acos(z: Expr) -> Expr:
    """acos z, to 4 digits."""
    a = apply("abs", z)
    angle = polynomial(a, (1.5707288, -0.2121144, 0.0742610, -0.0187293)) * apply("sqrt", 1.0 - a)
    return select(z < 0.0, math.pi - angle, angle)


LEFT = 39.0  # exp(-LEFT) is left out


def _integrals(v: Expr, x: Expr) -> Expr:
    """Schläfli's: 1 / 2πi ∫ exp(x sinh t - vt) dt from ∞ - πi to ∞ + πi, through a saddle where
    cosh t = v/x.

    The way goes along t = u + iθ, u = u0 + kθ, where little cancels and little oscillates, and
    along θ = π beyond: (1/π) ∫ exp(x sinh u cos θ - vu) (cos ψ + k sin ψ) dθ - (sin vπ / π) ∫
    exp(-x sinh u - vu) du, ψ = x cosh u sin θ - vθ. Saddles are at ±iβ where |v| < x, at ±α where v
    > x, and at ±α ± πi where v < -x: there the way goes from -α + πi inwards. Any u0 and k give the
    same, so that α and β need not be exact.
    """
    z = v / x
    waves = apply("abs", v) < x
    grows = v <= -x
    root = apply("sqrt", apply("abs", (1.0 - z) * (1.0 + z)))
    alpha = select(waves, 0.0, apply("log", select(waves, 1.0, apply("abs", z) + root)))
    beta = select(waves, _about_acos(select(waves, z, 0.0)), 0.0)
    steep = x * root  # the second derivative at the saddle; the third is v
    cubic = apply("exp", apply("log", select(grows, -v, select(v > 0.0, v, 1e-30))) * (1 / 3))
    k = select(waves | (steep <= 2.0 * cubic * cubic), constant(1, F64), 0.0)
    third = (3.0 * LEFT) ** (1 / 3) / cubic
    flat = apply("maximum", steep, constant(1e-30, F64))
    second = apply("sqrt", 1.5 * LEFT / flat)
    pi = constant(math.pi, F64)
    reach = select(
        waves, beta + apply("minimum", second, third), 1.1 * select(k > 0.0, third, 1.155 * second)
    )
    reach = apply("minimum", pi, reach)
    high = select(grows, pi, reach)
    low = select(
        grows, pi - reach, select(waves, apply("maximum", beta - second, constant(0, F64)), 0.0)
    )
    u0 = select(grows, -alpha - k * pi, alpha - beta)

    n, s, step = _nodes(-3.6, 3.6)
    up = apply("exp", s)
    decay = apply("exp", (1.0 / up - up) * (math.pi / 2))
    share = 1.0 / (1.0 + decay)
    theta = low + (high - low) * share
    weight = decay * share * share * (up + 1.0 / up) * (math.pi / 2)
    sine = polynomial_sine(theta - math.pi / 2, 1)
    cosine = -polynomial_sine(theta - math.pi / 2, 0)
    u = u0 + k * theta
    power = apply("exp", u)
    size = apply("exp", x * 0.5 * (power - 1.0 / power) * cosine - v * u)
    psi = x * 0.5 * (power + 1.0 / power) * sine - v * theta
    # cos ψ + k sin ψ, but for a factor
    wave = apply("sin", psi + select(k > 0.0, constant(math.pi / 4, F64), math.pi / 2))
    first = (
        total(n, size * wave * weight)
        * step
        * (high - low)
        * select(k > 0.0, constant(math.sqrt(2), F64), 1.0)
    )

    m, r, width = _nodes(-4.5, 3.5)
    falling = apply("exp", -r)
    t = apply("exp", r - falling)
    bell = grows & (steep * alpha * alpha > 72.0)  # around α, where nothing is left of it at -α
    sigma = 1.0 / apply("sqrt", flat)
    y = (r + 4.5) * (26.5 / 8) - 17.0
    beyond = select(bell, alpha + sigma * y, u0 + k * math.pi + t)
    weight = select(bell, sigma * (26.5 / 8), t * (1.0 + falling))
    power = apply("exp", beyond)
    rest = total(m, apply("exp", x * 0.5 * (1.0 / power - power) - v * beyond) * weight) * width
    return (first - sine_of_pi(v) * rest) * (1 / math.pi)


HANKEL = 26


def _far_wave(v: Expr, x: Expr) -> Expr:
    """sqrt(2 / πx) (P cos χ - Q sin χ) by Hankel's expansion, for x > 50 and v² < 8x, where χ = x -
    (2v + 1) π/4.
    """
    square = 4.0 * v * v
    part = 0.125 / x
    p: Expr = constant(1, F64)
    q = p
    for n in range(HANKEL, 0, -2):  # 1 - a1 (...) in pairs of coefficients, from the last one
        first, second = (square - float((2 * m - 1) ** 2) for m in (n - 1, n))
        p = 1.0 - first * second * part * part * (1.0 / (n * (n - 1))) * p
        first, second = (square - float((2 * m - 1) ** 2) for m in (n, n + 1))
        q = 1.0 - first * second * part * part * (1.0 / (n * (n + 1))) * q
    q = (square - 1.0) * part * q
    # cos and sin of χ without rounding χ: turned by (2v + 1) π/4, which sines of whole parts of π
    # give
    turn, ahead = sine_of_pi(v * 0.5 + 0.25), sine_of_pi(v * 0.5 + 0.75)
    sine, cosine = apply("sin", x), apply("cos", x)
    c = cosine * ahead + sine * turn
    s = sine * ahead - cosine * turn
    return apply("sqrt", 2.0 / (math.pi * x)) * (p * c - q * s)


def _jv_otherwise(v: Expr, x: Expr) -> Expr:
    is_far = (x > 50.0) & (v * v < 8.0 * x)
    far = _far_wave(select(is_far, v, 0.0), select(is_far & (x < INF), x, 64.0))
    return select(is_far, select(x.eq(INF), 0.0, far), _integrals(v, x))


def _far_growth(v: Expr, x: Expr) -> Expr:
    """exp(x) / π ∫ exp(-2x sin²(s/2)) cos(vs) ds, for x > 34 and |v| < 40, where little is left at
    s = 12 / sqrt(x).
    """
    n = Index("n", 32)
    width = 0.375 / apply("sqrt", x)
    at = cast(n, F64) * width
    half = apply("sin", at * 0.5)
    weight = select(cast(n, F64) > 0.0, constant(1, F64), 0.5)
    integral = total(n, apply("exp", -2.0 * x * half * half) * apply("cos", v * at) * weight)
    root = apply("exp", 0.5 * x)  # squared, it may be too large where the result is not
    return root * (integral * width * (1 / math.pi)) * root


# Debye's polynomials in p, without their factors p^k: in p²
DEBYE = (
    (3 / 24, -5 / 24),
    (81 / 1152, -462 / 1152, 385 / 1152),
    (30375 / 414720, -369603 / 414720, 765765 / 414720, -425425 / 414720),
    (
        4465125 / 39813120,
        -94121676 / 39813120,
        349922430 / 39813120,
        -446185740 / 39813120,
        185910725 / 39813120,
    ),
)


def _uniform_growth(v: Expr, x: Expr) -> Expr:
    """Debye's expansion, for |v| >= 40; a v below 0 is not whole, and has its share of what falls
    with x.
    """
    a = apply("abs", v)
    z = x / a
    root = apply("sqrt", 1.0 + z * z)
    p = 1.0 / root
    even: Expr = constant(1, F64)
    odd: Expr = constant(0, F64)
    power: Expr = constant(1, F64)
    for number, table in enumerate(DEBYE, 1):
        power = power * (p / a)
        term = power * polynomial(p * p, table)
        even, odd = (even, odd + term) if number % 2 else (even + term, odd)
    scale = 1.0 / apply("sqrt", 2.0 * math.pi * a * root)
    half = apply("exp", 0.5 * a * (root + apply("log", z / (1.0 + root))))
    falling = (1.0 / half) * (2.0 * sine_of_pi(a) * (even - odd) * scale) * (1.0 / half)
    return half * ((even + odd) * scale) * half + select(v < 0.0, falling, 0.0)


def _iv_far(v: Expr, x: Expr) -> Expr:
    a = apply("abs", v)
    far = select(x < INF, x, 64.0)
    uniform = _uniform_growth(select((a >= 40.0) & (a < INF), v, 64.0), far)
    value = select(a < 40.0, _far_growth(select(a < 40.0, v, 0.0), far), uniform)
    return select(x.eq(INF), constant(INF, F64), value)


def _of_order(series_sign: float, by_series: Any, otherwise: Any) -> Any:
    def formula(v: Expr, x: Expr) -> Expr:
        a = apply("abs", x)
        safe = select(a > 0.0, a, 1.0)
        whole = apply("floor", v).eq(v)
        order = select(whole, apply("abs", v), v)  # whole orders are even or odd in the order, too
        near = by_series(order, a)
        far = otherwise(order, select(near, 64.0, safe))
        value = select(near, _series(order, select(near, safe, 1.0), series_sign), far)
        odd = whole & (v - 2.0 * apply("floor", v * 0.5)).ne(0)
        value = select(
            odd & ((x < 0.0) if series_sign > 0 else (x < 0.0) ^ (v < 0.0)), -value, value
        )
        at_zero = select(
            v.eq(0), constant(1, F64), select((v > 0.0) | whole, 0.0, constant(INF, F64))
        )
        value = select(a.eq(0), at_zero, select((x < 0.0) & ~whole, math.nan, value))
        endless = apply("abs", v).eq(INF)
        undefined = v.ne(v) | x.ne(x) | (endless & ((x < 0.0) | a.eq(INF)))
        return select(undefined, math.nan, select(endless, 0.0, value))

    return formula


# by the series of jv where its terms decrease from the beginning, of iv where the largest are among
# the first thirty to fifty
jv = _of_order(-1.0, lambda v, x: x * x < 4.0 * apply("abs", v + 1.0), _jv_otherwise)
iv = _of_order(
    1.0, lambda v, x: x * x < 3600.0 + 120.0 * apply("maximum", v, constant(-20, F64)), _iv_far
)
