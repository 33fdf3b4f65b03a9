"""DALI's shifts of integers and i1, in the promotion of their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.types import I32, UI32, ElementType
from ..notation.expressions import Expr
from ..spec.op import T, operator
from .pointwise import Binary


@dataclass(frozen=True, eq=False)
class Shift(Binary[T]):
    """The family of shifts: of 8 and 16 bits in 32, and by the count modulo the width of that."""

    def working(self, *elements: ElementType) -> ElementType:
        result = self.rule.result(*elements)
        if result.kind == "bool" or result.bits >= 32:
            return result
        return I32 if result.signed else UI32


@operator
class Shl(Shift[T], kind="bitwise", symbol="<<"):
    """a shifted left by b; of two i1, a."""

    @staticmethod
    def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a if a.dtype.kind == "b" else np.left_shift(a, np.mod(b, a.dtype.type(a.dtype.itemsize * 8)))

    def formula(self: Any, a: Expr, b: Expr) -> Expr:
        return a if a.type.kind == "bool" else a << _count(b)


@operator
class Shr(Shift[T], kind="bitwise", symbol=">>"):
    """a shifted right by b, keeping the sign; of two i1, a and not b."""

    @staticmethod
    def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a > b if a.dtype.kind == "b" else np.right_shift(a, np.mod(b, a.dtype.type(a.dtype.itemsize * 8)))

    def formula(self: Any, a: Expr, b: Expr) -> Expr:
        return a & ~b if a.type.kind == "bool" else a >> _count(b)


def _count(b: Expr) -> Expr:
    return b & (b.type.bits - 1)
