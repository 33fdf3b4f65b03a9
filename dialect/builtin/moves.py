"""Operators that move elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bounds import inside
from ..index import Element, Expr, Tensor, as_index, axes, both, constant, when
from ..op import C, Operator, T, operator
from ..types import MAX_SIZE, Type


@operator
class Place(Operator[T]):
    """Y[begin + u * strides] = X[u] where Y has such an element; 0 elsewhere. What goes back through a slice."""

    dialect = "builtin"
    name = "builtin.place"
    x: T
    begin: tuple[int, ...]
    strides: tuple[int, ...]
    shape: tuple[int, ...]

    constraints = (
        C(
            1,
            "begin, strides and shape have rank(x) entries",
            lambda o: len(o.begin) == len(o.strides) == len(o.shape) == len(o.x.array_shape),
        ),
        C(2, "strides[i] != 0 for all i", lambda o: 0 not in o.strides, at="strides"),
        C(3, "shape[i] >= 0 for all i", lambda o: min(o.shape, default=0) >= 0, at="shape"),
        C(
            4,
            "begin and strides are in [-2^40, 2^40]",
            lambda o: all(abs(n) <= MAX_SIZE for n in (*o.begin, *o.strides)),
        ),
    )
    example = """
        func @main(%x: tensor<2x3xf32>) -> tensor<2x8xf32> {
          %y = builtin.place %x {begin = [0, 1], strides = [1, 2], shape = [2, 8]}
          return %y
        }
    """

    def infer(self: Place[Any]) -> Type:
        return self.x.with_array_shape(self.shape)

    def reference(self: Place[np.ndarray]) -> np.ndarray:
        y = np.zeros(self.shape, self.x.dtype)
        for u in np.ndindex(self.x.shape):
            at = tuple(b + i * s for b, i, s in zip(self.begin, u, self.strides, strict=True))
            if all(0 <= i < n for i, n in zip(at, self.shape, strict=True)):
                y[at] = self.x[u]
        return y

    def element(self: Place[Tensor], y: Tensor) -> Element:
        d = axes(y.shape)
        at: list[Expr] = []
        conditions: list[Expr | bool] = []
        for i, n, b, s in zip(d, self.x.shape, self.begin, self.strides, strict=True):
            past = i - b if s > 0 else as_index(b) - i
            at.append(past // abs(s) if abs(s) > 1 else past)
            conditions.append(inside(at[-1], n))
            conditions.append((past % abs(s)).eq(0) if abs(s) > 1 else True)
        return Element(d, when(both(*conditions), self.x[tuple(at)], constant(0, y.element)))

    def pullback(self: Any, results: Any, cotangents: Any) -> Any:
        """The elements of the cotangent at those places, 0 beyond it."""
        (g,), apply = cotangents, cotangents[0].builder.apply
        sizes = self.x.shape
        if not all(isinstance(n, int) for n in sizes):
            raise NotImplementedError(f"{self.name} of unknown sizes")
        if 0 in sizes:
            return [None]
        ends = [(b, b + (n - 1) * s) for b, n, s in zip(self.begin, sizes, self.strides, strict=True)]
        before = [max(0, -min(e)) for e in ends]
        whole = tuple(max(m, max(e) + 1) + k for m, e, k in zip(self.shape, ends, before, strict=True))
        if whole != self.shape:
            g = apply("builtin.place", g, begin=tuple(before), strides=(1,) * g.rank, shape=whole)
        first = tuple(b + k for b, k in zip(self.begin, before, strict=True))
        stops = [b + n * s for b, n, s in zip(first, sizes, self.strides, strict=True)]
        end = tuple(e if e >= 0 else -MAX_SIZE for e in stops)  # below 0: before the first element
        return [apply("cvm.slice", g, begin=first, end=end, strides=self.strides)]
