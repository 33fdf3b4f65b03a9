"""The formalization's NN operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..index import Element, Tensor, indices, total
from ..op import C, T, operator
from ..types import TensorType
from .form import CvmOperator, i32


@operator
class Dense(CvmOperator[T]):
    """A fully connected layer:  Y = X Wᵀ + B.   (CVM-Runtime formalization, NN Operators, dense)"""

    x: T  # (M, K)
    w: T  # (N, K)
    b: T | None = None  # (N,)

    constraints = (
        i32("x", "w", "b"),
        C(1, "rank(x) = rank(w) = 2", lambda o: o.x.rank == o.w.rank == 2),
        C(2, "dim(x, 1) = dim(w, 1)", lambda o: o.x.shape[1] == o.w.shape[1]),
        C(3, "rank(b) = 1", lambda o: o.b is None or o.b.rank == 1),
        C(4, "dim(b, 0) = dim(w, 0)", lambda o: o.b is None or o.b.shape[0] == o.w.shape[0]),
    )

    def infer(self: Dense[TensorType]) -> TensorType:
        return self.x.with_shape(self.x.shape[0], self.w.shape[0])

    def reference(self: Dense[np.ndarray]) -> np.ndarray:
        return self.x @ self.w.T + (0 if self.b is None else self.b)

    def element(self: Dense[Tensor], y: Tensor) -> Element:
        i, j, k = indices("i j k", (*y.shape, self.x.shape[1]))
        dot = total(k, self.x[i, k] * self.w[j, k])
        return Element((i, j), dot if self.b is None else dot + self.b[j])
