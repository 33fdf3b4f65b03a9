"""Operators whose result has their operand's elements in row-major order, under another type or shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.types import Type
from ..notation.expressions import Element, Tensor, axes
from ..spec.op import C, Operator, T, operator


@operator
class View(Operator[T]):
    """The same elements as a tensor or as a field: Y is X's array, of another type."""

    dialect = "builtin"
    name = "builtin.view"
    x: T
    type: Type

    constraints = (
        C(
            1,
            "type has the array of type(x)",
            lambda o: o.type.element is o.x.element and same_array(o.type, o.x),
            at="type",
        ),
    )
    view = True
    example = """
        func @main(%x: tensor<2x3xf32>) -> !cog.field<[2, 3], f32> {
          %y = builtin.view %x {type = !cog.field<[2, 3], f32>}
          return %y
        }
    """

    def infer(self: View[Any]) -> Type:
        return self.type.with_array_shape(self.x.array_shape)

    def reference(self: View[np.ndarray]) -> np.ndarray:
        return self.x

    def element(self: View[Tensor], y: Tensor) -> Element:
        at = axes(y.shape)
        return Element(at, self.x[at])

    def pullback(self: Any, results: Any, cotangents: Any) -> Any:
        return cotangents

    def pushforward(self: Any, results: Any, tangents: Any) -> Any:
        return tangents


def same_array(a: Type, b: Type) -> bool:
    if len(a.array_shape) != len(b.array_shape):
        return False
    return all(m == n for m, n in zip(a.array_shape, b.array_shape, strict=True))
