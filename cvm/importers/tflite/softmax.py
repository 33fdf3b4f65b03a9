"""Softmax of quantised numbers, in integers, as the reference kernels compute it: of 8 bits in gemmlowp's fixed point with an exponential
that is a table, of 16 bits by tables with interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cvm.dialect.ir.types import I16, I32, I64
from cvm.dialect.program.builder import Node

from .quantization import at_i32, clipped, quantized_multiplier, round_away, scaled
from .rules import ROUNDED, At, Known, rule
from .unary import divide_by_power, high_multiply

INTEGER_BITS = 5  # of the exponential's operand
SUM_BITS = 12  # integer bits of the sum
ONE = (1 << 31) - 1


@rule("SOFTMAX", floats=ROUNDED)
def softmax(at: At, x: Node) -> Known:
    """Along the last axis."""
    beta = at["beta"]
    if not at.x.is_quantised:
        return at.onnx("Softmax", x * float(np.float32(beta)) if beta != 1 else x, axis=-1)
    n = x.shape[-1]
    rows = x if x.rank == 2 else at.apply("cvm.reshape", x, target_shape=(-1, n))
    below = rows.reduce("max", (1,)).with_ones((1,)).cast(I32) - rows.cast(I32)
    found = (of_16_bits if x.element is I16 else of_8_bits)(at, below, beta)
    return found if x.rank == 2 else at.apply("cvm.reshape", found, target_shape=(*x.shape[:-1], n))


def of_8_bits(at: At, below: Node, beta: float) -> Node:
    table = exponentials(float(at.x.scale) * beta)
    powers, terms = (
        at.apply("builtin.gather", at.node(t.astype(np.int32)), below, axes=(0,), mode="clip")
        for t in (table, divide_by_power(table, SUM_BITS))
    )
    sums = terms.sum((1,), dtype=I32, acc_dtype=I32)
    to = at.y.element
    # a power of no integer bits times the reciprocal, less its exponent: 12 - z + 31 - bits
    shift = at_i32(sums, 31 + SUM_BITS + 31 - to.bits) - at.apply("quant.leading_zeros", sums)
    low, high = to.limits
    how = {"to": to, "rounding": "tflite_double", "zero_point": low, "min": low, "max": high, "axis": 0}
    return at.apply("quant.requantize", powers, at.apply("quant.reciprocal", sums), shift, **how)


def exponentials(factor: float) -> np.ndarray:
    """exp(-k * factor) of k = 0 ... 255 with 31 fractional bits; 0 where it does not count."""
    m, s = quantized_multiplier(min(factor * (1 << (31 - INTEGER_BITS)), float(ONE)))
    left = 31 - s
    radius = math.floor(((1 << INTEGER_BITS) - 1) * (1 << (31 - INTEGER_BITS)) / 2.0**left)
    k = np.arange(256)
    found = np.array([exponential(int(scaled(-n, (m, s), "tflite_double"))) if n <= radius else 0 for n in k])
    return found.astype(np.int64)


def exponential(a: int) -> int:
    """gemmlowp's exp of a number that is not positive: a polynomial on [-1/4, 0), times a factor for each higher bit."""
    if a == 0:
        return ONE
    fraction = 31 - INTEGER_BITS
    quarter = 1 << (fraction - 2)
    rest = (a & (quarter - 1)) - quarter
    x = (rest << INTEGER_BITS) + (1 << 28)
    square = high_multiply(x, x)
    fourth = int(divide_by_power(np.array(high_multiply(square, square)), 2))
    series = high_multiply(fourth + high_multiply(square, x), round(2**31 / 3)) + square
    term = round(math.exp(-1 / 8) * 2**31)
    found = term + high_multiply(term, x + int(divide_by_power(np.array(series), 1)))
    for exponent in range(-2, INTEGER_BITS):
        if (rest - a) >> (fraction + exponent) & 1:
            found = high_multiply(found, round(math.exp(-(2.0**exponent)) * 2**31))
    return found


# 16 bits


def table_16(function: Callable[[Any], Any], low: float, high: float) -> np.ndarray:
    """The function on [low, high] at every number of 16 bits, interpolated between 513 entries of i16."""
    step = (high - low) / 512
    at = low + step * np.arange(512)
    here, middle, last = (round_away(function(p) * 32768.0) for p in (at, at + step / 2, np.array([high])))
    between = round_away((function(at + step) * 32768.0 + here) / 2)
    entries = np.append(here - round_away((between - middle) / 2), last)
    entries = np.clip(entries, -32768, 32767).astype(np.int64)
    place = np.arange(1 << 16)
    k, offset = place >> 7, place & 127
    return (entries[k] + (((entries[k + 1] - entries[k]) * offset + 64) >> 7)).astype(np.int16)


def of_16_bits(at: At, below: Node, beta: float) -> Node:
    m, s = quantized_multiplier(float(at.x.scale) * beta / (10.0 / 65535.0))
    low, high = I16.limits
    how = {"to": I16, "rounding": at.rounding, "zero_point": high, "min": low, "max": high}
    zero = at_i32(below, 0)
    place = at.apply("quant.requantize", zero - below, *(at.node(np.array(v, np.int32)) for v in (m, s)), **how)
    powers = at.apply("quant.table", place, at.node(table_16(np.exp, -10.0, 0.0))).cast(I32)
    sums = powers.sum((1,), dtype=I32, acc_dtype=I32)
    zeros = at.apply("quant.leading_zeros", sums)
    doubled = at.node(2 ** np.maximum(np.arange(33) - 1, 0).astype(np.int64))
    normal = sums.cast(I64) * at.apply("builtin.gather", doubled, zeros, axes=(0,), mode="clip")
    half, unit, offset = (at.node(np.array(v, np.int64)) for v in (1 << 13, 1 << 14, (1 << 15) + (1 << 16)))
    fraction = clipped((normal + half).scalar("floor_div", unit) - offset, low, high, I16)
    reciprocal = at.apply("quant.table", fraction, at.node(table_16(lambda v: 1.0 / (1.0 + v), 0.0, 1.0))).cast(I32)
    how = {"to": I16, "rounding": "single", "min": 0, "max": high, "axis": 0}
    return at.apply("quant.requantize", powers, reciprocal, at_i32(zeros, 31) - zeros, **how)
