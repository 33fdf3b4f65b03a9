"""gemmlowp's arithmetic of numbers in fixed point, as the reference kernels compute with it: on arrays of i64 for tables that are
computed while importing, and on values of the program.
"""

from __future__ import annotations

import math

import numpy as np

from cvm.dialect.ir.types import I32, I64
from cvm.dialect.program.builder import Node

from .rules import At

MAX = (1 << 31) - 1


# On arrays, of `bits` bits: 32, or 16


def high(a: np.ndarray, b: int | np.ndarray, bits: int = 32) -> np.ndarray:
    """The rounded high half of a doubled product, which does not overflow."""
    return (a * b + (1 << bits - 2)) >> (bits - 1)


def divide_by_power(x: np.ndarray, exponent: int) -> np.ndarray:
    """x / 2^exponent, halves away from zero."""
    mask = (1 << exponent) - 1
    return (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))


def limited(x: np.ndarray, bits: int) -> np.ndarray:
    return np.clip(x, -(1 << bits - 1), (1 << bits - 1) - 1)


def number(value: float, bits: int) -> int:
    """A constant with as many fractional bits less one, rounded from that of 32 bits."""
    return (round(value * 2**31) + (1 << 31 - bits)) >> (32 - bits) if bits < 32 else round(value * 2**31)


def exponential(a: np.ndarray, integer_bits: int, bits: int = 32) -> np.ndarray:
    """exp of numbers that are not positive: a polynomial on [-1/4, 0), times a factor for each higher bit."""
    fraction = bits - 1 - integer_bits
    quarter = 1 << (fraction - 2)
    rest = (a & (quarter - 1)) - quarter
    x = (rest << integer_bits) + (1 << bits - 4)
    square = high(x, x, bits)
    fourth = divide_by_power(high(square, square, bits), 2)
    series = high(fourth + high(square, x, bits), number(1 / 3, bits), bits) + square
    term = number(math.exp(-1 / 8), bits)
    found = limited(term + high(x + divide_by_power(series, 1), term, bits), bits)
    for exponent in range(-2, min(integer_bits, 5)):
        factor = number(math.exp(-(2.0**exponent)), bits)
        found = np.where((rest - a) >> (fraction + exponent) & 1, high(found, factor, bits), found)
    found = np.where(a < -(32 << fraction), 0, found)
    return np.where(a == 0, (1 << bits - 1) - 1, found)


def twice_reciprocal_16(x: np.ndarray) -> np.ndarray:
    """2 / (1 + x) of x in [0, 1), with 13 fractional bits in the place of 15, by Newton's method."""
    half = (x + (1 << 15)) >> 1
    found = number(12 / 17, 16) + high(half, number(-8 / 17, 16), 16)
    for _ in range(3):
        found = found + limited(high(found, (1 << 13) - high(half, found, 16), 16) << 2, 16)
    return found


def logistic_16(x: np.ndarray) -> np.ndarray:
    """The logistic function of numbers with 12 fractional bits, with 15."""
    found = limited(twice_reciprocal_16(exponential(-np.abs(x), 3, 16)) << 1, 16)
    return np.where(x > 0, found, np.where(x < 0, (1 << 15) - 1 - found, 1 << 14))


def tanh_16(x: np.ndarray, integer_bits: int) -> np.ndarray:
    """The hyperbolic tangent of numbers with so many integer bits, with 15 fractional bits."""
    found = limited((twice_reciprocal_16(exponential(-np.abs(x), integer_bits + 1, 16)) - (1 << 13)) << 2, 16)
    return np.sign(x) * found


# On values of i64 of the program


def high_part(a: Node, b: Node | int) -> Node:
    return (a * b + (1 << 30)).scalar("floor_div", 1 << 31)


def saturated(x: Node) -> Node:
    return x.scalar("minimum", MAX).scalar("maximum", -MAX - 1)


def divided(x: Node, exponent: int) -> Node:
    """x / 2^exponent of numbers in the limits of i32, halves away from zero."""
    return (x + (1 << exponent - 1) + x.scalar("floor_div", 1 << 31)).scalar("floor_div", 1 << exponent)


def shifted(x: Node, by: Node) -> Node:
    return x.apply("numpy.elementwise", by, ufunc="left_shift")


def leading_zeros(x: Node) -> Node:
    return x.cast(I32).apply("quant.leading_zeros").cast(I64)


def inverse_square_root(x: Node) -> tuple[Node, Node]:
    """m and s with 1 / sqrt(x) = m / 2^s of x >= 1, by Newton's method; those of 1 for what is less."""
    pairs = (leading_zeros(x) - 1).scalar("floor_div", 2)
    half = divided(shifted(x, pairs * 2).scalar("floor_div", 8), 1)
    root = x * 0 + (1 << 28)
    for _ in range(5):
        cube = saturated(high_part(high_part(root, root), root) * 64)
        root = saturated((high_part(root, (1 << 28) + (1 << 27)) - high_part(half, cube)) * 8)
    shift = 12 - pairs
    found = shifted(high_part(root, 1518500250), (-shift).scalar("maximum", 0))
    less = x.scalar("le", 1)
    return less.scalar("switch", MAX, found).cast(I32), less.scalar("switch", 31, shift.scalar("maximum", 0) + 31).cast(
        I32
    )


def logarithm(at: At, x: Node, integer_bits: int) -> Node:
    """The logarithm, with 26 fractional bits, of numbers with so many integer bits."""
    middle, half = round(0.5**0.25 * 2**31), round(0.5**0.5 * 2**31)
    less = high_part(x, half)
    by, by_less = leading_zeros(x) - 1, leading_zeros(less) - 1
    first, second = high_part(shifted(x, by), half) * 2, shifted(x, by_less)
    r = saturated(first.scalar("minimum", second))
    power = ((integer_bits - 1 - by) * (1 << 25) + (1 << 23)).scalar(
        "maximum", (integer_bits - by_less) * (1 << 25) - (1 << 23)
    )
    p, q = (r + (middle + 1)).scalar("floor_div", 2), (r - middle) * 2
    square = high_part(q, q)
    above = high_part(q, r) + high_part(high_part(q, square), 117049297)
    below = high_part(p, q + 1057819769 + high_part(square, 127690142)) + high_part(q, 638450708)
    inverse = at.apply("quant.reciprocal", (below - (1 << 31)).cast(I32)).cast(I64)
    return saturated((high_part(power, round(math.log(2) * 2**31)) + high_part(divided(above, 6), inverse)) * 2)
