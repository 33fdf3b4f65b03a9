"""Parameters of quantized operators as the reference kernels compute them: multipliers and shifts,
ranges of activations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.quant.rounding import ROUNDINGS
from cvm.dialect.types.tensor_types import I32, I64, ElementType

from .rules import At, Tensor, Unsupported
from .schema import ACTIVATIONS

LIMITS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}
MAX_MULTIPLIER = (1 << 31) - 1
NO_SHIFT = 31  # the shift of `quant.requantize` that divides by 2^31 alone


def quantized_multiplier(factor: float) -> tuple[int, int]:
    """m and s with factor = m / 2^s, m in [2^30, 2^31), rounded; 0 and 31 for what is below
    2^-32.
    """
    if factor == 0 or not math.isfinite(factor):
        return 0, NO_SHIFT
    fraction, exponent = math.frexp(factor)
    if (m := math.floor(abs(fraction) * (1 << 31) + 0.5)) == 1 << 31:
        m, exponent = m // 2, exponent + 1
    if exponent < -31:
        return 0, NO_SHIFT
    if exponent > 30:
        return (MAX_MULTIPLIER if factor > 0 else -MAX_MULTIPLIER), NO_SHIFT - 30
    return (m if factor > 0 else -m), NO_SHIFT - exponent


def scaled(x: Any, factor: float | tuple[Any, Any], rounding: str) -> np.ndarray:
    """Integers times a quantized multiplier, as the operator `quant.requantize` computes them."""
    m, s = factor if isinstance(factor, tuple) else quantized_multiplier(factor)
    wide = (np.asarray(x, np.int64), np.int64(m), np.int64(s))
    return ROUNDINGS[rounding].reference(*wide).astype(np.int32).astype(np.int64)


def round_away(x: object) -> Any:
    """The nearest integers, halves away from zero, in the type of x."""
    x = np.asarray(x)
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0).astype(x.dtype)


def activation_range(at: At, y: Tensor) -> tuple[int, int]:
    """The least and the largest number of the result that its activation lets pass."""
    if (kind := at["activation"]) not in (0, 1, 2, 3):
        raise Unsupported(f"activation number {kind} of quantised numbers")
    return limits_of(y, ACTIVATIONS[kind])


def limits_of(y: Tensor, activation: str) -> tuple[int, int]:
    """The least and the largest of a tensor's numbers that an activation gives."""
    low, high = y.element.limits
    least, most = LIMITS[activation]

    def place(value: float) -> int:
        return y.zero_point + int(round_away(np.float32(value) / y.scale))

    return low if least is None else max(low, place(least)), high if most is None else min(
        high, place(most)
    )


def bounded(x: Node, activation: str) -> Node:
    """Floats, or integers without a scale, within the limits of an activation."""
    for name, limit in zip(("maximum", "minimum"), LIMITS[activation], strict=True):
        x = x if limit is None else x.scalar(name, x.constant(np.array(limit, x.element.dtype)))
    return x


def rounded(x: Node, y: Tensor, limits: tuple[int, int]) -> Node:
    """Floats in units of a tensor's scale as numbers of it: halves away from zero, and within
    limits.
    """
    low, high = (float(v - y.zero_point) for v in limits)
    units = (
        x.scalar("round_half_away_from_zero")
        .scalar("maximum", low)
        .scalar("minimum", high)
        .cast(I32)
    )
    return (units + at_i32(units, y.zero_point)).cast(y.element)


def requantized(
    at: At,
    x: Node,
    factors: float | Sequence[float],
    to: ElementType,
    zero_point: int = 0,
    limits: tuple[int, int] | None = None,
    input_zero_point: int = 0,
) -> Node:
    """Accumulators times a factor, or times one for each place along the last axis; those of i64
    have multipliers of 16 bits.
    """
    rows = np.asarray(factors, np.float64)
    pairs, rounding = [quantized_multiplier(f) for f in rows.reshape(-1).tolist()], at.rounding
    if x.element is I64:
        rounding = "single"
        pairs = [((m + (1 << 15)) >> 16 if m < 0x7FFF0000 else 0x7FFF, s - 16) for m, s in pairs]
    shape = rows.shape if rows.size > 1 else ()
    m, s = (np.array(column, np.int32).reshape(shape) for column in zip(*pairs, strict=True))
    low, high = limits or to.limits
    attributes = {"to": to, "rounding": rounding, "zero_point": zero_point, "min": low, "max": high}
    return at.apply(
        "quant.requantize",
        x,
        at.node(m),
        at.node(s),
        **attributes,
        input_zero_point=input_zero_point,
    )


def rescaled(at: At, x: Node, of: Tensor, to: Tensor) -> Node:
    """Numbers of one scale as those of another."""
    if of.scale == to.scale and of.zero_point == to.zero_point and of.element is to.element:
        return x
    factor = float(of.scale) / float(to.scale)
    return requantized(at, x, factor, to.element, to.zero_point, input_zero_point=of.zero_point)


def less_zero(x: Node, zero_point: int) -> Node:
    """Numbers less their zero point, in i32."""
    return x.cast(I32) if not zero_point else x.cast(I32) - at_i32(x, zero_point)


def at_i32(x: Node, value: int) -> Node:
    """A number of i32 beside x."""
    return x.constant(np.array(value, np.int32))


def clipped(x: Node, low: int, high: int, to: ElementType) -> Node:
    limit = [x.constant(np.array(v, x.element.dtype)) for v in (low, high)]
    return x.scalar("maximum", limit[0]).scalar("minimum", limit[1]).cast(to)
