"""Operators whose result takes sizes from another operand, of which only the shape is used.

Cotangents have the shapes of operands: pullbacks composed of these operators are valid for unknown
sizes, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..kernel_ir.expressions import (
    Element,
    Expr,
    Index,
    Tensor,
    as_index,
    axes,
    both,
    constant,
    total,
    when,
)
from ..kernel_ir.index_bounds import inside
from ..spec.broadcasting import is_one, repeats, source
from ..spec.operator import C, Operator, T, operator
from ..spec.reshape_indexing import Reshaping
from ..types.sizes import Dim, Shape, bounded, larger, product, same_size, smaller
from ..types.tensor_types import TensorType
from .pad_slice_reshape import distinct_axes

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


@dataclass(frozen=True, eq=False)
class Like(Operator[T]):
    """The family of operators whose result has the elements of x and the shape of like."""

    x: T
    like: T

    transpose: ClassVar[str]  # the operator that is the transpose of this one

    def infer(self: Like[TensorType]) -> TensorType:
        return TensorType(self.like.array_shape, self.x.element)

    def simplified(self, definition: object) -> Any:
        return self.x

    def pullback(self: Like[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        return [cotangents[0].apply(self.transpose, self.x), None]


@operator
class ReshapeLike(Like[T], Reshaping[T]):
    """Y has the elements of X in row-major order, and the shape of like. What goes back through a
    reshape.
    """

    any_element = True
    transpose = "builtin.reshape_like"
    constraints = (
        C(
            1,
            "product(n) = product(m), n and m being the shapes of x and like",
            lambda o: product(o.x.array_shape) == product(o.like.array_shape),
        ),
    )
    symbols = {"n": lambda o: o.x.array_shape, "m": lambda o: o.like.array_shape}
    example = "%x, %like", "%x: ?N x 2 x f32, %like: 2 x ?N x f32", "2 x ?N x f32"

    def reference(self: ReshapeLike[np.ndarray]) -> np.ndarray:
        return self.x.reshape(self.like.shape)


# Elements apart


@dataclass(frozen=True, eq=False)
class Apart(Operator[T]):
    """The family of operators that place elements apart along `axes`, all of them where that is
    absent, or pick such ones.

    Element u of an axis of size n meets element b + u * strides, where b is as in cvm.slice:
    `begin`, n being added to a negative one, clipped to n elements; absent entries are 0 and 1.
    """

    x: T
    like: T
    axes: tuple[int, ...] | None = None
    begin: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    transpose: ClassVar[str]  # the operator that is the transpose of this one
    constraints = (
        C(1, "rank(x) = rank(like)", lambda o: len(o.x.array_shape) == len(o.like.array_shape)),
        C(
            2,
            "axes is in [0, rank(x)), without repeating",
            lambda o: distinct_axes(o.axes or (), len(o.x.array_shape)),
            at="axes",
        ),
        C(
            3,
            "begin and strides have no more entries than axes",
            lambda o: max(len(o.begin), len(o.strides)) <= len(o.along(len(o.x.array_shape))),
        ),
        C(4, "strides[i] != 0 for all i", lambda o: 0 not in o.strides, at="strides"),
    )

    def along(self, rank: int) -> tuple[int, ...]:
        return tuple(range(rank)) if self.axes is None else self.axes

    def sizes(self, n: Shape, m: Shape) -> Shape:
        """The result's, those of x and like being n and m."""
        along = self.along(len(n))
        return tuple(m[j] if j in along else n[j] for j in range(len(n)))

    def infer(self: Apart[TensorType]) -> TensorType:
        return TensorType(self.sizes(self.x.array_shape, self.like.array_shape), self.x.element)

    def pullback(self: Apart[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,), places = cotangents, {"axes": self.axes, "begin": self.begin, "strides": self.strides}
        return [g.apply(self.transpose, self.x, **places), None]

    def places(self, n: Shape, m: Shape) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Each element u, of n, with the element of m that it meets, where there is one."""
        steps = self.steps(m)
        for u in np.ndindex(n):
            at = tuple(steps[j][0] + i * steps[j][1] if j in steps else i for j, i in enumerate(u))
            if all(0 <= i < size for i, size in zip(at, m, strict=True)):
                yield u, at

    def steps(self, shape: Shape) -> dict[int, tuple[Dim, int]]:
        """b and the stride of every axis, for sizes between which the elements are apart."""
        given = zip_longest(self.along(len(shape)), self.begin, map(bounded, self.strides))
        return {j: (first(b or 0, s or 1, shape[j]), s or 1) for j, b, s in given}


def first(begin: int, stride: int, n: Dim) -> Dim:
    """The first of n elements that a slice takes, which is not empty."""
    b = bounded(begin)
    at = b + n if b < 0 else b
    return larger(at, 0) if stride > 0 else smaller(at + 1, n) - 1


@operator
class StridedScatterLike(Apart[T]):
    """Y[b + u * strides] = X[u] where Y, of like's sizes along axes, has such an element; 0
    elsewhere.

    What goes back through a slice.
    """

    transpose = "builtin.strided_slice_like"
    example = (
        "%x, %like {begin = [-2, 1], strides = [1, 2]}",
        "%x: 2x3xf32, %like: ?N x 7 x f32",
        "?N x 7 x f32",
    )

    def reference(self: StridedScatterLike[np.ndarray]) -> np.ndarray:
        y = np.zeros(self.sizes(self.x.shape, self.like.shape), self.x.dtype)
        for u, at in self.places(self.x.shape, y.shape):
            y[at] = self.x[u]
        return y

    def element(self: StridedScatterLike[Tensor], y: Tensor) -> Element:
        at: list[Expr] = [*(d := axes(y.shape))]
        conditions: list[Expr | bool] = []
        for j, (b, s) in self.steps(y.shape).items():
            past = d[j] - b if s > 0 else as_index(b) - d[j]
            at[j] = past // abs(s) if abs(s) > 1 else past
            conditions += [
                inside(at[j], self.x.shape[j]),
                (past % abs(s)).eq(0) if abs(s) > 1 else True,
            ]
        return Element(d, when(both(*conditions), self.x[tuple(at)], constant(0, y.element)))


@operator
class StridedSliceLike(Apart[T]):
    """Y[u] = X[b + u * strides] where X has such an element, else 0; Y has like's sizes along
    axes.
    """

    transpose = "builtin.strided_scatter_like"
    example = (
        "%x, %like {begin = [-2, 1], strides = [1, 2]}",
        "%x: ?N x 7 x f32, %like: 2x3xf32",
        "2x3xf32",
    )

    def reference(self: StridedSliceLike[np.ndarray]) -> np.ndarray:
        y = np.zeros(self.sizes(self.x.shape, self.like.shape), self.x.dtype)
        for u, at in self.places(y.shape, self.x.shape):
            y[u] = self.x[at]
        return y

    def element(self: StridedSliceLike[Tensor], y: Tensor) -> Element:
        at: list[Expr] = [*(d := axes(y.shape))]
        conditions: list[Expr | bool] = []
        for j, (b, s) in self.steps(self.x.shape).items():
            at[j] = d[j] * s + b
            conditions.append(inside(at[j], self.x.shape[j]))
        return Element(d, when(both(*conditions), self.x[tuple(at)], constant(0, y.element)))


# Repeated


@operator
class BroadcastLike(Like[T]):
    """Y[i...] = X[i...], repeated along the axes where X is absent or turns out to have size 1, to
    the shape of like.

    NumPy's broadcasting; shapes are aligned on the right.
    """

    any_element = True
    transpose = "builtin.sum_like"
    constraints = (
        C(1, "rank(x) <= rank(like)", lambda o: len(o.x.array_shape) <= len(o.like.array_shape)),
        C(
            2,
            "sizes of x are those of like, or 1",
            lambda o: repeats(o.x.array_shape, o.like.array_shape),
        ),
    )
    example = "%x, %like", "%x: ?N x f32, %like: 2 x ?M x f32", "2 x ?M x f32"

    def reference(self: BroadcastLike[np.ndarray]) -> np.ndarray:
        return np.broadcast_to(self.x, self.like.shape).copy()

    def element(self: BroadcastLike[Tensor], y: Tensor) -> Element:
        at = axes(y.shape)
        return Element(at, self.x[source(at, self.x)])


@operator
class SumLike(Like[T]):
    """The sum of X over the axes that like does not have, and over those where it turns out to have
    size 1: like's shape.

    What goes back through a repetition.
    """

    transpose = "builtin.broadcast_like"
    constraints = (
        C(1, "rank(x) >= rank(like)", lambda o: len(o.x.array_shape) >= len(o.like.array_shape)),
        C(
            2,
            "sizes of like are those of x, or 1",
            lambda o: repeats(o.like.array_shape, o.x.array_shape),
        ),
    )
    example = "%x, %like", "%x: 2 x ?M x f32, %like: ?N x f32", "?N x f32"

    def reference(self: SumLike[np.ndarray]) -> np.ndarray:
        more = self.x.ndim - self.like.ndim
        met = zip(self.like.shape, self.x.shape[more:], strict=True)
        over = (*range(more), *(j + more for j, (m, n) in enumerate(met) if m == 1 != n))
        return (
            np.add.reduce(self.x, over, self.x.dtype, keepdims=True).reshape(self.like.shape)
            if over
            else self.x
        )

    def element(self: SumLike[Tensor], y: Tensor) -> Element:
        d = axes(y.shape)
        more = self.x.rank - y.rank
        over = [Index(f"k{j}", n) for j, n in enumerate(self.x.shape[:more])]
        at: list[Expr] = [*over]
        for i, n in zip(d, self.x.shape[more:], strict=True):
            if same_size(i.extent, n):
                at.append(i)
                continue
            # as many for each: all of them where there is one element, one where there are n
            k = Index(f"k{len(at)}", n if is_one(i.extent) else n // i.extent)
            over.append(k)
            at.append(k if is_one(i.extent) else i + k)
        return Element(d, total(tuple(over), self.x[tuple(at)]))
