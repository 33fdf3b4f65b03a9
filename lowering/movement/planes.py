"""Planes that are read side by side, shuffled into one array with a short innermost axis:

for i in 0..1000 { for c in 0..3 { y[i, c] = f(x[c, i]) } }
=>  for b in 0..125 {
      alloc stack planes: tensor<3x8xf32>
      for c in 0..3 unrolled { for l in 0..8 vector 8 { planes[c, l] = f(x[c, b * 8 + l]) } }
      for l in 0..24 vector 24 { y[b * 24 + l] = planes[l mod 3, l // 3] }
    }
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.index import Expr, Index, Tensor
from ...dialect.loops import Alloc, Block, For, Store, substitute_block
from ..accesses import reads, stores, stride
from ..collapse import Joined
from ..vectorise import independent


def reads_planes(loop: For, made: Joined) -> bool:
    """Whether what is written moves with the joined index, and what is read with the outer one."""
    steps = {stride(r.tensor, r.indices, made.outer) for r in reads(loop.body)}
    found = tuple(s for s in stores(loop.body) if stride(s.tensor, s.indices, made.index) == 1)
    return independent(loop) and loop.body[-1:] == found and steps <= {0, 1} and 1 in steps


def of_planes(body: Block, made: Joined, width: int, shared: bool) -> Block:
    """The loop over whole vectors of every plane, and of what they are together."""
    *names, store = body
    period, count = made.inner.extent, made.outer.extent
    assert isinstance(store, Store) and isinstance(period, int) and isinstance(count, int)
    planes = Tensor("planes", (period, width), store.tensor.element, "stack")
    block, plane, one, lane = (
        Index("b", count // width),
        Index("c", period),
        Index("l", width),
        Index("l", width * period),
    )
    element = block * width + one
    of_one: dict[Expr, Expr] = {made.outer: element, made.inner: plane, made.index: element * period + plane}
    of_all: dict[Expr, Expr] = {made.index: block * (width * period) + lane}
    part = substitute_block((*names, Store(planes, (plane, one), store.value)), of_one)
    whole = substitute_block((replace(store, value=planes[lane % period, lane // period]),), of_all)
    turn = (
        Alloc(planes),
        For(plane, (For(one, part, kind="vector", width=width),), kind="unrolled"),
        For(lane, whole, kind="vector", width=width * period),
    )
    return (For(block, turn, kind="parallel" if shared else "serial"),)
