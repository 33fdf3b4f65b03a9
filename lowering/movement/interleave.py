"""A short innermost axis, such as the colours of an image, in whole vectors:

    for i in 0..1000 { for c in 0..3 { y[i, c] = x[i, c] * g[c] } }
    =>  alloc register held: tensor<24xf32>
        for p in 0..3 unrolled { for l in 0..8 vector 8 { held[p * 8 + l] = g[(p * 8 + l) mod 3] } }
        for b in 0..125 { for p in 0..3 unrolled { for l in 0..8 vector 8 {        k: b * 24 + p * 8 + l
          y[k] = x[k] * held[p * 8 + l]
        } } }
        and the iterations of i that are left over, as they were

What is read along the short axis alone is the same every time, and read before. Loops over many elements are parallel, by
blocks that do so each. What is read plane by plane is left to `planes`.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.index import Expr, Index, Read, Tensor, Var, as_index, minimum
from ...dialect.loops import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Let,
    Statement,
    Store,
    rewrite_block,
    statements,
    substitute_block,
)
from ...dialect.traverse import rewrite, walk
from ...dialect.types import I1
from ..accesses import allocated, depends, reads, stores, stride
from ..collapse import Joined, join
from ..vectorise import independent, lanes
from .planes import of_planes, reads_planes

LONGEST = 7  # elements of the short axis
MANY = 64  # times as many iterations around it, at least
WORTH_SHARING = 1 << 16  # elements
BLOCK = 256  # turns that one thread does at once


def interleave(kernel: Kernel) -> Kernel:
    made = join(kernel)
    if made is None or len(kernel.body) != 1:
        return kernel
    loop, *others = (s for s in statements(made.kernel.body) if isinstance(s, For) and s.index is made.index)
    count, period = made.outer.extent, made.inner.extent
    if not (isinstance(count, int) and isinstance(period, int) and 2 <= period <= LONGEST and count >= MANY):
        return kernel
    if others or any(isinstance(s, (For, If)) for s in statements(loop.body)) or allocated(loop.body):
        return kernel
    width = lanes(loop)
    alone = made.kernel.body == (loop,) and count % width == 0 and count * period >= WORTH_SHARING
    if _suits(loop, made.index):
        whole = _turns(made, loop.body, width, count // width, period, alone)
    elif reads_planes(loop, made):
        whole = of_planes(loop.body, made, width, alone)
    else:
        return kernel
    if count % width:
        left: dict[Expr, Expr] = {made.outer: made.index // period, made.inner: made.index % period}
        rest = replace(loop, start=as_index(count // width * width * period))
        whole = (*whole, replace(rest, body=substitute_block(loop.body, left)))
    return made.kernel.with_body(rewrite_block(made.kernel.body, lambda s: whole if s is loop else None))


def _turns(made: Joined, block: Block, width: int, count: int, period: int, shared: bool) -> Block:
    """All turns of a period's vectors, and before them what they share."""
    turn, part, lane = Index("b", count), Index("p", period), Index("l", width)
    at = part * width + lane
    buffers, inside = _held(made, block, width * period, at)
    places: dict[Expr, Expr] = {
        made.outer: turn * width + at // period,
        made.inner: at % period,
        made.index: turn * (width * period) + at,
    }

    def vectors(body: Block) -> For:
        lanes = For(lane, substitute_block(body, places), kind="vector", width=width)
        return For(part, (lanes,), kind="unrolled")

    before: list[Statement] = []
    for buffer, value in buffers.items():
        before += [Alloc(buffer), vectors((Store(buffer, (at,), value),))]
    turns = For(turn, (vectors(inside),))
    if not shared:
        return (*before, turns)
    several = Index("s", -(-count // BLOCK))
    first = several * BLOCK
    turns = replace(turns, start=first, stop=minimum(first + BLOCK, as_index(count)))
    return (For(several, (*before, turns), kind="parallel"),)


def _held(made: Joined, block: Block, size: int, at: Expr) -> tuple[dict[Tensor, Expr], Block]:
    """What a block reads along the short axis alone, and the block with buffers in place of that."""
    changing: set[Expr] = {made.outer, made.index, *(s.var for s in statements(block) if isinstance(s, Let))}
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

    def change(s: Statement) -> Block | None:
        match s:
            case Let(var, value):
                return (Let(var, rewrite(value, held)),)
            case Store(_, _, value):
                return (replace(s, value=rewrite(value, held)),)
        return None

    return buffers, rewrite_block(block, change)


def _suits(loop: For, index: Index) -> bool:
    """Whether what is written moves with the joined index, and something is read with it."""
    written: list[Store] = list(stores(loop.body))
    contiguous = all(stride(s.tensor, s.indices, index) == 1 for s in written)
    return contiguous and independent(loop) and any(stride(r.tensor, r.indices, index) == 1 for r in reads(loop.body))
