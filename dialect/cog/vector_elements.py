"""Tensor fields from scalar fields, and their elements back."""

from typing import TYPE_CHECKING

import numpy as np

from ..kernel_ir.expressions import Element, Tensor, as_index
from ..spec.operator import C, T, operator
from ..types.tensor_types import FieldType, TensorType
from .cog_operator import CogOperator, fields, result_axes
from .slice_shift_stack import ALIKE, chosen

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


@operator
class VectorElement(CogOperator[T]):
    """Y[p] = X[p](index): one element of each vector, as a scalar field"""

    x: T
    index: int

    constraints = (
        fields("x"),
        C(1, "type(x): a field of vectors", lambda o: o.x.tensor.rank == 1),
        C(
            2,
            "0 <= index < length",
            lambda o: o.index >= 0 and o.index < o.x.tensor.shape[0],
            at="index",
        ),
    )
    symbols = {"length": lambda o: o.x.tensor.shape[0]}
    example = "%x {index = 1}", "%x: !cog.field<[2, 3], tensor<4xf32>>"

    def infer(self: "VectorElement[FieldType]") -> FieldType:
        return FieldType(self.x.shape, TensorType((), self.x.element))

    def pullback(
        self: "VectorElement[Node]", results: "Nodes", cotangents: "Nodes"
    ) -> "Cotangents":
        (g,), last = cotangents, self.x.rank - 1
        g = g.with_ones((last,))
        return [g.apply("builtin.strided_scatter_like", self.x, axes=(last,), begin=(self.index,))]

    def reference(self: "VectorElement[np.ndarray]") -> np.ndarray:
        return self.x[..., self.index]

    def element(self: "VectorElement[Tensor]", y: Tensor) -> Element:
        grid, _ = result_axes(y, y.rank)
        return Element(grid, self.x[(*grid, as_index(self.index))])


@operator
class Vector(CogOperator[T]):
    """Y[p] = (X_0[p], X_1[p], ...): scalar fields as the elements of a vector field"""

    xs: tuple[T, ...]

    constraints = (*ALIKE, C(3, "type(xs[0]): a scalar field", lambda o: o.xs[0].tensor.rank == 0))
    example = "%a, %b", "%a: !cog.field<[3], f32>, %b: !cog.field<[3], f32>"

    def infer(self: "Vector[FieldType]") -> FieldType:
        return FieldType(self.xs[0].shape, TensorType((len(self.xs),), self.xs[0].element))

    def pullback(self: "Vector[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        (g,), own = cotangents, self.types["xs[0]"]
        whole = g.builder.of_type(g, FieldType(own.shape, TensorType((len(self.xs),), own.element)))
        return [whole.apply("cog.vector_element", index=k) for k in range(len(self.xs))]

    def reference(self: "Vector[np.ndarray]") -> np.ndarray:
        return np.stack(self.xs, axis=-1)

    def element(self: "Vector[Tensor]", y: Tensor) -> Element:
        at, _ = result_axes(y, y.rank)
        return Element(at, chosen(at[-1], [x[at[:-1]] for x in self.xs]))
