"""Reciprocals in fixed point, as integer softmax takes them."""

import numpy as np

from ..kernel_ir.expressions import (
    Element,
    Expr,
    Tensor,
    apply,
    axes,
    cast,
    constant,
    maximum,
    minimum,
)
from ..spec.operator import C, T, operator
from ..types.tensor_types import I32, I64
from .quant_operator import QuantOperator

ITERATIONS = 3
START, SLOPE = 1515870810, -1010580540  # 48 / 17 and -32 / 17 with two integer bits
I32_LOW, I32_HIGH = I32.limits


class FixedPoint(QuantOperator[T]):
    """Common parts of functions of i32."""

    constraints = (C(0, "element(x) = i32", lambda o: o.x.element is I32),)


@operator
class LeadingZeros(FixedPoint[T]):
    """Y[d...] = the number of zero bits before the highest bit of X[d...] that is set, 32 for 0.
    (TOSA CLZ)
    """

    x: T

    example = "%x", "%x: 3xi32", "3xi32"

    def reference(self: "LeadingZeros[np.ndarray]") -> np.ndarray:
        bits = [32 - (int(n) & 0xFFFFFFFF).bit_length() for n in self.x.flat]
        return np.array(bits, np.int32).reshape(self.x.shape)

    def element(self: "LeadingZeros[Tensor]", y: Tensor) -> Element:
        at = axes(y.shape)
        return Element(at, apply("clz", self.x[at]))


@operator
class Reciprocal(FixedPoint[T]):
    """Y[d...] = 2^31 / a, for a = X[d...] * 2^z / 2^31 in [1, 2), z being the leading zeros of X: 1
    / X = Y / 2^(62 - z).

    It is computed by three steps of Newton's method, x <- x + x * (1 - h * x), from x = 48 / 17 -
    32 / 17 * h with h = a / 2, in numbers of i32 with two integer bits; h with none. A product is
    rounded to the nearest, halves up; what exceeds i32 is saturated. The result for x <= 0 is that
    of the same steps.   (gemmlowp's one_over_one_plus_x_for_x_in_0_1)
    """

    x: T

    example = "%x", "%x: 3xi32", "3xi32"

    def reference(self: "Reciprocal[np.ndarray]") -> np.ndarray:
        return np.array([reciprocal(int(n)) for n in self.x.flat], np.int32).reshape(self.x.shape)

    def element(self: "Reciprocal[Tensor]", y: Tensor) -> Element:
        at = axes(y.shape)
        x = self.x[at]
        half = (cast((x << (apply("clz", x) & 31)) ^ I32_LOW, I64) + I32_HIGH + 1) >> 1
        estimate = high(half, constant(SLOPE, I64)) + START
        for _ in range(ITERATIONS):
            estimate = estimate + saturated(
                high(estimate, saturated((1 << 29) - high(half, estimate))) << 2
            )
        return Element(at, cast(saturated(estimate << 1), I32))


def high(a: Expr, b: Expr) -> Expr:
    return (a * b + (1 << 30)) >> 31


def saturated(x: Expr) -> Expr:
    return minimum(maximum(x, I32_LOW), I32_HIGH)


def reciprocal(n: int) -> int:
    """The result for one number, in Python's integers."""

    def limit(v: int) -> int:
        return max(I32_LOW, min(I32_HIGH, v))

    def times(a: int, b: int) -> int:
        return (a * b + 2**30) // 2**31

    bits = n % 2**32
    normal = bits * 2 ** ((32 - bits.bit_length()) % 32) % 2**32
    fraction = (normal ^ 2**31) - (2**32 if (normal ^ 2**31) >= 2**31 else 0)
    half = (fraction + 2**31) // 2
    estimate = times(half, SLOPE) + START
    for _ in range(ITERATIONS):
        estimate += limit(times(estimate, limit(2**29 - times(half, estimate))) * 4)
    return limit(estimate * 2)
