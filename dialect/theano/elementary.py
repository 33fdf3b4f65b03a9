"""Elementary functions of expressions of any float type, by name or by formula."""

from __future__ import annotations

import math

from ..index import Expr, apply, select
from ..types import F64

LN2, LN10 = math.log(2), math.log(10)
INF = math.inf


def log1p(x: Expr) -> Expr:
    return apply("log1p", x)


def expm1(x: Expr) -> Expr:
    return apply("expm1", x)


def exp2(x: Expr) -> Expr:
    return apply("exp2", x)


def asinh(x: Expr) -> Expr:
    return apply("asinh", x)


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
