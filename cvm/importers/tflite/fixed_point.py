"""gemmlowp's arithmetic of numbers in fixed point, as the reference kernels compute with it: on
arrays of i64 for tables that are computed while importing, and on values of i64 of the program.
"""

import math
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import I16, I32, I64

from .rules import At

MAX = (1 << 31) - 1


def high(a: Any, b: Any, bits: int = 32) -> Any:
    """The rounded high half of a doubled product, which does not overflow."""
    return (a * b + (1 << bits - 2)) // (1 << bits - 1)


def divide_by_power(x: Any, exponent: int) -> Any:
    """x / 2^exponent of numbers in the limits of i32, halves away from zero."""
    return (x + (1 << exponent) // 2 + x // (1 << 31)) // (1 << exponent) if exponent else x


# Tables, for numbers of `bits` bits: 32, or 16


def number(value: float, bits: int) -> int:
    """A constant with as many fractional bits less one, rounded from that of 32 bits."""
    return math.floor(round(value * 2**31) / (1 << 32 - bits) + 0.5)


def exponential(a: np.ndarray, integer_bits: int, bits: int = 32) -> np.ndarray:
    """exp of numbers that are not positive: a polynomial on [-1/4, 0), times a factor for each
    higher bit.
    """
    fraction = bits - 1 - integer_bits
    quarter = 1 << (fraction - 2)
    remainder = (a & (quarter - 1)) - quarter
    x = (remainder << integer_bits) + (1 << bits - 4)
    square = high(x, x, bits)
    fourth = divide_by_power(high(square, square, bits), 2)
    series = high(fourth + high(square, x, bits), number(1 / 3, bits), bits) + square
    term = number(math.exp(-1 / 8), bits)
    power = np.minimum(term + high(x + divide_by_power(series, 1), term, bits), (1 << bits - 1) - 1)
    for exponent in range(-2, min(integer_bits, 5)):
        factor = number(math.exp(-(2.0**exponent)), bits)
        power = np.where(
            (remainder - a) >> (fraction + exponent) & 1, high(power, factor, bits), power
        )
    return np.where(a == 0, (1 << bits - 1) - 1, np.where(a < -(32 << fraction), 0, power))


def twice_reciprocal_16(x: np.ndarray) -> np.ndarray:
    """2 / (1 + x) of x in [0, 1), with 13 fractional bits in the place of 15, by Newton's
    method.
    """
    half = (x + (1 << 15)) >> 1
    y = number(12 / 17, 16) + high(half, number(-8 / 17, 16), 16)
    for _ in range(3):
        y = y + np.clip(high(y, (1 << 13) - high(half, y, 16), 16) << 2, *I16.limits)
    return y


def logistic_16(x: np.ndarray) -> np.ndarray:
    """The logistic function of numbers with 12 fractional bits, with 15."""
    y = np.clip(twice_reciprocal_16(exponential(-np.abs(x), 3, 16)) << 1, *I16.limits)
    return np.where(x > 0, y, np.where(x < 0, (1 << 15) - 1 - y, 1 << 14))


def tanh_16(x: np.ndarray, integer_bits: int) -> np.ndarray:
    """The hyperbolic tangent with 15 fractional bits, of numbers with `integer_bits`."""
    y = twice_reciprocal_16(exponential(-np.abs(x), integer_bits + 1, 16)) - (1 << 13)
    return np.sign(x) * np.clip(y << 2, *I16.limits)


# Values of the program


def saturated(x: Node) -> Node:
    return x.scalar("minimum", MAX).scalar("maximum", -MAX - 1)


def shifted(x: Node, by: Node) -> Node:
    return x.apply("numpy.elementwise", by, ufunc="left_shift")


def leading_zeros(x: Node) -> Node:
    return x.cast(I32).apply("quant.leading_zeros").cast(I64)


def inverse_square_root(x: Node) -> tuple[Node, Node]:
    """m and s with 1 / sqrt(x) = m / 2^s of x >= 1, by Newton's method; those of 1 for what is
    less.
    """
    pairs = (leading_zeros(x) - 1) // 2
    half = divide_by_power(shifted(x, pairs * 2) // 8, 1)
    root = x * 0 + (1 << 28)
    for _ in range(5):
        cube = saturated(high(high(root, root), root) * 64)
        root = saturated((high(root, (1 << 28) + (1 << 27)) - high(half, cube)) * 8)
    m, less = shifted(high(root, 1518500250), (pairs - 12).scalar("maximum", 0)), x.scalar("le", 1)
    shift = (12 - pairs).scalar("maximum", 0) + 31
    return less.scalar("switch", MAX, m).cast(I32), less.scalar("switch", 31, shift).cast(I32)


def logarithm(at: At, x: Node, integer_bits: int) -> Node:
    """The logarithm, with 26 fractional bits, of numbers with `integer_bits`."""
    middle, half = number(0.5**0.25, 32), number(0.5**0.5, 32)
    less = high(x, half)
    by, by_less = leading_zeros(x) - 1, leading_zeros(less) - 1
    r = saturated((high(shifted(x, by), half) * 2).scalar("minimum", shifted(x, by_less)))
    power = ((integer_bits - by) * 4 - 3).scalar("maximum", (integer_bits - by_less) * 4 - 1) * (
        1 << 23
    )
    q = (r - middle) * 2
    square = high(q, q)
    above = high(q, r) + high(high(q, square), 117049297)
    below = high((r + (middle + 1)) // 2, q + 1057819769 + high(square, 127690142)) + high(
        q, 638450708
    )
    inverse = at.apply("quant.reciprocal", (below - (1 << 31)).cast(I32)).cast(I64)
    return saturated(
        (high(power, number(math.log(2), 32)) + high(divide_by_power(above, 6), inverse)) * 2
    )
