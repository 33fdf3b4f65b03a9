"""The iterables of `for` loops in kernels: ranges, arrays, tuples, and these counted, zipped or
reversed.

    for n, (a, b) in enumerate(zip(x, y)) { ... }
    =>  for i in 0..min(size(x), size(y)) { n = i; a = x[i]; b = y[i]; ... }

A tuple of numbers has the type that they have in common.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.kernel_ir.affine import Affine, affine
from cvm.dialect.kernel_ir.index_bounds import index_extent
from cvm.dialect.types.tensor_types import I64, UI64

from .arrays import Array, Elements, Known, Values
from .hoist_tests import LoopValues
from .numbers import Number, common

if TYPE_CHECKING:
    from .build import Builder

Ends: TypeAlias = tuple[ex.Expr, ex.Expr]  # the least and the greatest of several values


@dataclass(frozen=True)
class Loop:
    """A loop, but for its body: what it has in each iteration."""

    around: Callable[[ir.Block], ir.For]
    index: ex.Index
    ends: Ends  # of the index
    target: Callable[[], object]
    target_ends: Ends | None = None  # of a target that is a number but not the index
    facts: Sequence[Affine] = ()  # that are not negative

    def values(self, target: object, index: ex.Expr, least: ex.Expr, last: ex.Expr) -> LoopValues:
        """The target's values where it is a variable, else those of the index."""
        if self.target_ends and isinstance(target, Number) and isinstance(target.expr, ex.Var):
            return LoopValues(target.expr, *self.target_ends)
        return LoopValues(index, least, last)


@dataclass(frozen=True)
class Items:
    """The values of a loop, by the number of the iteration."""

    length: ex.Expr
    at: Callable[[ex.Expr], object]
    facts: Callable[[ex.Expr], list[Affine]] = lambda _: []  # of an iteration
    ends: Ends | None = None  # of values that are numbers
    is_sequence: bool = True  # which reversed takes

    def backward(self) -> Items:
        last = self.length - 1
        return Items(
            self.length,
            lambda n: self.at(last - n),
            lambda n: self.facts(last - n),
            self.ends,
            is_sequence=False,
        )


def loop_over(b: Builder, s: ast.For) -> Loop:
    """The loop of a statement."""
    if (bounds := _range(b, s.iter, s in b.definitions.parallel)) is not None:
        return range_loop(b, *bounds, s)
    return _loop(b, _items(b, s.iter), s)


def range_loop(b: Builder, start: Number, stop: Number, step: Number, s: ast.For) -> Loop:
    """The loop over range(start, stop, step)."""
    first, last = b.let(start.expr), b.let(stop.expr)
    if step.constant == 1 and b.is_exact(first) and b.proves([affine(first)]):
        return _index_loop(b, first, last, _name(s.target))
    return _loop(b, _range_items(b, first, last, step, s.iter), s)


def _loop(b: Builder, over: Items, s: ast.For) -> Loop:
    name = _name(s.target)
    if over.ends is None:
        loop = _index_loop(b, ex.ZERO, over.length, name)
        facts, index = [*loop.facts, *over.facts(loop.index)], loop.index
        return replace(loop, facts=facts, target=lambda: over.at(index))
    index = ex.Index(f"{name}.n", ir.UNBOUNDED)
    b.limits[index] = over.length - 1
    ends = over.ends

    def target() -> Number:
        number = b.number_of(over.at(index), s.iter)
        found = b.let(number.expr, name)
        if isinstance(found, ex.Var):
            b.limits[found] = ends[1]
        return Number(found, number.weak)

    return Loop(
        lambda body: ir.For(index, body, ex.ZERO, over.length),
        index,
        (ex.ZERO, over.length - 1),
        target,
        ends,
        [affine(index), *over.facts(index)],
    )


def _index_loop(b: Builder, first: ex.Expr, last: ex.Expr, name: str) -> Loop:
    """The loop whose index is the target: from first, which is not negative, to below last."""
    last = b.let(last)
    index = ex.Index(name, index_extent(last))
    b.limits[index] = last - 1
    facts = [affine(index) - affine(first)]
    if b.is_exact(last) or isinstance(last, (ex.Var, ex.Index)):
        facts.append((affine(last) - affine(index)).plus(-1))
        facts.append((affine(last) - affine(first)).plus(-1))  # the loop has an iteration
    return Loop(
        lambda body: ir.For(index, body, first, last),
        index,
        (first, last - 1),
        lambda: Number(index, True),
        facts=facts,
    )


def _name(target: ast.expr) -> str:
    return target.id if isinstance(target, ast.Name) else "v"


def _range(b: Builder, node: ast.expr, parallel: bool) -> tuple[Number, Number, Number] | None:
    """The start, the stop and the step of a call of range or of cvm.prange."""
    match node:
        case ast.Call(function, given, []) if parallel or _is(b, function, range):
            if not 1 <= len(given) <= 3 or any(isinstance(a, ast.Starred) for a in given):
                raise b.source.mistake("range takes one to three integers", node)
            bounds = [b.integer(b.value(a), a) for a in given]
            zero, one = (Number(ex.constant(n, I64), True) for n in (0, 1))
            start, stop = (zero, bounds[0]) if len(bounds) == 1 else bounds[:2]
            return start, stop, bounds[2] if len(bounds) == 3 else one
    return None


def _is(b: Builder, node: ast.expr, function: object) -> bool:
    called = b.value(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    return isinstance(called, Known) and called.value is function


def _items(b: Builder, node: ast.expr) -> Items:
    if (bounds := _range(b, node, False)) is not None:
        start, stop, step = bounds
        return _range_items(b, b.let(start.expr), b.let(stop.expr), step, node)
    match node:
        case ast.Call(function, [of], []) if _is(b, function, reversed):
            over = _items(b, of)
            if not over.is_sequence:
                raise b.source.mistake("reversed takes a range, an array or a tuple", node)
            return over.backward()
        case ast.Call(function, [of, *start], keywords) if _is(b, function, enumerate):
            start += [k.value for k in keywords if k.arg == "start"]
            if len(start) > 1 or any(k.arg != "start" for k in keywords):
                raise b.source.mistake("enumerate takes what it counts, and a start", node)
            first = b.integer(b.value(start[0]), start[0]).expr if start else ex.ZERO
            return _counted(b.let(first), _items(b, of))
        case ast.Call(function, [_, *_] as several, []) if _is(b, function, zip):
            return _zipped([_items(b, of) for of in several])
        case ast.List(elements):
            over = b.value(ast.copy_location(ast.Tuple(elements, ast.Load()), node))
        case _:
            over = b.value(node)
    if isinstance(over, Elements):
        over = b.steady(over, "v", node)
    if isinstance(over, Array) and over.rank:
        return Items(over.lengths[0], lambda n: b.part(over, n))
    if isinstance(over, Values) and over.items:
        over = b.steady(over, "v", node)
        count = ex.constant(len(b.items(over, node)), I64)
        return Items(count, lambda n: _chosen(b, b.items(over, node), n, node))
    raise b.source.mistake(
        "loops run over range(...), arrays and tuples, and over enumerate, zip and reversed of "
        f"these, not over a {b.described(over)}",
        node,
    )


def _counted(first: ex.Expr, of: Items) -> Items:
    """Pairs of a number, from the first on, and a value."""

    def pair(n: ex.Expr) -> Values:
        return Values((Number(n if first is ex.ZERO else first + n, True), of.at(n)))

    return Items(of.length, pair, of.facts, is_sequence=False)


def _zipped(parts: Sequence[Items]) -> Items:
    def facts(n: ex.Expr) -> list[Affine]:
        ends = [(affine(p.length) - affine(n)).plus(-1) for p in parts]
        return [*ends, *(f for p in parts for f in p.facts(n))]

    length = reduce(ex.minimum, (p.length for p in parts))
    return Items(length, lambda n: Values(tuple(p.at(n) for p in parts)), facts, is_sequence=False)


def _chosen(b: Builder, items: Sequence[object], n: ex.Expr, node: ast.expr) -> object:
    """One of several numbers, or of several tuples of one form."""
    if all(isinstance(v, Values) for v in items):
        columns = [b.items(v, node) for v in items]
        if len({len(c) for c in columns}) == 1:
            return Values(tuple(_chosen(b, c, n, node) for c in zip(*columns, strict=True)))
        raise b.source.mistake("the tuples of a loop have one length", node)
    numbers = [b.number_of(v, node) for v in items]
    kind = reduce(common, (v.type for v in numbers))
    *before, found = (b.to(v, kind, node).expr for v in numbers)
    for place in reversed(range(len(before))):
        found = ex.select(n.eq(place), before[place], found)
    return Number(found, kind.weak)


def _range_items(b: Builder, first: ex.Expr, last: ex.Expr, step: Number, node: ast.expr) -> Items:
    """The integers of a range, of which the difference of the ends may exceed an i64."""
    if (constant := step.constant) is None:
        by = b.let(step.expr)
        b.fail_if(by.eq(0), "ValueError", "the step of a range is not zero", node)
        up = by > 0
        low, high = ex.select(up, first, last), ex.select(up, last, first)
        count = _distance(b, low, high, ex.cast(ex.select(up, by, -by), UI64), node)
        ends = ex.select(up, first, last + 1), ex.select(up, last - 1, first)
        return Items(b.let(count), lambda n: Number(first + n * by, True), ends=ends)
    if constant == 0:
        raise b.source.mistake("the step of a range is not zero", node)
    up, size = constant > 0, abs(int(constant))
    low, high = (first, last) if up else (last, first)
    exact = size < ir.MAX_STEPS and b.is_exact(low) and b.is_exact(high)
    count = (
        ex.maximum(0, (high - low + (size - 1)) // size)
        if exact
        else _distance(b, low, high, ex.constant(size, UI64), node)
    )

    def at(n: ex.Expr) -> ex.Expr:
        return first + n * int(constant)

    def facts(n: ex.Expr) -> list[Affine]:
        value, sign = affine(at(n)), 1 if up else -1
        if not exact:
            return []
        return [(value - affine(first)) * sign, ((affine(last) - value) * sign).plus(-1)]

    ends = (first, last - 1) if up else (last + 1, first)
    return Items(b.let(count), lambda n: Number(at(n), True), facts, ends)


def _distance(b: Builder, low: ex.Expr, high: ex.Expr, step: ex.Expr, node: ast.AST) -> ex.Expr:
    """The steps from low to below high, where their difference may exceed an i64."""
    low, high = b.let(low), b.let(high)
    gap = ex.cast(high, UI64) - ex.cast(low, UI64) - ex.constant(1, UI64)
    steps = b.let(ex.cast(gap // step, I64) + 1)
    if not isinstance(step, ex.Const) or step.value < 3:
        too_many = (low < high) & (steps <= 0)
        b.fail_if(too_many, "OverflowError", "too many iterations of range", node)
    return ex.select(low < high, steps, 0)
