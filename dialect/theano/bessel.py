"""The Bessel functions of Theano, in f64: j0, j1, i0, i1, and those of any order, jv and iv."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..exactly import by_element
from ..index import Expr, Index, apply, cast, constant, select, total
from ..types import F64
from . import coefficients as k
from .elementary import INF, polynomial, sine_of_pi
from .gamma import gammaln
from .scalar_op import UNKNOWN, row
from .special import in_f64


def _small(x: Expr, table: tuple[float, ...]) -> Expr:
    """A polynomial in x² for |x| <= 8."""
    return polynomial(x * x / 32.0 - 1.0, table)


def _wave(x: Expr, p: tuple[float, ...], q: tuple[float, ...], order: int) -> Expr:
    """sqrt(2 / πx) (P cos χ - Q sin χ) for x > 8, where χ = x - (2n + 1) π/4, and P and 8Q/x are smooth in (8/x)²."""
    u = 8.0 / x
    t = u * u * 2.0 - 1.0
    sine, cosine = apply("sin", x), apply("cos", x)
    # cos χ and sin χ without rounding χ
    c = (cosine + sine if order == 0 else sine - cosine) * math.sqrt(0.5)
    s = (sine - cosine if order == 0 else -(sine + cosine)) * math.sqrt(0.5)
    return apply("sqrt", 2.0 / (math.pi * x)) * (polynomial(t, p) * c - u * polynomial(t, q) * s)


def j0(x: Expr) -> Expr:
    a = apply("abs", x)
    far = select((a > 8.0) & (a < INF), a, 9.0)
    found = select(a > 8.0, _wave(far, k.J0_P, k.J0_Q, 0), _small(select(a > 8.0, 0.0, a), k.J0))
    return select(a.eq(INF), 0.0, found)


def j1(x: Expr) -> Expr:
    a = apply("abs", x)
    far = select((a > 8.0) & (a < INF), a, 9.0)
    near = select(a > 8.0, 0.0, a)
    found = select(a > 8.0, _wave(far, k.J1_P, k.J1_Q, 1), near * _small(near, k.J1))
    return select(a.eq(INF), 0.0, select(x < 0.0, -found, found))


# (x/2)^2k / k!² and (x/2)^2k / (k! (k+1)!), the series of i0 and i1: no term is negative
I0_SERIES = tuple(1 / math.factorial(n) ** 2 for n in range(28))
I1_SERIES = tuple(1 / (math.factorial(n) * math.factorial(n + 1)) for n in range(28))


def _growing(a: Expr, table: tuple[float, ...]) -> Expr:
    """exp(x) / sqrt(x) times a polynomial in 8/x for x > 8; the power in two halves, which do not overflow early."""
    half = apply("exp", a * 0.5)
    return half * (polynomial(16.0 / a - 1.0, table) / apply("sqrt", a)) * half


def i0(x: Expr) -> Expr:
    a = apply("abs", x)
    near = select(a > 8.0, 0.0, a) * 0.5
    found = select(
        a > 8.0, _growing(select((a > 8.0) & (a < INF), a, 9.0), k.I0_FAR), polynomial(near * near, I0_SERIES)
    )
    return select(a.eq(INF), a, found)


def i1(x: Expr) -> Expr:
    a = apply("abs", x)
    near = select(a > 8.0, 0.0, a) * 0.5
    found = select(
        a > 8.0, _growing(select((a > 8.0) & (a < INF), a, 9.0), k.I1_FAR), near * polynomial(near * near, I1_SERIES)
    )
    found = select(a.eq(INF), a, found)
    return select(x < 0.0, -found, found)


# Of any order: the power series where its terms fall, Schläfli's integrals elsewhere; good to |x| and orders of about 50

SERIES, NODES = 60, 256


def _series(v: Expr, x: Expr, sign: float) -> Expr:
    """(x/2)^v / Γ(v+1) (1 ± t/(1 (v+1)) (1 ± t/(2 (v+2)) (...))), where t = x²/4"""
    t = x * x * 0.25 * sign
    found: Expr = constant(1, F64)
    for n in range(SERIES, 0, -1):
        found = 1.0 + t / ((v + float(n)) * float(n)) * found
    whole = apply("floor", v + 1.0)
    below = (v < -1.0) & (whole - 2.0 * apply("floor", whole * 0.5)).ne(0)  # where Γ(v+1) is negative
    return select(below, -found, found) * apply("exp", v * apply("log", x * 0.5) - gammaln(v + 1.0))


def _nodes(low: float, high: float) -> tuple[Index, Expr, float]:
    n = Index("n", NODES)
    step = (high - low) / NODES
    return n, cast(n, F64) * step + low, step


def _integrals(v: Expr, x: Expr) -> Expr:
    """(1/π) ∫ cos(vτ - x sin τ) dτ over [0, π] - (sin vπ / π) ∫ exp(-x sinh t - vt) dt over t > 0"""
    n, s, step = _nodes(-3.6, 3.6)
    up = apply("exp", s)
    decay = apply("exp", (1.0 / up - up) * (math.pi / 2))
    share = 1.0 / (1.0 + decay)
    tau = share * math.pi
    weight = decay * share * share * (up + 1.0 / up) * (math.pi / 2)
    first = total(n, apply("cos", v * tau - x * apply("sin", tau)) * weight) * step
    m, r, width = _nodes(-4.5, 3.5)
    falling = apply("exp", -r)
    t = apply("exp", r - falling)
    second = total(m, apply("exp", -(x * apply("sinh", t)) - v * t) * t * (1.0 + falling)) * width
    return first - sine_of_pi(v) * (1 / math.pi) * second


def _of_order(series_sign: float, otherwise: Any) -> Any:
    def formula(v: Expr, x: Expr) -> Expr:
        a = apply("abs", x)
        safe = select(a > 0.0, a, 1.0)
        whole = apply("floor", v).eq(v)
        order = select(whole, apply("abs", v), v)  # whole orders are even or odd in the order, too
        found = _series(order, safe, series_sign)
        if otherwise is not None:
            near = a * a < 4.0 * apply("abs", order + 1.0)
            found = select(near, found, otherwise(order, safe))
        odd = whole & (v - 2.0 * apply("floor", v * 0.5)).ne(0)
        turned = odd & ((x < 0.0) if series_sign > 0 else (x < 0.0) ^ (v < 0.0))
        found = select(turned, -found, found)
        at_zero = select(v.eq(0), constant(1, F64), select((v > 0.0) | whole, 0.0, constant(INF, F64)))
        return select(a.eq(0), at_zero, select((x < 0.0) & ~whole, math.nan, found))

    return formula


jv = _of_order(-1.0, _integrals)
iv = _of_order(1.0, None)


# References: the integrals by the trapezoidal rule with many nodes, in the longest precision


def _trapezoid(order: int, x: float, function: Any) -> float:
    count = int(4 * abs(x)) + 200
    theta = np.arange(count, dtype=np.longdouble) * (2 * np.arccos(np.longdouble(-1)) / count)
    return float(function(np.longdouble(x), theta, order).sum() / count)


def _exact_j(order: int, x: float) -> float:
    if abs(x) > 1000:
        return _exact_wave(order, abs(x)) * (-1 if x < 0 and order % 2 else 1)
    return _trapezoid(order, x, lambda x, theta, n: np.cos(n * theta - x * np.sin(theta)))


def _exact_wave(order: int, x: float) -> float:
    """Hankel's asymptotic expansion."""
    if math.isinf(x):
        return 0.0
    wide, term = np.longdouble(x), np.longdouble(1)
    parts = [term, np.longdouble(0)]
    for n in range(1, 12):
        term = term * (4 * order * order - (2 * n - 1) ** 2) / (n * 8 * wide)
        parts[n % 2] += term * (1 if n % 4 < 2 else -1)
    cosine, sine = np.cos(wide) + np.sin(wide), np.sin(wide) - np.cos(wide)  # of x - π/4, times sqrt(2)
    for _ in range(order % 4):  # and a quarter turn less for each order
        cosine, sine = sine, -cosine
    return float((parts[0] * cosine - parts[1] * sine) / np.sqrt(4 * np.arctan(np.longdouble(1)) * wide))


def _exact_i(order: int, x: float) -> float:
    if abs(x) > 713:
        return math.copysign(math.inf, x) if order % 2 else math.inf
    return _trapezoid(order, x, lambda x, theta, n: np.exp(x * np.cos(theta)) * np.cos(n * theta))


def _exact_integrals(v: float, x: float) -> float:
    """Schläfli's integrals, as the formula has them, with many more nodes and digits."""
    pi, wide = 4 * np.arctan(np.longdouble(1)), np.longdouble(x)
    s = np.linspace(np.longdouble(-4.2), np.longdouble(4.2), 4001)
    decay = np.exp(-pi * np.sinh(s))
    tau, weight = pi / (1 + decay), decay / (1 + decay) ** 2 * np.cosh(s) * pi
    first = (np.cos(v * tau - wide * np.sin(tau)) * weight).sum() * (s[1] - s[0])
    t = np.exp(s - np.exp(-s))
    with np.errstate(all="ignore"):
        second = (np.exp(-wide * np.sinh(t) - v * t) * t * (1 + np.exp(-s))).sum() * (s[1] - s[0])
    return float(first - np.sin(pi * np.longdouble(v)) / pi * second)


def exact_of_order(v: float, x: float, sign: int) -> float:
    """The power series with terms in the longest precision; whole orders below 0 by symmetry."""
    if v == math.floor(v):
        if abs(v) < 2**31 and abs(x) > 12:
            return (_exact_j if sign < 0 else _exact_i)(int(v), x)
        if v < 0:
            return exact_of_order(-v, x, sign) * ((-1) ** int(v) if sign < 0 else 1)
    elif x < 0:
        return math.nan
    elif sign < 0 and x > 12:
        return _exact_integrals(v, x)
    if x == 0:
        return 1.0 if v == 0 else 0.0 if v > 0 else math.inf
    half = np.longdouble(x) / 2
    term = np.longdouble(1)
    for n in range(1, int(abs(v)) + 1 if v == math.floor(v) else 0):
        term = term * half / n
        if term == 0:
            return 0.0
    if v != math.floor(v):
        term = half ** np.longdouble(v) / np.longdouble(math.gamma(v + 1))
    found = term
    for n in range(1, 400):
        term = term * sign * half * half / (n * (np.longdouble(v) + n))
        found = found + term
    return float(found)


def _at_zero(g: Any, x: Any, value: float, elsewhere: Any) -> Any:
    return g * x.scalar("eq", 0).scalar("switch", value, elsewhere)


def _f(derivative: Any) -> Any:
    return lambda g, xs, y: (derivative(g, xs[0].cast(y.element), y),)


def _order_gradient(name: str) -> Any:
    def gradient(g: Any, xs: Any, y: Any) -> tuple[Any, Any]:
        v, x = (o.cast(y.element) for o in xs)
        below, above = (v - 1).scalar(name, x), (v + 1).scalar(name, x)
        return UNKNOWN, g * 0.5 * (below - above if name == "jv" else below + above)

    return gradient


row(
    "j0",
    1,
    "float real",
    by_element(lambda x: exact_of_order(0, x, -1)),
    in_f64(j0),
    "the Bessel function of order 0",
    gradient=_f(lambda g, x, y: -(g * x.scalar("j1"))),
)
row("j1", 1, "float real", by_element(lambda x: exact_of_order(1, x, -1)), in_f64(j1), "the Bessel function of order 1",
    gradient=_f(lambda g, x, y: _at_zero(g, x, 0.5, x.scalar("j0") - y / x)))  # fmt: skip
row(
    "i0",
    1,
    "float real",
    by_element(lambda x: exact_of_order(0, x, 1)),
    in_f64(i0),
    "the modified Bessel function of order 0",
    gradient=_f(lambda g, x, y: g * x.scalar("i1")),
)
row("i1", 1, "float real", by_element(lambda x: exact_of_order(1, x, 1)), in_f64(i1), "the modified Bessel function of order 1",
    gradient=_f(lambda g, x, y: _at_zero(g, x, 0.5, x.scalar("i0") - y / x)))  # fmt: skip
row(
    "jv",
    2,
    "float real",
    by_element(lambda v, x: exact_of_order(v, x, -1)),
    in_f64(jv),
    "the Bessel function of order x",
    gradient=_order_gradient("jv"),
)
row("iv", 2, "float real", by_element(lambda v, x: exact_of_order(v, x, 1)), in_f64(iv), "the modified Bessel function of order x",
    gradient=_order_gradient("iv"))  # fmt: skip
