"""Vectorize across a short innermost axis, such as the colours of an image, by joining it with the loop around.

    for i in 0..1000 { for c in 0..3 { y[i, c] = x[i, c] * g[c] } }
    =>  alloc register held: tensor<24xf32>
        for p in 0..3 unrolled { for l in 0..8 vector 8 { held[p * 8 + l] = g[(p * 8 + l) mod 3] } }
        for b in 0..125 { for p in 0..3 unrolled { for l in 0..8 vector 8 {        k: b * 24 + p * 8 + l
          y[k] = x[k] * held[p * 8 + l]
        } } }
        and a remainder loop over the last iterations of i

Legal if iterations are independent. Pays for an axis of at most MAX_SHORT_AXIS elements inside `short_axis_trips`
iterations. Reads that depend on the short axis alone are hoisted. Loops over many elements run in parallel, by blocks,
each with its own hoisted reads. With an unknown trip count the last vectors overlap others. Loops that read plane by
plane are left to `interleave_planes`.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.ir.sizes import Size
from ...dialect.ir.types import I1
from ...dialect.notation import loops as ir
from ...dialect.notation.affine import affine
from ...dialect.notation.expressions import ZERO, Expr, Index, Read, Tensor, Var, as_index, minimum
from ...dialect.notation.traverse import rewrite, walk
from ..analysis.accesses import allocated, depends, reads, stores, stride
from ..analysis.vector_stores import overlaps
from ..loops.collapse import Joined, join
from ..loops.vectorize import independent, lanes
from ..passes import kernel_pass
from ..processor import processor
from .interleave_planes import Deinterleaving, reads_planes

MAX_SHORT_AXIS = 7  # elements of the short axis, at most
ITERATIONS_PER_TASK = 256  # blocks of iterations per task of a thread


@kernel_pass
def vectorize_short_axis(kernel: ir.Kernel) -> ir.Kernel:
    made = join(kernel)
    if made is None or len(kernel.body) != 1:
        return kernel
    loop, *others = (s for s in ir.statements(made.kernel.body) if isinstance(s, ir.For) and s.index is made.index)
    count, period = made.outer.extent, made.inner.extent
    if (
        not isinstance(period, int)
        or not 2 <= period <= MAX_SHORT_AXIS
        or (isinstance(count, int) and count < processor().tuning.short_axis_trips)
    ):
        return kernel
    if others or any(isinstance(s, (ir.For, ir.If)) for s in ir.statements(loop.body)) or allocated(loop.body):
        return kernel
    if _suits(loop, made.index):
        turns = _Turns(made, loop, period)
    elif reads_planes(loop, made):
        turns = Deinterleaving(made, loop, period)
    else:
        return kernel
    left: dict[Expr, Expr] = {made.outer: made.index // period, made.inner: made.index % period}
    rest = replace(loop, body=ir.substitute_block(loop.body, left))
    if isinstance(count, int):
        whole = _counted(turns, rest, count, period, alone=made.kernel.body == (loop,))
    elif overlaps(loop):
        whole = _uncounted(turns, rest, count, alone=made.kernel.body == (loop,))
    else:
        return kernel
    return made.kernel.with_body(ir.rewrite_block(made.kernel.body, lambda s: whole if s is loop else None))


def _counted(turns: _Turns | Deinterleaving, rest: ir.For, count: int, period: int, alone: bool) -> ir.Block:
    """All blocks of iterations, and the remainder."""
    n, over = divmod(count, turns.width)
    turn = Index("b", n)
    loop = ir.For(turn, turns.at(turn * turns.width))
    if over:
        return *turns.before, loop, replace(rest, start=as_index((count - over) * period))
    if not alone or count * period < 2 * processor().wake_operations:
        return *turns.before, loop
    if not turns.before:
        return (replace(loop, kind="parallel"),)
    several = Index("s", -(-n // ITERATIONS_PER_TASK))
    first = several * ITERATIONS_PER_TASK
    loop = replace(loop, start=first, stop=minimum(first + ITERATIONS_PER_TASK, as_index(n)))
    return (ir.For(several, (*turns.before, loop), kind="parallel"),)


def _uncounted(turns: _Turns | Deinterleaving, rest: ir.For, count: Size, alone: bool) -> ir.Block:
    """All blocks of iterations for an unknown trip count: the last block overlaps the one before, if at least one block
    fits.
    """
    n = count // turns.width
    turn, several = Index("b", n), Index("s", n // ITERATIONS_PER_TASK + 1)
    first = several * ITERATIONS_PER_TASK
    loop = ir.For(
        turn, turns.at(turn * turns.width), start=first, stop=minimum(first + ITERATIONS_PER_TASK, as_index(n))
    )
    last = several.eq(as_index(n // ITERATIONS_PER_TASK)) & (as_index(count % turns.width) > 0)
    tail = ir.If(last, turns.at(as_index(count - turns.width)))
    body = ir.If(as_index(count) >= turns.width, (*turns.before, loop, tail), (rest,))
    return (ir.For(several, (body,), kind="parallel" if alone else "serial"),)


class _Turns:
    """The vectors of one period, and the hoisted reads that all periods share."""

    def __init__(self, made: Joined, loop: ir.For, period: int) -> None:
        self.made, self.period, self.width = made, period, lanes(loop)
        self.part, self.lane = Index("p", period), Index("l", self.width)
        self.place = self.part * self.width + self.lane
        buffers, self.inside = _held(made, loop.body, self.width * period, self.place)
        before: list[ir.Statement] = []
        for buffer, value in buffers.items():
            before += [ir.Alloc(buffer), self.vectors((ir.Store(buffer, (self.place,), value),), ZERO)]
        self.before = tuple(before)

    def at(self, row: Expr) -> ir.Block:
        """The period that begins at a row."""
        return (self.vectors(self.inside, row),)

    def vectors(self, body: ir.Block, row: Expr) -> ir.For:
        places: dict[Expr, Expr] = {
            self.made.outer: row + self.place // self.period,
            self.made.inner: self.place % self.period,
            self.made.index: (affine(row) * self.period).expression() + self.place,
        }
        lanes = ir.For(self.lane, ir.substitute_block(body, places), kind="vector", width=self.width)
        return ir.For(self.part, (lanes,), kind="unrolled")


def _held(made: Joined, block: ir.Block, size: int, at: Expr) -> tuple[dict[Tensor, Expr], ir.Block]:
    """The reads of a block that depend on the short axis alone, and the block with buffers in their place."""
    changing: set[Expr] = {made.outer, made.index, *(s.var for s in ir.statements(block) if isinstance(s, ir.Let))}
    written = {s.tensor for s in stores(block)}
    buffers: dict[Tensor, Expr] = {}
    found: dict[Expr, Expr] = {}

    def held(e: Expr) -> Expr | None:
        if e in found:
            return found[e]
        known = [n.tensor for n in walk(e) if isinstance(n, Read)]
        along = depends(e, {made.inner}) and not depends(e, changing)
        if known and along and written.isdisjoint(known) and e.type is not I1 and not isinstance(e, Var):
            buffer = Tensor(f"held{len(buffers)}", (size,), e.type, "register")
            buffers[buffer] = e
            found[e] = buffer[at]
            return found[e]
        return e if isinstance(e, Read) else None

    def change(s: ir.Statement) -> ir.Block | None:
        match s:
            case ir.Let(var, value):
                return (ir.Let(var, rewrite(value, held)),)
            case ir.Store(_, _, value):
                return (replace(s, value=rewrite(value, held)),)
        return None

    return buffers, ir.rewrite_block(block, change)


def _suits(loop: ir.For, index: Index) -> bool:
    """Test whether stores move with the joined index, and some read does too."""
    written: list[ir.Store] = list(stores(loop.body))
    contiguous = all(stride(s.tensor, s.indices, index) == 1 for s in written)
    return contiguous and independent(loop) and any(stride(r.tensor, r.indices, index) == 1 for r in reads(loop.body))
