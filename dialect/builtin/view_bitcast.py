"""Operators whose result has the bits of their operand in row-major order, under another type or
shape.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernel_ir.expressions import Bitcast as BitcastExpr, Element, Expr, Tensor, axes, cast
from ..spec.broadcasting import same_shape
from ..spec.operator import C, Operator, T, operator
from ..types.tensor_types import I8, I16, I32, I64, ElementType, TensorType, Type

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes, Tangents


@operator
class View(Operator[T]):
    """Reinterpret a tensor as a field, or a field as a tensor: Y has X's elements."""

    x: T
    type: Type

    constraints = (
        C(
            1,
            "type has the array of type(x)",
            lambda o: (
                o.type.element is o.x.element and same_shape(o.type.array_shape, o.x.array_shape)
            ),
            at="type",
        ),
    )
    view = True
    example = "%x {type = !cog.field<[2, 3], f32>}", "%x: 2x3xf32", "!cog.field<[2, 3], f32>"

    def infer(self: "View[Any]") -> Type:
        return self.type.with_array_shape(self.x.array_shape)

    def reference(self: "View[np.ndarray]") -> np.ndarray:
        return self.x

    def element(self: "View[Tensor]", y: Tensor) -> Element:
        at = axes(y.shape)
        return Element(at, self.x[at])

    def pullback(self: "View[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        return cotangents

    def pushforward(self: "View[Node]", results: "Nodes", tangents: "Tangents") -> "Tangents":
        return tangents


BITS = {8: I8, 16: I16, 32: I32, 64: I64}


@operator
class Bitcast(Operator[T]):
    """The bits of each element as another type of the same width.   (MLIR arith.bitcast, NumPy
    view)
    """

    x: T
    dtype: ElementType

    constraints = (
        C(
            1,
            "dtype is as wide as the elements of x, and both are integers or floats",
            lambda o: (
                o.dtype.bits == o.x.element.bits
                and {o.dtype.kind, o.x.element.kind} <= {"int", "uint", "float"}
            ),
            at="dtype",
        ),
    )
    example = "%x {dtype = i32}", "%x: ?N x f32", "?N x i32"

    def infer(self: "Bitcast[TensorType]") -> TensorType:
        return TensorType(self.x.array_shape, self.dtype)

    def reference(self: "Bitcast[np.ndarray]") -> np.ndarray:
        return np.ascontiguousarray(self.x).view(self.dtype.dtype).reshape(self.x.shape)

    def element(self: "Bitcast[Tensor]", y: Tensor) -> Element:
        at = axes(y.shape)
        bits = BITS[self.dtype.bits]
        x: Expr = self.x[at]
        whole = BitcastExpr(x, bits) if x.type.kind == "float" else cast(x, bits)
        return Element(
            at,
            BitcastExpr(whole, self.dtype)
            if self.dtype.kind == "float"
            else cast(whole, self.dtype),
        )
