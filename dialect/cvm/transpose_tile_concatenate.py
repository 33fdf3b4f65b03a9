"""The formalization's transform operators that copy and rearrange whole tensors.

Operators that keep the row-major order are in `reshape`, those that select elements in `slice` and
`take_where`.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernel_ir.expressions import Element, Expr, Tensor, axes, when
from ..spec.broadcasting import all_of
from ..spec.operator import C, T, operator
from ..types.sizes import Dim, same_size
from ..types.tensor_types import TensorType
from .cvm_operator import MAX_ATTR, CvmOperator, one_element_type, within

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


@operator
class Repeat(CvmOperator[T]):
    """Y[d_0, ..., d_axis, ..., d_{N-1}] = X[d_0, ..., ⌊d_axis / repeats⌋, ..., d_{N-1}]
    (Transform Operators, repeat)

    Each element is repeated right after itself along the axis.
    """

    any_element = True
    x: T
    axis: int
    repeats: int

    constraints = (
        C(1, "axis in [0, N)", lambda o: 0 <= o.axis < o.x.rank, at="axis"),
        C(2, "repeats >= 1", lambda o: o.repeats >= 1, at="repeats"),
    )
    symbols = {"N": lambda o: o.x.rank}
    example = "%x {axis = 1, repeats = 2}", "%x: 2x3xi32", "2x6xi32"

    def infer(self: Repeat[TensorType]) -> TensorType:
        n = self.x.shape
        return self.x.with_shape(*n[: self.axis], n[self.axis] * self.repeats, *n[self.axis + 1 :])

    def reference(self: Repeat[np.ndarray]) -> np.ndarray:
        return np.repeat(self.x, self.repeats, self.axis)

    def element(self: Repeat[Tensor], y: Tensor) -> Element:
        d = axes(y.shape)
        return Element(
            d, self.x[*d[: self.axis], d[self.axis] // self.repeats, *d[self.axis + 1 :]]
        )

    def pullback(self: Repeat[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,), k = cotangents, self.axis + 1
        split = tuple((-1, self.repeats) if j == self.axis else (-1,) for j in range(g.rank))
        return [g.apply("builtin.reshape", split=split).sum((k,), dtype=g.element)]


@operator
class Tile(CvmOperator[T]):
    """Y[k_0, ..., k_{K-1}] = X[k_{K-N} mod n_0, ..., k_{K-1} mod n_{N-1}]   (Transform Operators,
    tile)

    K = max{M, N}, and axis i has size SX_i · SR_i: the shape and `reps`, aligned on the right and
    filled up with 1.
    """

    any_element = True
    x: T
    reps: tuple[int, ...]

    symbols = {"M": lambda o: len(o.reps)}
    constraints = (
        within(1, "reps", 1, MAX_ATTR, at="reps"),
        C(2, "M >= 1, reps having M entries", lambda o: len(o.reps) >= 1, at="reps"),
    )
    example = "%x {reps = [2, 1, 3]}", "%x: 2x3xi32", "2x2x9xi32"

    def infer(self: Tile[TensorType]) -> TensorType:
        n, m = self.x.shape, self.reps
        sx = (1,) * (len(m) - len(n)) + n
        return self.x.with_shape(
            *(a * b for a, b in zip(sx, (1,) * (len(n) - len(m)) + m, strict=True))
        )

    def reference(self: Tile[np.ndarray]) -> np.ndarray:
        return np.tile(self.x, self.reps)

    def element(self: Tile[Tensor], y: Tensor) -> Element:
        k = axes(y.shape)
        last = zip(k[len(k) - self.x.rank :], self.x.shape, strict=True)
        return Element(k, self.x[*(i if same_size(i.extent, n) else i % n for i, n in last)])

    def pullback(self: Tile[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,), apply = cotangents, cotangents[0].builder.apply
        split = tuple((times, -1) for times in (1,) * (g.rank - len(self.reps)) + self.reps)
        gradient = apply("builtin.reshape", g, split=split).sum(
            range(0, 2 * g.rank, 2), dtype=g.element
        )
        return [apply("builtin.reshape_like", gradient, self.x)]


@operator
class Concatenate(CvmOperator[T]):
    """Y[d_0, ..., new_idx, ..., d_{N-1}] = I^i[d_0, ..., d_axis, ..., d_{N-1}]   (Transform
    Operators, concatenate)

    new_idx = Σ_{j<i} n^j_axis + d_axis. I^i is xs[i] and n^i its shape.
    """

    any_element = True
    xs: tuple[T, ...]
    axis: int

    constraints = (
        one_element_type("xs[i]", "xs[0]"),
        C(1, "M >= 1", lambda o: len(o.xs) >= 1),
        C(
            2,
            "rank(xs[i]) = rank(xs[0]) for all i in [1, M)",
            lambda o: len({x.rank for x in o.xs}) == 1,
        ),
        C(3, "0 <= axis < rank(xs[0])", lambda o: 0 <= o.axis < o.xs[0].rank, at="axis"),
        C(4, "n[i][j] = n[0][j] for all i in [1, M) and j != axis", lambda o: _line_up(o)),
    )
    symbols = {"M": lambda o: len(o.xs), "n": lambda o: tuple(x.shape for x in o.xs)}
    example = "%a, %b {axis = 1}", "%a: 2x3xi32, %b: 2x1xi32", "2x4xi32"

    def infer(self: Concatenate[TensorType]) -> TensorType:
        n = self.xs[0].shape
        along: Dim = sum((x.shape[self.axis] for x in self.xs), 0)
        return self.xs[0].with_shape(*n[: self.axis], along, *n[self.axis + 1 :])

    def reference(self: Concatenate[np.ndarray]) -> np.ndarray:
        return np.concatenate(self.xs, self.axis)

    def element(self: Concatenate[Tensor], y: Tensor) -> Element:
        d = axes(y.shape)
        starts: tuple[Dim, ...] = tuple(
            accumulate((x.shape[self.axis] for x in self.xs), initial=0)
        )

        def among(first: int, stop: int) -> Expr:
            """The element, which is in one of xs[first], ..., xs[stop - 1]: by halves, so that many
            nest little.
            """
            if stop - first == 1:
                return self.xs[first][
                    *d[: self.axis], d[self.axis] - starts[first], *d[self.axis + 1 :]
                ]
            middle = (first + stop) // 2
            return when(d[self.axis] < starts[middle], among(first, middle), among(middle, stop))

        return Element(d, among(0, len(self.xs)))

    def pullback(self: Concatenate[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        return [
            cotangents[0].apply("builtin.part", *self.xs, axis=self.axis, index=k)
            for k in range(len(self.xs))
        ]


def _line_up(o: Any) -> bool:
    pairs = (
        (m, n)
        for x in o.xs
        for j, (m, n) in enumerate(zip(x.shape, o.xs[0].shape, strict=True))
        if j != o.axis
    )
    return all_of((lambda m=m, n=n: m == n) for m, n in pairs)


@operator
class Transpose(CvmOperator[T]):
    """Y[d_{real_axes_0}, ..., d_{real_axes_{N-1}}] = X[d_0, ..., d_{N-1}]   (Transform Operators,
    transpose)

    real_axes are `axes`, N being added to negative ones, or N-1, ..., 0 where `axes` is empty.
    """

    any_element = True
    x: T
    axes: tuple[int, ...] = ()

    constraints = (
        C(1, "M in {0, N}", lambda o: len(o.axes) in (0, o.x.rank), at="axes"),
        C(2, "axes in [-N, N)", lambda o: axes_exist(o.axes, o.x.rank), at="axes"),
        C(
            3,
            "card{real_axes} = N",
            lambda o: len(set(o.real_axes(o.x.rank))) == o.x.rank,
            at="axes",
            plainly=lambda o: f"axes name one axis of {o.x.rank} twice: {list(o.axes)}",
        ),
    )
    symbols = {
        "M": lambda o: len(o.axes),
        "N": lambda o: o.x.rank,
        "real_axes": lambda o: o.real_axes(o.x.rank),
    }
    example = "%x {axes = [2, 0, 1]}", "%x: 2x3x4xi32", "4x2x3xi32"

    def infer(self: Transpose[TensorType]) -> TensorType:
        return self.x.with_shape(*(self.x.shape[a] for a in self.real_axes(self.x.rank)))

    def reference(self: Transpose[np.ndarray]) -> np.ndarray:
        return np.transpose(self.x, self.axes or None).copy()

    def element(self: Transpose[Tensor], y: Tensor) -> Element:
        at = axes(y.shape)
        d = dict(zip(self.real_axes(len(at)), at, strict=True))
        return Element(at, self.x[*(d[j] for j in range(len(at)))])

    def pullback(self: Transpose[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,), order = cotangents, self.real_axes(self.x.rank)
        return [g.dimshuffle([order.index(j) for j in range(len(order))])]

    def real_axes(self, rank: int) -> tuple[int, ...]:
        return from_start(self.axes, rank) if self.axes else tuple(reversed(range(rank)))


def axes_exist(given: tuple[int, ...], rank: int) -> bool:
    return all(-rank <= axis < rank for axis in given)


def from_start(given: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The axes, the rank being added to negative ones."""
    return tuple(axis if axis >= 0 else axis + rank for axis in given)
