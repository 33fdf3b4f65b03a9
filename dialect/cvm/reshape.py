"""The formalization's transform operators whose result is their operand's elements in the same
row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernel_ir.expressions import ZERO, Element, Tensor, axes
from ..spec.broadcasting import all_of, is_one
from ..spec.operator import C, T, operator
from ..spec.reshape_indexing import Reshaping
from ..types.sizes import Dim, Shape, product
from ..types.tensor_types import TensorType
from .cvm_operator import MAX_ATTR, MIN_ATTR, CvmOperator, within
from .transpose_tile_concatenate import axes_exist, from_start


@dataclass(frozen=True, eq=False)
class SameElements(CvmOperator[T], Reshaping[T]):
    """The family of operators that regroup the elements."""

    any_element = True
    x: T


@operator
class Flatten(SameElements[T]):
    """Y[flatten_index(d_0, ..., d_{N-1}, n_0, ..., n_{N-1})] = X[d_0, ..., d_{N-1}]   (Transform
    Operators, flatten)

    flatten_index is d_0 · n_1 ⋯ n_{N-1} + d_1 · n_2 ⋯ n_{N-1} + ⋯ + d_{N-1}; the result has one
    dimension.
    """

    example = "%x", "%x: 2x3xi32", "6xi32"

    def infer(self: Flatten[TensorType]) -> TensorType:
        return self.x.with_shape(self.x.size)

    def reference(self: Flatten[np.ndarray]) -> np.ndarray:
        return self.x.flatten()


@operator
class ExpandDims(SameElements[T]):
    """Y[d_0, ..., d_{real_axis-1}, 0, ..., 0, d_real_axis, ..., d_{N-1}] = X[d_0, ..., d_{N-1}],
    with num_newaxis zeros

    real_axis is `axis`, N+1 being added to a negative one. (Transform Operators, expand_dims)
    """

    axis: int
    num_newaxis: int = 1

    constraints = (
        C(
            1,
            "axis in [-N - 1, N + 1)",
            lambda o: -o.x.rank - 1 <= o.axis < o.x.rank + 1,
            at="axis",
        ),
        within(2, "num_newaxis", MIN_ATTR, MAX_ATTR, at="num_newaxis"),
    )
    symbols = {"N": lambda o: o.x.rank}
    example = "%x {axis = 1, num_newaxis = 2}", "%x: 2x3xi32", "2x1x1x3xi32"

    def infer(self: ExpandDims[TensorType]) -> TensorType:
        n = self.x.shape
        at = self.real_axis(len(n))
        return self.x.with_shape(*n[:at], *(1,) * self.num_newaxis, *n[at:])

    def reference(self: ExpandDims[np.ndarray]) -> np.ndarray:
        at = self.real_axis(self.x.ndim)
        return np.expand_dims(self.x, tuple(range(at, at + self.num_newaxis))).copy()

    def element(self: ExpandDims[Tensor], y: Tensor) -> Element:
        d = axes(y.shape)
        at = self.real_axis(self.x.rank)
        return Element(d, self.x[d[:at] + d[at + self.num_newaxis :]])

    def real_axis(self, rank: int) -> int:
        return self.axis if self.axis >= 0 else self.axis + rank + 1


@operator
class Reshape(SameElements[T]):
    """Y[d_0, ..., d_{M-1}] = T[flatten_index(d_0, ..., d_{M-1}, m_0, ..., m_{M-1})], where T =
    flatten(X)

    m is target_shape, of which one entry may be -1: the size that makes the products equal.
    (Transform Operators)
    """

    target_shape: tuple[int, ...]

    constraints = (
        C(
            1,
            "target_shape[i] >= -1 for all i",
            lambda o: min(o.target_shape, default=0) >= -1,
            at="target_shape",
        ),
        C(
            2,
            "target_shape has at most one -1",
            lambda o: o.target_shape.count(-1) <= 1,
            at="target_shape",
        ),
        C(
            3,
            "product(m) = product(n)",
            lambda o: product(o.m(o.x.size)) == o.x.size,
            at="target_shape",
            plainly=lambda o: (
                f"an array of shape {o.x.shape} has {o.x.size} elements, which "
                f"{list(o.target_shape)} does not hold"
            ),
        ),
    )
    symbols = {"m": lambda o: o.m(o.x.size), "n": lambda o: o.x.shape}
    example = "%x {target_shape = [-1, 3]}", "%x: 2x3x4xi32", "8x3xi32"

    def infer(self: Reshape[TensorType]) -> TensorType:
        return self.x.with_shape(*self.m(self.x.size))

    def reference(self: Reshape[np.ndarray]) -> np.ndarray:
        return self.x.reshape(self.m(self.x.size)).copy()

    def m(self, size: Dim) -> Shape:
        """The target shape for `size` elements: -1 stands for the quotient of `size` and the other
        entries' product (0 where that is 0).
        """
        others = product(tuple(m for m in self.target_shape if m != -1))
        rest = size // others if others else 0
        return tuple(rest if m == -1 else m for m in self.target_shape)


@operator
class Squeeze(SameElements[T]):
    """Y[d_{I(0)}, ..., d_{I(N-K-1)}] = X[d_0, ..., d_{N-1}]   (Transform Operators, squeeze)

    I enumerates the axes outside real_axes, which are `axes`, N being added to negative ones, or
    every axis of length 1 where `axes` is empty.
    """

    axes: tuple[int, ...] = ()

    constraints = (
        C(1, "axes in [-N, N)", lambda o: axes_exist(o.axes, o.x.rank), at="axes"),
        C(
            2,
            "n[a] = 1 for all a in axes",
            lambda o: all_of((lambda a=a: o.x.shape[a] == 1) for a in o.axes),
            "axes",
        ),
        C(
            3,
            "shape(x) has no unknown size if axes is empty",
            lambda o: bool(o.axes) or o.x.is_static,
        ),
    )
    symbols = {"N": lambda o: o.x.rank, "n": lambda o: o.x.shape}
    example = "%x {axes = [0]}", "%x: 1x3x1x2xi32", "3x1x2xi32"

    def infer(self: Squeeze[TensorType]) -> TensorType:
        return self.x.with_shape(*(self.x.shape[j] for j in self.kept(self.x.shape)))

    def reference(self: Squeeze[np.ndarray]) -> np.ndarray:
        return np.squeeze(self.x, tuple({axis % self.x.ndim for axis in self.axes}) or None).copy()

    def element(self: Squeeze[Tensor], y: Tensor) -> Element:
        at = axes(y.shape)
        d = dict(zip(self.kept(self.x.shape), at, strict=True))
        return Element(at, self.x[*(d.get(j, ZERO) for j in range(self.x.rank))])

    def kept(self, shape: Shape) -> list[int]:
        """The axes outside real_axes, in order."""
        real_axes = from_start(self.axes, len(shape)) or tuple(
            j for j, n in enumerate(shape) if is_one(n)
        )
        return [j for j in range(len(shape)) if j not in real_axes]
