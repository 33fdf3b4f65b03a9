"""Functions that kernels may call, by the Python object that is called: what each does with the
values it is given.
"""

from __future__ import annotations

import ast
import cmath
import math
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from cvm.dialect.kernel_ir import expressions as ex
from cvm.dialect.kernel_ir.scalar_references import fused_doubles
from cvm.dialect.numpy.ufunc_table import UFUNCS, Ufunc
from cvm.dialect.types.tensor_types import BY_DTYPE, F16, I1, I64

from .arrays import Array, Values
from .numbers import BOOL, COMPLEX, FLOAT, INT, Number, NumberType, common

if TYPE_CHECKING:
    from .build import Builder

_INVERTIBLE = ("sin", "cos", "tan", "sinh", "cosh", "tanh")
# functions of math of one float, by their names in the scalar table
_OF_MATH = {
    **{n: n for n in ("sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc")},
    **{n: n for n in (*_INVERTIBLE, *(f"a{n}" for n in _INVERTIBLE))},
    **{n: n for n in ("cbrt", "exp2") if hasattr(math, n)},
    "fabs": "abs",
}
# functions of cmath, by NumPy's names
_OF_CMATH = {
    **{n: n for n in ("sqrt", "exp", "log", "log10", "isnan", "isinf", "isfinite", *_INVERTIBLE)},
    **{f"a{n}": f"arc{n}" for n in _INVERTIBLE},
}

Call = Callable[["Builder", list[Any], ast.Call], Any]
FUNCTIONS: dict[
    Any, tuple[str, Call]
] = {}  # the number of arguments, as "1", "2" or "1 2", and what it does


def offered(function: object, count: str, call: Call) -> None:
    FUNCTIONS[function] = count, call


def _numbers(b: Builder, given: list[object], node: ast.Call) -> list[Number]:
    return [b.number_of(v, node) for v in given]


def _of_math(function: str) -> Call:
    """A function of one float, always Python's."""

    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        (x,) = _numbers(b, given, node)
        return Number(b.let(ex.apply(function, b.to(x, FLOAT, node).expr)), True)

    return call


def _ufunc(row: Ufunc, weak: NumberType | None = None) -> Call:
    """A function of NumPy, in the type that its promotion gives; of math and cmath in Python's."""

    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        xs = _numbers(b, given, node)
        kind = weak or reduce(common, (x.type for x in xs))
        operands = [b.let((b.to(x, kind, node) if weak or x.weak else x).expr) for x in xs]
        types = row.loop(tuple(e.type for e in operands))
        if types is None:
            raise b.source.mistake(
                f"np.{row.name} does not take {' and '.join(str(x.type) for x in xs)}", node
            )
        return Number(b.let(row.expression(operands, types[-1])), weak is not None)

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
            if kind.element.kind == "complex":
                raise b.source.mistake(f"{function} does not take complex numbers", node)
            one, other = (b.let(b.to(v, kind, node).expr) for v in (best, x))
            best = Number(b.let(ex.apply(function, other, one)), kind.weak)
        return best

    return call


def _absolute(b: Builder, given: list[Any], node: ast.Call) -> Number:
    (x,) = _numbers(b, given, node)
    if x.kind == "complex":
        return Number(_ufunc(UFUNCS["absolute"])(b, [x], node).expr, x.weak)
    if x.element is I1:
        return b.to(x, INT, node) if x.weak else x
    return Number(ex.apply("abs", x.expr), x.weak)


def _complex(b: Builder, given: list[Any], node: ast.Call) -> Number:
    x, *imaginary = _numbers(b, given, node)
    if not imaginary:
        return b.to(x, COMPLEX, node)
    re, im = (b.to(v, FLOAT, node).expr for v in (x, *imaginary))
    return Number(ex.apply("complex", re, im), True)


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


def _len(b: Builder, given: list[object], node: ast.Call) -> Number:
    (x,) = given
    if isinstance(x, Values):
        return Number(ex.constant(len(x.items), I64), True)
    if not isinstance(x, Array) or not x.rank:
        raise b.source.mistake(f"len is of arrays and tuples, got {b.described(x)}", node)
    return Number(x.lengths[0], True)


def _divmod(b: Builder, given: list[object], node: ast.Call) -> Values:
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


def _math_pow(b: Builder, given: list[object], node: ast.Call) -> Number:
    x, y = (b.to(v, FLOAT, node) for v in _numbers(b, given, node))
    return b.binary(ast.Pow(), x, y, node)


def _two_floats(function: str) -> Call:
    """A function of math of two floats."""

    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        x, y = (b.to(v, FLOAT, node).expr for v in _numbers(b, given, node))
        return Number(b.let(ex.apply(function, x, y)), True)

    return call


def fma(a: float, b: float, c: float) -> float:
    """Return a * b + c, rounded once. In kernels it takes floats of one type.

    Args:
        a: A factor.
        b: The other factor.
        c: The term that is added.
    """
    return fused_doubles(a, b, c)


def prange(*bounds: int) -> range:
    """range(...), whose iterations a kernel may run at once: none writes what another one reads or
    writes. Numbers that they update by `+ * min max & | ^` are combined in blocks of 1,024
    iterations, the same for any number of threads.
    """
    return range(*bounds)


def _fma(b: Builder, given: list[object], node: ast.Call) -> Number:
    x, y, z = _numbers(b, given, node)
    kind = common(common(x.type, y.type), z.type)
    kind = kind if kind.element.kind == "float" else FLOAT
    return Number(ex.apply("fma", *(b.to(v, kind, node).expr for v in (x, y, z))), kind.weak)


def _comparison(op: ast.cmpop) -> Call:
    def call(b: Builder, given: list[Any], node: ast.Call) -> Number:
        x, y = _numbers(b, given, node)
        return Number(b.compared(op, x, y, node).expr)

    return call


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
    for name, function in _OF_MATH.items():
        offered(getattr(math, name), "1", _of_math(function))
    for name, function in _OF_CMATH.items():
        offered(getattr(cmath, name), "1", _ufunc(UFUNCS[function], COMPLEX))
    for name in ("floor", "ceil", "trunc"):
        offered(getattr(math, name), "1", _whole(name))
    for name in ("min", "max"):
        offered({"min": min, "max": max}[name], "*", _extreme(name))
    for function in (abs, np.abs):
        offered(function, "1", _absolute)
    for name in ("isnan", "isinf", "isfinite"):
        offered(getattr(math, name), "1", _ufunc(UFUNCS[name], FLOAT))
    offered(math.pow, "2", _math_pow)
    offered(math.atan2, "2", _two_floats("atan2"))
    offered(math.fmod, "2", _two_floats("rem"))
    offered(round, "1", _round)
    offered(int, "1", _int)
    offered(float, "1", _convert(FLOAT))
    offered(complex, "1 2", _complex)
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
    for element in {e for e in BY_DTYPE.values() if e is not F16}:
        offered(element.dtype.type, "1", _convert(NumberType(element)))
    for name, row in UFUNCS.items():
        function = getattr(np, name, None)
        if isinstance(function, np.ufunc) and function.nout == 1 and function not in FUNCTIONS:
            offered(function, str(row.arity), _ufunc(row))


_fill()
NAMES = sorted({getattr(f, "__name__", "") for f in FUNCTIONS})
