"""Find loop-invariant values, which are computed before the loop (LLVM's LICM).

for i { y[i] = x[j] * i }  =>  let a = x[j]; for i { y[i] = a * i }
"""

from typing import NamedTuple

from ...dialect.kernel_ir.expressions import Apply, Cast, Const, Expr, Extent, Index, Read, Var
from ...dialect.kernel_ir.loops import Alloc, Assert, Block, For, If, Let, Prefetch, Store, may_jump
from ...dialect.kernel_ir.traverse import children

_LEAVES = Const, Index, Var, Extent


def runs(loop: For) -> bool:
    """Test whether a loop has at least one iteration."""
    return (
        isinstance(loop.start, Const)
        and isinstance(loop.end, Const)
        and loop.start.value < loop.end.value
    )


class Dependences(NamedTuple):
    """The indices, variables and arrays that an expression depends on, and whether it takes more
    than arithmetic.
    """

    depends: frozenset[object]
    reads: bool


class Invariants:
    """Looks into the loops of one kernel; what loops share and expressions depend on is found
    once.
    """

    def __init__(self) -> None:
        self.dependences: dict[Expr, Dependences] = {}
        self.loops: dict[For, list[tuple[Expr, bool]]] = {}

    def of(self, loop: For) -> list[tuple[Expr, bool]]:
        """The largest parts that do not depend on a loop, and of each whether it is index
        arithmetic.
        """
        if (parts := self.loops.get(loop)) is None:
            parts = self.loops[loop] = []
            if runs(loop):
                self.within(loop.body, {loop.index}, parts)
        return parts

    def within(self, block: Block, bound: set[object], invariants: list[tuple[Expr, bool]]) -> None:
        for s in block:
            if may_jump((s,)):
                return  # what follows need not be reached
            match s:
                case Store(_, at, value):
                    for e in at:
                        self.parts(e, bound, True, invariants)
                    self.parts(value, bound, False, invariants)
                case Let(var, value):
                    self.parts(value, bound, False, invariants)
                    bound.add(var)
                case Prefetch(_, at):
                    for e in at:
                        self.parts(e, bound, True, invariants)
                case Assert(condition, _, _):
                    self.parts(condition, bound, False, invariants)
                case Alloc(tensor):
                    bound.add(tensor)
                case For(index, body):
                    bound.add(index)
                    if runs(s):
                        self.within(body, bound, invariants)
                case If(condition):
                    self.parts(condition, bound, False, invariants)
                    bound.update(v.var for v in (*s.then, *s.otherwise) if isinstance(v, Let))

    def parts(
        self, e: Expr, bound: set[object], is_index: bool, invariants: list[tuple[Expr, bool]]
    ) -> None:
        """The dependences of one expression; shared nodes are visited once."""
        seen: set[tuple[Expr, bool]] = set()
        stack = [(e, is_index)]
        while stack:
            top = e, is_index = stack.pop()
            if isinstance(e, _LEAVES) or top in seen:
                continue
            seen.add(top)
            about = self.dependences.get(e) or self.about(e)
            if is_index and not about.reads:
                continue
            if about.depends.isdisjoint(bound):
                invariants.append(top)
            else:
                is_index = is_index or isinstance(e, Read)
                stack += [(c, is_index) for c in children(e)[::-1]]

    def about(self, e: Expr) -> Dependences:
        if (about := self.dependences.get(e)) is None:
            parts = [self.about(c) for c in children(e)]
            own: set[object] = (
                {e} if isinstance(e, (Index, Var)) else {e.tensor} if isinstance(e, Read) else set()
            )
            reads = isinstance(e, (Read, Cast)) or (
                isinstance(e, Apply) and any(p.reads for p in parts)
            )
            about = self.dependences[e] = Dependences(
                frozenset(own.union(*(p.depends for p in parts))), reads
            )
        return about
