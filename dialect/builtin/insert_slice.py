"""Operators that read a slice of an array, or write one, that may begin at computed numbers."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import numpy as np

from ..kernel_ir.expressions import (
    Check,
    Element,
    Expr,
    Tensor,
    as_index,
    axes,
    both,
    cast,
    maximum,
    minimum,
    when,
)
from ..kernel_ir.index_bounds import inside
from ..spec.broadcasting import all_of, any_of
from ..spec.operator import C, Operator, T, operator
from ..spec.unmet import Unmet
from ..types.sizes import Dim, Shape, bounded
from ..types.tensor_types import I64, MAX_SIZE, UI64, TensorType
from .pad_slice_reshape import distinct_axes

NO_ROOM = "a slice is outside of its axis"


COMPUTED = (
    C(
        3,
        "axes are in [0, rank(x)), without repeating, one for each of starts",
        lambda o: len(o.axes) == len(o.starts) and distinct_axes(o.axes, len(o.x.array_shape)),
        at="axes",
    ),
    C(
        4,
        "starts are integers of rank 0, of a type other than ui64",
        lambda o: all(
            t.array_shape == () and t.element.is_integer and t.element is not UI64 for t in o.starts
        ),
    ),
)


def _beginning(start: Tensor, last: Dim) -> tuple[Expr, Expr]:
    """A computed beginning, clamped to what leaves room for the slice, and the condition that it
    was.
    """
    given, most = cast(start[()], I64), as_index(last)
    return maximum(minimum(given, most), 0), (given >= 0) & (given <= most)


def _checked(room: list[Expr], value: Expr) -> Expr:
    for there in room:
        value = Check(there, value, NO_ROOM)
    return value


@operator
class ExtractSlice(Operator[T]):
    """Y[u...] = X[starts[j] + u[axes[j]]] on the axes, of sizes[j], and whole on the others.

    A slice for which a start leaves no room is an error when the program runs.
    """

    any_element = True
    x: T
    starts: tuple[T, ...]
    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    constraints = (
        C(1, "there are sizes for each of axes", lambda o: len(o.axes) == len(o.sizes), at="sizes"),
        C(
            2,
            "sizes[j] >= 1 for all j",
            lambda o: all(1 <= n <= MAX_SIZE for n in o.sizes),
            at="sizes",
        ),
        *COMPUTED,
        C(
            5,
            "sizes[j] <= n[axes[j]] for all j, n being shape(x)",
            lambda o: all_of(
                (lambda a=a, n=n: n <= o.x.array_shape[a])
                for a, n in zip(o.axes, o.sizes, strict=True)
            ),
        ),
    )
    symbols = {"n": lambda o: o.x.array_shape}
    example = """
        func @main(%x: tensor<4x3xf32>, %row: tensor<i64> {range = [0, 3]}) -> tensor<1x3xf32> {
          %y = builtin.extract_slice %x, %row {axes = [0], sizes = [1]}
          return %y
        }
    """

    def shape(self: "ExtractSlice[Any]", n: Shape) -> Shape:
        sizes = dict(zip(self.axes, self.sizes, strict=True))
        return tuple(sizes.get(a, size) for a, size in enumerate(n))

    def infer(self: "ExtractSlice[TensorType]") -> TensorType:
        return TensorType(self.shape(self.x.array_shape), self.x.element)

    def reference(self: "ExtractSlice[np.ndarray]") -> np.ndarray:
        at = [slice(None)] * self.x.ndim
        for a, start, size in zip(self.axes, map(int, self.starts), self.sizes, strict=True):
            if not 0 <= start <= self.x.shape[a] - size and 0 not in self.shape(self.x.shape):
                raise Unmet(NO_ROOM)
            at[a] = slice(start, start + size)
        return self.x[tuple(at)].copy()

    def element(self: "ExtractSlice[Tensor]", y: Tensor) -> Element:
        d = axes(y.shape)
        at: list[Expr] = [*d]
        room: list[Expr] = []
        for a, start, size in zip(self.axes, self.starts, self.sizes, strict=True):
            begin, there = _beginning(start, self.x.shape[a] - size)
            at[a] = begin + d[a]
            room.append(there)
        return Element(d, _checked(room, self.x[tuple(at)]))

    def pullback(self: "ExtractSlice[Any]", results: Any, cotangents: Any) -> Any:
        zeros = self.x.scalar("second", 0.0)
        back = zeros.apply("builtin.insert_slice", cotangents[0], *self.starts, axes=self.axes)
        return [back, *(None for _ in self.starts)]


@operator
class InsertSlice(Operator[T]):
    """Y is X with updates in a slice: Y[b[i] + s[i] * u[i]] = updates[u...], i being each axis.

    b[i] is begin[i], to which n[i] is added where it is negative; along axes[j] it is starts[j], a
    number of the program, and a slice for which that leaves no room is an error when the program
    runs. Absent entries of begin and strides are 0 and 1. NumPy's X[1:-1, 2::3] = updates.
    """

    any_element = True
    x: T
    updates: T
    starts: tuple[T, ...]
    axes: tuple[int, ...] = ()
    begin: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    constraints = (
        C(1, "rank(x) = rank(updates)", lambda o: len(o.x.array_shape) == len(o.m)),
        C(2, "element(x) = element(updates)", lambda o: o.x.element is o.updates.element),
        *COMPUTED,
        C(
            5,
            "begin and strides have no more entries than x has axes",
            lambda o: max(len(o.begin), len(o.strides)) <= len(o.m),
        ),
        C(6, "strides[i] >= 1 for all i", lambda o: all(s >= 1 for s in o.strides), at="strides"),
        C(
            7,
            "b[i] >= 0 and b[i] + s[i] * (m[i] - 1) < n[i] for all i, n and m being the shapes of "
            "x and updates, where m has no 0",
            lambda o: any_of([lambda: o.fits(), *((lambda m=m: m == 0) for m in o.m)]),
        ),
    )
    symbols = {"n": lambda o: o.x.array_shape, "m": lambda o: o.m}
    example = """
        func @main(
          %x: tensor<4x3xf32>, %new: tensor<1x2xf32>, %row: tensor<i64> {range = [0, 3]}
        ) -> tensor<4x3xf32> {
          %y = builtin.insert_slice %x, %new, %row {axes = [0], begin = [0, 1]}
          return %y
        }
    """

    @property
    def m(self: "InsertSlice[TensorType]") -> Shape:
        return self.updates.array_shape

    def spans(self, n: Shape, m: Shape) -> Iterator[tuple[Dim | None, int, Dim]]:
        """The beginning, unless a number of the program is, the stride, and the number of elements
        from the first of the slice to its last, along each axis.
        """
        for i, (b, s, size, of) in enumerate(
            zip_longest(map(bounded, self.begin), map(bounded, self.strides), n, m)
        ):
            begin = (b or 0) if (b or 0) >= 0 else b + size
            stride = s or 1
            yield None if i in self.axes else begin, stride, (of - 1) * stride + 1

    def fits(self: "InsertSlice[TensorType]") -> bool:
        n = self.x.array_shape
        spans = zip(n, self.spans(n, self.m), strict=True)
        return all_of(
            (
                lambda n=n, b=0 if b is None else b, span=span: all_of(
                    [lambda: b >= 0, lambda: b + span <= n]
                )
            )
            for n, (b, _, span) in spans
        )

    def infer(self: "InsertSlice[TensorType]") -> TensorType:
        return self.x

    def reference(self: "InsertSlice[np.ndarray]") -> np.ndarray:
        y = self.x.copy()
        if not self.updates.size:
            return y
        given = dict(zip(self.axes, map(int, self.starts), strict=True))
        at: list[slice] = []
        spans = self.spans(y.shape, self.updates.shape)
        for i, (n, (b, s, span)) in enumerate(zip(y.shape, spans, strict=True)):
            begin = given[i] if b is None else int(b)
            if not 0 <= begin <= n - span:
                raise Unmet(NO_ROOM)
            at.append(slice(begin, begin + int(span), s))
        y[tuple(at)] = self.updates
        return y

    def element(self: "InsertSlice[Tensor]", y: Tensor) -> Element:
        d = axes(y.shape)
        at: list[Expr] = [*d]
        conditions: list[Expr | bool] = []
        room: list[Expr] = []
        given = dict(zip(self.axes, self.starts, strict=True))
        for j, (b, s, span) in enumerate(self.spans(y.shape, self.updates.shape)):
            begin = as_index(0 if b is None else b)
            if b is None:
                begin, there = _beginning(given[j], y.shape[j] - span)
                room.append(there)
            past = d[j] - begin
            at[j] = past // s if s > 1 else past
            conditions += [
                inside(past, span),
                (past % s).eq(0) if s > 1 else True,
            ]
        value = when(both(*conditions), self.updates[tuple(at)], self.x[d])
        return Element(d, _checked(room, value))

    def pullback(self: "InsertSlice[Any]", results: Any, cotangents: Any) -> Any:
        (g,) = cotangents
        how = {"axes": self.axes, "begin": self.begin, "strides": self.strides}
        zeros = self.updates.scalar("second", 0.0)
        back = g.apply("builtin.insert_slice", zeros, *self.starts, **how)
        rank = self.updates.rank
        begin, strides = (
            [*given, *(absent,) * (rank - len(given))]
            for given, absent in ((self.begin, 0), (self.strides, 1))
        )
        for a, start in zip(self.axes, self.starts, strict=True):
            numbers = self.updates.apply("builtin.iota_like", axis=a)
            numbers = numbers.reduce("max", [other for other in range(rank) if other != a])
            places = numbers * strides[a] + start.cast(I64)
            g = g.apply("builtin.gather", places, axes=(a,))
        others = tuple(a for a in range(rank) if a not in self.axes)
        how = {
            name: tuple(of[a] for a in others)
            for name, of in (("begin", begin), ("strides", strides))
        }
        taken = g.apply("builtin.strided_slice_like", self.updates, axes=others, **how)
        return [back, taken, *(None for _ in self.starts)]
