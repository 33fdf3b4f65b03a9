"""Pooling, padding and resizing of quantized tensors, in integers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..builtin.pad_slice_reshape import Padding
from ..kernel_ir import expressions as ex
from ..spec.broadcasting import all_of
from ..spec.operator import C, T, operator
from ..types.sizes import Dim
from ..types.tensor_types import I32, I64, TensorType, element_of
from .contractions import FITS, LAYOUTS, Windowed, attributes_within
from .quant_operator import QuantOperator, clamped, in_limits, parameter, quantised
from .rounding import ROUNDINGS


@dataclass(frozen=True, eq=False)
class Pooling(Windowed[T]):
    """Common parts of pooling: windows of an array with an axis of channels, and a clamp."""

    x: T  # (N, H, W, C), or (N, C, H, W) in the layout NCHW
    pool_size: tuple[int, int]  # PSH, PSW
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # PT, PL, PB, PR
    stride: tuple[int, int] = (1, 1)  # SH, SW
    layout: str = "NHWC"

    to = property(lambda o: element_of(o.x))
    example = "%x {pool_size = [2, 2], stride = [2, 2]}", "%x: 1x4x4x3xi8", "1x2x2x3xi8"

    def kernel(self) -> tuple[int, int]:
        return self.pool_size

    def infer(self: "Pooling[TensorType]") -> TensorType:
        n, c, _, _ = self.nchw(self.x.shape)
        return self.x.with_shape(*self.placed(n, c, *self.windows()))

    def window(
        self: "Pooling[Any]", y: ex.Tensor
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], ex.Expr, ex.Expr | bool]:
        """The indices of the result and of a window, the element there, and the condition that
        there is one.
        """
        at = ex.axes(y.shape)
        n, c, p, q = self.nchw(at)
        k = ex.indices("ki kj", self.pool_size)
        place, there = self.position((p, q), k)
        return at, k, self.x[self.placed(n, c, *place)], there

    def count(self: "Pooling[Any]", axis: int, p: ex.Expr) -> ex.Expr:
        """The elements of window p that are inside, along an axis."""
        size = self.nchw(self.x.shape)[2 + axis]
        first = p * self.stride[axis] - self.padding[axis]
        if not self.padding[axis] and not self.padding[axis + 2]:
            return ex.as_index(self.pool_size[axis])
        return ex.minimum(first + self.pool_size[axis], ex.as_index(size)) - ex.maximum(first, 0)

    def seen(self, x: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """The elements of each window that are inside, in NCHW."""
        for p in np.ndindex(*self.windows()):
            firsts = [
                i * s - before for i, s, before in zip(p, self.stride, self.padding, strict=False)
            ]
            ends = (
                slice(max(n, 0), n + size) for n, size in zip(firsts, self.pool_size, strict=True)
            )
            yield p, x[:, :, *ends]

    def pooled(self: "Pooling[Any]", pool: Any) -> np.ndarray:
        """`pool` of the elements of every window, clamped, in the layout."""
        order = LAYOUTS[self.layout]
        x = self.x.transpose(order)
        y = np.zeros((*x.shape[:2], *self.windows()), np.int32)
        for (p, q), seen in self.seen(x):
            y[:, :, p, q] = pool(seen)
        return np.clip(y.transpose(np.argsort(order)), self.low, self.high).astype(self.x.dtype)


POOLS = (
    quantised(0, "x"),
    C(1, "rank(x) = 4", lambda o: o.x.rank == 4),
    C(2, "layout in {NHWC, NCHW}", lambda o: o.layout in LAYOUTS, at="layout"),
    attributes_within(3, "pool_size", 1),
    C(
        4,
        "padding < pool_size, H >= 1 and W >= 1",
        lambda o: (
            all(p < k for p, k in zip(o.padding, o.pool_size * 2, strict=True))
            and all_of((lambda n=n: n >= 1) for n in o.nchw(o.x.shape)[2:])
        ),
    ),
    *(c for c in FITS if c.number != 12),  # there is no dilation
)


@operator
class AvgPool2d(Pooling[T]):
    """Y[n, p, q, c] = clamp(round(Σ (X[n, h, w, c] - input_zero_point), count) + zero_point, min,
    max)

    over the count elements of window p, q that are inside: h - (p * SH - PT) in [0, PSH), w - (q *
    SW - PL) in [0, PSW). `half_away` divides by count and rounds halves away from zero (LiteRT's
    AVERAGE_POOL_2D); `tosa` multiplies by reciprocal_scale(count) and rounds as `quant.requantize`
    by `single` (TOSA AVG_POOL2D):

      m = ⌊(2^30 + 1) * 2^k / count⌋, s = 30 + k, k being the least number with count <= 2^k
    """

    rounding: str = "half_away"
    input_zero_point: int = 0
    zero_point: int = 0
    min: int | None = None
    max: int | None = None

    constraints = (
        *POOLS,
        C(
            5,
            "rounding in {half_away, tosa}",
            lambda o: o.rounding in ("half_away", "tosa"),
            at="rounding",
        ),
        in_limits(6),
        C(7, "input_zero_point in [-65535, 65535]", lambda o: abs(o.input_zero_point) <= 65535),
    )

    def reference(self: "AvgPool2d[np.ndarray]") -> np.ndarray:
        def average(seen: np.ndarray) -> np.ndarray:
            count = seen.shape[2] * seen.shape[3]
            sums = seen.astype(np.int64).sum((2, 3)) - count * self.input_zero_point
            if self.rounding == "tosa":
                k = (count - 1).bit_length()
                rounded = sums * (((1 << 30) + 1 << k) // count) + (1 << 29 + k) >> 30 + k
            else:
                rounded = np.sign(sums) * ((abs(sums) + count // 2) // count)
            return rounded + self.zero_point

        return self.pooled(average)

    def element(self: "AvgPool2d[ex.Tensor]", y: ex.Tensor) -> ex.Element:
        at, k, x, there = self.window(y)
        sums = ex.total(
            k, ex.when(there, ex.cast(x, I32) - self.input_zero_point, ex.constant(0, I32))
        )
        _, _, p, q = self.nchw(at)
        count = self.count(0, p) * self.count(1, q)
        if self.rounding == "tosa":
            shift = 32 - ex.cast(ex.apply("clz", ex.cast(count - 1, I32)), I64)
            multiplier = ex.apply("div", ex.constant((1 << 30) + 1, I64) << shift, count)
            rounded = ROUNDINGS["single"].expression(sums, multiplier, shift + 30)
        else:
            half = ex.cast(count, I32) >> 1
            rounded = ex.apply("div", sums + ex.select(sums < 0, -half, half), ex.cast(count, I32))
        return ex.Element(at, clamped(rounded, self.zero_point, self.low, self.high, y.element))


@operator
class MaxPool2d(Pooling[T]):
    """Y[n, p, q, c] = clamp(max{X[n, h, w, c]}, min, max)

    over the elements of window p, q that are inside: h - (p * SH - PT) in [0, PSH), w - (q * SW -
    PL) in [0, PSW).
    """

    min: int | None = None
    max: int | None = None

    zero_point = 0
    constraints = (*POOLS, in_limits(6))

    def reference(self: "MaxPool2d[np.ndarray]") -> np.ndarray:
        return self.pooled(lambda seen: seen.max((2, 3)))

    def element(self: "MaxPool2d[ex.Tensor]", y: ex.Tensor) -> ex.Element:
        at, k, x, there = self.window(y)
        largest = ex.largest(k, ex.when(there, x, ex.constant(y.element.limits[0], y.element)))
        return ex.Element(at, ex.minimum(ex.maximum(largest, self.low), self.high))


@operator
class Pad(QuantOperator[T], Padding[T]):
    """Y[d...] = X[d... - before] where there is such an element, else value: mostly the zero
    point
    """

    x: T
    value: T  # ()
    before: tuple[int, ...]
    after: tuple[int, ...]

    symbols = {"n": lambda o: o.x.shape}
    constraints = (
        C(
            0,
            "element(x) is an integer of 8, 16 or 32 bits",
            lambda o: o.x.element.is_integer and o.x.element.bits <= 32,
        ),
        parameter(1, "value", ""),
        C(
            2,
            "before and after have rank(x) entries",
            lambda o: len(o.before) == len(o.after) == o.x.rank,
        ),
        C(
            3,
            "before, after >= 0",
            lambda o: all_of((lambda k=k: k >= 0) for k in (*o.before, *o.after)),
        ),
    )
    example = (
        "%x, -128 {before = [0, 1, 1, 0], after = [0, 0, 1, 0]}",
        "%x: 1x4x4x3xi8",
        "1x5x6x3xi8",
    )

    def fill(self: "Pad[Any]") -> Any:
        return self.value[()]


@operator
class Resize2d(QuantOperator[T]):
    """Y[n, p, q, c], an interpolation of X[n, h, w, c] near h = (p * YD + OY) / YN, w = (q * XD +
    OX) / XN   (TOSA RESIZE)

    With h0 = ⌊(p * YD + OY) / YN⌋, h1 = h0 + 1, both brought into [0, H), dh = p * YD + OY - h0 *
    YN, and w0, w1, dw likewise:

      nearest   X[n, h1 if 2 * dh >= YN else h0, w1 if 2 * dw >= XN else w0, c]
      bilinear  Σ X[n, h, w, c] * (YN - dh for h0, dh for h1) * (XN - dw for w0, dw for w1),
                of i64 if x has 16 bits, else i32

    There are ((H - 1) * YN - OY + BY) / YD + 1 rows, columns likewise.
    """

    x: T  # (N, H, W, C)
    scale: tuple[int, int, int, int]  # YN, YD, XN, XD
    offset: tuple[int, int] = (0, 0)  # OY, OX
    border: tuple[int, int] = (0, 0)  # BY, BX
    mode: str = "nearest"

    constraints = (
        C(
            0,
            "element(x) in {i8, ui8, i16, ui16}",
            lambda o: o.x.element.is_integer and o.x.element.bits <= 16,
        ),
        C(1, "rank(x) = 4", lambda o: o.x.rank == 4),
        C(2, "mode in {nearest, bilinear}", lambda o: o.mode in ("nearest", "bilinear"), at="mode"),
        C(3, "scale in [1, 2048]", lambda o: all(1 <= n <= 2048 for n in o.scale), at="scale"),
        C(
            4,
            "-YN <= OY < 16 * YN, OX likewise",
            lambda o: all(-n <= f < 16 * n for n, f in zip(o.scale[::2], o.offset, strict=True)),
        ),
        C(
            5,
            "-16 * YN <= BY < YN, BX likewise",
            lambda o: all(-16 * n <= b < n for n, b in zip(o.scale[::2], o.border, strict=True)),
        ),
        C(
            6,
            "(H - 1) * YN - OY + BY is a multiple of YD that is not negative, columns likewise",
            lambda o: o.fits(),
        ),
        C(
            7,
            "YD < 16 * YN, XD likewise",
            lambda o: all(d < 16 * n for n, d in zip(o.scale[::2], o.scale[1::2], strict=True)),
            at="scale",
        ),
        C(
            8,
            "the rows and columns of x and of the result are fewer than 16384",
            lambda o: all(n < 1 << 14 for n in (*o.x.shape[1:3], *o.size())),
        ),
    )
    example = '%x {scale = [2, 1, 1, 1], mode = "bilinear"}', "%x: 1x4x4x3xi8", "1x7x4x3xi32"

    def reach(self: "Resize2d[Any]", axis: int) -> Dim:
        return (
            (self.x.shape[1 + axis] - 1) * self.scale[2 * axis]
            - self.offset[axis]
            + self.border[axis]
        )

    def fits(self) -> bool:
        return all(
            self.reach(a) >= 0 and self.reach(a) % self.scale[2 * a + 1] == 0 for a in (0, 1)
        )

    def size(self) -> tuple[Any, Any]:
        return self.reach(0) // self.scale[1] + 1, self.reach(1) // self.scale[3] + 1

    def infer(self: "Resize2d[TensorType]") -> TensorType:
        n, _, _, c = self.x.shape
        wide = I64 if self.x.element.bits == 16 else I32
        return TensorType((n, *self.size(), c), wide if self.mode == "bilinear" else self.x.element)

    def reference(self: "Resize2d[np.ndarray]") -> np.ndarray:
        bilinear = self.mode == "bilinear"
        wide = np.int64 if self.x.dtype.itemsize == 2 else np.int32
        y = self.x.astype(np.int64) if bilinear else self.x
        for axis in (0, 1):
            unit, step = self.scale[2 * axis : 2 * axis + 2]
            at = np.arange(self.size()[axis]) * step + self.offset[axis]
            low = at // unit
            part = (at % unit).reshape(-1, *(1,) * (2 - axis))
            ends = [
                np.take(y, np.clip(i, 0, self.x.shape[1 + axis] - 1), axis=1 + axis)
                for i in (low, low + 1)
            ]
            y = (
                ends[0] * (unit - part) + ends[1] * part
                if bilinear
                else np.where(2 * part >= unit, ends[1], ends[0])
            )
        return y.astype(wide) if bilinear else y

    def element(self: "Resize2d[ex.Tensor]", y: ex.Tensor) -> ex.Element:
        n, p, q, c = at = ex.axes(y.shape)
        ends: list[tuple[ex.Expr, ex.Expr]] = []
        parts: list[tuple[ex.Expr, int]] = []
        for axis, i in enumerate((p, q)):
            unit, step = self.scale[2 * axis : 2 * axis + 2]
            place = i * step + self.offset[axis]
            low = place // unit
            last = ex.as_index(self.x.shape[1 + axis]) - 1
            ends.append((ex.maximum(low, 0), ex.minimum(low + 1, last)))
            parts.append((place % unit, unit))
        if self.mode == "nearest":
            sides = zip(ends, parts, strict=True)
            row, column = (
                ex.select(part * 2 >= unit, high, low) for (low, high), (part, unit) in sides
            )
            return ex.Element(at, self.x[n, row, column, c])
        (dh, yn), (dw, xn) = ((ex.cast(part, y.element), unit) for part, unit in parts)
        sums = ex.constant(0, y.element)
        for row, rows in zip(ends[0], (yn - dh, dh), strict=True):
            for column, columns in zip(ends[1], (xn - dw, dw), strict=True):
                sums = sums + ex.cast(self.x[n, row, column, c], y.element) * rows * columns
        return ex.Element(at, sums)
