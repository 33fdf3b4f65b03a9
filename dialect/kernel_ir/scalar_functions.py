"""The scalar functions: a row each, with arity, element types, result type and NumPy meaning.

Index notation, the loop language and all back ends share these meanings. Operands of a row have
equal types (exceptions are noted); conversions are explicit, by `cast`. Integers wrap modulo
2^width.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..types.cast_arrays import converted
from ..types.tensor_types import C64, C128, F32, F64, I1, I32, ElementType
from .integer_lookup_tables import ROWS
from .scalar_references import by_element, erfcx, fused, precise


@dataclass(frozen=True)
class ScalarFunction:
    """A function of scalars: `kinds` it accepts (of its last operand), `result` from the operand
    types, and `numpy`.
    """

    name: str
    arity: int
    kinds: frozenset[str]
    numpy: Callable[..., Any]
    predicate: bool = False
    element: Callable[[ElementType], ElementType] | None = (
        None  # the result's type, if it is not the last operand's
    )
    symbol: str = ""
    doc: str = ""
    identity: Callable[[ElementType], object] | None = None
    only: ElementType | None = None  # the one element type, where not all of the kinds are taken
    # error bound of back ends against `numpy`, in units of the last place: 0 is exactly rounded
    ulps: int = 0

    def takes(self, *operands: ElementType) -> bool:
        """Test whether operands have types that the function is defined for: equal ones, but for a
        condition.
        """
        compared = operands[self.name in ("select", "rarely") :]
        return (
            len(operands) == self.arity
            and len({*compared}) == 1
            and (compared == operands or operands[0] is I1)
            and compared[0].kind in self.kinds
            and (self.only is None or compared[0] is self.only)
        )

    def result(self, *operands: ElementType) -> ElementType:
        if self.element is not None:
            return self.element(operands[-1])
        return I1 if self.predicate else operands[-1]


SCALARS: dict[str, ScalarFunction] = {}

BOOL = frozenset({"bool"})
INTEGERS = frozenset({"int", "uint"})
DISCRETE = INTEGERS | BOOL
FLOATS = frozenset({"float"})
REALS = INTEGERS | FLOATS
COMPLEX = frozenset({"complex"})
NUMBERS = REALS | COMPLEX
ANY = NUMBERS | BOOL


def _row(
    name: str, arity: int, kinds: frozenset[str], numpy: Any, symbol: str = "", **more: Any
) -> None:
    SCALARS[name] = ScalarFunction(name, arity, kinds, numpy, symbol=symbol, **more)


def _least(e: ElementType) -> Any:
    return -np.inf if e.kind == "float" else e.limits[0]


def _greatest(e: ElementType) -> Any:
    return np.inf if e.kind == "float" else e.limits[1]


def _all_ones(e: ElementType) -> Any:
    return e.limits[1] if e.kind == "uint" else -1


DIVISIONS = ("div", "rem", "floordiv", "floormod")


def _by_one_for_zero(quotient: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The quotient or remainder of integers, where a divisor of 0 counts as 1."""
    return lambda a, b: quotient(a, np.where(np.equal(b, 0), np.ones_like(b), b))


def _truncated_div(a: Any, b: Any) -> Any:
    """C's integer quotient; INT_MIN / -1 wraps."""
    if np.asarray(a).dtype.kind == "u":
        return a // b
    quotient = np.floor_divide(a, b)
    return np.where(
        (np.remainder(a, b) != 0) & ((a < 0) != (b < 0)), quotient + 1, quotient
    ).astype(quotient.dtype)


def _truncated_rem(a: object, b: object) -> Any:
    return (a - _truncated_div(a, b) * b).astype(np.asarray(a).dtype)


_integer_div, _integer_rem = map(_by_one_for_zero, (_truncated_div, _truncated_rem))


def _pair(re: np.ndarray, im: np.ndarray) -> np.ndarray:
    z = np.empty(
        np.broadcast_shapes(re.shape, im.shape),
        np.complex64 if re.dtype == np.float32 else np.complex128,
    )
    z.real, z.imag = re, im
    return z


def _larger(a: Any, b: Any) -> Any:
    """NumPy's maximum; for zeros of both signs the positive one."""
    return np.where((a == 0) & (b == 0), a + b, np.maximum(a, b))


# arithmetic; `div` of integers truncates toward zero. A divisor of 0 counts as 1 for integers:
# operators whose specification says otherwise guard their formulas
_row("add", 2, NUMBERS, np.add, "+", identity=lambda e: 0)
_row("sub", 2, NUMBERS, np.subtract, "-")
_row("mul", 2, NUMBERS, np.multiply, "*", identity=lambda e: 1)
_row(
    "div",
    2,
    REALS,
    lambda a, b: (np.divide if np.asarray(a).dtype.kind == "f" else _integer_div)(a, b),
    "/",
)
_row(
    "rem",
    2,
    REALS,
    lambda a, b: (np.fmod if np.asarray(a).dtype.kind == "f" else _integer_rem)(a, b),
    "%",
    doc="C's remainder: the sign of the dividend",
)
_row(
    "floordiv",
    2,
    INTEGERS,
    _by_one_for_zero(np.floor_divide),
    "//",
    doc="rounded toward minus infinity; a divisor of 0 counts as 1",
)
_row(
    "floormod",
    2,
    INTEGERS,
    _by_one_for_zero(np.remainder),
    "mod",
    doc="the sign of the divisor; 0 for a divisor of 0, which counts as 1",
)
_row("neg", 1, NUMBERS, np.negative, "-")
_row("abs", 1, REALS, np.abs, doc="INT_MIN stays; clears the sign of a float")
_row("fma", 3, FLOATS, fused, doc="a * b + c, rounded once")

# order; of floats, the second operand unless the comparison holds: max(a, b) = b unless a > b
_row("max", 2, REALS | BOOL, lambda a, b: np.where(a > b, a, b), identity=_least)
_row("min", 2, REALS | BOOL, lambda a, b: np.where(a < b, a, b), identity=_greatest)
_row(
    "maximum",
    2,
    FLOATS,
    lambda a, b: _larger(a, b),
    identity=_least,
    doc="the larger one; NaN if one is; -0.0 is below 0.0",
)
_row(
    "minimum",
    2,
    FLOATS,
    lambda a, b: -_larger(-a, -b),
    identity=_greatest,
    doc="the smaller one; likewise",
)
_row("eq", 2, ANY, np.equal, "==", predicate=True)
_row("ne", 2, ANY, np.not_equal, "!=", predicate=True)
_row("lt", 2, REALS | BOOL, np.less, "<", predicate=True)
_row("le", 2, REALS | BOOL, np.less_equal, "<=", predicate=True)
_row("gt", 2, REALS | BOOL, np.greater, ">", predicate=True)
_row("ge", 2, REALS | BOOL, np.greater_equal, ">=", predicate=True)

# bits; a shift count is in [0, width)
_row(
    "and",
    2,
    DISCRETE,
    np.bitwise_and,
    "&",
    identity=lambda e: True if e.kind == "bool" else _all_ones(e),
)
_row("or", 2, DISCRETE, np.bitwise_or, "|", identity=lambda e: 0)
_row("xor", 2, DISCRETE, np.bitwise_xor, "^", identity=lambda e: 0)
_row("not", 1, DISCRETE, np.invert, "~")
_row("shl", 2, INTEGERS, np.left_shift, "<<")
_row(
    "shr",
    2,
    INTEGERS,
    np.right_shift,
    ">>",
    doc="arithmetic for signed types, logical for unsigned",
)
_row(
    "ipow",
    2,
    INTEGERS,
    lambda a, b: _integer_power(np.asarray(a), np.asarray(b)),
    doc="a to the power of b modulo 2^width, the bits of b being a natural number",
)
for _rows in ROWS:
    for _name in _rows.columns:
        _row(
            _name,
            1,
            frozenset({"int"}),
            _rows.at(_name),
            doc="a number of the row that the low bits say",
            element=lambda e: F64,
        )
_row(
    "clz",
    1,
    INTEGERS,
    lambda a: _leading_zeros(np.asarray(a)),
    doc="leading zero bits; the width for zero",
)

_row(
    "pairdot",
    2,
    INTEGERS,
    lambda a, b: _pair_products(a, b),
    only=I32,
    doc="the sum of the products of signed 16-bit halves",
)
_row(
    "quaddot",
    2,
    INTEGERS,
    lambda a, b: _quad_products(a, b),
    only=I32,
    doc="the same of signed 8-bit quarters",
)
_row(
    "quaddot_uu",
    2,
    INTEGERS,
    lambda a, b: _quad_products(a, b, 255, 255),
    only=I32,
    doc="of unsigned ones",
)
_row(
    "quaddot_us",
    2,
    INTEGERS,
    lambda a, b: _quad_products(a, b, 255),
    only=I32,
    doc="of unsigned ones with signed ones",
)
_row(
    "quaddot_su",
    2,
    INTEGERS,
    lambda a, b: _quad_products(b, a, 255),
    only=I32,
    doc="of signed ones with unsigned ones",
)
_row(
    "bytepairs",
    2,
    INTEGERS,
    lambda a, b: _byte_pairs(a, b),
    only=I32,
    doc="in each 16-bit half the sum of two products of unsigned bytes with signed ones; the "
    "nearest that fits",
)
_row(
    "addhalves",
    2,
    INTEGERS,
    lambda a, b: _joined(np.right_shift(a, 16) + np.right_shift(b, 16), a + b),
    only=I32,
    doc="the sums of 16-bit halves, modulo 2^16",
)
_row(
    "subhalves",
    2,
    INTEGERS,
    lambda a, b: _joined(np.right_shift(a, 16) - np.right_shift(b, 16), a - b),
    only=I32,
    doc="the differences of 16-bit halves, modulo 2^16",
)

# a value chosen by a condition, both sides being evaluated (index notation has `when` for the other
# kind)
_row("select", 3, ANY, lambda c, a, b: np.where(c, a, b))
_row(
    "rarely",
    3,
    REALS | BOOL,
    lambda c, a, b: np.where(c, a, b),
    doc="select by a condition that hardly any element meets",
)
_row(
    "any",
    1,
    BOOL,
    lambda a: a,
    doc="whether it holds for this element, or for one that is computed together with it",
)

# float functions that IEEE 754 rounds exactly
_row("sqrt", 1, FLOATS, np.sqrt)
_row("floor", 1, FLOATS, np.floor)
_row("ceil", 1, FLOATS, np.ceil)
_row("trunc", 1, FLOATS, np.trunc)
_row("rint", 1, FLOATS, np.rint, doc="to the nearest integer, halves to even")
_row(
    "lrint",
    1,
    FLOATS,
    lambda a: converted(np.rint(a), I32),
    doc="the same as i32, in which it is",
    element=lambda e: I32,
)

# transcendental functions, here in higher precision and rounded; the back ends' are within 2 ulp of
# them
for _name in ("cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"):
    _row(_name, 1, FLOATS, precise(getattr(np, _name)), ulps=2)
for _name in ("sin", "cos", "tan", "sinh", "cosh", "tanh"):
    _row(_name, 1, FLOATS, precise(getattr(np, _name)), ulps=2)
for _name in ("asin", "acos", "atan", "asinh", "acosh", "atanh"):
    _row(_name, 1, FLOATS, precise(getattr(np, f"arc{_name[1:]}")), ulps=2)
_row(
    "pow",
    2,
    FLOATS,
    precise(np.power),
    doc="C's: 1 for x ** 0 and 1 ** x, also where the other is NaN",
    ulps=2,
)
_row(
    "atan2",
    2,
    FLOATS,
    precise(np.arctan2),
    doc="the angle of the point (b, a), in all four quadrants",
    ulps=2,
)

_row("sigmoid", 1, FLOATS, precise(lambda x: 1 / (1 + np.exp(-x))), doc="1 / (1 + exp(-a))", ulps=2)
_row("softplus", 1, FLOATS, precise(lambda x: np.logaddexp(0, x)), doc="log(1 + exp(a))", ulps=2)
_row("erf", 1, FLOATS, by_element(math.erf), doc="the error function", ulps=2)
_row("erfc", 1, FLOATS, by_element(math.erfc), doc="1 - erf(a)", ulps=2)
_row("erfcx", 1, FLOATS, by_element(erfcx), doc="exp(a * a) * erfc(a)", ulps=2)

# parts of complex numbers
_row(
    "complex",
    2,
    FLOATS,
    lambda re, im: _pair(np.asarray(re), np.asarray(im)),
    element=lambda e: C64 if e is F32 else C128,
)
_row("real", 1, COMPLEX, np.real, element=lambda e: F32 if e is C64 else F64)
_row("imag", 1, COMPLEX, np.imag, element=lambda e: F32 if e is C64 else F64)


def _pair_products(a: Any, b: Any) -> Any:
    low = np.left_shift(a, 16) >> 16, np.left_shift(b, 16) >> 16
    return low[0] * low[1] + np.right_shift(a, 16) * np.right_shift(b, 16)


def _quad_products(a: Any, b: Any, first: int = -1, second: int = -1) -> Any:
    """A mask of 255 takes the signs of an operand's quarters."""
    parts = [
        [np.left_shift(x, up) >> 24 & m for up in (24, 16, 8, 0)]
        for x, m in ((a, first), (b, second))
    ]
    return sum(x * y for x, y in zip(*parts, strict=True))


def _byte_pairs(a: Any, b: Any) -> Any:
    products = [
        (np.right_shift(a, n) & 255) * (np.left_shift(b, 24 - n) >> 24) for n in (0, 8, 16, 24)
    ]
    low, high = (np.clip(products[n] + products[n + 1], -(1 << 15), (1 << 15) - 1) for n in (0, 2))
    return _joined(high, low)


def _joined(high: Any, low: Any) -> Any:
    return np.left_shift(high, 16) | (low & 0xFFFF)


def _integer_power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    product = np.ones(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    square = a
    for k in range(a.dtype.itemsize * 8):
        product = np.where((b >> b.dtype.type(k)) & 1, product * square, product)
        square = square * square
    return product


def _leading_zeros(a: np.ndarray) -> np.ndarray:
    width = a.dtype.itemsize * 8
    bits = np.frompyfunc(lambda n: (int(n) % (1 << width)).bit_length(), 1, 1)(a)
    return np.asarray(width - bits).astype(a.dtype)
