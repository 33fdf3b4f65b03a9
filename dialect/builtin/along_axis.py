"""Operators on the elements along an axis: their order, the place of the largest or smallest one,
prefix reductions.

NaN is above all numbers, as in NumPy's order.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..kernel_ir.expressions import (
    Expr,
    Index,
    Tensor,
    Var,
    apply,
    as_index,
    axes,
    constant,
    minimum,
)
from ..kernel_ir.loops import (
    Alloc,
    Block,
    For,
    If,
    Let,
    Store,
    accumulator,
    assign,
    identity,
    update,
)
from ..kernel_ir.scalar_functions import SCALARS
from ..spec.operator import C, Operator, T, declare, operator
from ..types.tensor_types import BY_DTYPE, I1, I64, TensorType
from .gather_scatter import COMBINED, combined
from .pad_slice_reshape import nested

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes

PASSES = 40  # of merging, which is enough for every size that an axis can have


def beyond(a: Expr, b: Expr, compare: str = "gt") -> Expr:
    """Test whether a is above b, or below, or else is NaN and b is not."""
    is_beyond = apply(compare, a, b)
    return is_beyond | (a.ne(a) & b.eq(b)) if a.type.kind == "float" else is_beyond


@dataclass(frozen=True, eq=False)
class Along(Operator[T]):
    """The family of operators on the elements of x along `axis`."""

    x: T
    axis: int

    constraints = (
        C(1, "element(x) is not complex", lambda o: o.x.element.kind != "complex"),
        C(2, "axis in [0, rank(x))", lambda o: 0 <= o.axis < len(o.x.array_shape), at="axis"),
    )

    def others(self, shape: Any) -> Any:
        return (*shape[: self.axis], *shape[self.axis + 1 :])

    def at(self, d: Any, k: Any) -> tuple[Any, ...]:
        """The indices d of the other axes, with k along the axis."""
        return (*d[: self.axis], k, *d[self.axis :])


@operator
class Argsort(Along[T]):
    """Y[d..., k, e...] = the place in X along `axis` of the element that comes k-th, equal ones in
    their order; i64.

    In ascending order, or where `descending` in the reverse of it. builtin.gather sorts by it.
    """

    descending: bool = False

    example = "%x {axis = 1, descending = true}", "%x: 2 x ?N x f32", "2 x ?N x i64"

    def infer(self: "Argsort[TensorType]") -> TensorType:
        return TensorType(self.x.array_shape, I64)

    def reference(self: "Argsort[np.ndarray]") -> np.ndarray:
        if not self.descending:
            return np.argsort(self.x, self.axis, kind="stable")
        order = np.argsort(np.flip(self.x, self.axis), self.axis, kind="stable")
        return self.x.shape[self.axis] - 1 - np.flip(order, self.axis)

    def nest(self: "Argsort[Tensor]", *results: Tensor) -> Block:
        """A merge sort of places, from the bottom up: runs of 1, 2, 4, ... elements are merged in
        pairs.
        """
        (y,) = results
        n = self.x.shape[self.axis]
        d = axes(self.others(y.shape), "d")
        merged = Tensor("merged", y.shape, I64, "heap")
        k = Index("k", n)
        passes = Index("p", max(n - 1, 0).bit_length() if isinstance(n, int) else PASSES)
        width = Var("width", I64)
        pairs = Index("r", n)
        merge = For(
            pairs,
            self._merge(y, merged, d, pairs, width),
            stop=(as_index(n) + width * 2 - 1) // (width * 2),
        )
        back = For(k, (Store(y, self.at(d, k), merged[self.at(d, k)]),))
        sort = (Let(width, as_index(1) << passes), If(width < n, (merge, back)))
        first = Store(y, self.at(d, k), k), Store(merged, self.at(d, k), k)
        return Alloc(merged), *nested(d, (For(k, first), For(passes, sort)))

    def _merge(
        self: "Argsort[Any]", y: Tensor, merged: Tensor, d: Any, r: Expr, width: Expr
    ) -> Block:
        """Merges run 2 r with the one after it."""
        n = self.x.shape[self.axis]
        start, middle, end = (Var(name, I64) for name in ("start", "middle", "end"))
        i, j = accumulator("i", I64), accumulator("j", I64)
        first = accumulator("first", I1)
        k = Index("k", n)
        a, b = Var("a", I64), Var("b", I64)
        later, sooner = self.x[self.at(d, a)], self.x[self.at(d, b)]
        swapped = beyond(sooner, later) if self.descending else beyond(later, sooner)
        compare = (
            Let(a, y[self.at(d, i[()])]),
            Let(b, y[self.at(d, j[()])]),
            Store(first, (), ~swapped),
        )
        choose = If(
            i[()] < middle,
            (If(j[()] < end, compare, (Store(first, (), constant(True, I1)),)),),
            (Store(first, (), constant(False, I1)),),
        )
        take = If(
            first[()],
            (Store(merged, self.at(d, k), y[self.at(d, i[()])]), update("add", i, as_index(1))),
            (Store(merged, self.at(d, k), y[self.at(d, j[()])]), update("add", j, as_index(1))),
        )
        middles = Let(middle, minimum(start + width, n)), Let(end, minimum(start + width * 2, n))
        places = Alloc(i), Store(i, (), start), Alloc(j), Store(j, (), middle), Alloc(first)
        return (Let(start, r * width * 2), *middles, *places, For(k, (choose, take), start, end))


@dataclass(frozen=True, eq=False)
class Extreme(Along[T]):
    """The family of the place of an extreme element along `axis`, the first of them or, where
    `last`, the last; i64.
    """

    last: bool = False

    numpy: ClassVar[Any]
    compare: ClassVar[str]
    example = "%x {axis = 1}", "%x: 2 x ?N x f32", "2xi64"
    constraints = (
        *Along.constraints,
        C(3, "n >= 1 elements to choose from", lambda o: o.x.array_shape[o.axis] >= 1),
    )
    symbols = {"n": lambda o: o.x.array_shape[o.axis]}

    def infer(self: "Extreme[TensorType]") -> TensorType:
        return TensorType(self.others(self.x.array_shape), I64)

    def reference(self: "Extreme[np.ndarray]") -> np.ndarray:
        if not self.last:
            return np.asarray(type(self).numpy(self.x, self.axis))
        return np.asarray(
            self.x.shape[self.axis] - 1 - type(self).numpy(np.flip(self.x, self.axis), self.axis)
        )

    def nest(self: "Extreme[Tensor]", *results: Tensor) -> Block:
        (y,) = results
        d = axes(y.shape, "d")
        k = Index("k", self.x.shape[self.axis])
        best = accumulator("best", self.x.element)
        at = accumulator("at", I64)
        x = self.x[self.at(d, k)]
        better = (
            ~beyond(best[()], x, self.compare) if self.last else beyond(x, best[()], self.compare)
        )
        body = (
            Alloc(best),
            Store(best, (), self.x[self.at(d, as_index(0))]),
            Alloc(at),
            assign(at, 0),
            For(k, (If(better, (Store(best, (), x), Store(at, (), k))),), as_index(1)),
            Store(y, d, at[()]),
        )
        return nested(d, body)


for _name, _word, _compare in (("max", "largest", "gt"), ("min", "smallest", "lt")):
    _doc = (
        f"Y[d..., e...] = the place of the {_word} X[d..., k, e...] along `axis`, NaN if one "
        "is; the first such place, or the last."
    )
    declare(f"Arg{_name}", Extreme, _doc, compare=_compare, numpy=getattr(np, f"arg{_name}"))


@operator
class Cumulative(Along[T]):
    """Y[d..., k, e...] = the reduction by `scalar_op` of X[d..., j, e...] over all j <= k along
    `axis`, in order.

    `exclusive` leaves out j = k, so that the first result is the identity; `reverse` runs from the
    other end.
    """

    scalar_op: str = "add"
    exclusive: bool = False
    reverse: bool = False

    constraints = (
        C(
            1,
            "element(x) is not i1, and complex only where scalar_op is add or mul",
            lambda o: (
                o.x.element.kind != "bool"
                and (o.x.element.kind != "complex" or o.scalar_op in COMBINED[:2])
            ),
        ),
        Along.constraints[1],
        C(
            3,
            "scalar_op is add, mul, maximum or minimum",
            lambda o: o.scalar_op in COMBINED,
            "scalar_op",
            COMBINED,
        ),
    )
    example = (
        '%x {axis = 1, scalar_op = "add", exclusive = true}',
        "%x: 2 x ?N x f32",
        "2 x ?N x f32",
    )

    def infer(self: "Cumulative[TensorType]") -> TensorType:
        return TensorType(self.x.array_shape, self.x.element)

    def reference(self: "Cumulative[np.ndarray]") -> np.ndarray:
        x = np.moveaxis(self.x, self.axis, 0)
        x = x[::-1] if self.reverse else x
        element = BY_DTYPE[x.dtype]
        row = SCALARS[combined(self.scalar_op, element)]
        assert row.identity is not None
        y = np.empty_like(x)
        so_far = np.full(x.shape[1:], row.identity(element), x.dtype)
        for k in range(len(x)):
            after = row.numpy(so_far, x[k])
            y[k] = so_far if self.exclusive else after
            so_far = after
        return np.moveaxis(y[::-1] if self.reverse else y, 0, self.axis).copy()

    def nest(self: "Cumulative[Tensor]", *results: Tensor) -> Block:
        (y,) = results
        n = self.x.shape[self.axis]
        d = axes(self.others(y.shape), "d")
        k = Index("k", n)
        at = self.at(d, n - 1 - k if self.reverse else k)
        so_far = accumulator("so_far", y.element)
        function = combined(self.scalar_op, y.element)
        step = Store(so_far, (), apply(function, so_far[()], self.x[at]))
        write = Store(y, at, so_far[()])
        body = (write, step) if self.exclusive else (step, write)
        return nested(
            d, (Alloc(so_far), Store(so_far, (), identity(function, y.element)), For(k, body))
        )

    def pullback(self: "Cumulative[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        if self.scalar_op != "add":
            raise NotImplementedError(f"{self.name} by {self.scalar_op}")
        (g,) = cotangents
        how = {"axis": self.axis, "exclusive": self.exclusive, "reverse": not self.reverse}
        return [g.apply("builtin.cumulative", **how)]
