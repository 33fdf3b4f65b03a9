"""The formalization's elementwise operators."""

from dataclasses import dataclass

import numpy as np

from ..kernel_ir.expressions import Expr, apply, cast, maximum, minimum
from ..spec.broadcasting import same_shape, unequal
from ..spec.operator import C, T, declare, operator
from ..types.tensor_types import I32, I64
from .cvm_operator import Binary, Elementwise, i32, modulo_2_32, numbers, within

NUMBERS = (numbers("x"),)
declare(
    "Abs",
    Elementwise,
    """Y[d...] = x if x >= 0, -x if x < 0, where x = X[d...]   (Elemwise Operators, abs)

    Modulo 2^32: -2^31 stays.
    """,
    example=("%x", "%x: 2x3xi32", "2x3xi32"),
    scalar="abs",
    derivative="abs_",
    constraints=NUMBERS,
)
declare(
    "Negative",
    Elementwise,
    "Y = -X, modulo 2^32: -2^31 stays.   (Elemwise Operators, negative)",
    example=("%x", "%x: 2x3xi32", "2x3xi32"),
    scalar="neg",
    derivative="neg",
    constraints=NUMBERS,
)


@operator
class CvmPrecision(Elementwise[T]):
    """Y[d...] = ⌈log2(abs(x) + 1)⌉ if x != 0, 1 if x = 0, where x = X[d...]   (Elemwise Operators,
    cvm_precision)

    How many bits abs(x) takes: 1 takes 1 bit, 2 and 3 take 2, -2^31 takes 32.
    """

    example = "%x", "%x: 2x3xi32", "2x3xi32"

    def reference(self: "CvmPrecision[np.ndarray]") -> np.ndarray:
        return np.array([max(abs(int(x)).bit_length(), 1) for x in self.x.flat], np.int32).reshape(
            self.x.shape
        )

    def formula(self, x: Expr) -> Expr:
        return maximum(32 - apply("clz", apply("abs", x)), 1)


@operator
class Clip(Elementwise[T]):
    """Y[d...] = a_max if x >= a_max, x if a_min < x < a_max, a_min if x <= a_min   (Elemwise
    Operators, clip)
    """

    a_min: int
    a_max: int

    constraints = (
        i32("x"),
        within(1, "a_min", -(2**31) + 1, 2**31, at="a_min"),
        within(2, "a_max", -(2**31) + 1, 2**31, at="a_max"),
        C(3, "a_min < a_max", lambda o: o.a_min < o.a_max, at="a_min"),
    )
    example = "%x {a_min = 0, a_max = 255}", "%x: 2x3xi32", "2x3xi32"

    def reference(self: "Clip[np.ndarray]") -> np.ndarray:
        return modulo_2_32(np.clip(self.x.astype(np.int64), self.a_min, self.a_max))

    def formula(self, x: Expr) -> Expr:
        return clipped(x, self.a_min, self.a_max)


def clipped(x: Expr, a_min: int, a_max: int) -> Expr:
    return minimum(maximum(x, a_min), a_max)


def alpha(precision: int) -> int:
    """The largest magnitude of this many bits, one of them the sign: α = 2^(precision-1) - 1."""
    return 2 ** (precision - 1) - 1


PRECISION = within(1, "precision", 1, 33, at="precision")
SHIFT_BIT = within(2, "shift_bit", 1, 33, at="shift_bit")


@dataclass(frozen=True, eq=False)
class ToPrecision(Elementwise[T]):
    """The family of Y = clip(T, a_min=-α, a_max=α), where T, of an i64 array, is `exact` and α =
    2^(precision-1) - 1.
    """

    precision: int

    def reference(self: "ToPrecision[np.ndarray]") -> np.ndarray:
        return modulo_2_32(
            np.clip(
                self.exact(self.x.astype(np.int64)), -alpha(self.precision), alpha(self.precision)
            )
        )

    def clipped(self, t: Expr) -> Expr:
        return clipped(t, -alpha(self.precision), alpha(self.precision))


@operator
class CvmClip(ToPrecision[T]):
    """Y = clip(X, a_min=-α, a_max=α), where α = 2^(precision-1) - 1   (Elemwise Operators,
    cvm_clip)
    """

    constraints = (i32("x"), PRECISION)
    example = "%x {precision = 8}", "%x: 2x3xi32", "2x3xi32"

    def exact(self: "CvmClip[np.ndarray]", x: np.ndarray) -> np.ndarray:
        return x

    def formula(self, x: Expr) -> Expr:
        return self.clipped(x)


@operator
class CvmRightShift(ToPrecision[T]):
    """Y = clip(T, a_min=-α, a_max=α), where T = ⌊(⌊X / 2^(shift_bit-1)⌋ + 1) / 2⌋ and α =
    2^(precision-1) - 1

    X / 2^shift_bit, rounded to the nearest integer, halves up, exactly.   (Elemwise Operators,
    cvm_right_shift)
    """

    shift_bit: int

    constraints = (i32("x"), PRECISION, SHIFT_BIT)
    example = "%x {precision = 8, shift_bit = 4}", "%x: 2x3xi32", "2x3xi32"

    def exact(self: "CvmRightShift[np.ndarray]", x: np.ndarray) -> np.ndarray:
        return (x // 2 ** (self.shift_bit - 1) + 1) // 2

    def formula(self, x: Expr) -> Expr:
        # ⌊(h + 1) / 2⌋ = ⌊h / 2⌋ + (h mod 2), which stays within i32; shifts beyond 31 leave the
        # sign, as 31 does
        return self.clipped((x >> min(self.shift_bit, 31)) + ((x >> (self.shift_bit - 1)) & 1))


@operator
class CvmLeftShift(ToPrecision[T]):
    """Y = clip(T, a_min=-α, a_max=α), where T = X * 2^shift_bit and α = 2^(precision-1) - 1

    The product is exact.   (Elemwise Operators, cvm_left_shift)
    """

    shift_bit: int

    constraints = (i32("x"), PRECISION, SHIFT_BIT)
    example = "%x {precision = 16, shift_bit = 4}", "%x: 2x3xi32", "2x3xi32"

    def exact(self: "CvmLeftShift[np.ndarray]", x: np.ndarray) -> np.ndarray:
        return x * 2**self.shift_bit

    def formula(self, x: Expr) -> Expr:
        return cast(self.clipped(cast(x, I64) << self.shift_bit), I32)


class ElementwisePair(Binary[T]):
    """The family of Y = A OP B over tensors of one shape: i32 modulo 2^32."""

    constraints = (
        numbers("a", "b"),
        C(
            1,
            "shape(a) = shape(b)",
            lambda o: same_shape(o.a.shape, o.b.shape),
            plainly=lambda o: unequal(o.a.shape, o.b.shape),
        ),
    )


for _name, _symbol in (("add", "+"), ("sub", "-")):
    declare(
        f"Elemwise{_name.capitalize()}",
        ElementwisePair,
        f"Y = A {_symbol} B, modulo 2^32.   (Elemwise Operators, elemwise_{_name})",
        example=("%a, %b", "%a: 2x3xi32, %b: 2x3xi32", "2x3xi32"),
        scalar=_name,
        derivative=_name,
    )
