"""Sums of products of quantized numbers less their zero points: convolutions, dense layers and
products of matrices.

Each gives accumulators; `quant.requantize` makes quantized numbers of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernel_ir.expressions import (
    Element,
    Expr,
    Tensor,
    axes,
    both,
    cast,
    constant,
    indices,
    total,
    when,
)
from ..kernel_ir.index_bounds import inside
from ..kernel_ir.scalar_references import convolved
from ..spec.broadcasting import same_shape
from ..spec.operator import C, T, operator
from ..types.sizes import Dim
from ..types.tensor_types import I32, I64, ElementType, TensorType, element_of
from .quant_operator import QuantOperator, along_axis, parameter, quantised

MOST = 4096  # of strides, dilations and paddings
LAYOUTS = {
    "NHWC": (0, 3, 1, 2),
    "NCHW": (0, 1, 2, 3),
}  # the axes of batch, channels, rows and columns


class Contraction(QuantOperator[T]):
    """Common parts: the accumulator's type, the bias, and factors less their zero points."""

    if TYPE_CHECKING:  # fields of each of the operators
        acc_dtype: ElementType | None

    first = "x"  # the factor whose width decides on the accumulator's
    bias: Any = None

    @property
    def acc(self) -> ElementType:
        """The accumulators' type: `acc_dtype`, or i64 for factors of 16 bits and i32 for others."""
        return self.acc_dtype or (I64 if element_of(getattr(self, self.first)).bits == 16 else I32)

    def bias_fits(self, channels: Dim) -> bool:
        b = self.bias
        return b is None or (b.element is self.acc and b.rank == 1 and b.shape[0] == channels)

    def difference(
        self,
        x: Tensor,
        at: tuple[Expr, ...],
        zero_point: Tensor,
        place: Expr | None = None,
    ) -> Expr:
        """An element less its zero point, in the accumulator's type."""
        zero = zero_point[() if place is None or not zero_point.rank else place]
        return cast(x[at], self.acc) - cast(zero, self.acc)

    def sums(
        self,
        over: Any,
        product: Expr,
        channel: Expr | None = None,
        there: Expr | bool = True,
    ) -> Expr:
        """The sum of the products where the condition holds, with the channel's bias."""
        sum = total(over, when(there, product, constant(0, product.type)))
        return sum if self.bias is None else sum + self.bias[channel]

    def wrapped(self, sums: np.ndarray) -> np.ndarray:
        """Exact sums, whose last axis is that of the channels, with the bias, modulo 2 to the power
        of the accumulator's width.
        """
        return np.asarray(sums if self.bias is None else sums + self.bias).astype(self.acc.dtype)


ACC = C(0, "acc_dtype in {i32, i64}", lambda o: o.acc_dtype in (None, I32, I64), at="acc_dtype")


@dataclass(frozen=True, eq=False)
class Weighted(Contraction[T]):
    """Common parts of contractions with weights, one row of them for each channel of the result."""

    x: T
    w: T
    x_zero_point: T  # ()
    w_zero_point: T  # () or one for each channel
    bias: T | None = None  # one for each channel, in the accumulator's type


def attributes_within(number: int, name: str, low: int) -> C:
    return C(
        number,
        f"{name} in [{low}, {MOST}]",
        lambda o: all(low <= n <= MOST for n in getattr(o, name)),
        at=name,
    )


def weighted(*own: C, rank: int = 4, channels: str = "OC", x_zero_point: str = "") -> tuple[C, ...]:
    """The constraints of contractions with weights, by their numbers."""
    shared = (
        ACC,
        quantised(1, "x", "w"),
        C(2, f"rank(x) = rank(w) = {rank}", lambda o: o.x.rank == o.w.rank == rank),
        parameter(6, "x_zero_point", x_zero_point),
        parameter(7, "w_zero_point", channels),
        C(
            8,
            f"shape(bias) = ({channels},), in the accumulator's type",
            lambda o: o.bias_fits(o.symbols[channels](o)),
        ),
    )
    return tuple(sorted((*shared, *own), key=lambda c: c.number))


class Windowed(Contraction[T]):
    """Common parts of convolutions and pooling."""

    if TYPE_CHECKING:  # fields of each of the operators
        x: T
        layout: str
        padding: tuple[int, ...]
        stride: tuple[int, ...]

        def kernel(self) -> tuple[Dim, Dim]: ...

    dilation: Any = (1, 1)

    def nchw(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """Sizes or indices in the order batch, channels, rows, columns."""
        return tuple(shape[n] for n in LAYOUTS[self.layout])

    def placed(self, *nchw: Any) -> tuple[Any, ...]:
        """Reorder to the operator's layout; kernels have output channels in place of the batch."""
        return tuple(
            value
            for _, value in sorted(zip(LAYOUTS[self.layout], nchw, strict=True), key=lambda v: v[0])
        )

    def slack(self: Windowed[Any], axis: int) -> Dim:
        """The largest offset of the dilated kernel in the padded input."""
        size = self.nchw(self.x.shape)[2 + axis]
        kernel = self.kernel()[axis]
        return (
            size
            + self.padding[axis]
            + self.padding[axis + 2]
            - self.dilation[axis] * (kernel - 1)
            - 1
        )

    def windows(self) -> tuple[Dim, Dim]:
        return self.slack(0) // self.stride[0] + 1, self.slack(1) // self.stride[1] + 1

    def position(
        self: Windowed[Any], windows: tuple[Expr, ...], kernel: tuple[Expr, ...]
    ) -> tuple[list[Expr], Expr | bool]:
        """The input row and column of a window at a kernel position, and the condition that they
        are inside the input.
        """
        indices = list[Expr]()
        conditions = list[Expr | bool]()
        for axis, (p, k) in enumerate(zip(windows, kernel, strict=True)):
            indices.append(p * self.stride[axis] - self.padding[axis] + k * self.dilation[axis])
            padded = self.padding[axis] or self.padding[axis + 2]
            conditions.append(
                inside(indices[axis], self.nchw(self.x.shape)[2 + axis]) if padded else True
            )
        return indices, both(*conditions)

    def convolved(self, x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
        return convolved(x, w, self.windows(), self.padding, (self.stride, self.dilation), groups)


FITS = (
    attributes_within(10, "padding", 0),
    attributes_within(11, "stride", 1),
    attributes_within(12, "dilation", 1),
    C(
        13,
        "the dilated kernel fits the padded rows and columns",
        lambda o: o.slack(0) >= 0 and o.slack(1) >= 0,
    ),
)


@dataclass(frozen=True, eq=False)
class Convolution(Weighted[T]):
    """Common parts of convolutions."""

    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # PT, PL, PB, PR
    stride: tuple[int, int] = (1, 1)  # SH, SW


@operator
class Conv2d(Convolution[T], Windowed[T]):
    """Y[n, p, q, oc] = Σ_ic Σ_ki Σ_kj pad(n, p * SH - PT + ki * DH, q * SW - PL + kj * DW, g * IC +
    ic) * V[oc, ki, kj, ic] + bias[oc]

    pad(n, h, w, c) = X[n, h, w, c] - x_zero_point if h in [0, H) and w in [0, W) else 0
    V[oc, ki, kj, ic] = W[oc, ki, kj, ic] - w_zero_point[oc],  g = oc ÷ (OC / groups)

    modulo 2 to the power of the accumulator's width. In the layout NCHW, the axes are those of X[n,
    c, h, w], W[oc, ic, ki, kj] and Y[n, oc, p, q]. padding is [PT, PL, PB, PR]: before and after
    the rows and columns.   (TOSA CONV2D; ONNX ConvInteger)
    """

    dilation: tuple[int, int] = (1, 1)  # DH, DW
    groups: int = 1
    layout: str = "NHWC"
    acc_dtype: ElementType | None = None  # i64 for x of 16 bits, else i32

    symbols = {
        "OC": lambda o: o.w.shape[0],
        "C": lambda o: o.nchw(o.x.shape)[1],
        "IC": lambda o: o.nchw(o.w.shape)[1],
    }
    constraints = weighted(
        C(3, "layout in {NHWC, NCHW}", lambda o: o.layout in LAYOUTS, at="layout"),
        C(
            4,
            "groups in [1, C] and C = IC * groups",
            lambda o: o.groups >= 1 and o.symbols["C"](o) == o.symbols["IC"](o) * o.groups,
        ),
        C(5, "OC mod groups = 0", lambda o: o.w.shape[0] % o.groups == 0),
        *FITS,
    )
    example = (
        "%x, %w, -128, 0, %b {stride = [2, 2]}",
        "%x: 1x9x9x3xi8, %w: 4x3x3x3xi8, %b: 4xi32",
        "1x4x4x4xi32",
    )

    def kernel(self: Conv2d[Any]) -> tuple[Dim, Dim]:
        return self.nchw(self.w.shape)[2:]

    def infer(self: Conv2d[TensorType]) -> TensorType:
        return TensorType(
            self.placed(self.nchw(self.x.shape)[0], self.w.shape[0], *self.windows()), self.acc
        )

    def reference(self: Conv2d[np.ndarray]) -> np.ndarray:
        order = LAYOUTS[self.layout]
        x, w = (a.transpose(order).astype(np.int64) for a in (self.x, self.w))
        y = self.convolved(
            x - self.x_zero_point, w - along_axis(self.w_zero_point, 4, 0), self.groups
        )
        return self.wrapped(y.transpose(0, 2, 3, 1)).transpose(
            np.take(LAYOUTS["NHWC"], np.argsort(order))
        )

    def element(self: Conv2d[Tensor], y: Tensor) -> Element:
        at = axes(y.shape)
        n, oc, p, q = self.nchw(at)
        ic, ki, kj = indices("ic ki kj", self.nchw(self.w.shape)[1:])
        c = ic if self.groups == 1 else oc // (self.w.shape[0] // self.groups) * ic.extent + ic
        place, there = self.position((p, q), (ki, kj))
        a = self.difference(self.x, self.placed(n, c, *place), self.x_zero_point)
        b = self.difference(self.w, self.placed(oc, ic, ki, kj), self.w_zero_point, oc)
        return Element(
            at, self.sums((ki, kj, ic) if self.layout == "NHWC" else (ic, ki, kj), a * b, oc, there)
        )


@operator
class DepthwiseConv2d(Convolution[T], Windowed[T]):
    """Y[n, p, q, c * M + m] = Σ_ki Σ_kj pad(n, p * SH - PT + ki * DH, q * SW - PL + kj * DW, c) *
    V[ki, kj, c, m] + bias[c * M + m]

    pad(n, h, w, c) = X[n, h, w, c] - x_zero_point if h in [0, H) and w in [0, W) else 0
    V[ki, kj, c, m] = W[ki, kj, c, m] - w_zero_point[c * M + m]

    modulo 2 to the power of the accumulator's width; padding is [PT, PL, PB, PR].   (TOSA
    DEPTHWISE_CONV2D)
    """

    dilation: tuple[int, int] = (1, 1)  # DH, DW
    acc_dtype: ElementType | None = None  # i64 for x of 16 bits, else i32

    layout = "NHWC"
    symbols = {"OC": lambda o: o.w.shape[2] * o.w.shape[3], "C": lambda o: o.x.shape[3]}
    constraints = weighted(C(3, "dim(w, 2) = C", lambda o: o.w.shape[2] == o.x.shape[3]), *FITS)
    example = (
        "%x, %w, 4, 0 {padding = [1, 1, 1, 1]}",
        "%x: 1x8x8x3xi8, %w: 3x3x3x1xi8",
        "1x8x8x3xi32",
    )

    def kernel(self: DepthwiseConv2d[Any]) -> tuple[Dim, Dim]:
        return self.w.shape[:2]

    def infer(self: DepthwiseConv2d[TensorType]) -> TensorType:
        return TensorType(
            (self.x.shape[0], *self.windows(), self.w.shape[2] * self.w.shape[3]), self.acc
        )

    def reference(self: DepthwiseConv2d[np.ndarray]) -> np.ndarray:
        kh, kw, c, m = self.w.shape
        x = (self.x.astype(np.int64) - self.x_zero_point).transpose(LAYOUTS["NHWC"])
        w = self.w.astype(np.int64).reshape(kh, kw, 1, c * m) - along_axis(self.w_zero_point, 4, 3)
        return self.wrapped(self.convolved(x, w.transpose(3, 2, 0, 1), c).transpose(0, 2, 3, 1))

    def element(self: DepthwiseConv2d[Tensor], y: Tensor) -> Element:
        n, p, q, oc = at = axes(y.shape)
        ki, kj = indices("ki kj", self.w.shape[:2])
        c = oc // self.w.shape[3]
        m = oc % self.w.shape[3]
        place, there = self.position((p, q), (ki, kj))
        a = self.difference(self.x, (n, *place, c), self.x_zero_point)
        b = self.difference(self.w, (ki, kj, c, m), self.w_zero_point, oc)
        return Element(at, self.sums((ki, kj), a * b, oc, there))


@operator
class TransposeConv2d(Convolution[T]):
    """Y[n, p, q, oc] = Σ (X[n, h, w, ic] - x_zero_point) * (W[oc, ki, kj, ic] - w_zero_point[oc]) +
    bias[oc]

    over all ic, and all h, w, ki, kj with h * SH + ki = p + PT and w * SW + kj = q + PL, modulo 2
    to the power of the accumulator's width. There are (H - 1) * SH + KH - PT - PB rows, columns
    likewise.   (TOSA TRANSPOSE_CONV2D, out_pad = -padding)
    """

    acc_dtype: ElementType | None = None  # i64 for x of 16 bits, else i32

    symbols = {"OC": lambda o: o.w.shape[0]}
    constraints = weighted(
        C(3, "dim(x, 3) = dim(w, 3)", lambda o: o.x.shape[3] == o.w.shape[3]),
        attributes_within(10, "padding", -MOST),
        attributes_within(11, "stride", 1),
        C(13, "the result has rows and columns", lambda o: o.size(0) >= 1 and o.size(1) >= 1),
    )
    example = ("%x, %w, 4, 0 {stride = [2, 2]}", "%x: 1x4x4x3xi8, %w: 2x3x3x3xi8", "1x9x9x2xi32")

    def size(self: TransposeConv2d[Any], axis: int) -> Dim:
        x, w = self.x.shape[1 + axis], self.w.shape[1 + axis]
        return (x - 1) * self.stride[axis] + w - self.padding[axis] - self.padding[axis + 2]

    def infer(self: TransposeConv2d[TensorType]) -> TensorType:
        return TensorType((self.x.shape[0], self.size(0), self.size(1), self.w.shape[0]), self.acc)

    def reference(self: TransposeConv2d[np.ndarray]) -> np.ndarray:
        x = self.x.astype(np.int64) - self.x_zero_point
        w = self.w.astype(np.int64) - along_axis(self.w_zero_point, 4, 0)
        (batch, height, width, _), (channels, kh, kw, _) = x.shape, w.shape
        y = np.zeros((batch, self.size(0), self.size(1), channels), np.int64)
        for h, v, ki, kj in np.ndindex(height, width, kh, kw):
            p = h * self.stride[0] + ki - self.padding[0]
            q = v * self.stride[1] + kj - self.padding[1]
            if 0 <= p < y.shape[1] and 0 <= q < y.shape[2]:
                y[:, p, q] += x[:, h, v] @ w[:, ki, kj].T
        return self.wrapped(y)

    def element(self: TransposeConv2d[Tensor], y: Tensor) -> Element:
        n, p, q, oc = at = axes(y.shape)
        ki, kj, ic = indices("ki kj ic", self.w.shape[1:])
        places: list[Expr] = []
        conditions: list[Expr | bool] = []
        for axis, (o, k) in enumerate(((p, ki), (q, kj))):
            reached = o + self.padding[axis] - k
            stride = self.stride[axis]
            places.append(reached // stride)
            conditions += [
                (reached % stride).eq(0) if stride > 1 else True,
                inside(places[-1], self.x.shape[1 + axis]),
            ]
        a = self.difference(self.x, (n, *places, ic), self.x_zero_point)
        b = self.difference(self.w, (oc, ki, kj, ic), self.w_zero_point, oc)
        return Element(at, self.sums((ki, kj, ic), a * b, oc, both(*conditions)))


@operator
class Dense(Weighted[T]):
    """Y[m, n] = Σ_k (X[m, k] - x_zero_point) * (W[n, k] - w_zero_point[n]) + bias[n], modulo 2 to
    the accumulator's width
    """

    acc_dtype: ElementType | None = None  # i64 for x of 16 bits, else i32

    symbols = {"M": lambda o: o.x.shape[0], "N": lambda o: o.w.shape[0]}
    constraints = weighted(
        C(3, "dim(x, 1) = dim(w, 1)", lambda o: o.x.shape[1] == o.w.shape[1]),
        rank=2,
        channels="N",
        x_zero_point="M",
    )
    example = "%x, %w, -3, 0, %b", "%x: 2x3xi8, %w: 4x3xi8, %b: 4xi32", "2x4xi32"

    def infer(self: Dense[TensorType]) -> TensorType:
        return TensorType((self.x.shape[0], self.w.shape[0]), self.acc)

    def reference(self: Dense[np.ndarray]) -> np.ndarray:
        x = self.x.astype(np.int64) - along_axis(self.x_zero_point, 2, 0)
        return self.wrapped(x @ (self.w.astype(np.int64) - along_axis(self.w_zero_point, 2, 0)).T)

    def element(self: Dense[Tensor], y: Tensor) -> Element:
        m, n, k = indices("m n k", (*y.shape, self.x.shape[1]))
        a = self.difference(self.x, (m, k), self.x_zero_point, m)
        return Element(
            (m, n), self.sums(k, a * self.difference(self.w, (n, k), self.w_zero_point, n), n)
        )


@operator
class BatchMatmul(Contraction[T]):
    """Y[..., m, n] = Σ_k (A[..., m, k] - a_zero_point[m]) * (B[..., k, n] - b_zero_point[n]),
    modulo 2 to the accumulator's width

    The batches of A and B are equal, or B has none.   (TOSA MATMUL; ONNX MatMulInteger)
    """

    a: T  # (..., M, K)
    b: T  # (..., K, N) or (K, N)
    a_zero_point: T  # () or (M,)
    b_zero_point: T  # () or (N,)
    acc_dtype: ElementType | None = None  # i64 for a of 16 bits, else i32

    first = "a"
    symbols = {"M": lambda o: o.a.shape[-2], "N": lambda o: o.b.shape[-1]}
    constraints = (
        ACC,
        quantised(1, "a", "b"),
        C(
            2,
            "rank(a) >= 2 and rank(b) in {2, rank(a)}",
            lambda o: o.a.rank >= 2 and o.b.rank in (2, o.a.rank),
        ),
        C(3, "the batches and K of a and b are equal", lambda o: o.sizes_fit()),
        parameter(6, "a_zero_point", "M"),
        parameter(7, "b_zero_point", "N"),
    )
    example = "%a, %b, -3, 7", "%a: 5x2x3xi8, %b: 5x3x4xi8", "5x2x4xi32"

    def sizes_fit(self: BatchMatmul[Any]) -> bool:
        a, b = self.a.shape, self.b.shape
        return same_shape((*a[:-2], a[-1]), (*(b[:-2] if len(b) == len(a) else a[:-2]), b[-2]))

    def infer(self: BatchMatmul[TensorType]) -> TensorType:
        return TensorType((*self.a.shape[:-1], self.b.shape[-1]), self.acc)

    def reference(self: BatchMatmul[np.ndarray]) -> np.ndarray:
        a, b = self.a.astype(np.int64), self.b.astype(np.int64)
        a = a - along_axis(self.a_zero_point, 2, 0)
        b = b - along_axis(self.b_zero_point, 2, 1)
        return self.wrapped(a @ b)

    def element(self: BatchMatmul[Tensor], y: Tensor) -> Element:
        *batch, m, n = at = axes(y.shape)
        (k,) = indices("k", (self.a.shape[-1],))
        a = self.difference(self.a, (*batch, m, k), self.a_zero_point, m)
        b = self.difference(
            self.b, (*(batch if self.b.rank == self.a.rank else ()), k, n), self.b_zero_point, n
        )
        return Element(at, self.sums(k, a * b))
