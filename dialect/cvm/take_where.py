"""The formalization's transform operators that select elements by another tensor: by indices or a
condition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..kernel_ir.expressions import (
    Element,
    Expr,
    Tensor,
    axes,
    cast,
    maximum,
    minimum,
    select,
    unflatten,
)
from ..spec.broadcasting import same_shape, unequal
from ..spec.operator import C, T, operator
from ..types.sizes import Dim, Shape, product
from ..types.tensor_types import I64, TensorType
from .cvm_operator import CvmOperator, i32, numbers

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


@operator
class Take(CvmOperator[T]):
    """Y[d_0, ..., d_{M+N-2}] = X[d_0, ..., d_{real_axis-1}, xidx, d_{real_axis+M}, ..., d_{M+N-2}],
    where xidx = clip(indices[d_real_axis, ..., d_{real_axis+M-1}], 0, n_real_axis - 1); N is added
    to a negative axis

    Without an axis, Y[d_0, ..., d_{M-1}] = T[clip(indices[d_0, ..., d_{M-1}], 0, |T| - 1)], where T
    = flatten(X). (Transform Operators, take)
    """

    any_element = True
    x: T
    indices: T
    axis: int | None = None

    constraints = (
        numbers("x", also="indices"),
        C(
            1,
            "axis in [-N, N)",
            lambda o: o.axis is None or -o.x.rank <= o.axis < o.x.rank,
            at="axis",
        ),
        C(2, "n >= 1 where an index is clipped to [0, n - 1]", lambda o: o.choices(o.x.shape) >= 1),
    )
    symbols = {"N": lambda o: o.x.rank, "n": lambda o: o.choices(o.x.shape)}
    example = "%x, %rows {axis = 0}", "%x: 4x5xi32, %rows: 3xi32", "3x5xi32"

    def infer(self: Take[TensorType]) -> TensorType:
        if self.axis is None:
            return self.x.with_shape(*self.indices.shape)
        n = self.x.shape
        axis = self.axis % self.x.rank
        return self.x.with_shape(*n[:axis], *self.indices.shape, *n[axis + 1 :])

    def reference(self: Take[np.ndarray]) -> np.ndarray:
        return np.asarray(np.take(self.x, self.indices, self.axis, mode="clip"))

    def element(self: Take[Tensor], y: Tensor) -> Element:
        d = axes(y.shape)
        if self.axis is None:
            return Element(d, taken(self.x, self.indices[d]))
        axis = self.axis % self.x.rank
        m = self.indices.rank
        xidx = clipped_index(self.indices[d[axis : axis + m]], self.x.shape[axis])
        return Element(d, self.x[*d[:axis], xidx, *d[axis + m :]])

    def pullback(self: Take[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        """Add each cotangent to the element of x that the forward pass took."""
        (g,), x, apply = cotangents, self.x, cotangents[0].builder.apply
        if self.axis is not None:
            return [apply("builtin.add_at", g, self.indices, x, axis=self.axis % x.rank), None]
        flat = apply("builtin.reshape", x, merge=(x.rank,))
        return [
            apply("builtin.reshape_like", apply("builtin.add_at", g, self.indices, flat), x),
            None,
        ]

    def choices(self, shape: Shape) -> Dim:
        """The number of elements, or slices along the axis, to take from."""
        return product(shape) if self.axis is None else shape[self.axis]


@operator
class CvmLut(CvmOperator[T]):
    """Y = take(table, indices), without an axis: a lookup in the flattened table   (Transform
    Operators, cvm_lut)
    """

    table: T
    indices: T

    constraints = (
        i32("table", "indices"),
        C(1, "n >= 1 where an index is clipped to [0, n - 1]", lambda o: o.table.size >= 1),
    )
    symbols = {"n": lambda o: o.table.size}
    example = "%table, %x", "%table: 256xi32, %x: 2x3xi32", "2x3xi32"

    def infer(self: CvmLut[TensorType]) -> TensorType:
        return self.table.with_shape(*self.indices.shape)

    def reference(self: CvmLut[np.ndarray]) -> np.ndarray:
        return np.asarray(self.table.flatten()[np.clip(self.indices, 0, self.table.size - 1)])

    def element(self: CvmLut[Tensor], y: Tensor) -> Element:
        d = axes(y.shape)
        return Element(d, taken(self.table, self.indices[d]))


def taken(x: Tensor, index: Expr) -> Expr:
    """T[clip(index, 0, |T| - 1)], where T = flatten(X)."""
    return x[unflatten(clipped_index(index, product(x.shape)), x.shape)]


def clipped_index(index: Expr, n: Dim) -> Expr:
    return minimum(maximum(cast(index, I64), 0), n - 1)


@operator
class Where(CvmOperator[T]):
    """Y[d_0, ..., d_{N-1}] = A[d_0, ..., d_{N-1}] where Cond[d_0, ..., d_{N-1}] ≠ 0, else B[d_0,
    ..., d_{N-1}]

    A one-dimensional Cond chooses rows: Cond[d_0] decides. (Transform Operators, where)
    """

    any_element = True
    cond: T
    a: T
    b: T

    constraints = (
        numbers("a", "b", also="cond"),
        C(
            1,
            "shape(a) = shape(b)",
            lambda o: same_shape(o.a.shape, o.b.shape),
            plainly=lambda o: unequal(o.a.shape, o.b.shape),
        ),
        C(
            2,
            "shape(cond) = shape(a) or shape(cond) = (dim(a, 0),)",
            lambda o: same_shape(
                o.cond.shape, o.a.shape if o.cond.rank == o.a.rank else o.a.shape[:1]
            ),
        ),
    )
    example = "%cond, %a, %b", "%cond: 2xi32, %a: 2x3xi32, %b: 2x3xi32", "2x3xi32"

    def infer(self: Where[TensorType]) -> TensorType:
        return self.a

    def reference(self: Where[np.ndarray]) -> np.ndarray:
        cond = self.cond
        if cond.ndim < self.a.ndim:
            cond = cond.reshape(-1, *(1,) * (self.a.ndim - 1))
        return np.where(cond != 0, self.a, self.b)

    def element(self: Where[Tensor], y: Tensor) -> Element:
        d = axes(y.shape)
        return Element(d, select(self.cond[d[: self.cond.rank]].ne(0), self.a[d], self.b[d]))

    def pullback(self: Where[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,), rank = cotangents, self.cond.rank
        chosen = self.cond.dimshuffle([*range(rank), *["x"] * (self.a.rank - rank)]).scalar(
            "neq", 0
        )
        return [None, chosen.scalar("switch", g, 0.0), chosen.scalar("switch", 0.0, g)]
