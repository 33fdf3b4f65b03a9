"""Fake quantization of traced floats, for training with the rounding of integers."""

from __future__ import annotations

from typing import Any

import cvm


def fake_quantize(
    x: Any, scale: Any, zero_point: int = 0, bits: int = 8, *, narrow: bool = False
) -> Any:
    """The numbers that integers stand for: `(clip(round(x / scale) + zero_point, low, high) -
    zero_point) * scale`, with straight-through derivatives.

    Rounding is to the nearest integer, halves to even, and its derivative is 1; elements outside of
    the limits have the derivative 0. The derivative by `scale` is that of learned step sizes (Esser
    et al. 2020); `cvm.stop_gradient(scale)` makes it 0.

    Args:
        x: An array of floats.
        scale: A positive float, or an array that is broadcast with `x`, such as one for each
            channel.
        zero_point: The integer that stands for 0.
        bits: Of the integers, from 2 to 16: low is -2^(bits - 1), and high 2^(bits - 1) - 1.
        narrow: Whether low is -high, as for weights.

    Raises:
        Error: The number of bits, or a zero point that is not within the limits.
    """
    if not 2 <= bits <= 16:
        raise cvm.Error(f"bits lie from 2 to 16, got {bits}")
    high = 2 ** (bits - 1) - 1
    low = -high if narrow else -high - 1
    if not low <= zero_point <= high:
        raise cvm.Error(f"a zero point lies from {low} to {high}, got {zero_point}")
    t = cvm.theano
    units = t.clip(x / scale, float(low - zero_point), float(high - zero_point))
    # exact: the difference from the nearest integer has no rounding error
    return (units + cvm.stop_gradient(t.round_half_to_even(units) - units)) * scale
