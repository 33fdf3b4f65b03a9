"""Operators that choose, move or join the points of fields: outer products, slices, subfields,
shifts, stacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..kernel_ir import expressions as ex
from ..kernel_ir.index_bounds import inside
from ..spec.broadcasting import same_shape
from ..spec.operator import C, T, operator
from ..spec.reshape_indexing import Reshaping
from ..types.sizes import Dim, product, same_size
from ..types.tensor_types import FieldType
from .cog_operator import CogOperator, fields, real, result_axes, scalar_field

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes

GRID = "%x: !cog.field<[4, 5], f32>"  # the operand of examples


def zero(t: ex.Tensor) -> ex.Expr:
    return ex.constant(0, t.element)


@operator
class Outer(CogOperator[T]):
    """Y[i, j] = A[i] * B[j]: every product of a point of A and a point of B   (Field operators,
    outer product)
    """

    a: T
    b: T

    constraints = (
        fields("a", "b"),
        real(1, "a", "b"),
        scalar_field(2, "a", "b"),
        C(3, "rank(a) + rank(b) <= 3 for type(a) and type(b)", lambda o: o.a.rank + o.b.rank <= 3),
    )
    example = "%a, %b", "%a: !cog.field<[3], f32>, %b: !cog.field<[2], f32>"

    def infer(self: Outer[FieldType]) -> FieldType:
        return FieldType((*self.a.shape, *self.b.shape), self.a.tensor)

    def reference(self: Outer[np.ndarray]) -> np.ndarray:
        return np.asarray(np.multiply.outer(self.a, self.b))

    def element(self: Outer[ex.Tensor], y: ex.Tensor) -> ex.Element:
        at, _ = result_axes(y, y.rank)
        return ex.Element(at, self.a[at[: self.a.rank]] * self.b[at[self.a.rank :]])

    def pullback(self: Outer[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,), a, b = cotangents, self.a.rank, self.b.rank
        spread_a = self.a.dimshuffle([*range(a), *["x"] * b])
        spread_b = self.b.dimshuffle([*["x"] * a, *range(b)])
        ends = range(a, a + b), range(a)
        return [
            (g * o).sum(e, dtype=g.element) for o, e in zip((spread_b, spread_a), ends, strict=True)
        ]


@operator
class Slice(CogOperator[T]):
    """Y[j...] = X[index, j...]: one dimension less   (Field operators, slicing)"""

    x: T
    index: int

    constraints = (
        fields("x"),
        C(1, "rank(x) >= 1", lambda o: o.x.rank >= 1),
        C(2, "0 <= index < size(x)", lambda o: o.index >= 0 and o.index < o.x.shape[0], at="index"),
    )
    symbols = {"size": lambda o: o.x.shape[0]}
    example = "%x {index = 2}", GRID

    def infer(self: Slice[FieldType]) -> FieldType:
        return FieldType(self.x.shape[1:], self.x.tensor)

    def reference(self: Slice[np.ndarray]) -> np.ndarray:
        return np.asarray(self.x[self.index])

    def element(self: Slice[ex.Tensor], y: ex.Tensor) -> ex.Element:
        at, _ = result_axes(y, y.rank)
        return ex.Element(at, self.x[(ex.as_index(self.index), *at)])

    def pullback(self: Slice[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,) = cotangents
        return [
            g.with_ones((0,)).apply(
                "builtin.strided_scatter_like", self.x, axes=(0,), begin=(self.index,)
            )
        ]


@operator
class Subfield(CogOperator[T]):
    """Y[i, j, ...] = X[begin_0 + i, begin_1 + j, ...] for i < end_0 - begin_0, ...   (Field
    operators, subfields)
    """

    x: T
    begin: tuple[int, ...]
    end: tuple[int, ...]

    constraints = (
        fields("x"),
        C(
            1,
            "begin and end have rank(x) entries",
            lambda o: len(o.begin) == len(o.end) == o.x.rank,
        ),
        C(
            2,
            "0 <= begin < end <= shape(x)",
            lambda o: all(
                0 <= b < e and e <= n for b, e, n in zip(o.begin, o.end, o.x.shape, strict=True)
            ),
        ),
    )
    example = "%x {begin = [1, 1], end = [3, 4]}", GRID

    def infer(self: Subfield[FieldType]) -> FieldType:
        return FieldType(
            tuple(e - b for b, e in zip(self.begin, self.end, strict=True)), self.x.tensor
        )

    def reference(self: Subfield[np.ndarray]) -> np.ndarray:
        return np.asarray(
            self.x[tuple(slice(b, e) for b, e in zip(self.begin, self.end, strict=True))]
        )

    def element(self: Subfield[ex.Tensor], y: ex.Tensor) -> ex.Element:
        grid, tensor = result_axes(y, self.grid("x"))
        moved = tuple(i + b for i, b in zip(grid, self.begin, strict=True))
        return ex.Element((*grid, *tensor), self.x[(*moved, *tensor)])

    def pullback(self: Subfield[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,), grid = cotangents, len(self.begin)
        return [
            g.apply(
                "builtin.strided_scatter_like", self.x, axes=tuple(range(grid)), begin=self.begin
            )
        ]


@operator
class Reshape(CogOperator[T], Reshaping[T]):
    """Y has the points of X in row-major order, under another field shape"""

    x: T
    shape: tuple[int, ...]

    constraints = (
        fields("x"),
        C(
            1,
            "shape has at most 3 sizes, each at least 1",
            lambda o: len(o.shape) <= 3 and all(n >= 1 for n in o.shape),
            at="shape",
        ),
        C(
            2,
            "product(shape) = points(x)",
            lambda o: product(o.shape) == product(o.x.shape),
            at="shape",
        ),
    )
    symbols = {"points": lambda o: product(o.x.shape), "product": lambda o: product(o.shape)}
    example = "%x {shape = [2, 10]}", GRID

    def infer(self: Reshape[FieldType]) -> FieldType:
        return FieldType(self.shape, self.x.tensor)

    def reference(self: Reshape[np.ndarray]) -> np.ndarray:
        return self.x.reshape((*self.shape, *self.x.shape[self.grid("x") :]))

    def element(self: Reshape[ex.Tensor], y: ex.Tensor) -> ex.Element:
        grid, tensor = result_axes(y, len(self.shape))
        points = ex.unflatten(
            ex.flat_index(grid, y.shape[: len(grid)]), self.x.shape[: self.grid("x")]
        )
        return ex.Element((*grid, *tensor), self.x[(*points, *tensor)])


Border = Literal["zero", "clamp", "cyclic"]
NEAREST = {
    "clamp": lambda i, n: ex.minimum(i, n - 1),
    "cyclic": lambda i, n: i % n,
}  # the point of X shown beyond it


@operator
class Expand(CogOperator[T]):
    """Y[i] = X[i] where X has that point; beyond it 0, the nearest point (clamp) or X repeated
    (cyclic)
    """

    x: T
    shape: tuple[int, ...]
    border: Border = "zero"

    constraints = (
        fields("x"),
        C(1, "shape has rank(x) sizes", lambda o: len(o.shape) == o.x.rank, at="shape"),
        C(
            2,
            "shape >= shape(x)",
            lambda o: all(n >= m for n, m in zip(o.shape, o.x.shape, strict=True)),
            at="shape",
        ),
        C(
            3,
            'border = "zero", or no size in shape(x) is 0',
            lambda o: o.border == "zero" or all(n > 0 for n in o.x.shape),
            at="border",
        ),
    )
    example = '%x {shape = [6, 6], border = "clamp"}', GRID

    def infer(self: Expand[FieldType]) -> FieldType:
        return FieldType(self.shape, self.x.tensor)

    def reference(self: Expand[np.ndarray]) -> np.ndarray:
        grid = self.grid("x")
        more = [(0, n - m) for n, m in zip(self.shape, self.x.shape, strict=False)] + [(0, 0)] * (
            self.x.ndim - grid
        )
        if not grid:
            return self.x
        mode: Any = {"zero": "constant", "clamp": "edge", "cyclic": "wrap"}[self.border]
        return np.pad(self.x, more, mode=mode)

    def element(self: Expand[ex.Tensor], y: ex.Tensor) -> ex.Element:
        grid, tensor = result_axes(y, self.grid("x"))
        if self.border == "zero":
            there = ex.both(*(inside(i, n) for i, n in zip(grid, self.x.shape, strict=False)))
            return ex.Element(
                (*grid, *tensor), ex.when(there, self.x[(*grid, *tensor)], zero(self.x))
            )
        shown = tuple(
            NEAREST[self.border](i, ex.as_index(n))
            for i, n in zip(grid, self.x.shape, strict=False)
        )
        return ex.Element((*grid, *tensor), self.x[(*shown, *tensor)])

    def pullback(self: Expand[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        """Every point of x gets the sum of the cotangents of the points that show it."""
        (g,), shape = cotangents, self.types["x"].shape
        if self.border == "zero":
            return [g.apply("builtin.strided_slice_like", self.x, axes=tuple(range(len(shape))))]
        for axis, (n, whole) in enumerate(zip(shape, self.shape, strict=True)):
            if not same_size(n, whole):
                if self.border == "cyclic" and not isinstance(n, int):
                    raise NotImplementedError(
                        f"{self.name} with a cyclic border, of a size that is not known,"
                    )
                shown = np.arange(whole, dtype=np.int32)  # by clamp, beyond the last is the last
                shown = shown if self.border == "clamp" else shown % np.int32(n)
                g = g.apply("builtin.add_at", g.constant(shown), self.x, axis=axis)
        return [g]


@dataclass(frozen=True, eq=False)
class Moving(CogOperator[T]):
    """The family of shifts of points by `amount` along the axes."""

    x: T
    amount: tuple[int, ...]

    constraints = (
        fields("x"),
        C(1, "amount has rank(x) entries", lambda o: len(o.amount) == o.x.rank, at="amount"),
    )
    example = "%x {amount = [1, -1]}", GRID

    def pullback(self: Moving[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,), shape = cotangents, self.types["x"].shape
        return [self.field(g, shape).apply(self.name, amount=tuple(-a for a in self.amount))]


@operator
class Shift(Moving[T]):
    """Y[i] = X[i - amount], 0 where X has no such point"""

    def reference(self: Shift[np.ndarray]) -> np.ndarray:
        y = np.zeros_like(self.x)
        to = tuple(
            slice(max(a, 0), max(n + min(a, 0), 0))
            for a, n in zip(self.amount, self.x.shape, strict=False)
        )
        of = tuple(
            slice(max(-a, 0), max(n - max(a, 0), 0))
            for a, n in zip(self.amount, self.x.shape, strict=False)
        )
        y[to] = self.x[of]
        return y

    def element(self: Shift[ex.Tensor], y: ex.Tensor) -> ex.Element:
        grid, tensor = result_axes(y, self.grid("x"))
        moved = tuple(
            i - bounded(a, n) for i, a, n in zip(grid, self.amount, self.x.shape, strict=False)
        )
        there = ex.both(*(inside(i, n) for i, n in zip(moved, self.x.shape, strict=False)))
        return ex.Element((*grid, *tensor), ex.when(there, self.x[(*moved, *tensor)], zero(self.x)))


@operator
class ShiftCyclic(Moving[T]):
    """Y[i] = X[(i - amount) mod size]: points that leave on one side come back on the other"""

    def reference(self: ShiftCyclic[np.ndarray]) -> np.ndarray:
        return (
            np.roll(self.x, self.amount, tuple(range(self.grid("x")))) if self.grid("x") else self.x
        )

    def element(self: ShiftCyclic[ex.Tensor], y: ex.Tensor) -> ex.Element:
        grid, tensor = result_axes(y, self.grid("x"))
        shape = self.x.shape[: len(grid)]
        return ex.Element(
            (*grid, *tensor), self.x[(*map(around, grid, self.amount, shape), *tensor)]
        )


def around(i: ex.Index, amount: int, n: Dim) -> ex.Expr:
    """(i - amount) mod n"""
    if isinstance(n, int) and n > 0:
        return i if amount % n == 0 else (i + (-amount) % n) % n
    return (i - ex.as_index(amount) % ex.as_index(n)) % ex.as_index(n)


def bounded(amount: int, n: Dim) -> int:
    """An amount that shifts as far, and that no index arithmetic overflows with."""
    most = n if isinstance(n, int) else 2**62
    return max(-most, min(amount, most))


def _alike(a: FieldType, b: FieldType) -> bool:
    return (
        a.element is b.element and a.tensor.shape == b.tensor.shape and same_shape(a.shape, b.shape)
    )


ALIKE = (  # of xs: some fields of one type
    fields("xs[0]"),
    C(1, "there is at least one field", lambda o: len(o.xs) >= 1),
    C(2, "type(xs[i]) = type(xs[0])", lambda o: all(_alike(x, o.xs[0]) for x in o.xs)),
)


def chosen(k: ex.Expr, values: Sequence[ex.Expr]) -> ex.Expr:
    *others, element = values
    for n, value in reversed([*enumerate(others)]):
        element = ex.when(k.eq(n), value, element)
    return element


@operator
class Stack(CogOperator[T]):
    """Y[k, i...] = X_k[i...]: fields of one type as one field with a dimension more"""

    xs: tuple[T, ...]

    constraints = (*ALIKE, C(3, "rank(xs[0]) < 3 for type(xs[0])", lambda o: o.xs[0].rank < 3))
    example = "%a, %b", "%a: !cog.field<[3], f32>, %b: !cog.field<[3], f32>"

    def infer(self: Stack[FieldType]) -> FieldType:
        first = self.xs[0]
        return FieldType((len(self.xs), *first.shape), first.tensor)

    def reference(self: Stack[np.ndarray]) -> np.ndarray:
        return np.stack(self.xs)

    def element(self: Stack[ex.Tensor], y: ex.Tensor) -> ex.Element:
        at, _ = result_axes(y, y.rank)
        return ex.Element(at, chosen(at[0], [x[at[1:]] for x in self.xs]))

    def pullback(self: Stack[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,), own = cotangents, self.types["xs[0]"]
        whole = self.field(g, (len(self.xs), *own.shape), "xs[0]")
        return [whole.apply("cog.slice", index=k) for k in range(len(self.xs))]
