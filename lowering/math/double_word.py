"""Double-word arithmetic: numbers as unevaluated sums of two floats, high + low, by error-free
transformations.
"""

from typing import NamedTuple

from ...dialect.kernel_ir.expressions import Expr, Operand
from .primitives import fma


class Doubled(NamedTuple):
    high: Expr
    low: Expr


def ordered_sum(a: Expr, b: Expr) -> Doubled:
    """a + b exactly, where a = 0 or |a| >= |b|."""
    s = a + b
    return Doubled(s, b - (s - a))


def exact_sum(a: Expr, b: Operand) -> Doubled:
    """a + b exactly."""
    s = a + b
    t = s - a
    return Doubled(s, (a - (s - t)) + (b - t))


def exact_product(a: Expr, b: Operand) -> Doubled:
    """a b exactly (unless it underflows)."""
    p = a * b
    return Doubled(p, fma(a, b, -p))
