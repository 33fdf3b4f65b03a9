"""Simplify integer arithmetic by the ranges of its values (MLIR's int-range-optimizations and
arith-int-range-narrowing).

    max(31 - s[n], 0)  =>  0                               where s is in [32, 62]
    i32(rint(f32(x[n]) * 0.5))  =>  lrint(f32(x[n]) * 0.5)
    i32((i64(x[n]) * 5 >> 31) + 1 >> 4)  =>  i32(i64(x[n]) * 5 >> 31) + 1 >> 4
                                                           where both sums stay in i32
    i32(sum[k](i64(x[k] * y[k])))  =>  sum[k](x[k] * y[k])
    x[min(max(i64(t[k, 0]), 0), 9)]  =>  x[i64(t[k, 0])]   in a nest, where t is a constant whose
                                                           first column is in [0, 9]

Legal since a range holds for every value, and arithmetic that stays in 32 bits gives the same in
these. Pays where vectors of i64 have half the lanes of those of i32: formulas without conversions
to i64, index arithmetic and reduced values stay as they are.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...dialect.kernel_ir.expressions import (
    Apply,
    Cast,
    Check,
    Const,
    Expr,
    Read,
    Reduce,
    apply,
    cast,
    constant,
)
from ...dialect.kernel_ir.formulas import Formula, Formulas, Nest
from ...dialect.kernel_ir.integer_interval import Interval
from ...dialect.kernel_ir.loops import map_expressions
from ...dialect.kernel_ir.simplify_node import fold_constants
from ...dialect.kernel_ir.traverse import children, over, rebuild, rewrite, walk
from ...dialect.types.tensor_types import F32, I32, I64, ElementType
from ..analysis.integer_ranges import intervals, range_of as range_of_array
from ..passes import formula_pass
from ..processor import processor

NARROWED = ("add", "sub", "mul", "and", "or", "xor", "min", "max", "shl", "shr")
SIGN = 31  # the shift that leaves the sign of 32 bits


@formula_pass
def simplify_with_ranges(program: Formulas) -> Formulas:
    """The formulas over 64 bits simplified."""
    return replace(
        program,
        steps=tuple(
            _formula(s, program)
            if isinstance(s, Formula)
            else _nest(s, program)
            if isinstance(s, Nest)
            else s
            for s in program.steps
        ),
    )


def _nest(nest: Nest, program: Formulas) -> Nest:
    """The nest without clamps of constants that are within them already."""
    range_of = intervals(program.ranges, program.constants)

    def elements(e: Expr) -> Interval | None:
        """The range of the elements of a constant that an expression reads."""
        while isinstance(e, Cast) and e.operand.type.is_integer:
            e = e.operand
        if not isinstance(e, Read) or (array := program.constants.get(e.tensor)) is None:
            return None
        parts: list[slice] = []
        for i, n in zip(e.indices, array.shape, strict=True):
            at = range_of(i)
            parts.append(slice(None) if at is None else slice(max(at.low, 0), min(at.high + 1, n)))
        return range_of_array(array[tuple(parts)])

    def unclamped(e: Expr) -> Expr | None:
        match e:
            case Apply("min", (Apply("max", (x, Const(low))), Const(high))) if (
                found := elements(x)
            ) is not None and low <= found.low <= found.high <= high:
                return rewrite(x, unclamped)
        return None

    body = map_expressions(nest.body, lambda e: rewrite(e, unclamped))
    return nest if body is nest.body else replace(nest, body=body)


def _formula(formula: Formula, program: Formulas) -> Formula:
    nodes = walk(formula.value)
    converted = any(isinstance(n, Cast) and (n.type is I64 or n.operand.type is F32) for n in nodes)
    if not converted or any(isinstance(n, Check) for n in nodes):
        return formula
    range_of = intervals(program.ranges, program.constants)
    reads: dict[int, bool] = {}  # whether a node depends on data, by id

    def make(e: Expr, parts: tuple[Expr, ...]) -> Expr:
        reads[id(e)] = isinstance(e, Read) or any(reads[id(c)] for c in children(e))
        if isinstance(e, (Read, Reduce)) or not reads[id(e)]:
            return e
        if (interval := range_of(e)) is not None and interval.low == interval.high:
            return constant(interval.low, e.type)
        new = over(e, parts)
        if _rounds_inside(e, range_of, program):
            return apply("lrint", *children(children(new)[0]))
        folded = fold_constants(new)
        return (
            folded if folded is not new else _simplified(e, new, interval, range_of)
        )  # an operand is simplified already

    value = rebuild(formula.value, make, {})
    return formula if value is formula.value else replace(formula, value=value)


def _rounds_inside(e: Expr, range_of: Callable[[Expr], Interval | None], program: Formulas) -> bool:
    """Recognize an integer that is scaled by a constant and rounded to i32, where it stays far
    inside that type.
    """
    match e:
        case Cast(Apply("rint", (Apply("mul", (Cast(x), Const() | Read() as by)),)), to) if (
            to is I32
            and by.type is F32
            and processor().is_x86  # others may have no instruction, and call a library
        ):
            known = by.value if isinstance(by, Const) else program.constants.get(by.tensor, np.inf)
            largest = max(-interval.low, interval.high) if (interval := range_of(x)) else np.inf
            return bool(largest * np.abs(known).max(initial=0) < 2**30)
    return False


def _in_word(type: ElementType) -> bool:
    return type.is_integer and type.bits <= 32


def _simplified(
    e: Expr, new: Expr, interval: Interval | None, range_of: Callable[[Expr], Interval | None]
) -> Expr:
    """A node over simplified operands, by the ranges of itself and of the operands that it had."""
    match new:
        case Cast(Reduce("add", indices, Cast(x, type)), narrow) if (
            type is I64 and _in_word(x.type) and _in_word(narrow)
        ):  # sums are modulo powers of two
            return cast(Reduce("add", indices, cast(x, I32)), narrow)
        case Cast(Cast(x, type), narrow) if (
            type is I64 and x.type is I32 and narrow.is_integer and narrow.bits <= 32
        ):
            return cast(x, narrow)
        case Cast(x, type) if (
            type is I64 and x.type is F32 and interval is not None and interval.within(I32)
        ):
            return Cast(cast(x, I32), I64)
        case Apply("max" | "min" as which, (a, b), _) if isinstance(e, Apply):
            one, other = map(range_of, e.operands if which == "max" else e.operands[::-1])
            if one is not None and other is not None:
                if one.low >= other.high:
                    return a
                if other.low >= one.high:
                    return b
        case Apply("and", (x, Const(mask)), _) if isinstance(e, Apply) and not (mask + 1) & mask:
            if (one := range_of(e.operands[0])) is not None and one.low >= 0 and one.high <= mask:
                return x
        case Apply("shl" | "shr" | "add" | "sub", (x, Const(0)), type) if type.is_integer:
            return x
        case Apply(function, _, type) if (
            type is I64 and function in NARROWED and isinstance(e, Apply)
        ):
            if e.function != function or interval is None or not interval.within(I32):
                return new
            if not _fit(e, range_of):
                return Cast(cast(new, I32), I64) if function == "shr" else new
            operands = [_narrow(o) for o in new.operands]
            if function == "shr" and isinstance(by := operands[1], Const):
                operands[1] = constant(min(by.value, SIGN), I32)
            return Cast(Apply(function, tuple(operands), I32), I64)
    return new


def _fit(e: Apply, range_of: Callable[[Expr], Interval | None]) -> bool:
    """Test whether operands are numbers of 32 bits, and distances of shifts less than those."""
    ranges = [range_of(o) for o in e.operands]
    if e.function in ("shl", "shr"):
        by = ranges.pop()
        is_sign = e.function == "shr" and isinstance(e.operands[1], Const)
        if by is None or by.low < 0 or (by.high > SIGN and not is_sign):
            return False
    return all(r is not None and r.within(I32) for r in ranges)


def _narrow(x: Expr) -> Expr:
    """A number of 64 bits in 32."""
    match x:
        case Const(value):
            return constant(value, I32)
        case Cast(inner, _) if inner.type is I32:
            return inner
    return cast(x, I32)
