"""Numbers of kernels: types by NumPy's rules, in which Python's own numbers are weak (NEP 50), and
arithmetic.
"""

from __future__ import annotations

import ast
import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.numpy.ufunc_table import UFUNCS
from cvm.dialect.types.tensor_types import (
    BY_DTYPE,
    C64,
    C128,
    F64,
    I1,
    I64,
    ElementType,
    promoted,
)

from .blocks import Blocks

NAMES = {"bool": "bool", "int": "int", "uint": "int", "float": "float", "complex": "complex"}


@dataclass(frozen=True)
class NumberType:
    """An element type; `weak` is that of a number of Python's own."""

    element: ElementType
    weak: bool = False

    def __str__(self) -> str:
        return NAMES[self.element.kind] if self.weak else self.element.dtype.name


BOOL, INT, FLOAT, COMPLEX = (NumberType(e, True) for e in (I1, I64, F64, C128))
_ORDER = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}


@dataclass(frozen=True, eq=False)
class Number:
    """A number: an expression, and whether it is one of Python's own."""

    expr: ex.Expr
    weak: bool = False

    @property
    def element(self) -> ElementType:
        return self.expr.type

    @property
    def type(self) -> NumberType:
        return NumberType(self.element, self.weak)

    @property
    def kind(self) -> str:
        return self.element.kind

    @property
    def constant(self) -> Any:
        """The value, if it is known; None otherwise."""
        return self.expr.value if isinstance(self.expr, ex.Const) else None


def of_python(value: object) -> Number | None:
    """A constant; None of a value that is no number of kernels."""
    if isinstance(value, np.generic):
        element = BY_DTYPE.get(value.dtype)
        return None if element is None else Number(ex.Const(value.item(), element))
    if isinstance(value, bool):
        return Number(ex.Const(value, I1), True)
    if isinstance(value, int):
        return Number(ex.constant(value, I64), True) if -(2**63) <= value < 2**63 else None
    kind = {float: F64, complex: C128}.get(type(value))
    return None if kind is None else Number(ex.Const(value, kind), True)


def common(a: NumberType, b: NumberType) -> NumberType:
    """The common type of two, NumPy's promotion."""
    if a.weak and b.weak:
        return a if _ORDER[a.element.kind] >= _ORDER[b.element.kind] else b
    if not a.weak and not b.weak:
        return NumberType(promoted(a.element, b.element))
    weak, strong = (a, b) if a.weak else (b, a)
    if _ORDER[weak.element.kind] <= _ORDER[strong.element.kind]:
        return strong
    narrow = weak.element is C128 and strong.element.kind == "float" and strong.element is not F64
    return NumberType(C64 if narrow else weak.element)


class Arithmetic(Blocks):
    """Operations on numbers, each rounded on its own."""

    def to(self, value: Number, type: NumberType, node: ast.AST, wraps: bool = False) -> Number:
        """A number as one of another type, as NumPy assigns it: Python's integers have to fit."""
        element, e = type.element, value.expr
        if value.element is element:
            return Number(e, type.weak)
        if value.kind == "complex" and element.kind != "complex":
            message = "expected a real number, got a complex one: use .real or .imag"
            raise self.source.mistake(message, node)
        if value.kind == "float" and element.is_integer:
            return Number(self.to_integer(value, element, node), type.weak)
        fits = value.element.is_integer and element.is_integer and not wraps
        if fits and isinstance(e, ex.Const):
            low, high = element.limits
            if not low <= e.value <= high:
                raise self.source.mistake(
                    f"{e.value} is out of range for {element.dtype.name}", node
                )
            return Number(ex.Const(e.value, element), type.weak)
        if fits:
            e = self.let(e)
            (least, most), (low, high) = value.element.limits, element.limits
            tests = [e < low] if least < low else []
            tests += [e > high] if most > high else []
            if tests and self.checks:
                message = f"the integer {{0}} is out of range for {element.dtype.name}"
                bad = tests[0] | tests[1] if len(tests) > 1 else tests[0]
                self.fail_if(bad, "OverflowError", message, node, e)
        if isinstance(e, ex.Const) and element.kind in ("float", "complex"):
            return Number(ex.constant(e.value, element), type.weak)
        return Number(ex.cast(e, element), type.weak)

    def to_integer(self, value: Number, element: ElementType, node: ast.AST) -> ex.Expr:
        """A float without its fraction; one that no integer is, is an error."""
        e = self.let(value.expr)
        if self.checks and value.element.bits >= 32:
            low, high = element.limits
            below = ex.Const(float(low - 1) if element.bits <= 32 else float(low), e.type)
            inside = (
                e > below
                if element.bits <= 32 and e.type is F64
                else e >= ex.Const(float(low), e.type)
            ) & (e < ex.Const(float(high + 1), e.type))
            with self.block() as block:
                self.fail_if(e.ne(e), "ValueError", "NaN is no integer", node)
                message = f"the float is out of range for {element.dtype.name}"
                self.fail("OverflowError", message, node)
            self.out.append(ir.If(~inside, tuple(block)))
        return ex.cast(e, element)

    def truth(self, value: Number) -> ex.Expr:
        """Test whether a number is not zero."""
        if value.element is I1:
            return value.expr
        if isinstance(value.expr, ex.Const):
            return ex.Const(bool(value.expr.value), I1)
        return value.expr.ne(ex.constant(0, value.element))

    def binary(self, op: ast.operator, a: Number, b: Number, node: ast.AST) -> Number:
        """An operation of two numbers, in the type that NumPy gives it."""
        name = type(op).__name__
        if (found := _folded(name, a, b)) is not None:
            return found
        if name in ("Div", "Pow") or (name in ("FloorDiv", "Mod") and "float" in (a.kind, b.kind)):
            return getattr(self, f"_{name.lower()}")(a, b, node)
        kind = common(a.type, b.type)
        if kind == BOOL and name not in ("BitAnd", "BitOr", "BitXor"):
            kind = INT
        if name in ("LShift", "RShift", "BitAnd", "BitOr", "BitXor") and kind.element.kind in (
            "float",
            "complex",
        ):
            raise self.source.mistake(
                f"{_SYMBOLS[name]} takes integers, got {a.type} and {b.type}", node
            )
        if kind.element.kind == "complex" and name not in _PLAIN:
            raise self.source.mistake(f"{_SYMBOLS[name]} does not take complex numbers", node)
        if kind.element is I1 and name not in ("Add", "Mult", "BitAnd", "BitOr", "BitXor"):
            raise self.source.mistake(f"{_SYMBOLS[name]} does not take NumPy's booleans", node)
        x, y = self.to(a, kind, node).expr, self.to(b, kind, node).expr
        if kind.element is I1:
            name = {"Add": "BitOr", "Mult": "BitAnd"}.get(name, name)
        if name in _PLAIN:
            return Number(ex.apply(_PLAIN[name], x, y), kind.weak)
        return Number(getattr(self, f"_{name.lower()}")(x, y, kind, node), kind.weak)

    def _floordiv(self, x: Any, y: Any, kind: Any, node: ast.AST | None = None) -> Any:
        if isinstance(x, Number):
            return self.divmod_of_floats(x, y, kind)[0]
        return self.divided("floordiv", x, y, node or kind)

    def _mod(self, x: Any, y: Any, kind: Any, node: ast.AST | None = None) -> Any:
        if isinstance(x, Number):
            return self.divmod_of_floats(x, y, kind)[1]
        return self.divided("floormod", x, y, node or kind)

    def divided(self, function: str, x: ex.Expr, y: ex.Expr, node: ast.AST) -> ex.Expr:
        """A quotient or remainder of integers; a divisor of zero is an error."""
        y = self.let(y)
        if isinstance(y, ex.Const) and y.value:
            return ex.apply(function, x, y)
        if self.checks:
            self.fail_if(y.eq(0), "ZeroDivisionError", "integer division or modulo by zero", node)
        elif not isinstance(y, ex.Const):
            y = ex.select(y.eq(0), 1, y)
        if isinstance(y, ex.Const):
            return ex.constant(0, x.type)
        return self.let(ex.Apply(function, (x, y), x.type))

    def divmod_of_floats(self, a: Number, b: Number, node: ast.AST) -> tuple[Number, Number]:
        """The quotient rounded down, and the remainder with the divisor's sign, as NumPy computes
        them.
        """
        kind = common(a.type, b.type)
        x, y = (self.let(self.to(v, kind, node).expr) for v in (a, b))
        zero, one = (ex.Const(n, x.type) for n in (0.0, 1.0))
        minus = ex.Const(-0.0, x.type)
        rest = first = self.let(ex.apply("rem", x, y))
        turned = (y < zero).ne(rest < zero) & rest.ne(zero)
        quotient = self.let((x - rest) / y)
        signed = self.let(ex.select(y < zero, minus, zero))
        rest = self.let(ex.select(rest.eq(zero), signed, ex.select(turned, rest + y, rest)))
        quotient = self.let(ex.select(turned, quotient - one, quotient))
        down = self.let(ex.apply("floor", quotient))
        down = ex.select(quotient - down > ex.Const(0.5, x.type), down + one, down)
        ratio = self.let(x / y)
        none = ex.select(ratio < zero, minus, ex.select(ratio > zero, zero, ratio * zero))
        whole = self.let(ex.select(quotient.eq(zero), none, down))
        by_zero = y.eq(zero)
        return (
            Number(self.let(ex.select(by_zero, ratio, whole)), kind.weak),
            Number(self.let(ex.select(by_zero, first, rest)), kind.weak),
        )

    def _div(self, a: Number, b: Number, node: ast.AST) -> Number:
        kind = common(a.type, b.type)
        if kind.element.kind == "complex":
            return self._of_complex("divide", a, b, kind, node)
        if kind.element.kind != "float":
            kind = NumberType(F64, kind.weak)
        return Number(self.to(a, kind, node).expr / self.to(b, kind, node).expr, kind.weak)

    def _of_complex(
        self, ufunc: str, a: Number, b: Number, kind: NumberType, node: ast.AST
    ) -> Number:
        operands = [self.let(self.to(v, kind, node).expr) for v in (a, b)]
        found = UFUNCS[ufunc].expression(operands, kind.element)
        return Number(self.let(found), kind.weak)

    def _pow(self, a: Number, b: Number, node: ast.AST) -> Number:
        kind = common(a.type, b.type)
        if kind.element.kind == "complex":
            if b.constant != 2:
                return self._of_complex("power", a, b, kind, node)
            x = self.let(self.to(a, kind, node).expr)
            return Number(x * x, kind.weak)
        if kind.element.kind != "float" and not (kind.weak and (b.constant or 0) < 0):
            kind = INT if kind == BOOL else kind
            x, y = self.to(a, kind, node).expr, self.let(self.to(b, kind, node).expr)
            if kind.element.signed and self.checks:
                bad = ex.Const(y.value < 0, I1) if isinstance(y, ex.Const) else y < 0
                self.fail_if(
                    bad, "ValueError", "integers to negative integer powers are not allowed", node
                )
            return Number(ex.apply("ipow", x, y), kind.weak)
        kind = kind if kind.element.kind == "float" else FLOAT
        x = self.to(a, kind, node).expr
        if b.constant == 2:
            x = self.let(x)
            return Number(x * x, kind.weak)
        return Number(self.let(ex.apply("pow", x, self.to(b, kind, node).expr)), kind.weak)

    def _lshift(self, x: ex.Expr, y: ex.Expr, kind: NumberType, node: ast.AST) -> ex.Expr:
        x, y = self.let(x), self._count(y, kind, node)
        if isinstance(y, ex.Const) and 0 <= y.value < x.type.bits:
            return ex.apply("shl", x, y)
        far = y >= x.type.bits
        return ex.select(far, 0, ex.apply("shl", x, ex.select(far, 0, y)))

    def _rshift(self, x: ex.Expr, y: ex.Expr, kind: NumberType, node: ast.AST) -> ex.Expr:
        y = self._count(y, kind, node)
        last = x.type.bits - 1
        if not x.type.signed:
            return ex.select(y > last, 0, ex.apply("shr", x, ex.minimum(y, last)))
        return ex.apply(
            "shr", x, y if isinstance(y, ex.Const) and y.value <= last else ex.minimum(y, last)
        )

    def _count(self, y: ex.Expr, kind: NumberType, node: ast.AST) -> ex.Expr:
        y = self.let(y)
        if (
            y.type.signed
            and not (isinstance(y, ex.Const) and y.value >= 0)
            and not (self.is_exact(y) and self.index_is_natural(y))
        ):
            self.fail_if(y < 0, "ValueError", "negative shift count", node)
        return y

    def index_is_natural(self, e: ex.Expr) -> bool:
        from cvm.dialect.kernel_ir.affine import affine

        return self.proves([affine(e)])

    def unary(self, op: ast.unaryop, a: Number, node: ast.AST) -> Number:
        if isinstance(op, ast.Not):
            test = self.truth(a)
            return Number(
                ex.Const(not test.value, I1) if isinstance(test, ex.Const) else ~test, True
            )
        if a.type == BOOL:
            a = self.to(a, INT, node)
        if a.constant is not None and a.weak:
            return (
                of_python(
                    {"USub": lambda x: -x, "UAdd": lambda x: x, "Invert": lambda x: ~x}[
                        type(op).__name__
                    ](a.constant)
                )
                or a
            )
        if isinstance(op, ast.Invert):
            if a.kind in ("float", "complex"):
                raise self.source.mistake(f"~ takes integers, got a {a.kind}", node)
            return Number(~a.expr, a.weak)
        if a.element is I1:
            raise self.source.mistake("NumPy's booleans have no sign", node)
        return a if isinstance(op, ast.UAdd) else Number(-a.expr, a.weak)

    def compared(self, op: ast.cmpop, a: Number, b: Number, node: ast.AST) -> Number:
        """A comparison; of Python's integers with narrower ones by value."""
        name = _COMPARISONS.get(type(op).__name__)
        if name is None:
            raise self.source.mistake("numbers are compared by == != < <= > >=", node)
        weak = a.weak and b.weak
        if "complex" in (a.kind, b.kind) and name not in ("eq", "ne"):
            raise self.source.mistake(
                "complex numbers have no order: compare them by == or !=", node
            )
        if a.constant is not None and b.constant is not None:
            function = getattr(
                np,
                {
                    "eq": "equal",
                    "ne": "not_equal",
                    "lt": "less",
                    "le": "less_equal",
                    "gt": "greater",
                    "ge": "greater_equal",
                }[name],
            )
            return Number(ex.Const(bool(function(a.constant, b.constant)), I1), weak)
        kind = common(a.type, b.type)
        if a.weak != b.weak and kind.element.is_integer:
            kind = NumberType(promoted(a.element, b.element))
        if kind.element.kind == "float" and a.element.is_integer and b.element.is_integer:
            return Number(ex.compare(name, a.expr, b.expr, kind.element), weak)
        x, y = (
            ex.cast(v.expr, kind.element)
            if v.constant is None
            else ex.constant(v.constant, kind.element)
            for v in (a, b)
        )
        return Number(ex.apply(name, x, y), weak)


def exact(node: ast.AST) -> int | None:
    """The value of an expression of integer literals, if it is one; OverflowError far beyond 64
    bits.
    """
    match node:
        case ast.Constant(int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op, x):
            parts = [exact(x)]
        case ast.BinOp(x, op, y):
            parts = [exact(x), exact(y)]
        case _:
            return None
    values = [v for v in parts if v is not None]
    if type(op) not in _EXACT or len(values) < len(parts):
        return None
    if isinstance(op, (ast.Pow, ast.LShift)):
        if values[1] < 0:
            return None
        if values[1] > MOST_BITS:
            raise OverflowError
    value = _EXACT[type(op)](*values)
    if value.bit_length() > MOST_BITS:
        raise OverflowError
    return value


_EXACT: dict[type[ast.AST], Any] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
MOST_BITS = 1024  # of what is computed of literals; results have 64

_COMPARISONS = {"Eq": "eq", "NotEq": "ne", "Lt": "lt", "LtE": "le", "Gt": "gt", "GtE": "ge"}
_PLAIN = {
    "Add": "add",
    "Sub": "sub",
    "Mult": "mul",
    "BitAnd": "and",
    "BitOr": "or",
    "BitXor": "xor",
}
_SYMBOLS = {
    "Add": "+",
    "Sub": "-",
    "Mult": "*",
    "BitAnd": "&",
    "BitOr": "|",
    "BitXor": "^",
    "LShift": "<<",
    "RShift": ">>",
    "FloorDiv": "//",
    "Mod": "%",
    "Div": "/",
    "Pow": "**",
}
_PYTHON = {"Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mult": lambda a, b: a * b}


def _folded(name: str, a: Number, b: Number) -> Number | None:
    """The result for constants of Python's, if it fits."""
    x, y = a.constant, b.constant
    if x is None or y is None or not (a.weak and b.weak):
        return None
    if name in ("FloorDiv", "Mod") and isinstance(x, int) and isinstance(y, int) and y:
        return of_python(x // y if name == "FloorDiv" else x % y)
    if name == "Div" and y:
        return of_python(x / y)
    if name == "Pow" and isinstance(x, int) and isinstance(y, int) and 0 <= y < 64:
        return of_python(x**y)
    found = _PYTHON[name](x, y) if name in _PYTHON else None
    return (
        of_python(found)
        if found is not None and not (isinstance(found, float) and math.isnan(found))
        else None
    )
