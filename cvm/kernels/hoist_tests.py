"""Hoist tests of indices out of innermost loops.

    for i in a..b { if any(ui64(e) >= ui64(n)) { count from the end or fail }; y[i] = x[e] }
    =>  if any(not (0 <= e, e < n at a and at b - 1)) { the loop as it is }
        else { for i in a..b { y[i] = x[e] } }

Legal for an index that is linear in the loop's values, as it then is within its bounds in between;
a test that fails enters the loop that tests each index, so that its error and its stores are
Python's. LLVM calls this inductive range check elimination, here by loop versioning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.kernel_ir.affine import Affine, affine
from cvm.dialect.kernel_ir.traverse import walk
from cvm.dialect.types.tensor_types import I64, UI64
from cvm.lowering.loops.clone import clone

from .blocks import Blocks

# statements and bounds of a loop that is worth two versions; bounds compile time (by hand)
MOST_STATEMENTS, MOST_GOALS = 100, 12


@dataclass(frozen=True)
class LoopValues:
    """The values of a loop: an index or a variable, from the least to the greatest."""

    atom: ex.Expr
    least: ex.Expr
    greatest: ex.Expr


def hoisted(b: Blocks, loop: ir.For, values: LoopValues) -> ir.Statement:
    """An innermost loop, or a choice between two versions of it."""
    inside = list(ir.statements(loop.body))
    if len(inside) > MOST_STATEMENTS:
        return loop
    own: set[ex.Expr] = {loop.index, *(s.var for s in inside if isinstance(s, ir.Let))}
    linear = _Linear(b, values, own - {values.atom})
    plain: dict[ex.Expr, ex.Expr] = {}  # indices that are not counted from the end
    dropped: set[int] = set()
    counted = {var: b.counted[var] for var in own if var in b.counted}
    counting = {id(s) for *_, steps in counted.values() for s in ir.statements(steps)}
    for s in inside:
        if id(s) in counting:
            continue
        match s:
            case ir.Let(var) if var in counted:
                i, length, steps = counted[var]
                e = affine(i)
                if linear.holds([e, (affine(length) - e).plus(-1)]):
                    plain[var] = i
                    dropped.update(map(id, steps))
            case ir.Let(var, ex.Apply("select", (ex.Apply("lt", (e, ex.Const(0))), _, same))) if (
                same is e and linear.holds([affine(e)])
            ):
                plain[var] = e
            case ir.If(ex.Apply("ge", (ex.Cast(i, _), ex.Cast(length, _))) as test, then, ()) if (
                test.operands[0].type is UI64
                and then
                and isinstance(then[-1], (ir.Fail, ir.Return))
            ):
                e = affine(plain.get(i, i))
                if linear.holds([e, (affine(length) - e).plus(-1)]):
                    dropped.add(id(s))
    if not (plain or dropped) or len(linear.goals) > MOST_GOALS:
        return loop

    def without_tests(s: ir.Statement) -> ir.Block | None:
        if id(s) in dropped:
            return ()
        return (ir.Let(s.var, plain[s.var]),) if isinstance(s, ir.Let) and s.var in plain else None

    fast = replace(loop, body=ir.rewrite_block(loop.body, without_tests))
    if not linear.goals:
        return fast
    index = ex.Index(f"{loop.index.name}.checked", loop.index.extent)
    checked = replace(loop, index=index, body=clone(loop.body, {loop.index: index}, "checked"))
    condition = reduce(and_, linear.conditions())
    return ir.If(ex.apply("any", ~condition), (checked,), (fast,))


class _Linear:
    """Forms that are not negative for all values of a loop if they are so at its ends."""

    def __init__(self, b: Blocks, values: LoopValues, own: set[ex.Expr]) -> None:
        self.b, self.values, self.own = b, values, own
        # by terms: the form with the least constant
        self.goals: dict[frozenset[tuple[object, int]], Affine] = {}

    def holds(self, forms: Iterable[Affine]) -> bool:
        """Test whether the forms can be tested at the ends, and require it."""
        forms = list(forms)
        if not all(map(self._is_linear, forms)):
            return False
        for form in forms:
            if not self._is_proved(form):
                terms = frozenset((k, f) for k, (_, f) in form.terms.items())
                known = self.goals.get(terms)
                if known is None or form.constant < known.constant:
                    self.goals[terms] = form
        return True

    def _is_linear(self, form: Affine) -> bool:
        factor = form.factor(self.values.atom)
        rest = form.without(self.values.atom)
        exact = abs(factor) <= 1 or isinstance(self.values.atom, ex.Index)
        steady = all(
            isinstance(e, (ex.Apply, ex.Const, ex.Extent, ex.Index, ex.Var))
            and e not in self.own
            and e is not self.values.atom
            for atom, _ in rest.terms.values()
            for e in walk(atom)
        )
        return exact and steady and self.b.is_exact(rest.expression())

    def _end(self, factor: int) -> ex.Expr:
        """The value at which a form of this factor is least."""
        return self.values.least if factor > 0 else self.values.greatest

    def _is_proved(self, form: Affine) -> bool:
        factor = form.factor(self.values.atom)
        if not factor:
            return self.b.proves([form])
        end = self._end(factor)
        steady = self.b.is_exact(end)
        return steady and self.b.proves([form.without(self.values.atom) + affine(end) * factor])

    def conditions(self) -> list[ex.Expr]:
        found: list[ex.Expr] = []
        for form in self.goals.values():
            factor = form.factor(self.values.atom)
            rest = form.without(self.values.atom)
            if not factor:
                found.append(rest.expression() >= 0)
                continue
            end = self._end(factor) * ex.constant(abs(factor), I64)
            if factor > 0:
                found.append(end >= (rest * -1).expression())
            else:
                found.append(end <= rest.expression())
        return found
