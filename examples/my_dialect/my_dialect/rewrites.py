"""Rewrites of the dialect my: a pattern, and an operator that a lowering states."""

from __future__ import annotations

import numpy as np
from cvm.extending import (
    F32,
    OPERATORS,
    Builder,
    C,
    T,
    TensorType,
    Value,
    lowering,
    operator,
    pattern,
)
from my_dialect.operators import MyOperator, SquaredDistance

Negative = OPERATORS["cvm.negative"]


@pattern()
def distance_of_negatives(op: SquaredDistance, b: Builder) -> Value | None:
    """squared_distance(-x, -y) => squared_distance(x, y)."""
    match b.owner(op.a), b.owner(op.b):
        case Negative(x), Negative(y):
            return b.my.squared_distance(x, y)
    return None


@operator
class Thrice(MyOperator[T]):
    """Y = (X + X) + X."""

    x: T  # any shape

    constraints = (C(1, "element(x) = f32", lambda o: o.x.element is F32),)
    example = """
        func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
          %y = my.thrice %x
          return %y
        }
    """

    def infer(self: Thrice[TensorType]) -> TensorType:
        return self.x

    def reference(self: Thrice[np.ndarray]) -> np.ndarray:
        return (self.x + self.x) + self.x


@lowering(Thrice)
def thrice(op: Thrice, b: Builder) -> Value:
    return b.cvm.elemwise_add(b.cvm.elemwise_add(op.x, op.x), op.x)
