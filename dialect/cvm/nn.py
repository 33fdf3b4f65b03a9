"""The formalization's NN operators."""

from __future__ import annotations

from operator import gt
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernel_ir.expressions import (
    Element,
    Expr,
    Tensor,
    both,
    constant,
    indices,
    maximum,
    reduce,
    select,
    total,
    when,
)
from ..kernel_ir.index_bounds import inside
from ..kernel_ir.scalar_references import convolved, largest
from ..spec.operator import C, T, operator
from ..types.sizes import Dim
from ..types.tensor_types import BY_DTYPE, I32, TensorType
from . import cvm_operator as cvm

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


def named(**names: str) -> dict[str, Any]:
    """The names of an operand's sizes, or of an attribute's entries, as symbols of constraints."""

    def entry(field: str, k: int) -> Any:
        return lambda o: getattr(getattr(o, field), "shape", getattr(o, field))[k]

    return {
        n: entry(field, k) for field, listed in names.items() for k, n in enumerate(listed.split())
    }


@operator
class Conv2d(cvm.CvmOperator[T]):
    """A two-dimensional convolution in groups of channels.   (NN Operators, conv2d)

    Y[n, oc, p, q] = Σ_ic kernel(n, (oc ÷ OPG) * IC + ic, p, q, oc, ic) + B[oc],  OPG = OC / groups
    kernel(n, j, p, q, o, i) = Σ_ki Σ_kj
        pad(p * SH - PH + ki * DH, q * SW - PW + kj * DW) * W[o, i, ki, kj]
    pad(p, q) = X[n, j, p, q] if p in [0, H) and q in [0, W) else 0

    with ki in [0, KH), kj in [0, KW); where pad is 0 nothing is added, whatever W holds. There are
    ⌊(H + 2 * PH - DH * (KH - 1) - 1) / SH⌋ + 1 rows, columns likewise.
    """

    x: T  # (N, C, H, W)
    w: T  # (OC, IC, KH, KW)
    b: T | None = None  # (OC,)
    padding: tuple[int, int] = (0, 0)  # PH, PW
    stride: tuple[int, int] = (1, 1)  # SH, SW
    dilation: tuple[int, int] = (1, 1)  # DH, DW
    groups: int = 1

    symbols = named(x="N C H W", w="OC IC KH KW", padding="PH PW", stride="SH SW", dilation="DH DW")
    constraints = (
        cvm.numbers("x", "w", "b"),
        C(1, "rank(x) = rank(w) = 4", lambda o: o.x.rank == o.w.rank == 4),
        C(
            2,
            "shape(b) = (OC,)",
            lambda o: o.b is None or (o.b.rank == 1 and o.b.shape[0] == o.w.shape[0]),
        ),
        C(3, "groups in [1, C]", lambda o: 1 <= o.groups <= o.x.shape[1], at="groups"),
        C(4, "C = IC * groups", lambda o: o.x.shape[1] == o.w.shape[1] * o.groups),
        C(5, "OC mod groups = 0", lambda o: o.w.shape[0] % o.groups == 0),
        cvm.within(6, "PH, PW", cvm.MIN_ATTR, cvm.MAX_ATTR, at="padding"),
        cvm.within(7, "SH, SW", 1, cvm.MAX_ATTR, at="stride"),
        cvm.within(8, "DH, DW", 1, cvm.MAX_ATTR, at="dilation"),
        C(9, "DH * (KH - 1) + 1 <= H + 2 * PH", lambda o: o.slack(0) >= 0),
        C(10, "DW * (KW - 1) + 1 <= W + 2 * PW", lambda o: o.slack(1) >= 0),
    )
    example = (
        "%x, %w, %b {padding = [1, 1], stride = [2, 2]}",
        "%x: 1x3x8x8xi32, %w: 4x3x3x3xi32, %b: 4xi32",
        "1x4x4x4xi32",
    )

    def slack(self: Conv2d[Any], axis: int) -> Dim:
        """The largest offset of the dilated kernel in the padded input."""
        extent = self.dilation[axis] * (self.w.shape[2 + axis] - 1) + 1
        return self.x.shape[2 + axis] + 2 * self.padding[axis] - extent

    def windows(self) -> tuple[Dim, Dim]:
        return self.slack(0) // self.stride[0] + 1, self.slack(1) // self.stride[1] + 1

    def infer(self: Conv2d[TensorType]) -> TensorType:
        return self.x.with_shape(self.x.shape[0], self.w.shape[0], *self.windows())

    def reference(self: Conv2d[np.ndarray]) -> np.ndarray:
        x = cvm.exactly(self.x)
        w = cvm.exactly(self.w)
        steps = (self.stride, self.dilation)
        y = convolved(x, w, self.windows(), self.padding * 2, steps, self.groups)
        return cvm.rounded(y if self.b is None else y + self.b[:, None, None], self.x)

    def element(self: Conv2d[Tensor], y: Tensor) -> Element:
        n, oc, p, q = indices("n oc p q", y.shape)
        ic, ki, kj = indices("ic ki kj", self.w.shape[1:])
        c = (
            ic
            if self.groups == 1
            else oc // (self.w.shape[0] // self.groups) * self.w.shape[1] + ic
        )
        (ph, pw), (sh, sw), (dh, dw) = self.padding, self.stride, self.dilation
        row, rows = along(p, ki, self.x.shape[2], sh, ph, dh)
        column, columns = along(q, kj, self.x.shape[3], sw, pw, dw)
        product = self.x[n, c, row, column] * self.w[oc, ic, ki, kj]
        dot = total((ic, ki, kj), when(both(rows, columns), product, constant(0, product.type)))
        return Element((n, oc, p, q), dot if self.b is None else dot + self.b[oc])

    def pullback(self: Conv2d[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,) = cotangents
        gradients = [self._of_x(g), self._of_w(g)]
        return gradients if self.b is None else [*gradients, g.sum((0, 2, 3), dtype=g.element)]

    def _of_x(self, g: Any) -> Any:
        """A convolution of the cotangent, moved apart by the stride, with the kernels turned
        round.
        """
        (ph, pw), groups, apply = self.padding, self.groups, g.builder.apply
        padded = apply("builtin.pad", self.x, before=(0, 0, ph, pw), after=(0, 0, ph, pw))
        apart = self._reaching_back(
            apply("builtin.strided_scatter_like", g, padded, axes=(2, 3), strides=self.stride)
        )
        turned = apply("builtin.reshape", self.w, split=((groups, -1), (-1,), (-1,), (-1,)))
        turned = apply("cvm.transpose", turned, axes=(0, 2, 1, 3, 4))
        turned = apply("builtin.reshape", turned, merge=(2, 1, 1, 1))
        turned = apply(
            "builtin.strided_slice_like",
            turned,
            turned,
            axes=(2, 3),
            begin=(-1, -1),
            strides=(-1, -1),
        )
        return apply("cvm.conv2d", apart, turned, dilation=self.dilation, groups=groups)

    def _reaching_back(self: Conv2d[Any], apart: Any) -> Any:
        """With zeros before it as far as a kernel reaches, and without the padding."""
        (ph, pw), apply = self.padding, apart.builder.apply
        reach = [d * (k - 1) for d, k in zip(self.dilation, self.w.shape[2:], strict=True)]
        if not all(isinstance(n, int) for n in reach):
            more = apply(
                "builtin.pad", self.w, before=(0, 0, -1, -1), after=(0,) * 4
            )  # of the sizes k - 1
            for axis, d in zip((2, 3), self.dilation, strict=True):
                more = apply("cvm.repeat", more, axis=axis, repeats=d) if d > 1 else more
                zeros = apply(
                    "builtin.strided_slice_like", apart.scalar("second", 0.0), more, axes=(axis,)
                )
                apart = apply("cvm.concatenate", zeros, apart, axis=axis)
            reach = [0, 0]
        return apply(
            "builtin.pad",
            apart,
            before=(0, 0, reach[0] - ph, reach[1] - pw),
            after=(0, 0, -ph, -pw),
        )

    def _of_w(self, g: Any) -> Any:
        """A convolution of x with the cotangent as its kernels, stride and dilation changing
        places.
        """
        groups = self.groups
        apply = g.builder.apply
        x = apply("builtin.reshape", self.x, split=((-1,), (groups, -1), (-1,), (-1,)))
        x = apply(
            "builtin.reshape", apply("cvm.transpose", x, axes=(2, 1, 0, 3, 4)), merge=(1, 2, 1, 1)
        )
        kernels = apply("cvm.transpose", g, axes=(1, 0, 2, 3))
        swapped = {"stride": self.dilation, "dilation": self.stride}
        gradient = apply("cvm.conv2d", x, kernels, padding=self.padding, groups=groups, **swapped)
        return apply("cvm.slice_like", apply("cvm.transpose", gradient, axes=(1, 0, 2, 3)), self.w)


def along(
    p: Expr, k: Expr, size: Dim, stride: int, padding: int, dilation: int = 1, beyond: bool = False
) -> tuple[Expr, Expr | bool]:
    """The input index of window p at kernel position k, and the condition that it is inside the
    input.

    `beyond` states that a window may reach beyond the padded input.
    """
    position = p * stride - padding + k * dilation
    return position, inside(position, size) if padding or beyond else True


@operator
class Dense(cvm.CvmOperator[T]):
    """A fully connected layer:  Y = X Wᵀ + B.   (NN Operators, dense)"""

    x: T  # (M, K)
    w: T  # (N, K)
    b: T | None = None  # (N,)

    symbols = {"N": lambda o: o.w.shape[0]}
    constraints = (
        cvm.numbers("x", "w", "b"),
        C(1, "rank(x) = rank(w) = 2", lambda o: o.x.rank == o.w.rank == 2),
        C(2, "dim(x, 1) = dim(w, 1)", lambda o: o.x.shape[1] == o.w.shape[1]),
        C(
            3,
            "shape(b) = (N,)",
            lambda o: o.b is None or (o.b.rank == 1 and o.b.shape[0] == o.w.shape[0]),
        ),
    )
    example = "%x, %w, %b", "%x: 2x3xi32, %w: 4x3xi32, %b: 4xi32", "2x4xi32"

    def infer(self: Dense[TensorType]) -> TensorType:
        return self.x.with_shape(self.x.shape[0], self.w.shape[0])

    def reference(self: Dense[np.ndarray]) -> np.ndarray:
        return cvm.rounded(
            cvm.exactly(self.x) @ cvm.exactly(self.w).T + (0 if self.b is None else self.b), self.x
        )

    def element(self: Dense[Tensor], y: Tensor) -> Element:
        i, j, k = indices("i j k", (*y.shape, self.x.shape[1]))
        dot = total(k, self.x[i, k] * self.w[j, k])
        return Element((i, j), dot if self.b is None else dot + self.b[j])

    def pullback(self: Dense[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,), apply = cotangents, cotangents[0].builder.apply
        of_x = apply("cvm.dense", g, apply("cvm.transpose", self.w))
        of_w = apply("cvm.dense", apply("cvm.transpose", g), apply("cvm.transpose", self.x))
        return [of_x, of_w] if self.b is None else [of_x, of_w, g.sum((0,), dtype=g.element)]


@operator
class Relu(cvm.Elementwise[T]):
    """Y[d_0, ..., d_n-1] = max(0, X[d_0, ..., d_n-1]), of floats NaN where X is   (NN Operators,
    relu)
    """

    constraints = (cvm.numbers("x"),)
    example = "%x", "%x: 2x3xi32", "2x3xi32"

    def reference(self: Relu[np.ndarray]) -> np.ndarray:
        return np.where(self.x <= 0, np.zeros_like(self.x), self.x)

    def formula(self, x: Expr) -> Expr:
        return maximum(x, 0) if x.type is I32 else select(x <= 0, constant(0, x.type), x)

    def pullback(self: Relu[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        return [self.x.scalar("gt", 0).scalar("switch", cotangents[0], 0)]


@operator
class MaxPool2d(cvm.CvmOperator[T]):
    """The largest element of every window, in each batch and channel.   (NN Operators, max_pool2d)

    Y[n, i, p, q] = max{pad(n, i, p', q') | p' - (p * SH - PH) in [0, PSH), q' - (q * SW - PW) in
    [0, PSW)} pad(n, i, p, q) = X[n, i, p, q] if p in [0, H) and q in [0, W) else INT32_MIN, of
    floats -inf

    There are ⌊(H + 2 * PH - PSH) / SH⌋ + 1 rows, or ⌈...⌉ + 1 if ceil_mode, columns likewise.
    """

    x: T  # (N, C, H, W)
    pool_size: tuple[int, int]  # PSH, PSW
    padding: int | tuple[int, int] = 0  # PH, PW; or PH = PW
    strides: tuple[int, int] = (1, 1)  # SH, SW
    ceil_mode: bool = False

    symbols = named(x="N C H W", pool_size="PSH PSW", pads="PH PW", strides="SH SW")
    constraints = (
        cvm.numbers("x"),
        C(1, "rank(x) = 4", lambda o: o.x.rank == 4),
        cvm.within(2, "PH, PW", cvm.MIN_ATTR, cvm.MAX_ATTR, at="padding"),
        cvm.within(3, "SH, SW", 1, cvm.MAX_ATTR, at="strides"),
        C(
            4,
            "PSH in [0, H + 2 * PH + 1)",
            lambda o: o.pool_size[0] >= 0 and o.slack(0) >= 0,
            at="pool_size",
        ),
        C(
            5,
            "PSW in [0, W + 2 * PW + 1)",
            lambda o: o.pool_size[1] >= 0 and o.slack(1) >= 0,
            at="pool_size",
        ),
        C(6, "PSH > PH and PSW > PW", lambda o: all(map(gt, o.pool_size, o.pads)), at="pool_size"),
    )
    example = "%x {pool_size = [2, 2], strides = [2, 2]}", "%x: 1x3x8x8xi32", "1x3x4x4xi32"

    @property
    def pads(self) -> tuple[int, int]:
        """PH and PW."""
        return (self.padding, self.padding) if isinstance(self.padding, int) else self.padding

    def slack(self: MaxPool2d[Any], axis: int) -> Dim:
        """The largest offset of the window in the padded input."""
        return self.x.shape[2 + axis] + 2 * self.pads[axis] - self.pool_size[axis]

    def count(self, axis: int) -> Dim:
        """The number of windows along an axis."""
        stride = self.strides[axis]
        return (self.slack(axis) + (stride - 1 if self.ceil_mode else 0)) // stride + 1

    def infer(self: MaxPool2d[TensorType]) -> TensorType:
        return self.x.with_shape(*self.x.shape[:2], self.count(0), self.count(1))

    def reference(self: MaxPool2d[np.ndarray]) -> np.ndarray:
        (ph, pw), (sh, sw), (psh, psw) = self.pads, self.strides, self.pool_size
        least = cvm.lowest(BY_DTYPE[self.x.dtype])
        padded = np.pad(self.x, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=least)
        y = np.zeros((*self.x.shape[:2], self.count(0), self.count(1)), self.x.dtype)
        for p, q in np.ndindex(
            y.shape[2:]
        ):  # the last windows may reach beyond the padding: slices end there
            window = padded[:, :, p * sh : p * sh + psh, q * sw : q * sw + psw]
            y[:, :, p, q] = largest(window, axis=(2, 3), initial=least)
        return y

    def element(self: MaxPool2d[Tensor], y: Tensor) -> Element:
        n, i, p, q = indices("n i p q", y.shape)
        k, m = indices("k m", self.pool_size)
        (ph, pw), (sh, sw) = self.pads, self.strides
        row, rows = along(p, k, self.x.shape[2], sh, ph, beyond=self.ceil_mode)
        column, columns = along(q, m, self.x.shape[3], sw, pw, beyond=self.ceil_mode)
        padded = when(
            both(rows, columns),
            self.x[n, i, row, column],
            constant(cvm.lowest(y.element), y.element),
        )
        return Element((n, i, p, q), reduce(cvm.greatest(y.element), (k, m), padded))

    def pullback(self: MaxPool2d[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        """To every element that is the largest one of a window, as Theano's; a place of the window
        after the other.
        """
        (y,), (g,), x, apply = results, cotangents, self.x, cotangents[0].builder.apply
        pads = (0, 0, *self.pads)
        padded = apply("builtin.pad", x, before=pads, after=pads)
        total = None
        for at in np.ndindex(*self.pool_size):
            where = {"axes": (2, 3), "begin": at, "strides": self.strides}
            chosen = (
                apply("builtin.strided_slice_like", padded, y, **where)
                .scalar("eq", y)
                .scalar("switch", g, 0.0)
            )
            placed = apply("builtin.strided_scatter_like", chosen, padded, **where)
            total = placed if total is None else total + placed
        back = tuple(-p for p in pads)
        return [None if total is None else apply("builtin.pad", total, before=back, after=back)]


@operator
class Upsampling(cvm.CvmOperator[T]):
    """Y[n, i, h, w] = X[n, i, ⌊h / scale⌋, ⌊w / scale⌋], h in [0, H * scale), w in [0, W * scale)
    (NN Operators)
    """

    x: T  # (N, C, H, W)
    scale: int

    constraints = (
        cvm.numbers("x"),
        C(1, "rank(x) = 4", lambda o: o.x.rank == 4),
        cvm.within(2, "scale", 1, cvm.MAX_ATTR, at="scale"),
    )
    example = "%x {scale = 2}", "%x: 1x3x4x4xi32", "1x3x8x8xi32"

    def infer(self: Upsampling[TensorType]) -> TensorType:
        n, c, h, w = self.x.shape
        return self.x.with_shape(n, c, h * self.scale, w * self.scale)

    def reference(self: Upsampling[np.ndarray]) -> np.ndarray:
        return np.repeat(np.repeat(self.x, self.scale, axis=2), self.scale, axis=3)

    def element(self: Upsampling[Tensor], y: Tensor) -> Element:
        n, i, h, w = indices("n i h w", y.shape)
        return Element((n, i, h, w), self.x[n, i, h // self.scale, w // self.scale])

    def pullback(self: Upsampling[Node], results: Nodes, cotangents: Nodes) -> Cotangents:
        (g,), s = cotangents, self.scale
        return [
            g.apply("builtin.reshape", split=((-1,), (-1,), (-1, s), (-1, s))).sum(
                (3, 5), dtype=g.element
            )
        ]
