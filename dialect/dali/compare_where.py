"""DALI's comparisons and choice. Integers of any signedness compare exactly, an integer with a
float in the float's type.
"""

import operator as python
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..kernel_ir.expressions import Expr, compare
from ..spec.operator import T, operator
from ..types.cast_arrays import converted
from ..types.tensor_types import BY_DTYPE
from .pointwise import Binary, Pointwise
from .promotion import promote

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


@dataclass(frozen=True, eq=False)
class Comparison(Binary[T]):
    """The family of a OP b, an i1. NaN is neither less than, equal to nor greater than anything."""

    compare: ClassVar[Callable[[object, object], object]]

    def reference(self: "Comparison[np.ndarray]") -> np.ndarray:
        common = promote(BY_DTYPE[self.a.dtype], BY_DTYPE[self.b.dtype])
        if common.kind == "float":
            return np.asarray(self.compare(converted(self.a, common), converted(self.b, common)))
        return np.asarray(
            self.compare(self.a.astype(object), self.b.astype(object)), bool
        )  # Python's integers

    def prepared(self, elements: Any, operands: Any, convert: Any) -> list[Any]:
        return list(operands)

    def formula(self, a: Expr, b: Expr) -> Expr:
        return compare(self.scalar, a, b, promote(a.type, b.type))


for _name, _symbol, _text in (
    ("eq", "==", "a = b"),
    ("ne", "!=", "a ≠ b"),
    ("lt", "<", "a < b"),
    ("le", "<=", "a ≤ b"),
    ("gt", ">", "a > b"),
    ("ge", ">=", "a ≥ b"),
):
    _members = {
        "__doc__": _text,
        "__module__": __name__,
        "scalar": _name,
        "compare": getattr(python, _name),
    }
    operator(type(_name.capitalize(), (Comparison,), _members, kind="comparison", symbol=_symbol))


@operator
class Where(Pointwise[T], kind="choice"):
    """a where the condition holds, else b, in the promotion of the two; both are computed."""

    condition: T
    a: T
    b: T

    names = ("condition", "a", "b")
    shown = ("2x3xi1", "2x3xf32", "3xui8")
    scalar = "select"

    def prepared(self, elements: Any, operands: Any, convert: Any) -> list[Any]:
        condition, a, b = operands
        result = self.rule.result(*elements)
        return [condition, convert(a, result), convert(b, result)]

    def pullback(self: "Where[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        (g,) = cotangents
        chosen = g.switched(self.condition.stretched(g))
        return [None, *(d.gathered(o) for d, o in zip(chosen, (self.a, self.b), strict=True))]
