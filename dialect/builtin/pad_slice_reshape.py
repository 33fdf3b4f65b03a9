"""Operators of data movement that accept unknown sizes: padding, slicing, reshaping, and
scatter-add.
"""

from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernel_ir.expressions import (
    Element,
    Expr,
    Tensor,
    Var,
    axes,
    both,
    cast,
    constant,
    maximum,
    minimum,
    when,
)
from ..kernel_ir.index_bounds import inside
from ..kernel_ir.loops import Block, Let, Store, nested
from ..spec.broadcasting import all_of
from ..spec.operator import C, Operator, T, operator
from ..spec.reshape_indexing import Reshaping
from ..types.sizes import Dim, Shape, product
from ..types.tensor_types import F32, F64, I32, I64, MAX_SIZE, TensorType

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


class Padding(Operator[T]):
    """The family of operators that surround the elements of x by others, `before` and `after` them
    on each axis.
    """

    if TYPE_CHECKING:  # fields of each of the operators
        x: T
        before: tuple[int, ...]
        after: tuple[int, ...]

    def fill(self) -> Any:
        """A number, an array or an expression that surrounds the elements."""
        return 0

    def sizes(self, shape: Shape) -> Shape:
        return tuple(n + b + a for n, b, a in zip(shape, self.before, self.after, strict=True))

    def infer(self: "Padding[TensorType]") -> TensorType:
        return TensorType(self.sizes(self.x.array_shape), self.x.element)

    def reference(self: "Padding[np.ndarray]") -> np.ndarray:
        y = np.full(self.sizes(self.x.shape), self.fill(), self.x.dtype)
        sizes = zip(self.x.shape, self.before, y.shape, strict=True)
        met = [(b, max(b, 0), max(min(n + b, m), 0)) for n, b, m in sizes]
        y[tuple(slice(i, j) for _, i, j in met)] = self.x[
            tuple(slice(i - b, max(j - b, 0)) for b, i, j in met)
        ]
        return y

    def element(self: "Padding[Tensor]", y: Tensor) -> Element:
        d = axes(y.shape)
        at = tuple(i - b for i, b in zip(d, self.before, strict=True))
        fill = self.fill()
        outside = cast(fill, y.element) if isinstance(fill, Expr) else constant(fill, y.element)
        return Element(d, when(both(*map(inside, at, self.x.shape)), self.x[at], outside))


@operator
class Pad(Padding[T]):
    """Y is X padded with zeros before and after the elements of each axis, or cropped where an
    entry is negative.
    """

    x: T
    before: tuple[int, ...]
    after: tuple[int, ...]

    constraints = (
        C(
            1,
            "before and after have rank(x) entries",
            lambda o: len(o.before) == len(o.after) == len(o.x.array_shape),
        ),
        C(
            2,
            "before and after are in [-2^40, 2^40]",
            lambda o: all(abs(n) <= MAX_SIZE for n in (*o.before, *o.after)),
        ),
        C(
            3,
            "n[i] + before[i] + after[i] >= 0, n being shape(x)",
            lambda o: all_of((lambda m=m: m >= 0) for m in o.sizes(o.x.array_shape)),
        ),
    )
    symbols = {"n": lambda o: o.x.array_shape}
    example = "%x {before = [0, 2], after = [0, 1]}", "%x: 2x3xf32", "2x6xf32"

    def pullback(self: "Pad[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        (g,) = cotangents
        before, after = (tuple(-n for n in e) for e in (self.before, self.after))
        return [g.apply("builtin.pad", before=before, after=after)]


@operator
class Reshape(Reshaping[T]):
    """Y has the elements of X in row-major order: axis i of X is split into axes of sizes split[i],
    then neighbors are merged.

    One size of an axis's may be -1: what the others leave of it. `merge` says how many axes become
    one, from the first on. Absent, they leave the axes as they are.
    """

    any_element = True
    x: T
    split: tuple[tuple[int, ...], ...] | None = None
    merge: tuple[int, ...] | None = None

    constraints = (
        C(
            1,
            "split has rank(x) entries",
            lambda o: o.split is None or len(o.split) == len(o.x.array_shape),
            at="split",
        ),
        C(
            2,
            "sizes in split are not below 0, but for one -1 of an axis",
            lambda o: all(min(s, default=0) >= -1 and s.count(-1) <= 1 for s in o.split or ()),
            at="split",
        ),
        C(
            3,
            "the product of split[i] is n[i], n being shape(x)",
            lambda o: all_of(
                (lambda n=n, s=s: product(s) == n)
                for n, s in zip(o.x.array_shape, o.pieces(o.x.array_shape), strict=True)
            ),
            at="split",
        ),
        C(
            4,
            "merge counts the axes that split makes",
            lambda o: (
                o.merge is None
                or (
                    min(o.merge, default=0) >= 0
                    and sum(o.merge) == sum(map(len, o.pieces(o.x.array_shape)))
                )
            ),
            at="merge",
        ),
    )
    symbols = {"n": lambda o: o.x.array_shape}
    example = "%x {split = [[-1], [2, 3]], merge = [2, 1]}", "%x: ?N x 6 x f32", "?x3xf32"

    def pieces(self, shape: Shape) -> list[Shape]:
        """The sizes into which each axis is split."""
        return [
            _filled(n, s) for n, s in zip(shape, self.split or ((-1,),) * len(shape), strict=True)
        ]

    def sizes(self, shape: Shape) -> Shape:
        sizes: Shape = tuple(d for s in self.pieces(shape) for d in s)
        if self.merge is None:
            return sizes
        return tuple(
            product(sizes[e - k : e])
            for k, e in zip(self.merge, accumulate(self.merge), strict=True)
        )

    def infer(self: "Reshape[TensorType]") -> TensorType:
        return TensorType(self.sizes(self.x.array_shape), self.x.element)

    def reference(self: "Reshape[np.ndarray]") -> np.ndarray:
        return self.x.reshape(self.sizes(self.x.shape))

    def simplified(self, definition: object) -> Any:
        return self.x


def _filled(n: Dim, sizes: tuple[int, ...]) -> Shape:
    others = product(tuple(s for s in sizes if s != -1))
    rest = n // others if others else 0
    return tuple(rest if s == -1 else s for s in sizes)


def distinct_axes(axes: tuple[int, ...], rank: int) -> bool:
    return len(set(axes)) == len(axes) and all(0 <= a < rank for a in axes)


NUMBERS = (I32, F32, F64)  # what cvm.take takes, and what goes back through it


def numbers(name: str) -> C:
    return C(
        1, f"element({name}) in {{i32, f32, f64}}", lambda o: getattr(o, name).element in NUMBERS
    )


@operator
class Part(Operator[T]):
    """Y is what stands in X where xs[index] would stand if X were the xs, concatenated along an
    axis.
    """

    x: T
    xs: tuple[T, ...]
    axis: int
    index: int

    constraints = (
        C(1, "element(x) is not complex", lambda o: o.x.element.kind != "complex"),
        C(
            2,
            "index in [0, M), M being how many xs there are",
            lambda o: 0 <= o.index < len(o.xs),
            at="index",
        ),
        C(
            3,
            "axis in [0, rank(x)), and rank(xs[i]) = rank(x)",
            lambda o: (
                0
                <= o.axis
                < len(o.x.array_shape)
                == min(len(t.array_shape) for t in o.xs)
                == max(len(t.array_shape) for t in o.xs)
            ),
            at="axis",
        ),
        C(
            4,
            "the sizes of xs along the axis add up to that of x",
            lambda o: sum(o.sizes(), 0) == o.x.array_shape[o.axis],
        ),
    )
    symbols = {"M": lambda o: len(o.xs)}
    example = "%x, %a, %b {axis = 0, index = 1}", "%x: 5x2xf32, %a: 3x2xf32, %b: 2x2xf32", "2x2xf32"

    def sizes(self: "Part[Any]") -> list[Dim]:
        return [getattr(x, "array_shape", x.shape)[self.axis] for x in self.xs]

    def infer(self: "Part[TensorType]") -> TensorType:
        n = self.x.array_shape
        return TensorType(
            (*n[: self.axis], self.sizes()[self.index], *n[self.axis + 1 :]), self.x.element
        )

    def reference(self: "Part[np.ndarray]") -> np.ndarray:
        return np.split(self.x, np.cumsum([x.shape[self.axis] for x in self.xs])[:-1], self.axis)[
            self.index
        ].copy()

    def element(self: "Part[Tensor]", y: Tensor) -> Element:
        d = axes(y.shape)
        start: Dim = sum(self.sizes()[: self.index], 0)
        return Element(d, self.x[*d[: self.axis], d[self.axis] + start, *d[self.axis + 1 :]])

    def pullback(self: "Part[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        """The cotangent between zeros."""
        (g,) = cotangents
        zeros = partial(
            g.scalar("second", 0.0).apply, "builtin.strided_slice_like", axes=(self.axis,)
        )
        parts = [g if k == self.index else zeros(x) for k, x in enumerate(self.xs)]
        return [
            g.builder.apply("cvm.concatenate", *parts, axis=self.axis),
            *(None for _ in self.xs),
        ]


@operator
class AddAt(Operator[T]):
    """Y[d..., c, e...] = Σ X[d..., u..., e...] over all u with clip(indices[u...], 0, n - 1) = c,
    in their order.

    c is on `axis`, which has n elements in like and in Y. What goes back through cvm.take.
    """

    x: T
    indices: T
    like: T
    axis: int = 0

    constraints = (
        numbers("x"),
        C(2, "element(indices) = i32", lambda o: o.indices.element is I32),
        C(3, "axis in [0, rank(like))", lambda o: 0 <= o.axis < len(o.like.array_shape), at="axis"),
        C(
            4,
            "shape(x) has shape(indices) in the place of the axis",
            lambda o: (
                len(o.x.array_shape) == len(o.like.array_shape) - 1 + len(o.indices.array_shape)
                and all_of(
                    (lambda m=m, n=n: m == n)
                    for m, n in zip(o.x.array_shape[o.axis :], o.indices.array_shape, strict=False)
                )
            ),
        ),
        C(
            5,
            "n >= 1 where an index is clipped to [0, n - 1]",
            lambda o: o.like.array_shape[o.axis] >= 1,
        ),
    )
    symbols = {"n": lambda o: o.like.array_shape[o.axis]}
    example = "%x, %rows, %like", "%x: 4x3xf32, %rows: 4xi32, %like: ?N x 3 x f32", "?N x 3 x f32"

    def infer(self: "AddAt[TensorType]") -> TensorType:
        n = self.x.array_shape
        rank = len(self.indices.array_shape)
        return TensorType(
            (*n[: self.axis], self.like.array_shape[self.axis], *n[self.axis + rank :]),
            self.x.element,
        )

    def reference(self: "AddAt[np.ndarray]") -> np.ndarray:
        before = self.x.shape[: self.axis]
        after = self.x.shape[self.axis + self.indices.ndim :]
        n = self.like.shape[self.axis]
        y = np.zeros((*before, n, *after), self.x.dtype)
        for u in np.ndindex(self.indices.shape):
            c = (*(slice(None) for _ in before), min(max(int(self.indices[u]), 0), n - 1))
            y[c] += self.x[(*c[:-1], *u)]
        return y

    def nest(self: "AddAt[Tensor]", *results: Tensor) -> Block:
        (y,) = results
        d = axes(y.shape[: self.axis], "d")
        u = axes(self.indices.shape, "u")
        e = axes(y.shape[self.axis + 1 :], "e")
        f = axes(y.shape[self.axis :], "z")
        zeros = constant(0, y.element)
        c = Var("c", I64)
        place = maximum(minimum(cast(self.indices[u], I64), y.shape[self.axis] - 1), 0)
        added = Store(y, (*d, c, *e), y[(*d, c, *e)] + self.x[(*d, *u, *e)])
        return nested(
            d,
            (
                *nested(f, (Store(y, (*d, *f), zeros),)),
                *nested(u, (Let(c, place), *nested(e, (added,)))),
            ),
        )

    def pullback(self: "AddAt[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        return [cotangents[0].apply("cvm.take", self.indices, axis=self.axis), None, None]
