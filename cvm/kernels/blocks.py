"""Blocks of the loop language as they are made: statements, the facts where they stand, and
tests that are not proved.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.kernel_ir.affine import Affine, affine, affine_conditions, key, negated_conditions
from cvm.dialect.kernel_ir.traverse import walk
from cvm.dialect.support.diagnostics import Span
from cvm.dialect.types.linear_form import Key
from cvm.dialect.types.tensor_types import I1, I64, UI64
from cvm.lowering.analysis.prove import prove

from .source import FunctionSource

SIZE_BITS = 42  # sizes, and integers that are computed of few of them, are far from overflow
MOST_NODES = 24  # of an index expression that is taken apart
FAULT = ex.Tensor("kernel.fault", (2,), I64)  # the values that an error's message names


@dataclass(eq=False)
class Region:
    """The outermost parallel loop around the statements under construction."""

    block: ex.Expr  # its number, by which it has places of its own
    status: ex.Tensor
    failures: list[tuple[str, Span]] = field(default_factory=list[tuple[str, Span]])
    has_arrays: bool = False

    def fail(self, message: str, span: Span, values: list[ex.Expr]) -> ir.Block:
        """The end of an iteration by an error."""
        if (message, span) not in self.failures:
            self.failures.append((message, span))
        number = self.failures.index((message, span)) + 1
        words = [ex.constant(number, I64), *values]
        return (
            *(ir.Store(self.status, (self.block, ex.as_index(n)), w) for n, w in enumerate(words)),
            ir.Return(),
        )


class Blocks:
    """The current block, and the facts that hold in it."""

    def __init__(self, source: FunctionSource, checks: bool) -> None:
        self.source, self.checks = source, checks
        self.out: list[ir.Statement] = []
        self.region: Region | None = None  # the parallel loop around
        self.plain = False  # only accesses matter
        self.facts: list[Affine] = []
        self.small: set[ex.Expr] = set()  # indices and variables within SIZE_BITS
        self.order: dict[Key, int] = {}
        self.lets: dict[ex.Expr, ex.Expr] = {}  # the values of variables
        # indices that may be counted from the end, and the statements that find them
        self.counted: dict[ex.Expr, tuple[ex.Expr, ex.Expr, ir.Block]] = {}

    @contextmanager
    def block(self, *facts: Affine) -> Iterator[list[ir.Statement]]:
        """A block of its own, in which further facts hold."""
        outer = self.out, self.facts, self.small
        self.out, self.facts, self.small = [], [*self.facts, *facts], {*self.small}
        yield self.out
        self.out, self.facts, self.small = outer

    # expressions

    def let(self, e: ex.Expr, name: str = "v") -> ex.Expr:
        """The value of an expression now, as one that does not change and is cheap to repeat."""
        if isinstance(e, (ex.Const, ex.Index, ex.Var, ex.Extent)) or self.is_exact(e):
            return e
        var = ex.Var(name, e.type)
        self.out.append(ir.Let(var, e))
        self.lets[var] = e
        self.rank(var)
        source = e.operand.type if isinstance(e, ex.Cast) and e.type is I64 else None
        if source is not None and source.is_discrete and source.bits <= 32:
            self.small.add(var)
            low, high = source.limits
            self.facts += [affine(var).plus(-low), (affine(var) * -1).plus(high)]
        return var

    def rank(self, atom: ex.Expr) -> None:
        self.order[key(atom)] = len(self.order) + 1

    def bits(self, e: ex.Expr) -> int | None:
        """The bits of an i64 that index arithmetic gives without overflow; None of one that is not
        known to.
        """
        match e:
            case ex.Const(value, _) if e.type is I64:
                return int(value).bit_length()
            case ex.Extent():
                return SIZE_BITS
            case ex.Index() | ex.Var():
                return SIZE_BITS if e in self.small else None
            case ex.Apply("add" | "sub" | "max" | "min", (a, b), type) if type is I64:
                x, y = self.bits(a), self.bits(b)
                return None if x is None or y is None else max(x, y) + 1
            case ex.Apply("mul", (a, ex.Const(c)), type) | ex.Apply(
                "mul", (ex.Const(c), a), type
            ) if type is I64:
                return None if (x := self.bits(a)) is None else x + int(c).bit_length()
            case ex.Apply("floordiv" | "floormod", (a, ex.Const(c)), type) if c > 0 and type is I64:
                return self.bits(a)
        return None

    def is_exact(self, e: ex.Expr) -> bool:
        """Test whether an expression is index arithmetic on what does not change, far from
        overflow.
        """
        return len(walk(e)) <= MOST_NODES and (bits := self.bits(e)) is not None and bits < 62

    # facts

    def conditions(self, condition: ex.Expr, holds: bool = True) -> list[Affine]:
        """The facts that a condition tells where it holds, or where it does not."""
        found = (affine_conditions if holds else negated_conditions)(condition) or []
        if (
            not found
            and isinstance(condition, ex.Apply)
            and condition.function == ("and" if holds else "or")
        ):
            return [f for part in condition.operands for f in self.conditions(part, holds)]
        atoms = (a for f in found for a, _ in f.terms.values())
        parts = [e for e in walk(condition) if e.type is I64 and not isinstance(e, ex.Const)]
        steady = all(
            isinstance(e, (ex.Apply, ex.Index, ex.Var, ex.Extent))
            for a in atoms
            for e in walk(a)
            if not isinstance(e, ex.Const)
        )
        exact = all(isinstance(e, (ex.Index, ex.Var, ex.Extent)) or self.is_exact(e) for e in parts)
        return found if steady and exact else []

    def proves(self, goals: Iterable[Affine]) -> bool:
        """Test whether all of these are never negative."""
        return all(prove(g, self.facts, self.order) for g in goals)

    # errors

    def fail(self, kind: str, message: str, node: ast.AST, *values: ex.Expr) -> None:
        """Ends the kernel by an error."""
        text, span = f"{kind}: {message}", self.source.span(node)
        if self.plain:
            self.out.append(ir.Fail(text, span))
            return
        if self.region is not None:
            self.out += self.region.fail(text, span, [ex.cast(v, I64) for v in values])
            return
        for n, value in enumerate(values):
            self.out.append(ir.Store(FAULT, (ex.as_index(n),), ex.cast(value, I64)))
        self.out.append(ir.Fail(text, span))

    def fail_if(
        self, condition: ex.Expr, kind: str, message: str, node: ast.AST, *values: ex.Expr
    ) -> None:
        """Ends the kernel by an error where a condition holds."""
        if isinstance(condition, ex.Const) and not condition.value:
            return
        with self.block() as block:
            self.fail(kind, message, node, *values)
        self.out.append(ir.If(condition, tuple(block)))

    def index(self, i: ex.Expr, length: ex.Expr, what: str, node: ast.AST) -> ex.Expr:
        """An index of an axis of this length, counted from the end if negative, tested unless that
        is proved.
        """
        i = self.let(i, "i")
        steady = self.is_exact(i) or isinstance(i, (ex.Var, ex.Index))
        low = affine(i)
        high = (affine(length) - low).plus(-1)
        if isinstance(i, ex.Const) and i.value < 0:
            return self._tested(i, self.let(length + i.value), length, what, node)
        if steady and self.proves([low]):
            if self.proves([high]):
                return i
            return self._tested(i, i, length, what, node)
        if steady and self.proves([(low * -1).plus(-1)]):
            return self._tested(i, self.let(i + length), length, what, node)
        if not self.checks:
            return self._tested(
                i, self.let(ex.select(i < 0, i + length, i), "i"), length, what, node
            )
        return self._counted(i, length, what, node)

    def _counted(self, i: ex.Expr, length: ex.Expr, what: str, node: ast.AST) -> ex.Expr:
        """An index that is rarely counted from the end: one test where it is not."""
        place = ir.accumulator("i", I64)
        with self.block() as otherwise:
            wrapped = self.let(i + length)
            self._fail_outside(i, wrapped, length, what, node)
            self.out.append(ir.assign(place, wrapped))
        steps = (
            ir.Alloc(place),
            ir.assign(place, i),
            ir.If(ex.apply("any", _outside(i, length)), tuple(otherwise)),
        )
        self.out += steps
        found = self.let(place[()], "i")
        assert isinstance(found, ex.Var)
        self.counted[found] = i, length, steps
        self.small.add(found)
        self.facts += [affine(found), (affine(length) - affine(found)).plus(-1)]
        return found

    def _tested(
        self, given: ex.Expr, i: ex.Expr, length: ex.Expr, what: str, node: ast.AST
    ) -> ex.Expr:
        goals = [affine(i), (affine(length) - affine(i)).plus(-1)]
        if not self.proves(goals):
            if self.checks:
                self._fail_outside(given, i, length, what, node)
            if isinstance(i, ex.Var):
                self.small.add(i)
            self.facts += goals
        return i

    def _fail_outside(
        self, given: ex.Expr, i: ex.Expr, length: ex.Expr, what: str, node: ast.AST
    ) -> None:
        message = f"index {{0}} is out of range for {what} with size {{1}}"
        self.fail_if(_outside(i, length), "IndexError", message, node, given, length)


def _outside(i: ex.Expr, length: ex.Expr) -> ex.Expr:
    return ex.cast(i, UI64) >= ex.cast(length, UI64)


def one_bit(value: bool) -> ex.Const:
    return ex.Const(value, I1)
