"""The incomplete gamma functions of Theano, in f64: gammainc, gammaincc, gammal, gammau and
chi2sf.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ..kernel_ir.expressions import Expr, Index, apply, cast, constant, select, total
from ..kernel_ir.scalar_references import by_element
from ..types.tensor_types import F64
from .erf import in_f64
from .formula_blocks import INF, polynomial
from .gamma import exact_gamma, gamma, gammaln, gammaln_of_1_and, stirling
from .incomplete_gamma_reference import TEMME, exact_incomplete
from .scalar_op import UNKNOWN, row

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes
    from .scalar_op import Gradient

LARGE = 2.0**17  # orders of which Temme's expansion has all digits
NODES, WIDTH = 320, 9.5


def gammainc(a: Expr, x: Expr) -> Expr:
    return _parts(a, x)[0]


def gammaincc(a: Expr, x: Expr) -> Expr:
    return _parts(a, x)[1]


def _parts(a: Expr, x: Expr) -> tuple[Expr, Expr]:
    """The regularised integrals of t^(a-1) exp(-t) below and above x. Of order 0 all is below;
    infinitely far nothing is left.
    """
    good = (a > 0.0) & (a < INF) & (x > 0.0) & (x < INF)
    order, end = select(good, a, 1.0), select(good, x, 1.0)
    few = order < LARGE
    by_area = _by_area(select(few, order, 1.0), select(few, end, 1.0))
    at_once = _at_once(select(few, LARGE, order), end)
    near_0 = (order < 1.0) & (end < 1.5)
    above = _above_few(select(near_0, order, 0.5), select(near_0, end, 1.0))
    lower, upper = (select(few, p, q) for p, q in zip(by_area, at_once, strict=True))
    none = (a > 0.0) & x.eq(0) | a.eq(INF) & (x >= 0.0) & (x < INF)
    every = a.eq(0) & (x > 0.0) | (a > 0.0) & (a < INF) & x.eq(INF)
    nothing = constant(math.nan, F64)
    return (
        select(good, lower, select(none, 0.0, select(every, 1.0, nothing))),
        select(good, select(near_0, above, upper), select(none, 1.0, select(every, 0.0, nothing))),
    )


def _by_area(order: Expr, end: Expr) -> tuple[Expr, Expr]:
    """The density of the gamma distribution of order a + 2, integrated from 0 to x or from x on;
    that of a itself, from x on, where it has no pole to come near to. The nodes approach the ends
    double exponentially, so that the trapezoidal rule is exact to the last digits.
    """
    direct = (order < 1.0) & (end >= 1.5)
    high = order + 2.0
    below = (end < high) & ~direct
    n = Index("n", NODES)
    step = WIDTH / NODES
    s = cast(n, F64) * step - WIDTH * 0.45
    up = apply("exp", s)
    down = 1.0 / up
    decay = apply("exp", (down - up) * (math.pi / 2))
    share = 1.0 / (1.0 + decay)
    inner = end * share
    inner_weight = inner * decay * share * (up + down) * (math.pi / 2)
    away = apply("exp", s * 1.2 - down) * apply(
        "maximum", apply("sqrt", high) * 0.0625, constant(1, F64)
    )
    t = select(below, inner, end + away)
    weight = select(below, inner_weight, away * (down + 1.2))
    safe = select(t > 0.0, t, 1.0)
    density = select(direct, _distribution(order, safe) / safe, _distribution(order + 1.0, safe))
    area = total(n, select(t > 0.0, density * weight, 0.0)) * step
    # P(a) = P(a + 2) + x^a exp(-x) / Γ(a + 1) (1 + x / (a + 1)), and Q(a) is less by as much
    edge = _distribution(order, end) * (1.0 + end / (order + 1.0))
    lower = select(below, area, 1.0 - area) + edge
    upper = select(below, (1.0 - area) - edge, area - edge)
    return select(direct, 1.0 - order * area, lower), select(direct, order * area, upper)


def _distribution(order: Expr, t: Expr) -> Expr:
    """t^a exp(-t) / Γ(a + 1); of higher orders by Stirling's formula, so that nothing large
    cancels.
    """
    high = order >= 8.0
    small = select(high, 1.0, order)
    large = select(high, order, 8.0)
    few = (
        small * apply("log", t)
        - t
        - select(small < 1.0, gammaln_of_1_and(small), gammaln(small + 1.0))
    )
    many = -large * _deviance((t - large) / large) - stirling(large)
    scale = select(high, 1.0 / apply("sqrt", large * (2 * math.pi)), 1.0)
    return apply("exp", select(high, many, few)) * scale


def _deviance(m: Expr) -> Expr:
    """m - log(1 + m)"""
    near = apply("abs", m) < 0.1
    series = polynomial(select(near, m, 0.0), tuple((-1) ** n / n for n in range(2, 18)))
    return select(near, m * m * series, m - apply("log1p", m))


def _at_once(order: Expr, end: Expr) -> tuple[Expr, Expr]:
    """Temme's expansion about the normal distribution."""
    m = (end - order) / order
    root = apply("sqrt", 2.0 * _deviance(m))
    beyond = apply("minimum", root, constant(1, F64))  # where there is something left of the rest
    eta = select(m < 0.0, -beyond, beyond)
    first, second, third = (polynomial(eta, table) for table in TEMME)
    rest = first + (second + third / order) / order
    z = root * apply("sqrt", order * 0.5)
    rest = rest * apply("exp", -(z * z)) / apply("sqrt", order * (2 * math.pi))
    tail = 0.5 * apply("erfc", z)
    rest = select(rest.eq(rest), rest, 0.0)
    return select(m < 0.0, tail, 1.0 - tail) - rest, select(m < 0.0, 1.0 - tail, tail) + rest


def _above_few(a: Expr, x: Expr) -> Expr:
    """1 - x^a / Γ(a + 1) (1 + a (...)) of low orders, near 0, where nearly all may be below."""
    power = a * apply("log", x) - gammaln_of_1_and(a)
    series: Expr = constant(0, F64)
    for n in range(26, 0, -1):
        series = (1.0 / (a + float(n)) + series) * x * (-1.0 / n)
    return -apply("expm1", power) - apply("exp", power) * a * series


def _density(a: "Node", x: "Node") -> "Node":
    return ((a - 1) * x.scalar("log") - x).scalar("exp")


def _regular(a: "Node", x: "Node") -> "Node":
    return _density(a, x) / a.scalar("gamma")


def _incomplete(sign: int, density: "Callable[[Node, Node], Node]") -> "Gradient":
    def gradient(g: "Node", xs: "Nodes", y: "Node") -> "Cotangents":
        a, x = (o.cast(y.element) for o in xs)
        slope = g * density(a, x)
        return UNKNOWN, slope if sign > 0 else -slope

    return gradient


def _chi2sf_gradient(g: "Node", xs: "Nodes", y: "Node") -> "Cotangents":
    x, degrees = (o.cast(y.element) for o in xs)
    return g * -0.5 * _regular(degrees * 0.5, x * 0.5), UNKNOWN


_Row: TypeAlias = (
    "tuple[str, Callable[..., float], Callable[..., Expr], int, Callable[[Node, Node], Node], str]"
)
_INCOMPLETE: tuple[_Row, ...] = (
    (
        "gammainc",
        lambda a, x: exact_incomplete(a, x)[0],
        gammainc,
        1,
        _regular,
        "the share of Γ(a) that lies below x",
    ),
    (
        "gammaincc",
        lambda a, x: exact_incomplete(a, x)[1],
        gammaincc,
        -1,
        _regular,
        "the share of Γ(a) that lies above x",
    ),
    (
        "gammal",
        lambda a, x: exact_incomplete(a, x)[0] * exact_gamma(a),
        lambda a, x: gammainc(a, x) * gamma(a),
        1,
        _density,
        "the part of Γ(a) below x",
    ),
    (
        "gammau",
        lambda a, x: exact_incomplete(a, x)[1] * exact_gamma(a),
        lambda a, x: gammaincc(a, x) * gamma(a),
        -1,
        _density,
        "the part of Γ(a) above x",
    ),
)
for _name, _exact, _formula, _sign, _weight, _doc in _INCOMPLETE:
    row(
        _name,
        2,
        "float real",
        by_element(_exact),
        in_f64(_formula),
        _doc,
        gradient=_incomplete(_sign, _weight),
    )
row(
    "chi2sf",
    2,
    "probability",
    by_element(lambda x, d: 1.0 if x <= 0 < d else exact_incomplete(d / 2, x / 2)[1]),
    in_f64(lambda x, d: select((x <= 0.0) & (d > 0.0), 1.0, gammaincc(d * 0.5, x * 0.5))),
    "the probability that a chi-squared variable of y degrees of freedom exceeds x",
    gradient=_chi2sf_gradient,
)
