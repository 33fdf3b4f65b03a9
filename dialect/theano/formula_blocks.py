"""Building blocks of function formulas: rows of the scalar table by name, polynomials, the sine of
multiples of π.
"""

import math
from collections.abc import Callable

import numpy as np

from ..kernel_ir.expressions import Expr, apply, select
from ..kernel_ir.scalar_functions import SCALARS
from ..types.tensor_types import F64

LN2, LN10 = math.log(2), math.log(10)
INF = math.inf


def by_table(name: str) -> tuple[Callable[..., np.ndarray], Callable[..., Expr]]:
    """The NumPy meaning of a row of the scalar table, and its formula."""
    return SCALARS[name].numpy, lambda *xs: apply(name, *xs)


def sine_of_pi(x: Expr) -> Expr:
    """sin(π x), zero at the integers."""
    r = x - 2.0 * apply("rint", x * 0.5)  # in [-1, 1], exactly
    near = select(
        r > 0.5, 1.0 - r, select(r < -0.5, -1.0 - r, r)
    )  # in [-1/2, 1/2], of the same sine
    return polynomial_sine(near * math.pi, 0)


def polynomial_sine(x: Expr, quarters: int) -> Expr:
    """sin(x), or cos(x) as the sine a quarter turn ahead, for |x| <= π/2: no argument reduction is
    needed.
    """
    taylor = tuple((-1) ** n / math.factorial(2 * n + 1 - quarters) for n in range(13))
    sine = polynomial(x * x, taylor)
    return sine if quarters else x * sine


def polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """By Horner's rule, the coefficient of the highest power last."""
    value: Expr | float = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        value = value * x + c
    assert isinstance(value, Expr) and x.type is F64
    return value
