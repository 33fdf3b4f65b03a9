"""The formalization's elementwise operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..index import Element, Tensor, axes, maximum
from ..op import T, operator
from ..types import TensorType
from .form import CvmOperator, i32


@operator
class Relu(CvmOperator[T]):
    """Y[d...] = max(0, X[d...])   (NN Operators, relu)"""

    x: T
    constraints = (i32("x"),)

    def infer(self: Relu[TensorType]) -> TensorType:
        return self.x

    def reference(self: Relu[np.ndarray]) -> np.ndarray:
        return np.maximum(self.x, 0)

    def element(self: Relu[Tensor], y: Tensor) -> Element:
        at = axes(y.shape)
        return Element(at, maximum(self.x[at], 0))
