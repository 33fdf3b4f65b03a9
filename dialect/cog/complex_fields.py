"""Complex fields from their parts, and their parts back."""

from typing import Any

import numpy as np

from ..kernel_ir.expressions import Element, Expr, Tensor, apply, constant, select
from ..kernel_ir.scalar_functions import SCALARS
from ..spec.operator import T, declare, operator
from ..types.tensor_types import C64, F32, FieldType
from .arithmetic import RealBinary, Unary
from .cog_operator import joined, pair, parts, pointwise, spread_both


@operator
class Complex(RealBinary[T]):
    """Y = A + i B, of two real fields"""

    example = "%a, %b", "%a: !cog.field<[3], f32>, %b: !cog.field<[3], f32>"

    def infer(self: "Complex[FieldType]") -> FieldType:
        return joined(self.a, self.b).with_element(C64)

    def reference(self: "Complex[np.ndarray]") -> np.ndarray:
        return SCALARS["complex"].numpy(*spread_both(self))

    def element(self: "Complex[Tensor]", y: Tensor) -> Element:
        return pointwise(self, y, pair)

    def gradient(self, g: Any, a: Any, b: Any, y: Any) -> tuple[Any, Any]:
        return g.scalar("real"), g.scalar("imag")


class Part(Unary[T]):
    """A real number for each element."""

    def infer(self: "Part[Any]") -> FieldType:
        return self.x.with_element(F32)


for _name, _doc, _part in (
    ("real", "Y = the real part of X", 0),
    ("imag", "Y = the imaginary part of X", 1),
):
    declare(
        _name.capitalize(),
        Part,
        _doc,
        derivative=_name,
        numpy=getattr(np, _name),
        combine=lambda self, x, n=_part: parts(x)[n],
    )


declare(
    "Conj",
    Unary,
    "Y = the conjugate of X",
    derivative="conj",
    numpy=np.conj,
    combine=lambda self, x: x if x.type is F32 else pair(parts(x)[0], -parts(x)[1]),
)


@operator
class Abs(Part[T]):
    """Y = |X|; of a complex number the square root of re^2 + im^2"""

    derivative = "abs_"
    numpy = lambda x: (  # noqa: E731
        np.sqrt(x.real * x.real + x.imag * x.imag) if x.dtype.kind == "c" else np.abs(x)
    )

    def combine(self, x: Expr) -> Expr:
        if x.type is F32:
            return apply("abs", x)
        re, im = parts(x)
        return apply("sqrt", re * re + im * im)


def _angle(x: Any) -> Any:
    if x.dtype.kind == "c":
        return SCALARS["atan2"].numpy(x.imag, x.real)
    return np.where(x < 0, np.float32(np.pi), np.where(x >= 0, np.float32(0), x))


@operator
class Phase(Part[T]):
    """Y = the angle of X in [-pi, pi]; of a real number pi where it is negative, else 0"""

    derivative = "angle"
    numpy = _angle

    def combine(self, x: Expr) -> Expr:
        if x.type is F32:
            return select(x < 0, constant(np.pi, F32), select(x >= 0, constant(0, F32), x))
        re, im = parts(x)
        return apply("atan2", im, re)
