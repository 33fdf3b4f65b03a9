"""What a loop does not change, found so that it can be computed before:  for i { y[i] = x[j] * i }  =>  x[j] goes first.

Only what surely runs counts, so that nothing is read that the loop would not read: what stands in the body itself and in the
loops there that have an iteration, not under a branch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..dialect.index import Apply, Cast, Const, Expr, Extent, Index, Read, Var
from ..dialect.loops import Alloc, Block, For, If, Let, Require, Store
from ..dialect.traverse import children


def runs(loop: For) -> bool:
    """Whether a loop surely has an iteration."""
    return isinstance(loop.start, Const) and isinstance(loop.end, Const) and loop.start.value < loop.end.value


class Invariants:
    """Looks into the loops of one kernel; what an expression depends on is found once."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Expr, frozenset[int]]] = {}

    def of(self, loop: For) -> Iterator[tuple[Expr, bool]]:
        """The largest parts that do not depend on a loop, and of each whether it is index arithmetic."""
        if runs(loop):
            yield from self.within(loop.body, {id(loop.index)})

    def within(self, block: Block, bound: set[int]) -> Iterator[tuple[Expr, bool]]:
        for s in block:
            match s:
                case Store(_, at, value):
                    for e in at:
                        yield from self.parts(e, bound, True)
                    yield from self.parts(value, bound, False)
                case Let(var, value):
                    yield from self.parts(value, bound, False)
                    bound.add(id(var))
                case Require(condition, _, _):
                    yield from self.parts(condition, bound, False)
                case Alloc(tensor):
                    bound.add(id(tensor))
                case For(index, body):
                    bound.add(id(index))
                    if runs(s):
                        yield from self.within(body, bound)
                case If(condition):
                    yield from self.parts(condition, bound, False)
                    bound.update(id(v.var) for v in (*s.then, *s.otherwise) if isinstance(v, Let))

    def parts(
        self, e: Expr, bound: set[int], is_index: bool, seen: set[tuple[int, bool]] | None = None
    ) -> Iterator[tuple[Expr, bool]]:
        """Of one expression; what it has in several places is looked into once."""
        seen = set() if seen is None else seen
        if isinstance(e, (Const, Index, Var, Extent)) or (id(e), is_index) in seen:
            return
        seen.add((id(e), is_index))
        if self.depends(e).isdisjoint(bound):
            if not is_index or _reads(e):
                yield e, is_index
            return
        for c in children(e):
            yield from self.parts(c, bound, is_index or isinstance(e, Read), seen)

    def depends(self, e: Expr) -> frozenset[int]:
        """The indices, variables and arrays that an expression depends on, by id."""
        known = self.found.get(id(e))
        if known is None:
            own = {id(e)} if isinstance(e, (Index, Var)) else {id(e.tensor)} if isinstance(e, Read) else ()
            known = self.found[id(e)] = e, frozenset(own).union(*map(self.depends, children(e)))
        return known[1]


def _reads(e: Expr) -> bool:
    return isinstance(e, (Read, Cast)) or (isinstance(e, Apply) and any(map(_reads, e.operands)))
