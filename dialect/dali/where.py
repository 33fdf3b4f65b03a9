"""DALI's missing operator: a choice element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..notation.expressions import Expr, select
from ..spec.op import T, operator
from .pointwise import Pointwise


@operator
class Where(Pointwise[T], kind="choice"):
    """a where the condition holds, else b, in the promotion of the two; both are computed."""

    condition: T
    a: T
    b: T

    names = ("condition", "a", "b")
    shown = ("2x3xi1", "2x3xf32", "3xui8")
    exact = staticmethod(np.where)

    def prepared(self, elements: Any, operands: Any, convert: Any) -> list[Any]:
        condition, a, b = operands
        result = self.rule.result(*elements)
        return [condition, convert(a, result), convert(b, result)]

    def pullback(self: Any, results: Any, cotangents: Any) -> Any:
        (g,) = cotangents
        condition = self.condition.stretched(g)
        chosen = condition.scalar("switch", g, 0), condition.scalar("switch", 0, g)
        return [None, *(d.gathered(o) for d, o in zip(chosen, (self.a, self.b), strict=True))]

    def formula(self: Any, condition: Expr, a: Expr, b: Expr) -> Expr:
        return select(condition, a, b)
