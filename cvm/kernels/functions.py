"""Functions that kernels may call, by the Python object that is called: what each does with the
values it is given.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cvm.dialect.kernel_ir import expressions as ex
from cvm.dialect.types.tensor_types import BY_DTYPE, F16, F64, I1, I64

from .arrays import Array, Values
from .numbers import BOOL, FLOAT, INT, Number, NumberType, common

if TYPE_CHECKING:
    from .build import Builder

# NumPy's name of a function of one float, and that of the scalar table
_UNARY = {
    **{
        n: n
        for n in (
            "sqrt",
            "cbrt",
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sin",
            "cos",
            "tan",
        )
    },
    **{n: n for n in ("sinh", "cosh", "tanh")},
    **{f"arc{n}": f"a{n}" for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
}
_ROUNDING = ("floor", "ceil", "trunc", "rint")
_OF_MATH = {
    **{
        n: n
        for n in (
            "sqrt",
            "exp",
            "expm1",
            "log2",
            "log10",
            "log1p",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
        )
    },
    **{n: n for n in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "erfc")},
    **{n: n for n in ("cbrt", "exp2") if hasattr(math, n)},
    "fabs": "abs",
}

Call = Callable[["Builder", list[Any], ast.Call], Any]
FUNCTIONS: dict[
    Any, tuple[str, Call]
] = {}  # the number of arguments, as "1", "2" or "1 2", and what it does


def offered(function: Any, count: str, call: Call) -> None:
    FUNCTIONS[function] = count, call


def _numbers(b: Builder, given: list[Any], node: ast.Call) -> list[Number]:
    return [b.number_of(v, node) for v in given]


def _unary_of_floats(function: str, python: bool) -> Call:
    """A function of floats; of NumPy in the argument's type, of `math` always Python's."""

    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        (x,) = _numbers(b, given, node)
        kind = (
            FLOAT
            if python
            else NumberType(x.element if x.kind == "float" and not x.weak else _float_for(x))
        )
        return Number(b.let(ex.apply(function, b.to(x, kind, node).expr)), kind.weak)

    return call


def _float_for(x: Number) -> Any:
    """The float type in which NumPy's functions take a number."""
    if x.weak:
        return F64
    return BY_DTYPE[np.result_type(x.element.dtype, np.float16)] if x.element.bits <= 16 else F64


def _rounded(function: str) -> Call:
    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        (x,) = _numbers(b, given, node)
        if x.kind != "float":
            return Number(b.to(x, INT, node).expr if x.weak else x.expr)
        return Number(ex.apply(function, x.expr))

    return call


def _whole(function: str) -> Call:
    """math.floor and the like: a Python integer."""

    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        (x,) = _numbers(b, given, node)
        if x.kind != "float":
            return b.to(x, INT, node)
        return Number(b.to_integer(Number(ex.apply(function, x.expr)), I64, node), True)

    return call


def _extreme(function: str) -> Call:
    """Python's min or max: the first operand, unless a later one is less."""

    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        if len(given) == 1 and isinstance(given[0], Values):
            items = [b.number_of(v, node) for v in given[0].items]
        else:
            items = _numbers(b, given, node)
        if not items:
            raise b.source.mistake(f"{function} of no numbers", node)
        best = items[0]
        for x in items[1:]:
            kind = common(best.type, x.type)
            one, other = (b.let(b.to(v, kind, node).expr) for v in (best, x))
            best = Number(b.let(ex.apply(function, other, one)), kind.weak)
        return best

    return call


def _larger(function: str) -> Call:
    """NumPy's minimum or maximum, which gives NaN if an operand is one."""

    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        x, y = _numbers(b, given, node)
        kind = common(x.type, y.type)
        name = f"{function}imum" if kind.element.kind == "float" else function
        return Number(ex.apply(name, b.to(x, kind, node).expr, b.to(y, kind, node).expr))

    return call


def _absolute(b: Builder, given: list[Any], node: ast.Call) -> Number:
    (x,) = _numbers(b, given, node)
    if x.element is I1:
        return b.to(x, INT, node) if x.weak else x
    return Number(ex.apply("abs", x.expr), x.weak)


def _round(b: Builder, given: list[Any], node: ast.Call) -> Number:
    return _whole("rint")(b, given, node)


def _int(b: Builder, given: list[Any], node: ast.Call) -> Number:
    return _whole("trunc")(b, given, node)


def _convert(kind: NumberType) -> Call:
    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        (x,) = _numbers(b, given, node)
        if kind.element is I1:
            return Number(b.truth(x), kind.weak)
        return b.to(x, kind, node, wraps=not x.weak)

    return call


def _len(b: Builder, given: list[Any], node: ast.Call) -> Number:
    (x,) = given
    if isinstance(x, Values):
        return Number(ex.constant(len(x.items), I64), True)
    if not isinstance(x, Array) or not x.rank:
        raise b.source.mistake(f"len is of arrays and tuples, got {b.described(x)}", node)
    return Number(x.lengths[0], True)


def _divmod(b: Builder, given: list[Any], node: ast.Call) -> Values:
    x, y = _numbers(b, given, node)
    if "float" in (x.kind, y.kind):
        return Values(b.divmod_of_floats(x, y, node))
    return Values((b.binary(ast.FloorDiv(), x, y, node), b.binary(ast.Mod(), x, y, node)))


def _operator(op: ast.operator) -> Call:
    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        x, y = _numbers(b, given, node)
        if x.weak and y.weak:
            x, y = Number(x.expr), Number(y.expr)
        return Number(b.binary(op, x, y, node).expr)

    return call


def _math_pow(b: Builder, given: list[Any], node: ast.Call) -> Number:
    x, y = (b.to(v, FLOAT, node) for v in _numbers(b, given, node))
    return b.binary(ast.Pow(), x, y, node)


def _two_floats(function: str, python: bool) -> Call:
    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        x, y = _numbers(b, given, node)
        kind = common(x.type, y.type)
        kind = FLOAT if python or kind.element.kind != "float" else kind
        return Number(
            b.let(ex.apply(function, b.to(x, kind, node).expr, b.to(y, kind, node).expr)), python
        )

    return call


def _is(test: str, python: bool) -> Call:
    """Tests of floats: isnan, isinf, isfinite."""

    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        (x,) = _numbers(b, given, node)
        if x.kind != "float":
            return Number(ex.Const(test == "isfinite", I1), python)
        e = b.let(x.expr)
        if test == "isnan":
            return Number(e.ne(e), python)
        size, end = ex.apply("abs", e), ex.Const(math.inf, e.type)
        return Number(size.eq(end) if test == "isinf" else size < end, python)

    return call


def fma(a: float, b: float, c: float) -> float:
    """Return a * b + c, rounded once. In kernels it takes floats of one type.

    Args:
        a: A factor.
        b: The other factor.
        c: The term that is added.
    """
    from fractions import Fraction

    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def prange(*bounds: int) -> range:
    """range(...), whose iterations a kernel may run at once: none writes what another one reads or
    writes. Numbers that they update by `+ * min max & | ^` are combined in blocks of 1,024
    iterations, the same for any number of threads.
    """
    return range(*bounds)


def _fma(b: Builder, given: list[Any], node: ast.Call) -> Number:
    x, y, z = _numbers(b, given, node)
    kind = common(common(x.type, y.type), z.type)
    kind = kind if kind.element.kind == "float" else FLOAT
    return Number(ex.apply("fma", *(b.to(v, kind, node).expr for v in (x, y, z))), kind.weak)


def _comparison(op: ast.cmpop) -> Call:
    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        x, y = _numbers(b, given, node)
        return Number(b.compared(op, x, y, node).expr)

    return call


def _logical(function: str) -> Call:
    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        x, y = (b.truth(v) for v in _numbers(b, given, node))
        return Number(ex.apply(function, x, y))

    return call


def _logical_not(b: Builder, given: list[Any], node: ast.Call) -> Number:
    (x,) = _numbers(b, given, node)
    return Number(~b.truth(x))


def _negative(b: Builder, given: list[Any], node: ast.Call) -> Number:
    (x,) = _numbers(b, given, node)
    return Number(b.unary(ast.USub(), x, node).expr)


def _square(b: Builder, given: list[Any], node: ast.Call) -> Number:
    (x,) = _numbers(b, given, node)
    x = Number(b.let(x.expr))
    return Number(b.binary(ast.Mult(), x, x, node).expr)


def _fill() -> None:
    for function, op in (
        (np.less, ast.Lt()),
        (np.less_equal, ast.LtE()),
        (np.greater, ast.Gt()),
        (np.greater_equal, ast.GtE()),
        (np.equal, ast.Eq()),
        (np.not_equal, ast.NotEq()),
    ):
        offered(function, "2", _comparison(op))
    for function, name in ((np.logical_and, "and"), (np.logical_or, "or"), (np.logical_xor, "xor")):
        offered(function, "2", _logical(name))
    offered(np.logical_not, "1", _logical_not)
    offered(np.negative, "1", _negative)
    offered(np.square, "1", _square)
    for name, function in _UNARY.items():
        offered(getattr(np, name), "1", _unary_of_floats(function, False))
    for name, function in _OF_MATH.items():
        offered(getattr(math, name), "1", _unary_of_floats(function, True))
    offered(math.log, "1", _unary_of_floats("log", True))
    for name in _ROUNDING:
        offered(getattr(np, name), "1", _rounded(name))
    for name in ("floor", "ceil", "trunc"):
        offered(getattr(math, name), "1", _whole(name))
    for name in ("min", "max"):
        offered({"min": min, "max": max}[name], "*", _extreme(name))
        offered(getattr(np, f"{name}imum"), "2", _larger(name))
    for function in (abs, np.abs, np.fabs):
        offered(function, "1", _absolute)
    for name in ("isnan", "isinf", "isfinite"):
        offered(getattr(np, name), "1", _is(name, False))
        offered(getattr(math, name), "1", _is(name, True))
    offered(math.pow, "2", _math_pow)
    offered(math.atan2, "2", _two_floats("atan2", True))
    offered(np.arctan2, "2", _two_floats("atan2", False))
    offered(math.fmod, "2", _two_floats("rem", True))
    offered(round, "1", _round)
    offered(int, "1", _int)
    offered(float, "1", _convert(FLOAT))
    offered(bool, "1", _convert(BOOL))
    offered(len, "1", _len)
    offered(divmod, "2", _divmod)
    offered(fma, "3", _fma)
    operators = {
        "add": ast.Add,
        "subtract": ast.Sub,
        "multiply": ast.Mult,
        "true_divide": ast.Div,
        "floor_divide": ast.FloorDiv,
        "remainder": ast.Mod,
        "power": ast.Pow,
        "bitwise_and": ast.BitAnd,
        "bitwise_or": ast.BitOr,
        "bitwise_xor": ast.BitXor,
        "left_shift": ast.LShift,
        "right_shift": ast.RShift,
    }
    for name, op in operators.items():
        offered(getattr(np, name), "2", _operator(op()))
    for element in {e for e in BY_DTYPE.values() if e.kind != "complex" and e is not F16}:
        offered(element.dtype.type, "1", _convert(NumberType(element)))


_fill()
NAMES = sorted({getattr(f, "__name__", "") for f in FUNCTIONS})
