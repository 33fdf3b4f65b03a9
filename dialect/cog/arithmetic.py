"""Arithmetic and comparisons of two fields, point by point and tensor element by tensor element."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..kernel_ir.expressions import Element, Expr, Tensor, apply, cast
from ..kernel_ir.scalar_functions import SCALARS
from ..spec.operator import T, declare, operator
from ..types.tensor_types import C64, F32, FieldType
from . import cog_operator as cog
from .cog_operator import CogOperator, pair, parts

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


@dataclass(frozen=True, eq=False)
class Binary(CogOperator[T]):
    """The family of  Y[p, t] = A[p, t] OP B[p, t]  over points p and tensor places t.

    A 0-dimensional operand is the same at every point, a scalar field the same at every place of a
    tensor. If one operand is complex, the other is made so.
    """

    a: T
    b: T

    numpy: ClassVar[Callable[..., Any]]
    scalar: ClassVar[str]  # OP as a scalar function
    derivative: ClassVar[str] = ""  # Theano's scalar operation that has the same one
    constraints = (cog.fields("a", "b"), cog.COMPATIBLE)
    example = "%a, %b", "%a: !cog.field<[2, 3], tensor<4xf32>>, %b: !cog.field<[2, 3], f32>"

    def infer(self: "Binary[FieldType]") -> FieldType:
        return cog.joined(self.a, self.b)

    def reference(self: "Binary[np.ndarray]") -> np.ndarray:
        a, b = cog.spread_both(self)
        complex_ = a.dtype.kind == "c" or b.dtype.kind == "c"
        return np.asarray(type(self).numpy(a, b), np.complex64 if complex_ else np.float32)

    def element(self: "Binary[Tensor]", y: Tensor) -> Element:
        return cog.pointwise(self, y, self.combine_complex if y.element is C64 else self.combine)

    def combine(self, a: Expr, b: Expr) -> Expr:
        return apply(self.scalar, a, b)

    def combine_complex(self, a: Expr, b: Expr) -> Expr:
        """The operation where one operand is complex."""
        return apply(self.scalar, cast(a, C64), cast(b, C64))

    def pullback(self: "Binary[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        (y,), (g,) = results, cotangents
        gradients = self.gradient(g, self.spread("a", y), self.spread("b", y), y)
        return [
            None if d is None else self.gathered(n, d.like(y))
            for n, d in zip(("a", "b"), gradients, strict=True)
        ]

    def gradient(self, g: Any, a: Any, b: Any, y: Any) -> tuple[Any, Any]:
        """The cotangents of both operands, spread over the result."""
        return g.gradient_of(self.derivative, [a, b], y) if self.derivative else (None, None)


class RealBinary(Binary[T]):
    """An operation that complex fields do not have."""

    constraints = (*Binary.constraints, cog.real(2, "a", "b"))


class Comparison(RealBinary[T]):
    """The family of comparisons: 1.0 where one holds, else 0.0, also where an operand is NaN (for
    ne, 1.0).
    """

    def combine(self, a: Expr, b: Expr) -> Expr:
        return cast(apply(self.scalar, a, b), F32)


def _binary(
    name: str,
    doc: str,
    numpy: object,
    family: type[Binary[object]] = Binary,
    scalar: str = "",
    **more: object,
) -> type[Binary[Any]]:
    return declare(name.capitalize(), family, doc, numpy=numpy, scalar=scalar or name, **more)


def _complex(re: Any, im: Any) -> np.ndarray:
    return SCALARS["complex"].numpy(re, im)


def _product(a: Any, b: Any) -> np.ndarray:
    """The product by its definition, each operation rounded (NumPy's own may fuse them); a real
    factor scales parts.
    """
    match a.dtype.kind, b.dtype.kind:
        case "c", "c":
            return _complex(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)
        case "c", _:
            return _complex(a.real * b, a.imag * b)
        case _, "c":
            return _complex(a * b.real, a * b.imag)
    return np.asarray(a * b)


def _combined_product(_: object, a: Expr, b: Expr) -> Expr:
    (ar, ai), (br, bi) = parts(a), parts(b)
    if a.type is F32:
        return pair(ar * br, ar * bi)
    return pair(ar * br, ai * br) if b.type is F32 else pair(ar * br - ai * bi, ar * bi + ai * br)


def _quotient(a: Any, b: Any) -> np.ndarray:
    """The quotient by its definition, so that division by zero is NaN + NaN i."""
    if b.dtype.kind != "c":
        return _complex(a.real / b, a.imag / b) if a.dtype.kind == "c" else np.asarray(a / b)
    scaled: Any = _product(a, np.conj(b))
    size = b.real * b.real + b.imag * b.imag
    return _complex(scaled.real / size, scaled.imag / size)


def _combined_quotient(_: object, a: Expr, b: Expr) -> Expr:
    (ar, ai), (br, bi) = parts(a), parts(b)
    if b.type is F32:
        return pair(ar / br, ai / br)
    size = br * br + bi * bi
    if a.type is F32:
        return pair(ar * br / size, -(ar * bi) / size)
    return pair((ar * br + ai * bi) / size, (ai * br - ar * bi) / size)


def _selected(compare: str) -> Any:
    """The gradient of the operand that compares so with the other one."""
    return lambda self, g, a, b, y: g.switched(a.scalar(compare, b))


Add = _binary(
    "add",
    "Y = A + B, per point and tensor element   (Field operators, addition)",
    np.add,
    gradient=lambda self, g, a, b, y: (g, g),
)
Sub = _binary(
    "sub",
    "Y = A - B, per point and tensor element   (Field operators, subtraction)",
    np.subtract,
    gradient=lambda self, g, a, b, y: (g, -g),
)
Mul = _binary(
    "mul",
    "Y = A * B, per point and tensor element; of complex numbers (ar br - ai bi, ar bi + "
    "ai br)   (multiplication)",
    _product,
    derivative="mul",
    combine_complex=_combined_product,
)
Div = _binary(
    "div",
    "Y = A / B, per point and tensor element; of complex numbers (A conj B) / |B|^2, part "
    "by part   (division)",
    _quotient,
    derivative="true_div",
    combine_complex=_combined_quotient,
)
Mod = _binary(
    "mod",
    "Y = A % B, C's fmod: the sign of A; NaN where B is 0   (Field operators, modulo)",
    np.fmod,
    RealBinary,
    "rem",
    gradient=lambda self, g, a, b, y: (g, -(a / b).scalar("trunc") * g),
)
Max = _binary(
    "max",
    "Y = the larger of A and B; B where they do not compare",
    SCALARS["max"].numpy,
    RealBinary,
    gradient=_selected("gt"),
)
Min = _binary(
    "min",
    "Y = the smaller of A and B; B where they do not compare",
    SCALARS["min"].numpy,
    RealBinary,
    gradient=_selected("lt"),
)
for _name, _symbol, _numpy in (
    ("lt", "<", np.less),
    ("le", "<=", np.less_equal),
    ("gt", ">", np.greater),
    ("ge", ">=", np.greater_equal),
    ("eq", "===", np.equal),
    ("ne", "!===", np.not_equal),
):
    _doc = (
        f"Y = 1.0 where A {_symbol} B, else 0.0, per point and tensor element   (Field "
        "operators, comparisons)"
    )
    _binary(_name, _doc, _numpy, Comparison)


@dataclass(frozen=True, eq=False)
class Unary(CogOperator[T]):
    """A function of each element of a field."""

    x: T

    numpy: ClassVar[Callable[..., Any]]
    derivative: ClassVar[str]  # Theano's scalar operation that has the same one
    constraints = (cog.fields("x"),)
    example = "%x", "%x: !cog.field<[3], complex<f32>>"

    def reference(self: "Unary[np.ndarray]") -> np.ndarray:
        return np.asarray(type(self).numpy(self.x))

    def element(self: "Unary[Tensor]", y: Tensor) -> Element:
        grid, tensor = cog.result_axes(y, self.grid("x"))
        return Element((*grid, *tensor), self.combine(cog.read(self, "x", grid, tensor)))

    def combine(self, x: Expr) -> Expr:
        raise NotImplementedError

    def pullback(self: "Unary[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        return cotangents[0].gradient_of(self.derivative, [self.x], results[0])


declare(
    "Neg",
    Unary,
    "Y = -X   (Field operators, unary minus)",
    numpy=np.negative,
    derivative="neg",
    combine=lambda self, x: -x,
)


@operator
class Reciprocal(Unary[T]):
    """Y = 1 / X; of a complex number conj(X) / |X|^2"""

    numpy = lambda x: _quotient(np.ones_like(np.real(x)), x)  # noqa: E731
    derivative = "inv"
    example = "%x", "%x: !cog.field<[3], f32>"

    def combine(self, x: Expr) -> Expr:
        if x.type is F32:
            return 1 / x
        re, im = parts(x)
        size = re * re + im * im
        return pair(re / size, -im / size)
