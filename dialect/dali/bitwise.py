"""DALI's bitwise operators and shifts: integers and i1 in the promotion of their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.types import I32, UI32, ElementType
from ..notation.expressions import Expr
from ..spec.op import T, operator
from .pointwise import Binary, Unary


@operator
class And(Binary[T], kind="bitwise", symbol="&"):
    """The bits set in both a and b."""

    shown = ("2x3xui8", "3xi32")
    scalar = "and"
    exact = staticmethod(np.bitwise_and)


@operator
class Or(Binary[T], kind="bitwise", symbol="|"):
    """The bits set in a or b."""

    shown = ("2x3xui8", "3xi32")
    scalar = "or"
    exact = staticmethod(np.bitwise_or)


@operator
class Xor(Binary[T], kind="bitwise", symbol="^"):
    """The bits set in one of a and b."""

    shown = ("2x3xui8", "3xi32")
    scalar = "xor"
    exact = staticmethod(np.bitwise_xor)


@operator
class Not(Unary[T], kind="bitwise", symbol="~"):
    """The bits not set in x, in x's type; of i1 its negation."""

    shown = ("2x3xui8",)
    scalar = "not"
    exact = staticmethod(np.invert)


@dataclass(frozen=True, eq=False)
class Shift(Binary[T]):
    """The family of shifts: of 8 and 16 bits in 32, and by the count modulo the width of that."""

    shown = ("2x3xui8", "3xi32")

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
