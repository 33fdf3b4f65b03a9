"""`builtin.cumulative`: the prefix reductions along an axis (scan), as NumPy's `accumulate`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.types import BY_DTYPE, TensorType
from ..notation.expressions import Index, Tensor, apply, axes
from ..notation.loops import Alloc, Block, For, Store, accumulator, identity
from ..notation.scalar_functions import SCALARS
from ..spec.op import C, T, operator
from .argsort_argmax import Along
from .gather_scatter import COMBINED, combined
from .pad_slice_reshape import nested


@operator
class Cumulative(Along[T]):
    """Y[d..., k, e...] = the reduction by `scalar_op` of X[d..., j, e...] over all j <= k along `axis`, in order.

    `exclusive` leaves out j = k, so that the first result is the identity; `reverse` runs from the other end.
    """

    scalar_op: str = "add"
    exclusive: bool = False
    reverse: bool = False

    constraints = (
        C(1, "element(x) is not i1, and complex only where scalar_op is add or mul", lambda o: o.x.element.kind != "bool" and (o.x.element.kind != "complex" or o.scalar_op in COMBINED[:2])),
        Along.constraints[1],
        C(3, "scalar_op is add, mul, maximum or minimum", lambda o: o.scalar_op in COMBINED, "scalar_op", COMBINED),
    )  # fmt: skip
    example = ('%x {axis = 1, scalar_op = "add", exclusive = true}', "%x: 2 x ?N x f32", "2 x ?N x f32")

    def infer(self: Any) -> TensorType:
        return TensorType(self.x.array_shape, self.x.element)

    def reference(self: Cumulative[np.ndarray]) -> np.ndarray:
        x = np.moveaxis(self.x, self.axis, 0)
        x = x[::-1] if self.reverse else x
        element = BY_DTYPE[x.dtype]
        row = SCALARS[combined(self.scalar_op, element)]
        assert row.identity is not None
        y = np.empty_like(x)
        so_far = np.full(x.shape[1:], row.identity(element), x.dtype)
        for k in range(len(x)):
            with np.errstate(all="ignore"):
                after = row.numpy(so_far, x[k])
            y[k] = so_far if self.exclusive else after
            so_far = after
        return np.moveaxis(y[::-1] if self.reverse else y, 0, self.axis).copy()

    def nest(self: Cumulative[Tensor], *results: Tensor) -> Block:
        (y,) = results
        n = self.x.shape[self.axis]
        d, k = axes(self.others(y.shape), "d"), Index("k", n)
        at = self.at(d, n - 1 - k if self.reverse else k)
        so_far = accumulator("so_far", y.element)
        function = combined(self.scalar_op, y.element)
        step = Store(so_far, (), apply(function, so_far[()], self.x[at]))
        write = Store(y, at, so_far[()])
        body = (write, step) if self.exclusive else (step, write)
        return nested(d, (Alloc(so_far), Store(so_far, (), identity(function, y.element)), For(k, body)))

    def pullback(self: Any, results: Any, cotangents: Any) -> Any:
        if self.scalar_op != "add":
            raise NotImplementedError(f"{self.name} by {self.scalar_op}")
        (g,) = cotangents
        how = {"axis": self.axis, "exclusive": self.exclusive, "reverse": not self.reverse}
        return [g.apply("builtin.cumulative", **how)]
