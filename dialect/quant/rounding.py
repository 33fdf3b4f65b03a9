"""Roundings of a scaled accumulator, each as an expression of index notation and as integer
arithmetic of NumPy.

The scale of every integer rounding is multiplier / 2^shift, with shift taken modulo 64. `single`
and `tosa_double` are apply_scale_32 of the TOSA specification without and with double_round;
`tflite_double` is MultiplyByQuantizedMultiplier of LiteRT's reference kernels (gemmlowp's
SaturatingRoundingDoublingHighMul and RoundingDivideByPOT), whose shift is 31 - shift here;
`half_even_f32` is the float scale of onnxruntime.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernel_ir.expressions import Expr, apply, cast, constant, maximum, minimum, select
from ..types.tensor_types import F32, I32, I64

LOW, HIGH = I32.limits


@dataclass(frozen=True)
class Rounding:
    """One rounding: the rounded number of an accumulator, a multiplier and a shift, not yet reduced
    modulo 2^32.
    """

    expression: Callable[[Expr, Any, Any], Expr]
    reference: Callable[[np.ndarray, Any, Any], np.ndarray]  # of i32 or i64, in i64
    shifts: bool = True


def half(shift: Expr) -> Expr:
    """2^(shift - 1), or 0 where the shift is 0."""
    return ((constant(1, I64) << shift) >> 1) & I64.limits[1]


def _single(x: Expr, multiplier: Expr, shift: Expr) -> Expr:
    s = cast(shift, I64) & 63
    return (cast(x, I64) * cast(multiplier, I64) + half(s)) >> s


def _tosa_double(x: Expr, multiplier: Expr, shift: Expr) -> Expr:
    s = cast(shift, I64) & 63
    wide = cast(x, I64)
    more = select(s > 31, select(wide < 0, constant(-(1 << 30), I64), 1 << 30), 0)
    return (wide * cast(multiplier, I64) + half(s) + more) >> s


def _tflite_double(x: Expr, multiplier: Expr, shift: Expr, positive: bool = False) -> Expr:
    """The rounded number, or where this is `positive` any number up to 0 for those below."""
    s = cast(shift, I64) & 63
    shifted = cast(x, I32) << cast(maximum(31 - s, 0), I32)
    product = cast(shifted, I64) * cast(multiplier, I64)
    right = maximum(s - 31, 0)
    if positive:  # one shift: ((a >> 31) + b) >> r = (a + (b << 31)) >> (31 + r)
        scaled = minimum(product, (1 << 62) - (1 << 31)) + ((1 << 30) + (half(right) << 31))
        return select(right > 0, (scaled >> 32) >> maximum(right - 1, 0), scaled >> 31)
    high = minimum((product + (1 << 30)) >> 31, HIGH)
    return (high + half(right) + select(right > 0, high >> 63, 0)) >> right


def _half_up(x: Expr, multiplier: Expr, shift: Expr) -> Expr:
    s = cast(shift, x.type) & (x.type.bits - 1)
    product = x * cast(multiplier, x.type)
    return (product >> s) + select(s > 0, (product >> maximum(s - 1, 0)) & 1, 0)


def _half(shift: Any) -> Any:
    return np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)


def _reference_single(x: np.ndarray, multiplier: object, shift: object) -> np.ndarray:
    x = x.astype(np.int64)
    return (x * multiplier + _half(shift)) >> shift


def _reference_tosa_double(x: np.ndarray, multiplier: object, shift: Any) -> np.ndarray:
    x = x.astype(np.int64)
    rounding = _half(shift)
    rounding = np.where(shift > 31, rounding + np.where(x >= 0, 1 << 30, -(1 << 30)), rounding)
    return (x * multiplier + rounding) >> shift


def _reference_tflite_double(x: np.ndarray, multiplier: object, shift: Any) -> np.ndarray:
    left = np.maximum(31 - shift, 0)
    right = np.maximum(shift - 31, 0)
    a = (x.astype(np.int64) << left).astype(np.int32).astype(np.int64)
    product = a * multiplier
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.where(nudged >= 0, nudged >> 31, -(-nudged >> 31))
    high = np.where((a == LOW) & (multiplier == LOW), HIGH, high)
    mask = (np.int64(1) << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def _reference_half_even(x: np.ndarray, multiplier: Any, _: object) -> np.ndarray:
    scaled = np.rint(x.astype(np.float32) * multiplier)
    return np.clip(np.where(np.isnan(scaled), 0, scaled).astype(np.float64), LOW, HIGH).astype(
        np.int64
    )


def _reference_half_up(x: np.ndarray, multiplier: object, shift: object) -> np.ndarray:
    product = (x * multiplier).astype(x.dtype)
    twice = (
        product.astype(object) * 2 // 2 ** np.asarray(shift).astype(object)
    )  # unbounded integers
    return np.array((twice + 1) // 2, np.int64)


ROUNDINGS: dict[str, Rounding] = {
    "single": Rounding(_single, _reference_single),
    "tosa_double": Rounding(_tosa_double, _reference_tosa_double),
    "tflite_double": Rounding(_tflite_double, _reference_tflite_double),
    "half_even_f32": Rounding(
        lambda x, multiplier, _: cast(apply("rint", cast(x, F32) * multiplier), I32),
        _reference_half_even,
        shifts=False,
    ),
    "shift_half_up": Rounding(_half_up, _reference_half_up),
}
