"""`quant.requantize`: scale an accumulator, round it as declared, and clamp it to the range of the
result's type.
"""

from typing import Any

import numpy as np

from ..kernel_ir.expressions import Element, Tensor, axes, cast
from ..spec.operator import C, T, operator
from ..types.tensor_types import F32, I8, I16, I32, I64, UI8, UI16, ElementType, TensorType
from .quant_operator import QuantOperator, along_axis, clamped, in_limits
from .rounding import ROUNDINGS


@operator
class Requantize(QuantOperator[T]):
    """Y[d...] = clamp(round(X[d...] - input_zero_point, multiplier[c], shift[c]) + zero_point, min,
    max), c = d[axis]

    Sums and differences are modulo 2^32, products those of i64. With x, m and s the operands of
    round, s modulo 64:

      single         ⌊(x * m + 2^(s - 1)) / 2^s⌋
                     (TOSA, apply_scale_32 without double_round; TFLITE_SINGLE_ROUNDING)
      tosa_double    ⌊(x * m + 2^(s - 1) + r) / 2^s⌋, r = 0 if s <= 31 else -2^30 if x < 0 else 2^30
                     (TOSA, double_round)
      tflite_double  h / 2^max(s - 31, 0), halves away from zero, where
                     h = min(⌊(x * 2^max(31 - s, 0) * m + 2^30) / 2^31⌋, 2^31 - 1)
                     (gemmlowp; LiteRT's MultiplyByQuantizedMultiplier, whose shift is 31 - s)
      half_even_f32  rint(f32(x) * m), a float product rounded once; saturated to i32, NaN is 0
                     (onnxruntime)
      shift_half_up  ⌊x * m / 2^s + 1 / 2⌋, x * m modulo 2 to the width of the accumulator, s modulo
                     that width
    """

    x: T
    multiplier: T  # () or (dim(x, axis),), i32; f32 for half_even_f32
    shift: T | None = None  # () or (dim(x, axis),), i32; absent for half_even_f32
    to: ElementType = I8
    rounding: str = "single"
    zero_point: int = 0
    min: int | None = None  # the least number of `to` unless given
    max: int | None = None
    input_zero_point: int = 0
    axis: int = -1

    symbols = {"rank": lambda o: o.x.rank}
    constraints = (
        C(
            0,
            "element(x) in {i8, ui8, i16, ui16, i32, i64}",
            lambda o: o.x.element in (I8, UI8, I16, UI16, I32, I64),
        ),
        C(
            1,
            f"rounding in {{{', '.join(ROUNDINGS)}}}",
            lambda o: o.rounding in ROUNDINGS,
            at="rounding",
        ),
        C(
            2,
            "shift is given unless rounding is half_even_f32",
            lambda o: o.rule.shifts == (o.shift is not None),
        ),
        C(
            3,
            "element(multiplier) = i32, for half_even_f32 f32, and element(shift) = i32",
            lambda o: o.elements_fit(),
        ),
        C(
            4,
            "axis in [-rank, rank) if multiplier or shift has an axis",
            lambda o: not o.rows() or -o.x.rank <= o.axis < o.x.rank,
        ),
        C(
            5,
            "shape(multiplier), shape(shift) in {(), (dim(x, axis),)}",
            lambda o: (
                all(p.rank == 1 for p in o.rows())
                and all(p.shape[0] == o.x.shape[o.axis] for p in o.rows())
            ),
        ),
        in_limits(6),
        C(
            7,
            "element(x) = i64 is for single and shift_half_up",
            lambda o: o.x.element is not I64 or o.rounding in ("single", "shift_half_up"),
        ),
        C(8, "input_zero_point in [-2^31, 2^31)", lambda o: -(2**31) <= o.input_zero_point < 2**31),
    )
    example = """
        func @main(%sums: tensor<1x8x8x2xi32>) -> tensor<1x8x8x2xi8> {
          %multiplier = const dense<[1518500250, 1073741824]> : tensor<2xi32>
          %shift = const dense<[38, 40]> : tensor<2xi32>
          %y = quant.requantize %sums, %multiplier, %shift {
            rounding = "tflite_double", zero_point = -5
          }
          return %y
        }
    """

    def elements_fit(self: "Requantize[Any]") -> bool:
        factor = I32 if self.rule.shifts else F32
        return self.multiplier.element is factor and (
            self.shift is None or self.shift.element is I32
        )

    def rows(self: "Requantize[Any]") -> list[Any]:
        """The parameters that have an axis."""
        return [p for p in (self.multiplier, self.shift) if p is not None and p.rank]

    def infer(self: "Requantize[TensorType]") -> TensorType:
        return self.x.with_element(self.to)

    def reference(self: "Requantize[np.ndarray]") -> np.ndarray:
        x = self.x if self.x.dtype == np.int64 else self.x.astype(np.int32)
        axis = self.axis % max(x.ndim, 1)
        multiplier = along_axis(self.multiplier, x.ndim, axis)
        width = x.dtype.itemsize * 8 if self.rounding == "shift_half_up" else 64
        shift = None if self.shift is None else along_axis(self.shift, x.ndim, axis) % width
        rounded = self.rule.reference(x - x.dtype.type(self.input_zero_point), multiplier, shift)
        shifted = rounded.astype(np.int32) + np.int32(self.zero_point)
        return np.asarray(np.clip(shifted, self.low, self.high), self.to.dtype)

    def element(self: "Requantize[Tensor]", y: Tensor) -> Element:
        at = axes(y.shape)

        def element_of(p: Tensor) -> Any:
            return p[at[self.axis]] if p.rank else p[()]

        multiplier = None if self.multiplier is None else element_of(self.multiplier)
        shift = None if self.shift is None else element_of(self.shift)
        x = cast(self.x[at], I64 if self.x.element is I64 else I32) - self.input_zero_point
        more = (True,) if self.rounding == "tflite_double" and self.low >= self.zero_point else ()
        rounded = self.rule.expression(x, multiplier, shift, *more)
        return Element(at, clamped(rounded, self.zero_point, self.low, self.high, self.to))
