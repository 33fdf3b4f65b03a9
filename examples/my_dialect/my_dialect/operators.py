"""Operators of the dialect my."""

from __future__ import annotations

import numpy as np
from cvm.extending import F32, C, Element, Operator, T, Tensor, TensorType, indices, operator


class MyOperator(Operator[T]):
    """An operator of this dialect."""

    dialect = "my"


@operator
class SquaredDistance(MyOperator[T]):
    """Y[i] = (A[i] - B[i])²."""

    a: T  # (N,)
    b: T  # (N,)

    constraints = (
        C(1, "element(a) = element(b) = f32", lambda o: o.a.element is F32 and o.b.element is F32),
        C(2, "rank(a) = rank(b) = 1", lambda o: o.a.rank == o.b.rank == 1),
        C(3, "shape(a) = shape(b)", lambda o: o.a.shape == o.b.shape),
    )
    example = """
        func @main(%a: tensor<3xf32>, %b: tensor<3xf32>) -> tensor<3xf32> {
          %y = my.squared_distance %a, %b
          return %y
        }
    """

    def infer(self: SquaredDistance[TensorType]) -> TensorType:
        return self.a

    def reference(self: SquaredDistance[np.ndarray]) -> np.ndarray:
        return (self.a - self.b) * (self.a - self.b)

    def element(self: SquaredDistance[Tensor], y: Tensor) -> Element:
        (i,) = indices("i", y.shape)
        difference = self.a[i] - self.b[i]
        return Element((i,), difference * difference)
