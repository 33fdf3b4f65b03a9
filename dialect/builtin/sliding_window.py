"""`builtin.windows`: the windows that convolutions and pooling see, as NumPy's
`sliding_window_view`.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..kernel_ir.expressions import Element, Expr, Tensor, axes, both, constant, when
from ..kernel_ir.index_bounds import inside
from ..spec.broadcasting import all_of
from ..spec.operator import C, Operator, T, operator
from ..types.sizes import Dim, Shape
from ..types.tensor_types import MAX_SIZE, TensorType
from .pad_slice_reshape import distinct_axes

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


@operator
class Windows(Operator[T]):
    """Y[i..., k...] = X with i[a] * strides + k * dilations - before on each of the axes; `fill`
    where X has no such element.

    i... has X's axes, of which those in `axes` count windows; k... is an axis for each of these, of
    `sizes`. Along an axis of n elements there are ⌊(n + before + after - dilations * (sizes - 1) -
    1) / strides⌋ + 1 windows.
    """

    x: T
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    fill: float = 0.0

    constraints = (
        C(
            1,
            "axes are in [0, rank(x)), each once",
            lambda o: distinct_axes(o.axes, len(o.x.array_shape)),
            at="axes",
        ),
        C(
            2,
            "sizes, strides, dilations, before and after have an entry for each of axes",
            lambda o: all(
                len(e) == len(o.axes) for e in (o.sizes, o.strides, o.dilations, o.before, o.after)
            ),
        ),
        C(
            3,
            "sizes, strides and dilations are in [1, 2^40]",
            lambda o: all(1 <= n <= MAX_SIZE for n in (*o.sizes, *o.strides, *o.dilations)),
        ),
        C(
            4,
            "before and after are in [-2^40, 2^40]",
            lambda o: all(abs(n) <= MAX_SIZE for n in (*o.before, *o.after)),
        ),
        C(
            5,
            "a window fits along each of axes",
            lambda o: all_of((lambda n=n: n >= 0) for n in o.slack(o.x.array_shape)),
        ),
    )
    example = (
        "%x {axes = [1], sizes = [3], strides = [2], dilations = [1], before = [1], after = [0]}",
        "%x: ?N x 8 x f32",
        "?N x 4 x 3 x f32",
    )

    def slack(self, shape: Shape) -> list[Dim]:
        """The largest offset of a window along each of the axes."""
        given = zip(self.axes, self.sizes, self.dilations, self.before, self.after, strict=True)
        return [shape[a] + b + e - d * (k - 1) - 1 for a, k, d, b, e in given]

    def shape(self, shape: Shape) -> Shape:
        counts = [s // t + 1 for s, t in zip(self.slack(shape), self.strides, strict=True)]
        return (
            *(counts[self.axes.index(a)] if a in self.axes else n for a, n in enumerate(shape)),
            *self.sizes,
        )

    def infer(self: "Windows[TensorType]") -> TensorType:
        return TensorType(self.shape(self.x.array_shape), self.x.element)

    def reference(self: "Windows[np.ndarray]") -> np.ndarray:
        rank = self.x.ndim
        y = np.full(self.shape(self.x.shape), self.fill).astype(self.x.dtype)
        for at in np.ndindex(y.shape):
            read = list(at[:rank])
            for n, a in enumerate(self.axes):
                read[a] = (
                    at[a] * self.strides[n] + at[rank + n] * self.dilations[n] - self.before[n]
                )
            if all(0 <= i < n for i, n in zip(read, self.x.shape, strict=True)):
                y[at] = self.x[tuple(read)]
        return y

    def element(self: "Windows[Tensor]", y: Tensor) -> Element:
        at = axes(y.shape)
        read: list[Expr] = [*at[: self.x.rank]]
        conditions: list[Expr | bool] = []
        for n, a in enumerate(self.axes):
            read[a] = (
                at[a] * self.strides[n] + at[self.x.rank + n] * self.dilations[n] - self.before[n]
            )
            conditions.append(inside(read[a], self.x.shape[a]))
        return Element(
            at, when(both(*conditions), self.x[tuple(read)], constant(self.fill, y.element))
        )

    def pullback(self: "Windows[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        """The sum of what each place of a window has, moved back to where it was read."""
        (g,), apply, rank = cotangents, cotangents[0].builder.apply, self.x.rank
        before, after = ([0] * rank for _ in range(2))
        for n, a in enumerate(self.axes):
            before[a], after[a] = self.before[n], self.after[n]
        padded = apply("builtin.pad", self.x, before=tuple(before), after=tuple(after))
        total = None
        for k in np.ndindex(self.sizes):
            ends = {"begin": (0,) * rank + k, "end": (MAX_SIZE,) * rank + tuple(i + 1 for i in k)}
            part = (
                g.apply("cvm.slice", **ends, strides=(1,) * (rank + len(k))).dimshuffle(range(rank))
                if k
                else g
            )
            first = tuple(i * d for i, d in zip(k, self.dilations, strict=True))
            back = part.apply(
                "builtin.strided_scatter_like",
                padded,
                axes=self.axes,
                begin=first,
                strides=self.strides,
            )
            total = back if total is None else total + back
        assert total is not None  # a window has a place
        return [
            apply(
                "builtin.pad",
                total,
                before=tuple(-n for n in before),
                after=tuple(-n for n in after),
            )
        ]
