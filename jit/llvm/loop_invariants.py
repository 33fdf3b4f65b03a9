"""Find loop-invariant values, which are computed before the loop (LLVM's LICM).

for i { y[i] = x[j] * i }  =>  let a = x[j]; for i { y[i] = a * i }"""

from typing import NamedTuple

from ...dialect.notation.expressions import Apply, Cast, Const, Expr, Extent, Index, Read, Var
from ...dialect.notation.loops import Alloc, Assert, Block, For, If, Let, Prefetch, Store
from ...dialect.notation.traverse import children

_LEAVES = Const, Index, Var, Extent


def runs(loop: For) -> bool:
    """Test whether a loop has at least one iteration."""
    return isinstance(loop.start, Const) and isinstance(loop.end, Const) and loop.start.value < loop.end.value


class Dependences(NamedTuple):
    """The dependences of an expression: indices, variables and arrays by id, and whether it takes more than arithmetic."""

    expression: Expr
    depends: frozenset[int]
    reads: bool


class Invariants:
    """Looks into the loops of one kernel; what loops share and expressions depend on is found once."""

    def __init__(self) -> None:
        self.dependences: dict[int, Dependences] = {}
        self.loops: dict[int, tuple[For, list[tuple[Expr, bool]]]] = {}

    def of(self, loop: For) -> list[tuple[Expr, bool]]:
        """The largest parts that do not depend on a loop, and of each whether it is index arithmetic."""
        if (entry := self.loops.get(id(loop))) is None:
            parts: list[tuple[Expr, bool]] = []
            if runs(loop):
                self.within(loop.body, {id(loop.index)}, parts)
            entry = self.loops[id(loop)] = loop, parts
        return entry[1]

    def within(self, block: Block, bound: set[int], invariants: list[tuple[Expr, bool]]) -> None:
        for s in block:
            match s:
                case Store(_, at, value):
                    for e in at:
                        self.parts(e, bound, True, invariants)
                    self.parts(value, bound, False, invariants)
                case Let(var, value):
                    self.parts(value, bound, False, invariants)
                    bound.add(id(var))
                case Prefetch(_, at):
                    for e in at:
                        self.parts(e, bound, True, invariants)
                case Assert(condition, _, _):
                    self.parts(condition, bound, False, invariants)
                case Alloc(tensor):
                    bound.add(id(tensor))
                case For(index, body):
                    bound.add(id(index))
                    if runs(s):
                        self.within(body, bound, invariants)
                case If(condition):
                    self.parts(condition, bound, False, invariants)
                    bound.update(id(v.var) for v in (*s.then, *s.otherwise) if isinstance(v, Let))

    def parts(self, e: Expr, bound: set[int], is_index: bool, invariants: list[tuple[Expr, bool]]) -> None:
        """The dependences of one expression; shared nodes are visited once."""
        seen: set[tuple[Expr, bool]] = set()
        stack = [(e, is_index)]
        while stack:
            top = e, is_index = stack.pop()
            if isinstance(e, _LEAVES) or top in seen:
                continue
            seen.add(top)
            about = self.dependences.get(id(e)) or self.about(e)
            if is_index and not about.reads:
                continue
            if about.depends.isdisjoint(bound):
                invariants.append(top)
            else:
                is_index = is_index or isinstance(e, Read)
                stack += [(c, is_index) for c in children(e)[::-1]]

    def about(self, e: Expr) -> Dependences:
        if (about := self.dependences.get(id(e))) is None:
            parts = [self.about(c) for c in children(e)]
            own = {id(e)} if isinstance(e, (Index, Var)) else {id(e.tensor)} if isinstance(e, Read) else ()
            reads = isinstance(e, (Read, Cast)) or (isinstance(e, Apply) and any(p.reads for p in parts))
            about = self.dependences[id(e)] = Dependences(e, frozenset(own).union(*(p.depends for p in parts)), reads)
        return about
