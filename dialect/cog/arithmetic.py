"""Arithmetic and comparisons of two fields, point by point and tensor element by tensor element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..ir.types import C64, F32, FieldType
from ..notation.expressions import Element, Expr, Tensor, apply, cast
from ..notation.scalar_functions import SCALARS
from ..spec.op import T, example_program, operator
from .cog_operator import (
    COMPATIBLE,
    CogOperator,
    fields,
    joined,
    pair,
    parts,
    pointwise,
    read,
    real,
    result_axes,
    spread_both,
)


def example(name: str) -> str:
    return example_program(
        f"%y = cog.{name} %a, %b", "%a: !cog.field<[2, 3], tensor<4xf32>>, %b: !cog.field<[2, 3], f32>"
    )


@dataclass(frozen=True, eq=False)
class Binary(CogOperator[T]):
    """The family of  Y[p, t] = A[p, t] OP B[p, t]  over points p and tensor places t.

    A 0-dimensional operand is the same at every point, a scalar field the same at every place of a tensor. If
    one operand is complex, the other is made so.
    """

    a: T
    b: T

    constraints = (fields("a", "b"), COMPATIBLE)

    def infer(self: Binary[FieldType]) -> FieldType:
        return joined(self.a, self.b)

    def pullback(self: Any, results: Any, cotangents: Any) -> Any:
        (y,), (g,) = results, cotangents
        found = self.gradient(g, self.spread("a", y), self.spread("b", y), y)
        return [None if d is None else self.gathered(n, d.like(y)) for n, d in zip(("a", "b"), found, strict=True)]

    def gradient(self, g: Any, a: Any, b: Any, y: Any) -> tuple[Any, Any]:
        """The cotangents of both operands, spread over the result."""
        return None, None


@dataclass(frozen=True, eq=False)
class Arithmetic(Binary[T]):
    """The four operations on real and complex fields."""

    numpy: ClassVar[Callable[..., Any]]
    scalar: ClassVar[str]

    def reference(self: Arithmetic[np.ndarray]) -> np.ndarray:
        a, b = spread_both(self)
        complex_ = a.dtype.kind == "c" or b.dtype.kind == "c"
        return np.asarray(type(self).numpy(a, b), np.complex64 if complex_ else np.float32)

    def element(self: Arithmetic[Tensor], y: Tensor) -> Element:
        return pointwise(self, y, self.combine if y.element is C64 else lambda a, b: apply(self.scalar, a, b))

    def combine(self: Any, a: Expr, b: Expr) -> Expr:
        """The operation where one operand is complex."""
        return apply(self.scalar, cast(a, C64), cast(b, C64))


@operator
class Add(Arithmetic[T]):
    """Y = A + B, per point and tensor element   (Field operators, addition)"""

    numpy = np.add
    scalar = "add"
    example = example("add")

    def gradient(self, g: Any, a: Any, b: Any, y: Any) -> tuple[Any, Any]:
        return g, g


@operator
class Sub(Arithmetic[T]):
    """Y = A - B, per point and tensor element   (Field operators, subtraction)"""

    numpy = np.subtract
    scalar = "sub"
    example = example("sub")

    def gradient(self, g: Any, a: Any, b: Any, y: Any) -> tuple[Any, Any]:
        return g, -g


def _complex(re: Any, im: Any) -> np.ndarray:
    y: Any = np.empty(np.broadcast_shapes(re.shape, im.shape), np.complex64)
    y.real, y.imag = re, im
    return y


def _product(a: Any, b: Any) -> np.ndarray:
    """The product by its definition, each operation rounded (NumPy's own may fuse them); a real factor scales parts."""
    match a.dtype.kind, b.dtype.kind:
        case "c", "c":
            return _complex(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)
        case "c", _:
            return _complex(a.real * b, a.imag * b)
        case _, "c":
            return _complex(a * b.real, a * b.imag)
    return np.asarray(a * b)


@operator
class Mul(Arithmetic[T]):
    """Y = A * B, per point and tensor element; of complex numbers (ar br - ai bi, ar bi + ai br)   (multiplication)"""

    numpy = _product
    scalar = "mul"
    example = example("mul")

    def combine(self: Any, a: Expr, b: Expr) -> Expr:
        (ar, ai), (br, bi) = parts(a), parts(b)
        if a.type is F32:
            return pair(ar * br, ar * bi)
        if b.type is F32:
            return pair(ar * br, ai * br)
        return pair(ar * br - ai * bi, ar * bi + ai * br)

    def gradient(self, g: Any, a: Any, b: Any, y: Any) -> tuple[Any, Any]:
        return g.gradient_of("mul", [a, b], y)


def _quotient(a: Any, b: Any) -> np.ndarray:
    """The quotient by its definition, so that division by zero is NaN + NaN i."""
    if b.dtype.kind != "c":
        return _complex(a.real / b, a.imag / b) if a.dtype.kind == "c" else np.asarray(a / b)
    scaled: Any = _product(a, np.conj(b))
    size = b.real * b.real + b.imag * b.imag
    return _complex(scaled.real / size, scaled.imag / size)


@operator
class Div(Arithmetic[T]):
    """Y = A / B, per point and tensor element; of complex numbers (A conj B) / |B|^2, part by part   (division)"""

    numpy = _quotient
    scalar = "div"
    example = example("div")

    def combine(self: Any, a: Expr, b: Expr) -> Expr:
        (ar, ai), (br, bi) = parts(a), parts(b)
        if b.type is F32:
            return pair(ar / br, ai / br)
        size = br * br + bi * bi
        if a.type is F32:
            return pair(ar * br / size, -(ar * bi) / size)
        return pair((ar * br + ai * bi) / size, (ai * br - ar * bi) / size)

    def gradient(self, g: Any, a: Any, b: Any, y: Any) -> tuple[Any, Any]:
        return g.gradient_of("true_div", [a, b], y)


@dataclass(frozen=True, eq=False)
class RealBinary(Binary[T]):
    """An operation that complex fields do not have."""

    numpy: ClassVar[Callable[..., Any]]
    scalar: ClassVar[str]
    constraints = (fields("a", "b"), COMPATIBLE, real(2, "a", "b"))

    def reference(self: RealBinary[np.ndarray]) -> np.ndarray:
        a, b = spread_both(self)
        return np.asarray(type(self).numpy(a, b), np.float32)

    def element(self: RealBinary[Tensor], y: Tensor) -> Element:
        return pointwise(self, y, self.combine)

    def combine(self: Any, a: Expr, b: Expr) -> Expr:
        return apply(self.scalar, a, b)


@operator
class Mod(RealBinary[T]):
    """Y = A % B, C's fmod: the sign of A; NaN where B is 0   (Field operators, modulo)"""

    numpy = np.fmod
    scalar = "rem"
    example = example("mod")

    def gradient(self, g: Any, a: Any, b: Any, y: Any) -> tuple[Any, Any]:
        return g, -(a / b).scalar("trunc") * g


class Extreme(RealBinary[T]):
    """The family of Y = A where it compares so with B, else B."""

    compare: ClassVar[str]

    def gradient(self, g: Any, a: Any, b: Any, y: Any) -> tuple[Any, Any]:
        first = a.scalar(self.compare, b)
        return first.scalar("switch", g, 0), first.scalar("switch", 0, g)


@operator
class Max(Extreme[T]):
    """Y = the larger of A and B; B where they do not compare"""

    numpy = SCALARS["max"].numpy
    scalar, compare = "max", "gt"
    example = example("max")


@operator
class Min(Extreme[T]):
    """Y = the smaller of A and B; B where they do not compare"""

    numpy = SCALARS["min"].numpy
    scalar, compare = "min", "lt"
    example = example("min")


class Comparison(RealBinary[T]):
    """The family of comparisons: 1.0 where one holds, else 0.0, also where an operand is NaN (for ne, 1.0)."""

    def combine(self: Any, a: Expr, b: Expr) -> Expr:
        return cast(apply(self.scalar, a, b), F32)


def _comparison(name: str, symbol: str, numpy: Callable[..., Any]) -> type[Comparison[Any]]:
    doc = f"Y = 1.0 where A {symbol} B, else 0.0, per point and tensor element   (Field operators, comparisons)"
    members = {"__doc__": doc, "__module__": __name__, "numpy": numpy, "scalar": name, "example": example(name)}
    return operator(type(name.capitalize(), (Comparison,), members))


Lt = _comparison("lt", "<", np.less)
Le = _comparison("le", "<=", np.less_equal)
Gt = _comparison("gt", ">", np.greater)
Ge = _comparison("ge", ">=", np.greater_equal)
Eq = _comparison("eq", "===", np.equal)
Ne = _comparison("ne", "!===", np.not_equal)


@dataclass(frozen=True, eq=False)
class Unary(CogOperator[T]):
    """A function of each element of a field."""

    x: T
    constraints = (fields("x"),)
    derivative: ClassVar[str]  # the scalar operation of Theano that has the same one

    def infer(self: Unary[FieldType]) -> FieldType:
        return self.x

    def element(self: Unary[Tensor], y: Tensor) -> Element:
        grid, tensor = result_axes(y, self.grid("x"))
        return Element((*grid, *tensor), self.combine(read(self, "x", grid, tensor)))

    def combine(self: Any, x: Expr) -> Expr:
        raise NotImplementedError

    def pullback(self: Any, results: Any, cotangents: Any) -> Any:
        return cotangents[0].gradient_of(self.derivative, [self.x], results[0])


@operator
class Neg(Unary[T]):
    """Y = -X   (Field operators, unary minus)"""

    derivative = "neg"

    example = example_program("%y = cog.neg %x", "%x: !cog.field<[3], complex<f32>>")

    def reference(self: Neg[np.ndarray]) -> np.ndarray:
        return np.asarray(-self.x)

    def combine(self: Any, x: Expr) -> Expr:
        return -x


@operator
class Reciprocal(Unary[T]):
    """Y = 1 / X; of a complex number conj(X) / |X|^2"""

    derivative = "inv"

    example = example_program("%y = cog.reciprocal %x", "%x: !cog.field<[3], f32>")

    def reference(self: Reciprocal[np.ndarray]) -> np.ndarray:
        return np.asarray(_quotient(np.ones_like(np.real(self.x)), self.x))

    def combine(self: Any, x: Expr) -> Expr:
        if x.type is F32:
            return 1 / x
        re, im = parts(x)
        size = re * re + im * im
        return pair(re / size, -im / size)
