"""Operators that read and write elements at places that other tensors hold, and one that counts
places.

Indices are integers. A negative one counts from the end of its axis, and one outside of the axis is
an error when the program runs; by `mode = "clip"`, each means the element that is nearest.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernel_ir.expressions import (
    Check,
    Element,
    Expr,
    Tensor,
    Var,
    apply,
    axes,
    cast,
    maximum,
    minimum,
    select,
)
from ..kernel_ir.loops import Assert, Block, Let, Statement, Store
from ..kernel_ir.scalar_functions import SCALARS
from ..spec.broadcasting import all_of, any_of, same_shape
from ..spec.operator import C, Operator, T, operator
from ..spec.unmet import Unmet
from ..types.sizes import Dim, Shape
from ..types.tensor_types import BY_DTYPE, I64, UI64, ElementType, TensorType
from .pad_slice_reshape import distinct_axes, nested

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes

OUTSIDE = "an index is outside of its axis"


@operator
class IotaLike(Operator[T]):
    """Y[i...] = i[axis], as i64, in the shape of like."""

    like: T
    axis: int

    constraints = (
        C(1, "axis in [0, rank(like))", lambda o: 0 <= o.axis < len(o.like.array_shape), at="axis"),
    )
    example = "%x {axis = 1}", "%x: 2 x ?N x f32", "2 x ?N x i64"

    def infer(self: "IotaLike[TensorType]") -> TensorType:
        return TensorType(self.like.array_shape, I64)

    def reference(self: "IotaLike[np.ndarray]") -> np.ndarray:
        return np.indices(self.like.shape)[self.axis].astype(np.int64)

    def element(self: "IotaLike[Tensor]", y: Tensor) -> Element:
        d = axes(y.shape)
        return Element(d, d[self.axis])


MODES = ("raise", "clip")


@dataclass(frozen=True, eq=False)
class Indexing(Operator[T]):
    """The family of operators on the elements of x that indices choose along `axes`: those with
    indices[i][u...] on axes[i].
    """

    if TYPE_CHECKING:  # fields of each of the operators
        x: T
        indices: tuple[T, ...]
        axes: tuple[int, ...]
        mode: str

    symbols = {"n": lambda o: o.x.array_shape}
    constraints = (
        C(
            1,
            "axes are in [0, rank(x)), ascending, one at least",
            lambda o: (
                o.axes
                and [*o.axes] == sorted(o.axes)
                and distinct_axes(o.axes, len(o.x.array_shape))
            ),
            at="axes",
        ),
        C(
            2,
            "there are indices for each of axes",
            lambda o: len(o.axes) == len(o.indices),
            at="axes",
        ),
        C(
            3,
            "element(indices[i]) is an integer type other than ui64",
            lambda o: all(t.element.is_integer and t.element is not UI64 for t in o.indices),
        ),
        C(
            4,
            "shape(indices[i]) = shape(indices[0]) for all i",
            lambda o: all_of(
                (lambda t=t: same_shape(t.array_shape, o.indices[0].array_shape))
                for t in o.indices[1:]
            ),
        ),
        C(5, 'mode is "raise" or "clip"', lambda o: o.mode in MODES, "mode", MODES),
        C(
            6,
            "n[a] >= 1 for a in axes, where elements are chosen",
            lambda o: any_of(
                [
                    lambda: all_of((lambda a=a: o.x.array_shape[a] >= 1) for a in o.axes),
                    *((lambda n=n: n == 0) for n in o.indices[0].array_shape),
                ]
            ),
        ),
    )

    def chosen_shape(self, shape: Shape, chosen: Shape) -> Shape:
        """The result's shape: x's, with the indices' shape in place of the first gathered axis, and
        without the other gathered axes.
        """
        kept = [n for a, n in enumerate(shape) if a not in self.axes]
        return (*kept[: self.axes[0]], *chosen, *kept[self.axes[0] :])

    def parts(self, d: tuple[Any, ...], rank: int) -> tuple[Any, Any]:
        """Split the result's indices into those of the index arrays, `rank` of them, and others."""
        first = self.axes[0]
        return d[first : first + rank], (*d[:first], *d[first + rank :])

    def with_axes(self: "Indexing[object]", at: Any, kept: Any) -> tuple[Any, ...]:
        """The indices into x: these on the axes, and the others in their order."""
        rest = iter(kept)
        rank = len(self.axes) + len(kept)
        return tuple(at[self.axes.index(a)] if a in self.axes else next(rest) for a in range(rank))

    def numbers(self: "Indexing[Any]", u: tuple[int, ...]) -> list[int]:
        """The selected position along each of the axes, for the indices at u."""
        found: list[int] = []
        for i, a in zip(self.indices, self.axes, strict=True):
            n = self.x.shape[a]
            k = int(i[u])
            if self.mode == "raise" and not -n <= k < n:
                raise Unmet(OUTSIDE)
            found.append(min(max(k, 0), n - 1) if self.mode == "clip" else k % n)
        return found

    def places(self: "Indexing[Any]", u: tuple[Expr, ...]) -> list[tuple[Expr, Expr | None]]:
        """The gathered indices in index notation, clamped into bounds, each with the condition that
        it was in bounds, unless the mode is to clip.
        """
        return [
            self.place(cast(i[u], I64), self.x.shape[a])
            for i, a in zip(self.indices, self.axes, strict=True)
        ]

    def place(self, k: Expr, n: Dim) -> tuple[Expr, Expr | None]:
        if self.mode == "clip":
            return minimum(maximum(k, 0), n - 1), None
        at = select(k < 0, k + n, k)
        return minimum(maximum(at, 0), n - 1), (at >= 0) & (at < n)


@operator
class Gather(Indexing[T]):
    """Y[d..., u..., e...] = X with indices[i][u...] on axes[i], and d..., e... on its other axes,
    in their order.

    NumPy's X[:, i, :, j] for indices of one shape; u... stand where the first of the axes was.
    """

    any_element = True
    x: T
    indices: tuple[T, ...]
    axes: tuple[int, ...]
    mode: str = "raise"

    example = '%x, %rows {axes = [0], mode = "clip"}', "%x: ?N x 4 x f32, %rows: 3xi64", "3x4xf32"

    def infer(self: "Gather[TensorType]") -> TensorType:
        return TensorType(
            self.chosen_shape(self.x.array_shape, self.indices[0].array_shape), self.x.element
        )

    def reference(self: "Gather[np.ndarray]") -> np.ndarray:
        y = np.zeros(self.chosen_shape(self.x.shape, self.indices[0].shape), self.x.dtype)
        whole = (slice(None),) * (self.x.ndim - len(self.axes))
        for u in (
            np.ndindex(self.indices[0].shape) if y.size else ()
        ):  # an index is checked where an element is chosen
            y[(slice(None),) * self.axes[0] + u] = self.x[self.with_axes(self.numbers(u), whole)]
        return y

    def element(self: "Gather[Tensor]", y: Tensor) -> Element:
        d = axes(y.shape)
        u, kept = self.parts(d, self.indices[0].rank)
        places = self.places(u)
        value: Expr = self.x[self.with_axes([k for k, _ in places], kept)]
        for there in [
            t for _, t in places if t is not None
        ]:  # outside of the read, whose index may come to nothing
            value = Check(there, value, OUTSIDE)
        return Element(d, value)

    def pullback(self: "Gather[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        """Add each cotangent to the element of x that the forward pass gathered."""
        (g,), zeros = cotangents, self.x.scalar("second", 0.0)
        how = {"axes": self.axes, "mode": self.mode, "scalar_op": "add"}
        return [
            zeros.apply("builtin.scatter", g, *self.indices, **how),
            *(None for _ in self.indices),
        ]


COMBINED = ("add", "mul", "maximum", "minimum")


def combined(name: str, element: ElementType) -> str:
    """The scalar function of a name of Theano's: on floats, NaN goes through."""
    return name if element.kind == "float" else {"maximum": "max", "minimum": "min"}.get(name, name)


@operator
class Scatter(Indexing[T]):
    """Y is X, but where indices choose: there updates[d..., u..., e...] takes its place, or is
    combined with it by `scalar_op`.

    updates has the shape of what builtin.gather takes from x. They come in the order of u: of
    several to one place, the last.
    """

    x: T
    updates: T
    indices: tuple[T, ...]
    axes: tuple[int, ...]
    scalar_op: str | None = None
    mode: str = "raise"

    constraints = (
        *Indexing.constraints,
        C(7, "element(updates) = element(x)", lambda o: o.updates.element is o.x.element),
        C(8, "shape(updates) is that of what the indices choose of x", lambda o: o.fits()),
        C(
            9,
            "scalar_op is absent, or one of add, mul, maximum and minimum",
            lambda o: o.scalar_op in (None, *COMBINED),
            at="scalar_op",
        ),
        C(
            10,
            "element(x) is an integer or a float, where scalar_op is there",
            lambda o: o.scalar_op is None or o.x.element.kind in ("int", "uint", "float"),
        ),
    )
    example = (
        '%x, %new, %rows {axes = [0], scalar_op = "add", mode = "clip"}',
        "%x: ?N x 4 x f32, %new: 3x4xf32, %rows: 3xi64",
        "?N x 4 x f32",
    )

    def fits(self: "Scatter[Any]") -> bool:
        return same_shape(
            self.updates.array_shape,
            self.chosen_shape(self.x.array_shape, self.indices[0].array_shape),
        )

    def infer(self: "Scatter[TensorType]") -> TensorType:
        return TensorType(self.x.array_shape, self.x.element)

    def reference(self: "Scatter[np.ndarray]") -> np.ndarray:
        y = self.x.copy()
        function = (
            None
            if self.scalar_op is None
            else SCALARS[combined(self.scalar_op, BY_DTYPE[y.dtype])].numpy
        )
        whole = (slice(None),) * (y.ndim - len(self.axes))
        for u in np.ndindex(self.indices[0].shape):
            at = self.with_axes(self.numbers(u), whole)
            new = self.updates[(slice(None),) * self.axes[0] + u]
            y[at] = new if function is None else function(y[at], new)
        return y

    def nest(self: "Scatter[Tensor]", *results: Tensor) -> Block:
        (y,) = results
        f = axes(y.shape, "f")
        d = axes(self.updates.shape, "d")
        u, kept = self.parts(d, self.indices[0].rank)
        names = [Var(f"c{a}", I64) for a in self.axes]
        places: list[Statement] = []
        for c, (k, there) in zip(names, self.places(u), strict=True):
            places += [*(() if there is None else (Assert(there, OUTSIDE),)), Let(c, k)]
        at = self.with_axes(names, kept)
        new = self.updates[d]
        value = (
            new
            if self.scalar_op is None
            else apply(combined(self.scalar_op, y.element), y[at], new)
        )
        return (
            *nested(f, (Store(y, f, self.x[f]),)),
            *nested(u or axes((1,), "d"), (*places, *nested(kept, (Store(y, at, value),)))),
        )

    def pullback(self: "Scatter[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        (y,), (g,), apply = results, cotangents, cotangents[0].builder.apply
        how = {"axes": self.axes, "mode": self.mode}
        here = apply("builtin.gather", g, *self.indices, **how)
        if self.scalar_op == "add":
            found = [g, here]
        elif self.scalar_op in ("maximum", "minimum"):
            chosen = apply("builtin.gather", y, *self.indices, **how).scalar("eq", self.updates)
            found = [
                y.scalar("eq", self.x).scalar("switch", g, 0.0),
                chosen.scalar("switch", here, 0.0),
            ]
        elif self.scalar_op is None:
            found = self._of_replaced(g, here, how)
        else:
            raise NotImplementedError(f"{self.name} by {self.scalar_op}")
        return [*found, *(None for _ in self.indices)]

    def _of_replaced(self, g: Any, here: Any, how: Any) -> list[Any]:
        """By who came last: the number of each update, written and read back."""
        apply = g.builder.apply
        number = None
        for axis in range(here.rank):
            at = apply("builtin.iota_like", here, axis=axis)
            number = at if number is None else number * size_along(here, axis) + at
        number = (
            apply("builtin.iota_like", here.dimshuffle(["x"]), axis=0).dimshuffle([])
            if number is None
            else number
        )
        written = apply(
            "builtin.scatter", g.scalar("second", -1).cast(I64), number, *self.indices, **how
        )
        last = apply("builtin.gather", written, *self.indices, **how).scalar("eq", number)
        return [written.scalar("lt", 0).scalar("switch", g, 0.0), last.scalar("switch", here, 0.0)]


def size_along(x: Any, axis: int) -> Any:
    """The size of an axis as a value of rank 0, also where it is not known."""
    if isinstance(n := x.shape[axis], int):
        return n
    return x.apply("builtin.iota_like", axis=axis).reduce("max", range(x.rank)) + 1
