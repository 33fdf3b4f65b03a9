"""The formalization's transform operators that cut a range out of every axis: given, or like
another tensor's.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..kernel_ir.expressions import Element, Tensor, axes
from ..spec.broadcasting import all_of
from ..spec.operator import C, T, operator
from ..types.sizes import Dim, Shape, bounded, larger, smaller
from ..types.tensor_types import TensorType
from .cvm_operator import CvmOperator, one_element_type
from .transpose_tile_concatenate import from_start

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


@operator
class Slice(CvmOperator[T]):
    """Y[d_0, ..., d_{N-1}] = X[K[0], ..., K[N-1]], where K[i] = b_vec[i] + s_arr[i] · d_i
    (Transform Operators)

    b_arr, e_arr and s_arr are begin, end and strides, n_i being added to negative entries of the
    first two, and absent entries being 0, n_i and 1. b_vec and e_vec are b_arr and e_arr clipped to
    [0, n_i] for a positive stride and to [-1, n_i - 1] for a negative one. Axis i has size
    ⌈(e_vec[i] - b_vec[i]) / s_arr[i]⌉.
    """

    any_element = True
    x: T
    begin: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    constraints = (
        C(1, "B <= N", lambda o: len(o.begin) <= o.x.rank, at="begin"),
        C(2, "E <= N", lambda o: len(o.end) <= o.x.rank, at="end"),
        C(3, "S <= N", lambda o: len(o.strides) <= o.x.rank, at="strides"),
        C(4, "s_arr[i] != 0 for all i", lambda o: 0 not in o.strides, at="strides"),
        C(
            5,
            "b_vec[i] < e_vec[i] if s_arr[i] > 0, else e_vec[i] < b_vec[i]",
            lambda o: all_of(
                (lambda r=r: r[0] < r[1] if r[2] > 0 else r[1] < r[0]) for r in o.clipped(o.x.shape)
            ),
        ),
    )
    symbols = {
        "B": lambda o: len(o.begin),
        "E": lambda o: len(o.end),
        "S": lambda o: len(o.strides),
        "N": lambda o: o.x.rank,
        "b_vec": lambda o: tuple(b for b, _, _ in o.clipped(o.x.shape)),
        "e_vec": lambda o: tuple(e for _, e, _ in o.clipped(o.x.shape)),
        "s_arr": lambda o: tuple(s for _, _, s in o.clipped(o.x.shape)),
    }
    example = "%x {begin = [1, -1], end = [3, -6], strides = [1, -1]}", "%x: 4x5xi32", "2x5xi32"

    def infer(self: "Slice[TensorType]") -> TensorType:
        lengths = (
            ((e - b if s > 0 else b - e) + abs(s) - 1) // abs(s)
            for b, e, s in self.ranges(self.x.shape)
        )
        return self.x.with_shape(*lengths)

    def reference(self: "Slice[np.ndarray]") -> np.ndarray:
        y = self.x
        for i, n in enumerate(self.x.shape):
            entries = ((self.begin, 0), (self.end, n), (self.strides, 1))
            bounds = slice(*(given[i] if i < len(given) else absent for given, absent in entries))
            y = np.take(y, range(*bounds.indices(n)), i)
        return y

    def element(self: "Slice[Tensor]", y: Tensor) -> Element:
        d = axes(y.shape)
        return Element(
            d,
            self.x[*(i * s + b for i, (b, _, s) in zip(d, self.ranges(self.x.shape), strict=True))],
        )

    def pullback(self: "Slice[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        return [
            cotangents[0].apply(
                "builtin.strided_scatter_like", self.x, begin=self.begin, strides=self.strides
            )
        ]

    def arrays(self, shape: Shape) -> list[tuple[Dim, Dim, int]]:
        """b_arr, e_arr and s_arr of each axis."""

        def entry(given: tuple[int, ...], i: int, absent: Dim) -> Dim:
            if i >= len(given):
                return absent
            value = bounded(given[i])
            return value + shape[i] if value < 0 else value

        strides = (*map(bounded, self.strides), *(1,) * (len(shape) - len(self.strides)))
        return [
            (entry(self.begin, i, 0), entry(self.end, i, n), strides[i])
            for i, n in enumerate(shape)
        ]

    def clipped(self, shape: Shape) -> list[tuple[Dim, Dim, int]]:
        """b_vec, e_vec and s_arr of each axis."""
        ranges: list[tuple[Dim, Dim, int]] = []
        for n, (b, e, s) in zip(shape, self.arrays(shape), strict=True):
            up = (
                0 if s > 0 else 1
            )  # added before clipping: a symbolic maximum or minimum must not be negative
            ranges.append(
                (smaller(larger(b + up, 0), n) - up, smaller(larger(e + up, 0), n) - up, s)
            )
        return ranges

    def ranges(self, shape: Shape) -> list[tuple[Dim, Dim, int]]:
        """The ranges where constraint 5 holds: since none is empty, one side of each clip is
        enough.
        """
        triples: list[tuple[Dim, Dim, int]] = []
        for n, (b, e, s) in zip(shape, self.arrays(shape), strict=True):
            if s > 0:
                triples.append((larger(b, 0), smaller(e, n), s))
            else:
                triples.append((smaller(b + 1, n) - 1, larger(e + 1, 0) - 1, s))
        return triples


@operator
class SliceLike(CvmOperator[T]):
    """Y[d_0, ..., d_{N-1}] = X[d_0, ..., d_{N-1}], d_j in [0, m_j) for j in sliced_axes, else in
    [0, n_j)

    m is the shape of shape_like. sliced_axes are `axes`, N being added to negative ones, or all
    where `axes` is empty. (Transform Operators, slice_like)
    """

    any_element = True
    x: T
    shape_like: T
    axes: tuple[int, ...] = ()

    constraints = (
        one_element_type("x", "shape_like"),
        C(1, "M = N if axes is empty", lambda o: bool(o.axes) or o.shape_like.rank == o.x.rank),
        C(
            2,
            "0 <= j < min(M, N) for all j in sliced_axes",
            lambda o: all(
                0 <= j < min(o.x.rank, o.shape_like.rank) for j in o.sliced_axes(o.x.rank)
            ),
            at="axes",
        ),
        C(
            3,
            "m[j] <= n[j] for all j in sliced_axes",
            lambda o: all_of(
                (lambda j=j: o.shape_like.shape[j] <= o.x.shape[j]) for j in o.sliced_axes(o.x.rank)
            ),
        ),
    )
    symbols = {
        "M": lambda o: o.shape_like.rank,
        "N": lambda o: o.x.rank,
        "m": lambda o: o.shape_like.shape,
        "n": lambda o: o.x.shape,
        "sliced_axes": lambda o: o.sliced_axes(o.x.rank),
    }
    example = "%x, %like {axes = [1]}", "%x: 4x5xi32, %like: 2x3xi32", "4x3xi32"

    def infer(self: "SliceLike[TensorType]") -> TensorType:
        sliced = self.sliced_axes(self.x.rank)
        return self.x.with_shape(
            *(self.shape_like.shape[j] if j in sliced else n for j, n in enumerate(self.x.shape))
        )

    def reference(self: "SliceLike[np.ndarray]") -> np.ndarray:
        y = self.x.copy()
        for j in self.axes or range(self.x.ndim):
            y = np.take(y, np.arange(self.shape_like.shape[j % self.x.ndim]), j)
        return y

    def element(self: "SliceLike[Tensor]", y: Tensor) -> Element:
        d = axes(y.shape)
        return Element(d, self.x[d])

    def pullback(self: "SliceLike[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        return [cotangents[0].apply("builtin.strided_scatter_like", self.x), None]

    def sliced_axes(self, rank: int) -> tuple[int, ...]:
        return from_start(self.axes, rank) if self.axes else tuple(range(rank))
