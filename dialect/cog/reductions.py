"""Sums over the elements of each tensor; sums and extremes over the points of a field."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..kernel_ir.expressions import Element, Tensor, axes, reduce
from ..kernel_ir.scalar_references import largest, smallest
from ..spec.operator import C, T, declare, operator
from ..types.tensor_types import C64, FieldType, TensorType
from .cog_operator import CogOperator, fields, pair, parts, real, result_axes

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes

VECTORS = "%x", "%x: !cog.field<[4, 5], tensor<3xf32>>"  # an example's operand


def _reduction(function: str, over: Any, x: Any) -> Any:
    """A reduction; for complex numbers, of their parts."""
    if x.type is not C64:
        return reduce(function, over, x)
    return pair(*(reduce(function, over, p) for p in parts(x)))


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


@operator
class ReduceSum(CogOperator[T]):
    """Y[p] = the sum of the elements of the tensor X[p]: a scalar field"""

    x: T
    constraints = (fields("x"),)
    example = VECTORS

    def infer(self: "ReduceSum[FieldType]") -> FieldType:
        return FieldType(self.x.shape, TensorType((), self.x.element))

    def reference(self: "ReduceSum[np.ndarray]") -> np.ndarray:
        return np.asarray(
            _wide(self.x).sum(tuple(range(self.grid("x"), self.x.ndim))), self.x.dtype
        )

    def element(self: "ReduceSum[Tensor]", y: Tensor) -> Element:
        grid, _ = result_axes(y, y.rank)
        over = axes(self.x.shape[y.rank :], "t")
        return Element(grid, _reduction("add", over, self.x[(*grid, *over)]))

    def pullback(self: "ReduceSum[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        return [cotangents[0].with_ones(range(self.types["x"].rank, self.x.rank)).like(self.x)]


@dataclass(frozen=True, eq=False)
class FieldReduce(CogOperator[T]):
    """The family of reductions over all points of a field, tensor element by tensor element: a
    0-dimensional field.
    """

    x: T
    function: ClassVar[str]
    numpy: ClassVar[Any]
    example = VECTORS

    def infer(self: "FieldReduce[FieldType]") -> FieldType:
        return FieldType((), self.x.tensor)

    def reference(self: "FieldReduce[np.ndarray]") -> np.ndarray:
        return np.asarray(
            type(self).numpy(_wide(self.x), axis=tuple(range(self.grid("x")))), self.x.dtype
        )

    def element(self: "FieldReduce[Tensor]", y: Tensor) -> Element:
        at = axes(y.shape, "t")
        over = axes(self.x.shape[: self.grid("x")], "p")
        return Element(at, _reduction(self.function, over, self.x[(*over, *at)]))

    def pullback(self: "FieldReduce[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        (y,), (g,) = results, cotangents
        over = range(self.types["x"].rank)
        g = g.with_ones(over)
        if self.function == "add":
            return [g.like(self.x)]
        return [self.x.scalar("eq", y.with_ones(over)).scalar("switch", g, 0)]  # every tie


NOT_EMPTY = C(
    2, "no size of type(x) is 0: the field has points", lambda o: all(n > 0 for n in o.x.shape)
)
FIELD_REDUCTIONS = {
    "sum": ("add", np.sum, "the sum of X[p] over all points p", ()),
    "min": (
        "minimum",
        smallest,
        "the smallest X[p] over all points p; NaN if one of them is",
        (real(1, "x"), NOT_EMPTY),
    ),
    "max": (
        "maximum",
        largest,
        "the largest X[p] over all points p; NaN if one of them is",
        (real(1, "x"), NOT_EMPTY),
    ),
}
for _name, (_function, _numpy, _doc, _constraints) in FIELD_REDUCTIONS.items():
    declare(
        f"FieldReduce{_name.capitalize()}",
        FieldReduce,
        f"Y = {_doc}",
        function=_function,
        numpy=_numpy,
        constraints=(fields("x"), *_constraints),
    )
