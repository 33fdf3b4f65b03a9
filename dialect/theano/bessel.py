"""The Bessel functions of Theano, in f64: j0, j1, i0 and i1, and the rows of these and of those of
any order.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..kernel_ir.expressions import Expr, apply, select
from ..kernel_ir.scalar_references import by_element
from . import polynomial_coefficients as k
from .bessel_orders import iv, jv
from .bessel_reference import exact_of_order
from .erf import in_f64
from .formula_blocks import INF, polynomial
from .scalar_op import UNKNOWN, of_one, row

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes
    from .scalar_op import Gradient


def _small(x: Expr, table: tuple[float, ...]) -> Expr:
    return polynomial(x * x / 32.0 - 1.0, table)


def _wave(x: Expr, p: tuple[float, ...], q: tuple[float, ...], order: int) -> Expr:
    """sqrt(2 / πx) (P cos χ - Q sin χ) for x > 8, where χ = x - (2n + 1) π/4, and P and 8Q/x are
    smooth in (8/x)².
    """
    u = 8.0 / x
    t = u * u * 2.0 - 1.0
    sine, cosine = apply("sin", x), apply("cos", x)
    # cos χ and sin χ without rounding χ
    c = (cosine + sine if order == 0 else sine - cosine) * math.sqrt(0.5)
    s = (sine - cosine if order == 0 else -(sine + cosine)) * math.sqrt(0.5)
    return apply("sqrt", 2.0 / (math.pi * x)) * (polynomial(t, p) * c - u * polynomial(t, q) * s)


def _by_size(
    x: Expr, near: Callable[[Expr], Expr], far: Callable[[Expr], Expr]
) -> tuple[Expr, Expr]:
    """|x|, and a function of it by one formula up to 8 and another one beyond."""
    a = apply("abs", x)
    large = select((a > 8.0) & (a < INF), a, 9.0)
    small = select(a > 8.0, 0.0, a)
    return a, select(a > 8.0, far(large), near(small))


def j0(x: Expr) -> Expr:
    a, found = _by_size(x, lambda a: _small(a, k.J0), lambda a: _wave(a, k.J0_P, k.J0_Q, 0))
    return select(a.eq(INF), 0.0, found)


def j1(x: Expr) -> Expr:
    a, found = _by_size(x, lambda a: a * _small(a, k.J1), lambda a: _wave(a, k.J1_P, k.J1_Q, 1))
    return select(a.eq(INF), 0.0, select(x < 0.0, -found, found))


# (x/2)^2k / k!² and (x/2)^2k / (k! (k+1)!), the series of i0 and i1: no term is negative
I0_SERIES = tuple(1 / math.factorial(n) ** 2 for n in range(28))
I1_SERIES = tuple(1 / (math.factorial(n) * math.factorial(n + 1)) for n in range(28))


def _growing(a: Expr, table: tuple[float, ...]) -> Expr:
    """exp(x) / sqrt(x) times a polynomial in 8/x for x > 8; the power in two halves, which do not
    overflow early.
    """
    half = apply("exp", a * 0.5)
    return half * (polynomial(16.0 / a - 1.0, table) / apply("sqrt", a)) * half


def i0(x: Expr) -> Expr:
    a, found = _by_size(
        x, lambda a: polynomial((h := a * 0.5) * h, I0_SERIES), lambda a: _growing(a, k.I0_FAR)
    )
    return select(a.eq(INF), a, found)


def i1(x: Expr) -> Expr:
    a, value = _by_size(
        x, lambda a: (h := a * 0.5) * polynomial(h * h, I1_SERIES), lambda a: _growing(a, k.I1_FAR)
    )
    value = select(a.eq(INF), a, value)
    return select(x < 0.0, -value, value)


def _at_zero(g: "Node", x: "Node", value: float, elsewhere: "Node") -> "Node":
    """A derivative that is `value` as far as x² is too small to count; the quotient in `elsewhere`
    loses its digits there.
    """
    near = (x * x).scalar("lt", 2.0 ** -(np.finfo(x.element.dtype).nmant + 2))
    return g * near.scalar("switch", value, elsewhere)


def _order_gradient(name: str) -> "Gradient":
    def gradient(g: "Node", xs: "Nodes", y: "Node") -> "Cotangents":
        v, x = (o.cast(y.element) for o in xs)
        below = (v - 1).scalar(name, x)
        above = (v + 1).scalar(name, x)
        return UNKNOWN, g * 0.5 * (below - above if name == "jv" else below + above)

    return gradient


row(
    "j0",
    1,
    "float real",
    by_element(lambda x: exact_of_order(0, x, -1)),
    in_f64(j0),
    "the Bessel function of order 0",
    gradient=of_one(lambda g, x, y: -(g * x.scalar("j1"))),
)
row(
    "j1",
    1,
    "float real",
    by_element(lambda x: exact_of_order(1, x, -1)),
    in_f64(j1),
    "the Bessel function of order 1",
    gradient=of_one(lambda g, x, y: _at_zero(g, x, 0.5, x.scalar("j0") - y / x)),
)
row(
    "i0",
    1,
    "float real",
    by_element(lambda x: exact_of_order(0, x, 1)),
    in_f64(i0),
    "the modified Bessel function of order 0",
    gradient=of_one(lambda g, x, y: g * x.scalar("i1")),
)
row(
    "i1",
    1,
    "float real",
    by_element(lambda x: exact_of_order(1, x, 1)),
    in_f64(i1),
    "the modified Bessel function of order 1",
    gradient=of_one(lambda g, x, y: _at_zero(g, x, 0.5, x.scalar("i0") - y / x)),
)
row(
    "jv",
    2,
    "float real",
    by_element(lambda v, x: exact_of_order(v, x, -1)),
    in_f64(jv),
    "the Bessel function of order x",
    gradient=_order_gradient("jv"),
)
row(
    "iv",
    2,
    "float real",
    by_element(lambda v, x: exact_of_order(v, x, 1)),
    in_f64(iv),
    "the modified Bessel function of order x",
    gradient=_order_gradient("iv"),
)
