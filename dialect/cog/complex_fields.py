"""Complex fields from their parts, and their parts back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.types import C64, F32, FieldType
from ..notation.expressions import Element, Expr, Tensor, apply, constant, select
from ..notation.scalar_functions import SCALARS
from ..spec.op import T, example_program, operator
from .arithmetic import Binary, Unary
from .cog_operator import COMPATIBLE, fields, joined, pair, parts, pointwise, real, spread_both


def _example(name: str) -> str:
    return example_program(f"%y = cog.{name} %x", "%x: !cog.field<[3], complex<f32>>")


@operator
class Complex(Binary[T]):
    """Y = A + i B, of two real fields"""

    constraints = (fields("a", "b"), COMPATIBLE, real(2, "a", "b"))
    example = example_program("%y = cog.complex %a, %b", "%a: !cog.field<[3], f32>, %b: !cog.field<[3], f32>")

    def infer(self: Complex[FieldType]) -> FieldType:
        return joined(self.a, self.b).with_element(C64)

    def reference(self: Complex[np.ndarray]) -> np.ndarray:
        a, b = np.broadcast_arrays(*spread_both(self))
        y = np.empty(a.shape, np.complex64)
        y.real, y.imag = a, b
        return y

    def element(self: Complex[Tensor], y: Tensor) -> Element:
        return pointwise(self, y, pair)

    def gradient(self, g: Any, a: Any, b: Any, y: Any) -> tuple[Any, Any]:
        return g.scalar("real"), g.scalar("imag")


class Part(Unary[T]):
    """A real number for each element."""

    def infer(self: Any) -> FieldType:
        return self.x.with_element(F32)


@operator
class Real(Part[T]):
    """Y = the real part of X"""

    derivative = "real"
    example = _example("real")

    def reference(self: Real[np.ndarray]) -> np.ndarray:
        return np.real(self.x)

    def combine(self: Any, x: Expr) -> Expr:
        return parts(x)[0]


@operator
class Imag(Part[T]):
    """Y = the imaginary part of X"""

    derivative = "imag"
    example = _example("imag")

    def reference(self: Imag[np.ndarray]) -> np.ndarray:
        return np.imag(self.x)

    def combine(self: Any, x: Expr) -> Expr:
        return parts(x)[1]


@operator
class Conj(Unary[T]):
    """Y = the conjugate of X"""

    derivative = "conj"
    example = _example("conj")

    def reference(self: Conj[np.ndarray]) -> np.ndarray:
        return np.asarray(np.conj(self.x))

    def combine(self: Any, x: Expr) -> Expr:
        if x.type is F32:
            return x
        re, im = parts(x)
        return pair(re, -im)


@operator
class Abs(Part[T]):
    """Y = |X|; of a complex number the square root of re^2 + im^2"""

    derivative = "abs_"
    example = _example("abs")

    def reference(self: Abs[np.ndarray]) -> np.ndarray:
        x: Any = self.x
        return np.asarray(np.sqrt(x.real * x.real + x.imag * x.imag) if x.dtype.kind == "c" else np.abs(x))

    def combine(self: Any, x: Expr) -> Expr:
        if x.type is F32:
            return apply("abs", x)
        re, im = parts(x)
        return apply("sqrt", re * re + im * im)


@operator
class Phase(Part[T]):
    """Y = the angle of X in [-pi, pi]; of a real number pi where it is negative, else 0"""

    derivative = "angle"
    example = _example("phase")

    def reference(self: Phase[np.ndarray]) -> np.ndarray:
        x: Any = self.x
        if x.dtype.kind == "c":
            return np.asarray(SCALARS["atan2"].numpy(x.imag, x.real))
        return np.where(x < 0, np.float32(np.pi), np.where(x >= 0, np.float32(0), x))

    def combine(self: Any, x: Expr) -> Expr:
        if x.type is F32:
            return select(x < 0, constant(np.pi, F32), select(x >= 0, constant(0, F32), x))
        re, im = parts(x)
        return apply("atan2", im, re)
