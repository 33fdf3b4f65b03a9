"""DALI's arithmetic and shifts: integers wrap modulo 2^width, floats follow IEEE 754, each operator
rounds once, in its type.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernel_ir.expressions import (
    BY_ZERO,
    Expr,
    apply,
    divide_integers,
    integer_power,
    maximum,
    minimum,
    select,
)
from ..kernel_ir.scalar_functions import SCALARS
from ..spec.operator import T, operator
from ..spec.unmet import Unmet
from ..types.tensor_types import BY_DTYPE, F16, F32, F64, I32, UI32, ElementType
from .pointwise import Binary, Pointwise, Unary, supported
from .promotion import SUPPORTED


@operator
class Pos(Unary[T], kind="sign", symbol="+"):
    """+x: x itself, also i1 and f16."""

    derivative = "identity"

    constraints = (supported(("x",), (*SUPPORTED, F16)),)
    exact = staticmethod(np.asarray)

    def formula(self, x: Expr) -> Expr:
        return x


@operator
class Abs(Unary[T], kind="sign"):
    """-x if x < 0, else x, in x's type: INT_MIN and -0.0 stay."""

    derivative = "abs_"

    @staticmethod
    def exact(x: np.ndarray) -> np.ndarray:
        return np.where(x < 0, np.negative(x), x)

    def formula(self, x: Expr) -> Expr:
        if x.type.kind == "uint":
            return x
        return select(x < 0, -x, x) if x.type.kind == "float" else apply("abs", x)


@operator
class Mul(Binary[T], kind="product", symbol="*"):
    """a * b; of two i1, their conjunction."""

    derivative = "mul"
    exact = staticmethod(np.multiply)

    def formula(self, a: Expr, b: Expr) -> Expr:
        return apply("and" if a.type.kind == "bool" else "mul", a, b)


@operator
class Floordiv(Binary[T], kind="arithmetic", symbol="//"):
    """The quotient of integers truncated toward zero; of floats a / b, not truncated.

    An integer divisor of zero is an error when the program runs; INT_MIN // -1 is INT_MIN.
    """

    derivative = "true_div"

    @staticmethod
    def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.divide(a, b) if a.dtype.kind == "f" else np.floor_divide(a - _remainder(a, b), b)

    def formula(self, a: Expr, b: Expr) -> Expr:
        return a / b if a.type.kind == "float" else divide_integers("div", a, b)


@operator
class Mod(Binary[T], kind="arithmetic", symbol="%"):
    """C's remainder, with the sign of the dividend: fmod of floats, computed in f64 unless all
    operands are f32.

    An integer divisor of zero is an error when the program runs; INT_MIN % -1 is 0.
    """

    def gradient(self, g: Any, operands: Any, y: Any) -> Any:
        a, b = operands
        return (g, -(a / b).scalar("trunc") * g)

    def working(self, *elements: ElementType) -> ElementType:
        result = self.rule.result(*elements)
        return F64 if result is F32 and any(e is not F32 for e in elements) else result

    @staticmethod
    def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.fmod(a, b) if a.dtype.kind == "f" else _remainder(a, b)

    def formula(self, a: Expr, b: Expr) -> Expr:
        return apply("rem", a, b) if a.type.kind == "float" else divide_integers("rem", a, b)


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if (b == 0).any():
        raise Unmet(BY_ZERO)
    return np.fmod(a, np.where(b == -1, 1, b).astype(b.dtype) if b.dtype.kind == "i" else b)


class Power(Binary[T]):
    """The family of a to the power of b."""

    scalar = derivative = "pow"

    @staticmethod
    def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype.kind == "f":
            return SCALARS["pow"].numpy(a, b)
        modulus = 1 << BY_DTYPE[a.dtype].bits
        power = np.frompyfunc(lambda x, n: pow(int(x), int(n), modulus) if n >= 0 else 0, 2, 1)
        return np.asarray(power(a, b), object).astype(np.uint64).astype(a.dtype)

    def formula(self, a: Expr, b: Expr) -> Expr:
        return apply("pow", a, b) if a.type.kind == "float" else integer_power(a, b)


@operator
class Pow(Power[T], kind="arithmetic", symbol="**"):
    """a to the power of b: modulo 2^width for integers, 0 where b is negative, 0 ** 0 being 1; C's
    pow for floats.
    """


@operator
class Fpow(Power[T], kind="quotient"):
    """a to the power of b as floats: C's pow."""


@operator
class Clamp(Pointwise[T], kind="arithmetic"):
    """low if x < low, else high if x > high, else x: high where low > high. NaN stays; a bound that
    is NaN is none.
    """

    x: T
    low: T
    high: T

    names = ("x", "low", "high")

    @staticmethod
    def exact(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        raised = np.where(x < low, low, x)
        return np.where(raised > high, high, raised)

    def formula(self, x: Expr, low: Expr, high: Expr) -> Expr:
        return minimum(
            high, maximum(low, x)
        )  # each gives its second operand where the comparison does not hold

    def gradient(self, g: Any, operands: Any, y: Any) -> Any:
        x, low, high = operands
        below = x.scalar("lt", low)
        above = below.scalar("switch", low, x).scalar("gt", high)
        to_raised = above.scalar("switch", 0, g)
        to_high = above.scalar("switch", g, 0)
        return below.scalar("switch", 0, to_raised), below.scalar("switch", to_raised, 0), to_high


@dataclass(frozen=True, eq=False)
class Shift(Binary[T]):
    """The family of shifts: of 8 and 16 bits in 32, and by the count modulo the width of that."""

    def working(self, *elements: ElementType) -> ElementType:
        result = self.rule.result(*elements)
        if result.kind == "bool" or result.bits >= 32:
            return result
        if result.signed:
            return I32
        return UI32


@operator
class Shl(Shift[T], kind="bitwise", symbol="<<"):
    """a shifted left by b; of two i1, a."""

    @staticmethod
    def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (
            a
            if a.dtype.kind == "b"
            else np.left_shift(a, np.mod(b, a.dtype.type(a.dtype.itemsize * 8)))
        )

    def formula(self, a: Expr, b: Expr) -> Expr:
        return a if a.type.kind == "bool" else a << _count(b)


@operator
class Shr(Shift[T], kind="bitwise", symbol=">>"):
    """a shifted right by b, keeping the sign; of two i1, a and not b."""

    @staticmethod
    def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (
            a > b
            if a.dtype.kind == "b"
            else np.right_shift(a, np.mod(b, a.dtype.type(a.dtype.itemsize * 8)))
        )

    def formula(self, a: Expr, b: Expr) -> Expr:
        return a & ~b if a.type.kind == "bool" else a >> _count(b)


def _count(b: Expr) -> Expr:
    return b & (b.type.bits - 1)
