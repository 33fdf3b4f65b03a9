"""The error functions of Theano: erf, erfc and erfcx as in the scalar table, erf of complex
numbers, and the inverses in f64.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..kernel_ir.expressions import Expr, Index, apply, cast, constant, select, total
from ..kernel_ir.scalar_functions import SCALARS
from ..kernel_ir.scalar_references import by_element
from ..kernel_ir.traverse import substitute
from ..types.tensor_types import F64
from . import polynomial_coefficients as k
from .complex_arithmetic import Z
from .formula_blocks import INF, by_table, polynomial
from .scalar_op import Numpy, of_one, row

if TYPE_CHECKING:
    from ..ir.builder import Node

TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
HALF_ROOT_PI = math.sqrt(math.pi) / 2


def in_f64(formula: Callable[..., Expr]) -> Callable[..., Expr]:
    """The formula computed in f64, its result rounded to the operands' type."""
    return lambda *xs: cast(formula(*(cast(x, F64) for x in xs)), xs[0].type)


# Formulas


def _inverse(w: Expr, x: Expr) -> Expr:
    """The y with erf(y) = x, where w = -log(1 - x²): x times a polynomial in w, or one in sqrt(w)
    or its inverse.
    """
    s = apply("sqrt", w)
    near = x * polynomial(select(w < 6.25, w, 0.0) * 0.32 - 1.0, k.ERFINV_NEAR)
    middle = polynomial((select((s >= 2.5) & (s < 4.0), s, 3.25) - 3.25) / 0.75, k.ERFINV_MIDDLE)
    low, high = 1 / 27.5, 0.25
    v = 1.0 / select(s < 4.0, 4.0, s)
    far = s * polynomial((v - (low + high) / 2) / ((high - low) / 2), k.ERFINV_FAR)
    outer = select(s < 4.0, middle, far)
    return select(w < 6.25, near, select(x < 0.0, -outer, outer))


def erfinv(x: Expr) -> Expr:
    a = apply("abs", x)
    inside = select(a < 1.0, x, 0.0)
    inverse = _inverse(_minus_log(inside), inside)
    edge = select(x < 0.0, constant(-INF, F64), INF)
    return select(a < 1.0, inverse, select(a.eq(1.0), edge, constant(math.nan, F64)))


def _minus_log(x: Expr) -> Expr:
    return select(
        apply("abs", x) > 0.5, -apply("log", (1.0 - x) * (1.0 + x)), -apply("log1p", -(x * x))
    )


def erfcinv(x: Expr) -> Expr:
    inside = (x > 0.0) & (x < 2.0)
    c = select(inside, x, 1.0)
    inverse = _inverse(select(c < 0.5, -apply("log", c * (2.0 - c)), _minus_log(1.0 - c)), 1.0 - c)
    edge = select(x.eq(0), constant(INF, F64), select(x.eq(2.0), constant(-INF, F64), math.nan))
    return select(inside, inverse, edge)


# erf of complex numbers: Salzer's sum, whose terms fall like exp(-n² / 4)

TERMS = 48


def complex_erf(z: Z) -> Z:
    x, y = z.re, z.im
    small = apply("abs", x) < 1e-6
    safe = select(small, 1.0, x)
    decay = apply("exp", -(x * x))
    c, s = apply("cos", x * y * 2.0), apply("sin", x * y * 2.0)
    sine = apply("sin", x * y)
    one_minus = 2.0 * (sine * sine)
    re = apply("erf", x) + decay / (2 * math.pi) * select(small, 2.0 * x * y * y, one_minus / safe)
    im = decay / (2 * math.pi) * select(small, 2.0 * y, s / safe)
    n = Index("n", TERMS)
    m = cast(n + 1, F64)
    up = apply("exp", m * y - m * m * 0.25)
    down = apply("exp", -(m * y) - m * m * 0.25)
    cosh = (up + down) * 0.5
    sinh = (up - down) * 0.5
    below = m * m + 4.0 * x * x
    flat = 2.0 * apply("exp", m * m * -0.25) * x
    f = flat - 2.0 * x * cosh * c + m * sinh * s
    g = 2.0 * x * cosh * s + m * sinh * c
    scale = decay * (2 / math.pi)
    again = Index("n", TERMS)  # a reduction's index is its own
    return Z(
        re + scale * total(n, f / below),
        im + scale * total(again, substitute(g / below, {n: again})),
    )


# References


def _exact_erfinv(x: float) -> float:
    if abs(x) >= 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    return math.copysign(_solve(1 - abs(x), abs(x)), x) if x else x


def _exact_erfcinv(x: float) -> float:
    if not 0 < x < 2:
        if x == 0:
            return math.inf
        if x == 2:
            return -math.inf
        return math.nan
    if x == 1:
        return 0.0
    if x < 1:
        return _solve(x, 1 - x)
    return -_solve(2 - x, x - 1)


def _solve(c: float, x: float) -> float:
    """The y > 0 with erfc(y) = c and erf(y) = x, by bisection, then Newton's method."""
    if c < 1e-100:
        return _solve_far(c)
    low, high = 0.0, 28.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(middle) > c else (low, middle)
    y = (low + high) / 2
    for _ in range(3):
        y -= (math.erf(y) - x if x < 0.5 else c - math.erfc(y)) / (
            TWO_OVER_ROOT_PI * math.exp(-y * y)
        )
    return y


def _solve_far(c: float) -> float:
    """The y with erfc(y) = c for tiny c: fixed-point iteration on the logarithm of erfc's
    asymptotic series.
    """
    y = 20.0
    for _ in range(30):
        term = series = 1.0
        for n in range(1, 16):
            term *= -(2 * n - 1) / (2 * y * y)
            series += term
        y = math.sqrt(-math.log(c) - math.log(y * math.sqrt(math.pi) / series))
    return y


def _exact_complex_erf(z: np.ndarray) -> np.ndarray:
    """The power series, in the longest precision; it serves |z| up to about 5."""
    wide = z.astype(np.clongdouble)
    term, sum = wide.copy(), wide.copy()
    for n in range(1, 200):
        term = -term * wide * wide / n
        sum = sum + term / (2 * n + 1)
    return np.asarray(sum * (2 / np.sqrt(np.longdouble(np.pi)))).astype(z.dtype)


def real_or(of_reals: Numpy, of_complex: Numpy) -> Numpy:
    """The NumPy meaning of a function of real and of complex numbers."""
    return lambda x: of_complex(x) if x.dtype.kind == "c" else of_reals(x)


def _bell(x: "Node") -> "Node":
    return (-(x * x)).scalar("exp")


row(
    "erf",
    1,
    "float",
    real_or(SCALARS["erf"].numpy, _exact_complex_erf),
    lambda x: apply("erf", x),
    "the error function",
    on_complex=complex_erf,
    gradient=of_one(lambda g, x, y: g * TWO_OVER_ROOT_PI * _bell(x)),
)
row(
    "erfc",
    1,
    "float real",
    *by_table("erfc"),
    "1 - erf(x)",
    gradient=of_one(lambda g, x, y: g * -TWO_OVER_ROOT_PI * _bell(x)),
)
row(
    "erfcx",
    1,
    "float real",
    *by_table("erfcx"),
    "exp(x²) erfc(x)",
    gradient=of_one(lambda g, x, y: g * (x * y * 2 - TWO_OVER_ROOT_PI)),
)
row(
    "erfinv",
    1,
    "float real",
    by_element(_exact_erfinv),
    in_f64(erfinv),
    "the inverse of erf",
    gradient=of_one(lambda g, x, y: g * HALF_ROOT_PI * (y * y).scalar("exp")),
)
row(
    "erfcinv",
    1,
    "float real",
    by_element(_exact_erfcinv),
    in_f64(erfcinv),
    "the inverse of erfc",
    gradient=of_one(lambda g, x, y: g * -HALF_ROOT_PI * (y * y).scalar("exp")),
)
