"""The incomplete gamma functions of Theano, in f64: gammainc, gammaincc, gammal, gammau and chi2sf."""

from __future__ import annotations

import math
from typing import Any

from ..exactly import by_element
from ..index import Expr, Index, apply, cast, constant, select, total
from ..types import F64
from .elementary import INF
from .gamma import exact_gamma, gamma, gammaln
from .scalar_op import UNKNOWN, row
from .special import in_f64

# The incomplete functions: the density of the gamma distribution of order a + 2, integrated from 0 to x or from x on. The
# nodes approach the ends double exponentially, so that the trapezoidal rule is exact to the last digits

NODES, WIDTH = 320, 9.5


def gammainc(a: Expr, x: Expr) -> Expr:
    return _parts(a, x)[0]


def gammaincc(a: Expr, x: Expr) -> Expr:
    return _parts(a, x)[1]


def _parts(a: Expr, x: Expr) -> tuple[Expr, Expr]:
    """The regularised integrals of t^(a-1) exp(-t) below and above x. Of order 0 all is below; infinitely far nothing is left."""
    good = (a > 0.0) & (a < INF) & (x > 0.0) & (x < INF)
    order, end = select(good, a, 1.0), select(good, x, 1.0)
    high = order + 2.0
    below = end < high
    n = Index("n", NODES)
    step = WIDTH / NODES
    s = cast(n, F64) * step - WIDTH * 0.45
    up = apply("exp", s)
    down = 1.0 / up
    decay = apply("exp", (down - up) * (math.pi / 2))
    share = 1.0 / (1.0 + decay)
    inner = end * share
    inner_weight = inner * decay * share * (up + down) * (math.pi / 2)
    away = apply("exp", s * 1.2 - down)
    t = select(below, inner, end + away)
    weight = select(below, inner_weight, away * (down + 1.2))
    safe = select(t > 0.0, t, 1.0)
    density = apply("exp", (high - 1.0) * apply("log", safe) - t - gammaln(high))
    area = total(n, select(t > 0.0, density * weight, 0.0)) * step
    # P(a) = P(a + 2) + x^a exp(-x) / Γ(a + 1) (1 + x / (a + 1)), and Q(a) is less by as much
    edge = apply("exp", order * apply("log", end) - end - gammaln(order + 1.0)) * (1.0 + end / (order + 1.0))
    lower = select(below, area, 1.0 - area) + edge
    upper = select(below, (1.0 - area) - edge, area - edge)
    none = (a > 0.0) & x.eq(0) | a.eq(INF) & (x >= 0.0) & (x < INF)
    every = a.eq(0) & (x > 0.0) | (a > 0.0) & (a < INF) & x.eq(INF)
    nothing = constant(math.nan, F64)
    return (
        select(good, lower, select(none, 0.0, select(every, 1.0, nothing))),
        select(good, upper, select(none, 1.0, select(every, 0.0, nothing))),
    )


def chi2sf(x: Expr, degrees: Expr) -> Expr:
    return select((x <= 0.0) & (degrees > 0.0), 1.0, gammaincc(degrees * 0.5, x * 0.5))


# References


def exact_incomplete(a: float, x: float) -> tuple[float, float]:
    """P and Q: by the power series below a + 1, else by the continued fraction."""
    if not (a >= 0 and x >= 0) or a == x == 0 or a == x == math.inf:
        return math.nan, math.nan
    if x == 0 or math.isinf(a):
        return 0.0, 1.0
    if a == 0 or math.isinf(x):
        return 1.0, 0.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = whole = 1 / a
        n = a
        while abs(term) > abs(whole) * 1e-18:
            n += 1
            term *= x / n
            whole += term
        return whole * front, 1 - whole * front
    b = x + 1 - a
    c_, d = 1e300, 1 / b
    h = d
    for i in range(1, 10000):
        an = -i * (i - a)
        b += 2
        d = 1 / ((an * d + b) or 1e-300)
        c_ = (b + an / c_) or 1e-300
        h *= d * c_
        if abs(d * c_ - 1) < 1e-17:
            break
    return 1 - front * h, front * h


def _density(a: Any, x: Any) -> Any:
    """x^(a-1) exp(-x)"""
    return ((a - 1) * x.scalar("log") - x).scalar("exp")


def _regular(a: Any, x: Any) -> Any:
    return _density(a, x) / a.scalar("gamma")


def _incomplete(sign: int, density: Any) -> Any:
    def gradient(g: Any, xs: Any, y: Any) -> tuple[Any, Any]:
        a, x = (o.cast(y.element) for o in xs)
        found = g * density(a, x)
        return UNKNOWN, found if sign > 0 else -found

    return gradient


def _chi2sf_gradient(g: Any, xs: Any, y: Any) -> tuple[Any, Any]:
    x, degrees = (o.cast(y.element) for o in xs)
    return g * -0.5 * _regular(degrees * 0.5, x * 0.5), UNKNOWN


_INCOMPLETE: tuple[tuple[str, Any, Any, int, Any, str], ...] = (
    ("gammainc", lambda a, x: exact_incomplete(a, x)[0], gammainc, 1, _regular, "the share of Γ(a) that lies below x"),
    ("gammaincc", lambda a, x: exact_incomplete(a, x)[1], gammaincc, -1, _regular, "the share of Γ(a) that lies above x"),
    ("gammal", lambda a, x: exact_incomplete(a, x)[0] * exact_gamma(a), lambda a, x: gammainc(a, x) * gamma(a), 1, _density,
     "the part of Γ(a) below x"),
    ("gammau", lambda a, x: exact_incomplete(a, x)[1] * exact_gamma(a), lambda a, x: gammaincc(a, x) * gamma(a), -1, _density,
     "the part of Γ(a) above x"),
)  # fmt: skip
for _name, _exact, _formula, _sign, _weight, _doc in _INCOMPLETE:
    row(_name, 2, "float real", by_element(_exact), in_f64(_formula), _doc, gradient=_incomplete(_sign, _weight))
row("chi2sf", 2, "probability", by_element(lambda x, d: 1.0 if x <= 0 < d else exact_incomplete(d / 2, x / 2)[1]), in_f64(chi2sf),
    "the probability that a chi-squared variable of y degrees of freedom exceeds x", gradient=_chi2sf_gradient)  # fmt: skip
