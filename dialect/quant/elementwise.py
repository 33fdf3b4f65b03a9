"""Sums and products of quantized numbers with multipliers of their own, and look-up tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernel_ir.expressions import Element, Expr, Tensor, axes, cast, constant
from ..spec.broadcasting import (
    aligned as aligned_sizes,
    all_of,
    broadcast,
    cannot_broadcast,
    fits,
    source,
)
from ..spec.operator import C, T, operator
from ..types.tensor_types import I8, I16, I32, I64, ElementType, TensorType
from .quant_operator import QuantOperator, clamped, in_limits, quantised

INTEGER_ROUNDINGS = ("single", "tosa_double", "tflite_double")


def is_i32(*numbers: int) -> bool:
    return all(I32.limits[0] <= n <= I32.limits[1] for n in numbers)


def are_scales(multipliers: Sequence[int], shifts: Sequence[int]) -> bool:
    return is_i32(*multipliers) and all(0 <= s < 64 for s in shifts)


@dataclass(frozen=True, eq=False)
class Binary(QuantOperator[T]):
    """Common parts of operators of two quantized operands that are broadcast, and rescaled."""

    if TYPE_CHECKING:  # fields of each of the operators
        to: ElementType

    x: T
    z: T
    zero_points: tuple[int, ...]

    zero_point = property(lambda o: o.zero_points[2])

    def infer(self: "Binary[TensorType]") -> TensorType:
        return TensorType(broadcast(self.x.shape, self.z.shape), self.to)

    def scaled(self, x: Expr, multiplier: int, shift: int) -> Expr:
        return cast(self.rule.expression(x, constant(multiplier, I32), constant(shift, I32)), I32)

    def scaled_array(self, x: np.ndarray, multiplier: int, shift: int) -> np.ndarray:
        return np.asarray(self.rule.reference(x, np.int64(multiplier), np.int64(shift))).astype(
            np.int32
        )

    def differences(self: "Binary[Any]", y: Tensor) -> tuple[Any, list[Expr]]:
        at = axes(y.shape)
        pairs = zip((self.x, self.z), self.zero_points, strict=False)
        return at, [cast(t[source(at, t)], I32) - zero for t, zero in pairs]

    def difference_arrays(self: "Binary[Any]") -> list[np.ndarray]:
        pairs = zip((self.x, self.z), self.zero_points, strict=False)
        return [t.astype(np.int32) - np.int32(zero) for t, zero in pairs]

    def result(self, rounded: np.ndarray) -> np.ndarray:
        shifted = rounded + np.int32(self.zero_points[2])
        return np.asarray(np.clip(shifted, self.low, self.high).astype(self.to.dtype))


CONSTRAINTS = (
    quantised(0, "x", "z"),
    C(
        1,
        "shape(x) and shape(z) broadcast",
        lambda o: all_of(
            (lambda m=m, n=n: fits(m, n)) for m, n in aligned_sizes(o.x.shape, o.z.shape)
        ),
        plainly=lambda o: cannot_broadcast(o.x.shape, o.z.shape),
    ),
    C(
        2,
        f"rounding in {{{', '.join(INTEGER_ROUNDINGS)}}}",
        lambda o: o.rounding in INTEGER_ROUNDINGS,
        at="rounding",
    ),
    C(
        3,
        "zero_points are those of x, z and y, in the limits of i32",
        lambda o: len(o.zero_points) == 3 and is_i32(*o.zero_points),
        at="zero_points",
    ),
    in_limits(4),
)


@operator
class Add(Binary[T]):
    """Y[d...] = clamp(round(a + b, m3, s3) + zero_points[2], min, max) of i32 modulo 2^32, with

    a = round((X[d...] - zero_points[0]) * 2^left_shift, m1, s1)
    b = round((Z[d...] - zero_points[1]) * 2^left_shift, m2, s2)

    (m1, m2, m3) = multipliers, (s1, s2, s3) = shifts, and round as quant.requantize defines it;
    operands are repeated along axes of
    size 1. With a negative m2 it is a difference.   (LiteRT's reference kernels of ADD and SUB)
    """

    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]
    left_shift: int = 20
    rounding: str = "tflite_double"
    to: ElementType = I8
    min: int | None = None
    max: int | None = None

    constraints = (
        *CONSTRAINTS,
        C(
            5,
            "three multipliers in the limits of i32 and three shifts in [0, 64)",
            lambda o: (
                len(o.multipliers) == len(o.shifts) == 3 and are_scales(o.multipliers, o.shifts)
            ),
        ),
        C(6, "left_shift in [0, 32)", lambda o: 0 <= o.left_shift < 32, at="left_shift"),
    )
    example = (
        "%x, %z {zero_points = [1, -2, 3], multipliers = [1073741824, 1518500250, "
        "1717986918], shifts = [31, 31, 49]}",
        "%x: 2x3xi8, %z: 3xi8",
        "2x3xi8",
    )

    def reference(self: "Add[np.ndarray]") -> np.ndarray:
        terms = zip(self.difference_arrays(), self.multipliers, self.shifts, strict=False)
        a, b = (self.scaled_array(d << np.int32(self.left_shift), m, s) for d, m, s in terms)
        return self.result(self.scaled_array(a + b, self.multipliers[2], self.shifts[2]))

    def element(self: "Add[Tensor]", y: Tensor) -> Element:
        at, differences = self.differences(y)
        terms = zip(differences, self.multipliers, self.shifts, strict=False)
        a, b = (self.scaled(d << self.left_shift, m, s) for d, m, s in terms)
        rounded = self.scaled(a + b, self.multipliers[2], self.shifts[2])
        return Element(at, clamped(rounded, self.zero_points[2], self.low, self.high, self.to))


@operator
class Mul(Binary[T]):
    """Y[d...] = clamp(round((X[d...] - zero_points[0]) * (Z[d...] - zero_points[1]), multiplier,
    shift) + zero_points[2], min, max)

    of i32 modulo 2^32, with round as quant.requantize defines it; operands are repeated along axes
    of size 1.   (LiteRT's reference kernel of MUL)
    """

    multiplier: int
    shift: int
    rounding: str = "tflite_double"
    to: ElementType = I8
    min: int | None = None
    max: int | None = None

    constraints = (
        *CONSTRAINTS,
        C(
            5,
            "multiplier is in the limits of i32, shift in [0, 64)",
            lambda o: are_scales([o.multiplier], [o.shift]),
        ),
    )
    example = (
        "%x, %z {zero_points = [1, -2, 3], multiplier = 1518500250, shift = 37}",
        "%x: 2x3xi8, %z: 3xi8",
        "2x3xi8",
    )

    def reference(self: "Mul[np.ndarray]") -> np.ndarray:
        a, b = self.difference_arrays()
        return self.result(self.scaled_array(a * b, self.multiplier, self.shift))

    def element(self: "Mul[Tensor]", y: Tensor) -> Element:
        at, (a, b) = self.differences(y)
        rounded = self.scaled(a * b, self.multiplier, self.shift)
        return Element(at, clamped(rounded, self.zero_points[2], self.low, self.high, self.to))


INTERPOLATED = 513


@operator
class Table(QuantOperator[T]):
    """Y[d...] = TABLE[X[d...] - n], n being the least number of X's type: one entry for each
    number.

    With `interpolate`, of i16, there is an entry for every 128 numbers and one more, and y is

      TABLE[k] * 128 + (TABLE[k + 1] - TABLE[k]) * (v mod 128),  v = X[d...] + 2^15,  k = v ÷ 128

    in i32: 128 times the function's value.   (TOSA TABLE; LiteRT's look-up tables)
    """

    x: T
    table: T  # (2^bits,), with interpolate (513,)
    interpolate: bool = False

    symbols = {"entries": lambda o: INTERPOLATED if o.interpolate else 1 << o.x.element.bits}
    constraints = (
        quantised(0, "x"),
        C(1, "rank(table) = 1", lambda o: o.table.rank == 1),
        C(2, "dim(table, 0) = entries", lambda o: o.table.shape[0] == o.symbols["entries"](o)),
        C(
            3,
            "element(x) = element(table) = i16 with interpolate",
            lambda o: not o.interpolate or o.x.element is o.table.element is I16,
        ),
    )
    example = "%x, %table", "%x: 2x3xi8, %table: 256xi8", "2x3xi8"

    def infer(self: "Table[TensorType]") -> TensorType:
        return self.x.with_element(I32 if self.interpolate else self.table.element)

    def reference(self: "Table[np.ndarray]") -> np.ndarray:
        place = self.x.astype(np.int64) - np.iinfo(self.x.dtype).min
        if not self.interpolate:
            return np.asarray(self.table[place])
        k = place >> 7
        table = self.table.astype(np.int64)
        return np.asarray(table[k] * 128 + (table[k + 1] - table[k]) * (place & 127)).astype(
            np.int32
        )

    def element(self: "Table[Tensor]", y: Tensor) -> Element:
        at = axes(y.shape)
        place = cast(self.x[at], I64) - self.x.element.limits[0]
        if not self.interpolate:
            return Element(at, self.table[place])
        k = place >> 7
        low, high = (cast(self.table[n], I32) for n in (k, k + 1))
        return Element(at, low * 128 + (high - low) * cast(place & 127, I32))
