"""Formulas of elementary functions that the scalar table has no row for, of expressions of any float type."""

from __future__ import annotations

import math

from ..index import Expr, apply, select
from ..scalars import SCALARS
from ..types import F64

LN2, LN10 = math.log(2), math.log(10)
INF = math.inf


def log1p(x: Expr) -> Expr:
    """log(1 + x): what adding 1 rounded away is put back by the factor x / ((1 + x) - 1)."""
    if "log1p" in SCALARS:
        return apply("log1p", x)
    whole = 1.0 + x
    rounded = whole - 1.0
    lost = rounded.eq(0) | whole.eq(INF)
    return select(lost, x, apply("log", whole) * (x / select(lost, 1.0, rounded)))


def expm1(x: Expr) -> Expr:
    """exp(x) - 1: likewise, with the factor x / log(exp(x))."""
    if "expm1" in SCALARS:
        return apply("expm1", x)
    power = apply("exp", x)
    rounded = power - 1.0
    plain = rounded.eq(0) | power.eq(0) | power.eq(INF)
    corrected = rounded * (x / select(plain, 1.0, apply("log", power)))
    return select(rounded.eq(0), x, select(power.eq(0), -1.0, select(power.eq(INF), INF, corrected)))


def exp2(x: Expr) -> Expr:
    return apply("exp2", x) if "exp2" in SCALARS else apply("pow", 2.0, x)


def asinh(x: Expr) -> Expr:
    """The sign of x and log1p(|x| + x² / (1 + sqrt(x² + 1))), in f64 for |x| below 1e150."""
    a = apply("abs", x)
    found = log1p(a + a * a / (1.0 + apply("sqrt", a * a + 1.0)))
    return select(x < 0.0, -found, select(x.eq(0), x, found))


def sine_of_pi(x: Expr) -> Expr:
    """sin(π x), zero at the integers."""
    r = x - 2.0 * apply("rint", x * 0.5)  # in [-1, 1], exactly
    near = select(r > 0.5, 1.0 - r, select(r < -0.5, -1.0 - r, r))  # in [-1/2, 1/2], of the same sine
    return apply("sin", near * math.pi)


def polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """By Horner's rule, the coefficient of the highest power last."""
    found: Expr | float = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        found = found * x + c
    assert isinstance(found, Expr) and x.type is F64
    return found
