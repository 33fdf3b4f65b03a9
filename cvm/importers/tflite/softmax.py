"""Softmax of quantized numbers, in integers, as the reference kernels compute it: of 8 bits in
gemmlowp's fixed point with an exponential that is a table, of 16 bits by tables with
interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import I16, I32, I64
from cvm.importers.graph.reductions import log_softmax_along, softmax_along
from cvm.importers.graph.rules import real_axes

from .fixed_point import divide_by_power, exponential, logarithm
from .quantization import at_i32, clipped, quantized_multiplier, requantized, round_away, scaled
from .rules import ROUNDED, At, Known, Unsupported, rule

INTEGER_BITS = 5  # of the exponential's operand
FRACTION = 31 - INTEGER_BITS
SUM_BITS = 12  # integer bits of the sum
OUTPUT_BITS = 4  # fractional bits of a logarithm


@rule("SOFTMAX", floats=ROUNDED)
def softmax(at: At, x: Node) -> Known:
    """Along the last axis."""
    beta = at["beta"]
    if not at.x.is_quantised:
        return softmax_along(
            x * float(np.float32(beta)) if beta != 1 else x, real_axes((-1,), x.rank)[0]
        )
    return by_rows(
        at, x, lambda at, below: (of_16_bits if x.element is I16 else of_8_bits)(at, below, beta)
    )


def by_rows(at: At, x: Node, function: Callable[[At, Node], Node]) -> Node:
    """A function of the rows along the last axis, of how far each number is below its row's
    largest.
    """
    n = x.shape[-1]
    rows = x if x.rank == 2 else at.apply("cvm.reshape", x, target_shape=(-1, n))
    y = function(at, rows.reduce("max", (1,)).with_ones((1,)).cast(I32) - rows.cast(I32))
    return y if x.rank == 2 else at.apply("cvm.reshape", y, target_shape=(*x.shape[:-1], n))


def of_8_bits(at: At, below: Node, beta: float) -> Node:
    powers, sums = exponentials(at, below, places(float(at.x.scale) * beta)[0])
    to = at.y.element
    # a power of no integer bits times the reciprocal, less its exponent: 12 - z + 31 - bits
    shift = at_i32(sums, 31 + SUM_BITS + 31 - to.bits) - at.apply("quant.leading_zeros", sums)
    low, high = to.limits
    attributes = {
        "to": to,
        "rounding": "tflite_double",
        "zero_point": low,
        "min": low,
        "max": high,
        "axis": 0,
    }
    return at.apply(
        "quant.requantize", powers, at.apply("quant.reciprocal", sums), shift, **attributes
    )


def places(factor: float) -> tuple[np.ndarray, tuple[int, int]]:
    """-k * factor for k = 0 ... 255 with 26 fractional bits, as far as they count, and the factor's
    multiplier and shift.
    """
    m, s = quantized_multiplier(min(factor * (1 << FRACTION), float((1 << 31) - 1)))
    radius = math.floor(((1 << INTEGER_BITS) - 1) * (1 << FRACTION) / 2.0 ** (31 - s))
    return scaled(-np.arange(min(radius, 255) + 1), (m, s), "tflite_double"), (m, s)


def exponentials(at: At, below: Node, at_places: np.ndarray) -> tuple[Node, Node]:
    """Powers of e with 31 fractional bits, 0 where they do not count, and the sum of each row of
    them with 19.
    """
    table = np.pad(exponential(at_places, INTEGER_BITS), (0, 256 - len(at_places)))
    powers, terms = (looked_up(at, t, below) for t in (table, divide_by_power(table, SUM_BITS)))
    return powers, terms.sum((1,), dtype=I32, acc_dtype=I32)


def looked_up(at: At, table: np.ndarray, below: Node) -> Node:
    return at.apply(
        "builtin.gather", at.node(table.astype(np.int32)), below, axes=(0,), mode="clip"
    )


@rule("LOG_SOFTMAX", floats=ROUNDED)
def log_softmax(at: At, x: Node) -> Known:
    """Along the last axis. Take all but quantized numbers of 16 bits."""
    if not at.x.is_quantised:
        return log_softmax_along(x, real_axes((-1,), x.rank)[0])
    if x.element.bits > 8:
        raise Unsupported("16 bits")
    return by_rows(at, x, log_of_8_bits)


def log_of_8_bits(at: At, below: Node) -> Node:
    scaled_down, (m, s) = places(float(at.x.scale))
    log = logarithm(at, exponentials(at, below, scaled_down)[1].cast(I64), SUM_BITS)
    least = requantized(at, (log - (1 << 31)).cast(I32), 2.0**s / m, I32).scalar(
        "maximum", -len(scaled_down)
    )
    rows = looked_up(at, np.pad(scaled_down, (0, 256 - len(scaled_down))), below).cast(
        I64
    ) - log.with_ones((1,))
    low, high = at.y.element.limits
    y = (
        (divide_by_power(rows, FRACTION - OUTPUT_BITS) + high)
        .scalar("minimum", high)
        .scalar("maximum", low)
    )
    return (-below).scalar("gt", least.with_ones((1,))).scalar("switch", y, low).cast(at.y.element)


# 16 bits


def table_16(function: Callable[[Any], Any], low: float, high: float) -> np.ndarray:
    """The function on [low, high] at every number of 16 bits, interpolated between 513 entries of
    i16.
    """
    step = (high - low) / 512
    at = low + step * np.arange(512)
    here, middle, last = (
        round_away(function(p) * 32768.0) for p in (at, at + step / 2, np.array([high]))
    )
    between = round_away((function(at + step) * 32768.0 + here) / 2)
    entries = np.append(here - round_away((between - middle) / 2), last)
    entries = np.clip(entries, -32768, 32767).astype(np.int64)
    place = np.arange(1 << 16)
    k, offset = place >> 7, place & 127
    return (entries[k] + (((entries[k + 1] - entries[k]) * offset + 64) >> 7)).astype(np.int16)


def of_16_bits(at: At, below: Node, beta: float) -> Node:
    m, s = quantized_multiplier(float(at.x.scale) * beta / (10.0 / 65535.0))
    low, high = I16.limits
    attributes = {"to": I16, "rounding": at.rounding, "zero_point": high, "min": low, "max": high}
    zero = at_i32(below, 0)
    place = at.apply(
        "quant.requantize",
        zero - below,
        *(at.node(np.array(v, np.int32)) for v in (m, s)),
        **attributes,
    )
    powers = at.apply("quant.table", place, at.node(table_16(np.exp, -10.0, 0.0))).cast(I32)
    sums = powers.sum((1,), dtype=I32, acc_dtype=I32)
    zeros = at.apply("quant.leading_zeros", sums)
    doubled = at.node(2 ** np.maximum(np.arange(33) - 1, 0).astype(np.int64))
    normal = sums.cast(I64) * at.apply("builtin.gather", doubled, zeros, axes=(0,), mode="clip")
    half, unit, offset = (
        at.node(np.array(v, np.int64)) for v in (1 << 13, 1 << 14, (1 << 15) + (1 << 16))
    )
    fraction = clipped((normal + half) // unit - offset, low, high, I16)
    reciprocal = at.apply(
        "quant.table", fraction, at.node(table_16(lambda v: 1.0 / (1.0 + v), 0.0, 1.0))
    ).cast(I32)
    attributes = {"to": I16, "rounding": "single", "min": 0, "max": high, "axis": 0}
    return at.apply("quant.requantize", powers, reciprocal, at_i32(zeros, 31) - zeros, **attributes)
