"""Folds by lanes on a team of threads, a lane each, after `lanes`:

    for i { sums[16]; for k { for l vector 16 { sums[l] = sums[l] + x[i, k * 16 + l] } }; halves; y[i] = sums[0] }
    =>  for b in teams block {
          for t in 0..256 thread { for k { sums[t] = sums[t] + x[i, k * 16 + t % 16] } }      i = b * 16 + t // 16
          for t in 0..256 thread { h8[t] = sums[t] + sums[t ^ 8] }                           and so on
          for t in 0..256 thread { if t % 16 == 0 { y[i] = h1[t] } }
        }

What a thread reads of another's register is a shuffle. The order of the fold is that of `lanes`, so are its bits. What
is not done by lanes, every thread of the team does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...dialect.ir.sizes import product
from ...dialect.notation.index import Const, Expr, Index, Read, Tensor, Var, apply, as_index, unflatten
from ...dialect.notation.index_bounds import inside
from ...dialect.notation.loops import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Let,
    Statement,
    Store,
    map_expressions,
    nodes,
    rewrite_block,
    statements,
)
from ...dialect.notation.traverse import rewrite, walk
from ..analysis.accesses import depends, reads
from ..analysis.parallel_loops import block_size, independent_loops

WIDTHS = (8, 16, 32)


class _Unfit(Exception):
    """The nest has something that a team cannot do."""


def block_reduce(kernel: Kernel) -> Kernel | None:
    """The kernel on teams, if it folds by lanes."""
    indices, block = independent_loops(kernel)
    buffers = {s.tensor for s in statements(block) if isinstance(s, Alloc) and len(s.tensor.shape) == 1}
    widths = {t.shape[0] for t in buffers}
    if len(widths) != 1 or (width := widths.pop()) not in WIDTHS or not isinstance(width, int):
        return None
    try:
        return kernel.with_body((_Team(indices, width).blocks(block),))
    except _Unfit:
        return None


class _Team:
    def __init__(self, indices: list[Index], width: int) -> None:
        self.indices = indices
        self.width = width
        self.held: dict[Tensor, Tensor] = {}  # registers to those of all threads; the sums, to where they are now
        shape = tuple(i.extent for i in indices)
        count = product(shape)
        threads = block_size(count * width)
        self.thread, each = Index("t", threads), threads // width
        self.block_index = Index("b", (count + (each - 1)) // each)
        number = self.block_index * each + self.thread // width
        self.lane = self.thread % width
        self.places: dict[Expr, Expr] = dict(zip(indices, unflatten(number, shape), strict=True))
        self.valid = inside(number, count)

    def blocks(self, block: Block) -> For:
        return For(self.block_index, self.statements(block), kind="block")

    def statements(self, block: Block) -> Block:
        """A block's statements, those without lanes in groups."""
        made: list[Statement] = []
        group: list[Statement] = []
        for n, s in enumerate(block):
            if isinstance(s, Alloc):
                made.append(Alloc(self.register(s.tensor)))
            elif _has_lanes(s):
                made += self.threads(group, block[n:])
                group = []
                made += self.together(s)
            else:
                group.append(s)
        return (*made, *self.threads(group, ()))

    def register(self, tensor: Tensor) -> Tensor:
        if tensor.space != "register" or tensor.shape not in ((), (self.width,)):
            raise _Unfit
        self.held[tensor] = Tensor(tensor.name, (self.thread.extent,), tensor.element, "register")
        return self.held[tensor]

    def threads(self, group: Sequence[Statement], later: Block) -> Block:
        """Statements that every thread of a team does."""
        named = {s.var for s in group if isinstance(s, Let)}
        if any(n in named for n in nodes(later) if isinstance(n, Var)):
            raise _Unfit
        return (self.guarded(self.stores(tuple(group))),) if group else ()

    def guarded(self, block: Block) -> For:
        changed = map_expressions(block, lambda e: rewrite(e, self.change))
        held: Block = (If(self.valid, changed),) if isinstance(self.valid, Expr) else changed
        return For(self.thread, held, kind="thread")

    def change(self, e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.tensor in self.held:
            return self.held[e.tensor][self.thread]
        return self.places.get(e)

    def stores(self, block: Block) -> Block:
        """The block with its registers' stores, and those of arrays by the first thread of the team."""

        def change(s: Statement) -> Block | None:
            match s:
                case Store(tensor, _, value) if tensor in self.held:
                    return (Store(self.held[tensor], (self.thread,), value),)
                case Store():
                    return (If(self.lane.eq(0), (s,)),)
                case Alloc():
                    raise _Unfit
                case For() if s.kind != "serial":
                    raise _Unfit
            return None

        return rewrite_block(block, change)

    def together(self, s: Statement) -> Block:
        """What the team does by lanes."""
        match s:
            case For(index, body, Const(0), _, "vector", self.width) if index.extent == self.width:
                self.places[index] = self.lane
                return (self.guarded(self.stores(body)),)
            case For(index, (Store(tensor, (at,), value),)) if at is index and s.kind in ("vector", "unrolled"):
                return self.halved(tensor, index, value)
            case For(index, body, start, _, "serial"):
                outer: set[Expr] = {*self.indices, *(i for i in self.places if isinstance(i, Index))}
                if any(depends(e, outer) or not _plain(e) for e in (start, s.end)):
                    raise _Unfit
                return self.within(replace(s, body=self.statements(body)))
            case If(condition, then, otherwise) if _plain(condition) and not depends(condition, {*self.indices}):
                return (If(condition, self.statements(then), self.statements(otherwise)),)
        raise _Unfit

    def within(self, s: For) -> Block:
        """A serial loop of what threads do on their own, by each thread: what they do is asked for once."""
        match s.body:
            case (For(body=(If(condition, body, ()),), kind="thread") as every,) if condition is self.valid:
                return (replace(every, body=(If(condition, (replace(s, body=body),)),)),)
            case (For(kind="thread") as every,):
                return (replace(every, body=(replace(s, body=every.body),)),)
        return (s,)

    def halved(self, tensor: Tensor, index: Index, value: Expr) -> Block:
        """sums[h] = f(sums[h], sums[h + n]) of n lanes: every thread with the one n lanes further, or before it."""
        apart = index.extent
        operands = list(reads((Store(tensor, (index,), value),)))
        mine, other = self.held[tensor], Tensor("h", (self.thread.extent,), tensor.element, "register")
        if not isinstance(apart, int) or any(r.tensor is not tensor for r in operands):
            raise _Unfit
        partner = mine[apply("xor", self.thread, as_index(apart))]

        def change(e: Expr) -> Expr | None:
            if isinstance(e, Read):
                return mine[self.thread] if e.indices[0] is index else partner
            return None

        self.held[tensor] = other
        step = Store(other, (self.thread,), rewrite(value, change))
        return Alloc(other), For(self.thread, (step,), kind="thread")


def _has_lanes(s: Statement) -> bool:
    if not isinstance(s, (For, If)):
        return False
    if isinstance(s, For) and s.kind == "unrolled" and s.index.extent == 1:
        return True  # the last of the halves
    if isinstance(s, For) and s.kind == "vector":
        return True
    return any(isinstance(i, For) and i.kind in ("vector", "unrolled") for i in statements((s,)))


def _plain(e: Expr) -> bool:
    """Whether an expression is index arithmetic, the same for all threads."""
    return not any(isinstance(n, (Read, Var)) for n in walk(e))
