"""Reduce by lanes on groups of 16 threads, by warp shuffles (CUB's WarpReduce).

    for i {
      sums[16]; for k { for l vector 16 { sums[l] = sums[l] + x[i, k * 16 + l] } }
      halves; y[i] = sums[0]
    }
    =>  for b in teams block {                                                 i = b * 16 + t // 16
          for t in 0..256 thread { for k { sums[t] = sums[t] + x[i, k * 16 + t % 16] } }
          for t in 0..256 thread { h8[t] = sums[t] + sums[t ^ 8] }             and so on
          for t in 0..256 thread { if t % 16 == 0 { y[i] = h1[t] } }
        }

Legal after `lane_reduction`, whose order of the sum it keeps, and with it the bits: each thread of
a group is one lane. Statements outside of the lanes are executed by every thread of the group. A
group that meets as often as its own element says, such as one of the blocks of a sum whose size a
call tells, is alone in a warp.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import (
    Const,
    Expr,
    Index,
    Read,
    Tensor,
    Var,
    apply,
    as_index,
    unflatten,
)
from ...dialect.kernel_ir.index_bounds import inside
from ...dialect.kernel_ir.traverse import rewrite, walk
from ...dialect.types.sizes import product
from ..analysis.accesses import accumulators, depends, reads, reduces_floats
from ..analysis.parallel_loops import block_size, independent_loops, is_mapped
from ..passes import scheduled_gpu_pass
from ..processor import processor
from .ordered_reduction import by_lanes_of_a_warp
from .thread_block_tile import guarded

WIDTHS = (8, 16, 32)  # lanes of a sum that the threads of one warp can share


class _Unfit(Exception):
    """The nest has a statement that a group of threads cannot execute."""


@scheduled_gpu_pass
def warp_reduce(kernel: ir.Kernel) -> ir.Kernel | None:
    """The kernel on groups of threads, if it reduces by lanes; integer reductions, which have no
    order, get lanes first.
    """
    if is_mapped(kernel):
        return None
    kernel = kernel if reduces_floats(kernel) else by_lanes_of_a_warp(kernel)
    indices, block = independent_loops(kernel)
    buffers = {
        s.tensor
        for s in ir.statements(block)
        if isinstance(s, ir.Alloc) and len(s.tensor.shape) == 1
    }
    widths = {t.shape[0] for t in buffers}
    if len(widths) != 1 or (width := widths.pop()) not in WIDTHS or not isinstance(width, int):
        return None
    if _reads_what_it_stores(block):
        return None
    for alone in (False, True):
        with suppress(_Unfit):
            return kernel.with_body((_Team(indices, width, alone).blocks(block),))
    return None


def _reads_what_it_stores(block: ir.Block) -> bool:
    """Test whether threads read elements of arrays that the first one of their group stores."""
    stores = [s for s in ir.statements(block) if isinstance(s, ir.Store)]
    stored = {s.tensor for s in stores if s.tensor.space != "register"}
    others = (s for s in ir.statements(block) if getattr(s, "tensor", None) not in stored)
    values = (n for s in others for e in ir.expressions(s) for n in walk(e))
    return any(isinstance(n, Read) and n.tensor in stored for n in values)


class _Team:
    """Groups of threads of a block, or one that is alone in a warp: how often it meets may depend
    on its indices.
    """

    def __init__(self, indices: list[Index], width: int, alone: bool) -> None:
        self.apart: list[Expr] = (
            [] if alone else [*indices]
        )  # indices by which threads of a block differ
        self.width = width
        self.registers: dict[Tensor, Tensor] = {}  # per thread; of the sums, the current one
        shape = tuple(i.extent for i in indices)
        count = product(shape)
        threads = processor().gpu.warp if alone else block_size(count * width)
        self.thread, each = Index("t", threads), 1 if alone else threads // width
        self.block_index = Index("b", (count + (each - 1)) // each)
        number = self.block_index if alone else self.block_index * each + self.thread // width
        self.lane = self.thread % width
        self.places: dict[Expr, Expr] = dict(zip(indices, unflatten(number, shape), strict=True))
        self.valid = inside(self.thread, width) if alone else inside(number, count)

    def blocks(self, block: ir.Block) -> ir.For:
        return ir.For(self.block_index, self.statements(block), kind="block")

    def statements(self, block: ir.Block) -> ir.Block:
        """A block's statements; those without lanes are grouped."""
        done: list[ir.Statement] = []
        group: list[ir.Statement] = []
        for n, s in enumerate(block):
            if isinstance(s, ir.Alloc):
                done.append(ir.Alloc(self.register(s.tensor)))
            elif _has_lanes(s):
                done += self.threads(group, block[n:])
                group = []
                done += self.together(s)
            else:
                group.append(s)
        return (*done, *self.threads(group, ()))

    def register(self, tensor: Tensor) -> Tensor:
        if tensor.space != "register" or tensor.shape not in ((), (self.width,)):
            raise _Unfit
        self.registers[tensor] = Tensor(
            tensor.name, (self.thread.extent,), tensor.element, "register"
        )
        return self.registers[tensor]

    def threads(self, group: Sequence[ir.Statement], later: ir.Block) -> ir.Block:
        """Statements that every thread of a group executes."""
        named = {s.var for s in group if isinstance(s, ir.Let)}
        if any(n in named for n in ir.nodes(later) if isinstance(n, Var)):
            raise _Unfit
        return (self.guarded(self.stores(tuple(group))),) if group else ()

    def guarded(self, block: ir.Block) -> ir.For:
        changed = ir.map_expressions(block, lambda e: rewrite(e, self.change))
        return ir.For(self.thread, guarded(changed, self.valid), kind="thread")

    def change(self, e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.tensor in self.registers:
            return self.registers[e.tensor][self.thread]
        return self.places.get(e)

    def stores(self, block: ir.Block) -> ir.Block:
        """The block with stores to per-thread registers, and array stores by the group's first
        thread only.
        """
        own = accumulators(ir.statements(block))  # every thread has them to itself

        def change(s: ir.Statement) -> ir.Block | None:
            match s:
                case ir.Store(tensor, _, value) if tensor in self.registers:
                    return (ir.Store(self.registers[tensor], (self.thread,), value),)
                case ir.Store() if s.tensor not in own:
                    return (ir.If(self.lane.eq(0), (s,)),)
                case ir.Alloc() if s.tensor not in own:
                    raise _Unfit
                case ir.For() if s.kind != "serial":
                    raise _Unfit
                case _:
                    return None

        return ir.rewrite_block(block, change)

    def together(self, s: ir.Statement) -> ir.Block:
        """A statement that the group executes by lanes."""
        match s:
            case ir.For(index, body, Const(0), _, "vector", self.width) if (
                index.extent == self.width
            ):
                self.places[index] = self.lane
                self.apart.append(index)
                return (self.guarded(self.stores(body)),)
            case ir.For(index, (ir.Store(tensor, (at,), value),)) if at is index and s.kind in (
                "vector",
                "unrolled",
            ):
                return self.halved(tensor, index, value)
            case ir.For(index, body, start, _, "serial"):
                loop = self.within(replace(s, body=self.statements(body)))
                if any(
                    (depends(e, {*self.apart}) and loop.kind != "thread") or not _plain(e)
                    for e in (start, s.end)
                ):
                    raise _Unfit
                return ir.substitute_block((loop,), self.places)
            case ir.If(condition, then, otherwise) if _plain(condition) and not depends(
                condition, {*self.apart}
            ):
                return (ir.If(condition, self.statements(then), self.statements(otherwise)),)
            case _:
                raise _Unfit

    def within(self, s: ir.For) -> ir.For:
        """A serial loop inside of the thread loop, so that bounds are computed once per thread."""
        match s.body:
            case (ir.For(body=(ir.If(condition, body, ()),), kind="thread") as every,) if (
                condition is self.valid
            ):
                return replace(every, body=(ir.If(condition, (replace(s, body=body),)),))
            case (ir.For(kind="thread") as every,):
                return replace(every, body=(replace(s, body=every.body),))
            case _:
                return s

    def halved(self, tensor: Tensor, index: Index, value: Expr) -> ir.Block:
        """sums[h] = f(sums[h], sums[h + n]) of n lanes: every thread combines with the one at
        distance n (butterfly).
        """
        apart = index.extent
        operands = list(reads((ir.Store(tensor, (index,), value),)))
        own, combined = (
            self.registers[tensor],
            Tensor("h", (self.thread.extent,), tensor.element, "register"),
        )
        if not isinstance(apart, int) or any(r.tensor is not tensor for r in operands):
            raise _Unfit
        partner = own[apply("xor", self.thread, as_index(apart))]

        def change(e: Expr) -> Expr | None:
            if isinstance(e, Read):
                return own[self.thread] if e.indices[0] is index else partner
            return None

        self.registers[tensor] = combined
        step = ir.Store(combined, (self.thread,), rewrite(value, change))
        return ir.Alloc(combined), ir.For(self.thread, (step,), kind="thread")


def _has_lanes(s: ir.Statement) -> bool:
    if not isinstance(s, (ir.For, ir.If)):
        return False
    if isinstance(s, ir.For) and s.kind == "unrolled" and s.index.extent == 1:
        return True  # the last step of the butterfly
    if isinstance(s, ir.For) and s.kind == "vector":
        return True
    return any(
        isinstance(i, ir.For) and i.kind in ("vector", "unrolled") for i in ir.statements((s,))
    )


def _plain(e: Expr) -> bool:
    """Test whether an expression is index arithmetic, uniform over threads."""
    return not any(isinstance(n, (Read, Var)) for n in walk(e))
