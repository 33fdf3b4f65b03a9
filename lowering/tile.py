"""Rearrangements by tiles, whose squares are turned in registers:

    for i in 0..4096 { for j in 0..4096 { y[i, j] = x[j, i] } }
    =>  for i.tile in 0..64 parallel { for j.tile in 0..16 {
          for j.part in 0..32 { for i.part in 0..16 {
            for u in 0..4 unrolled { for l in 0..8 vector 8 {     i: i.tile * 64 + i.part * 4 + u, j: j.tile * 256 + j.part * 8 + l
              y[i, j] = x[j, i]
            } }
          } }
        } }

Two loops are tiled if what is written moves by single elements along the one, and what is read along the other. For what is
unrolled around lanes, code generation reads a vector for each lane, along the other loop. Where the result is larger than
the caches a tile is first put together in a buffer, and then streams row by row. A last tile that does not fit begins
earlier (elements are written twice, to the same value); what sizes known when called leave over stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..dialect.index import Expr, Index, Read, Tensor, as_index, minimum
from ..dialect.loops import Alloc, Block, For, If, Kernel, Statement, Store, rewrite_block, statements, substitute_block
from ..dialect.types import Dim
from .accesses import allocated, reads, stores, stride
from .collapse import is_whole
from .stream import is_large
from .vectorise import independent

ROW = 16  # bytes that are turned at once
VECTOR = 32  # bytes
DOWN, ALONG = 64, 1024  # elements of a tile along the outer loop, and bytes along the inner one


def tile(kernel: Kernel) -> Kernel:
    match kernel.body:
        case (For() as loop,) if made := _tiles(loop, alone=True):
            return kernel.with_body(made)
    return kernel.with_body(rewrite_block(kernel.body, _tiles))


def _tiles(s: Statement, alone: bool = False) -> Block | None:
    if isinstance(s, For) and s.kind in ("serial", "parallel"):
        *others, inner = chain = list(_chain(s))
        for outer in others:
            if _crosses(outer, inner):
                return _tiled(chain, outer, inner, alone)
    return None


def _chain(s: For) -> Iterator[For]:
    """Loops that hold nothing but each other, over all of their ranges."""
    yield s
    if len(s.body) == 1 and isinstance(inner := s.body[0], For) and inner.kind == "serial":
        yield from _chain(inner)


def _crosses(outer: For, inner: For) -> bool:
    """Whether reads go along the outer loop, writes along the inner one."""
    body = inner.body
    if not (is_whole(outer) and is_whole(inner)) or any(isinstance(s, (For, If)) for s in statements(body)):
        return False
    if allocated(body) or not isinstance(body[-1], Store) or sum(1 for _ in stores(body)) > 1:
        return False
    if not (independent(inner) and independent(outer)):
        return False
    far = _far(inner)
    if not far or any(stride(s.tensor, s.indices, inner.index) != 1 for s in stores(body)):
        return False
    turned = all(stride(r.tensor, r.indices, outer.index) == 1 for r in far)
    rows, lanes = _block(inner)
    return turned and not _below(outer.index.extent, rows) and not _below(inner.index.extent, lanes)


def _far(inner: For) -> list[Read]:
    """What is not read by single elements along a loop."""
    found = [(r, stride(r.tensor, r.indices, inner.index)) for r in reads(inner.body)]
    return [r for r, n in found if n not in (0, 1)]


def _block(inner: For) -> tuple[int, int]:
    """How many rows and lanes are turned at once."""
    size = max(r.type.bytes for r in _far(inner))
    return max(ROW // size, 1), VECTOR // size


def _below(extent: Dim, least: int) -> bool:
    return isinstance(extent, int) and extent < least


def _tiled(chain: list[For], outer: For, inner: For, alone: bool) -> Block:
    """The chain of loops with loops over tiles around the two that cross, and what is left over."""
    rows, lanes = _block(inner)
    i, j = _Axis(outer.index, rows, DOWN), _Axis(inner.index, lanes, ALONG // VECTOR * lanes)
    row, lane = Index("u", rows), Index("l", lanes)
    body, held = inner.body, None
    store = body[-1]
    assert isinstance(store, Store)
    if is_large(store.tensor):
        held = Tensor("turned", (i.side, j.side), store.tensor.element, "stack")
        body = (*body[:-1], replace(store, tensor=held, indices=(i.part * rows + row, j.part * lanes + lane)))
    there: dict[Expr, Expr] = {
        outer.index: i.first + i.part * rows + row,
        inner.index: j.first + j.part * lanes + lane,
    }
    block: Block = (For(lane, substitute_block(body, there), kind="vector", width=lanes),)
    block = (For(j.part, (For(i.part, (For(row, block, kind="unrolled"),)),)),)
    if held is not None:
        r, c = Index("r", i.side), Index("c", j.side)
        copy = substitute_block(
            (replace(store, value=held[r, c]),), {outer.index: i.first + r, inner.index: j.first + c}
        )
        block = (Alloc(held), *block, For(r, (For(c, copy),)))
    shared = alone and len(chain) == 2  # different threads may take different tiles: they write different elements
    block = (For(i.tile, (For(j.tile, block),), kind="parallel" if shared else "serial"),)
    if not (isinstance(outer.index.extent, int) and isinstance(inner.index.extent, int)):
        left = replace(inner, start=as_index(inner.index.extent // j.side * j.side))
        block = (
            *block,
            replace(outer, stop=as_index(outer.index.extent // i.side * i.side), body=(left,)),
            replace(outer, start=as_index(outer.index.extent // i.side * i.side), body=(inner,)),
        )
    for s in reversed(chain[:-1]):
        if s is not outer:
            block = (replace(s, body=block),)
    return block


class _Axis:
    """An index by tiles and parts of a tile, `step` elements each."""

    def __init__(self, index: Index, step: int, most: int) -> None:
        n = index.extent
        self.side = min(most, n // step * step) if isinstance(n, int) else most
        self.tile = Index(f"{index.name}.tile", -(-n // self.side) if isinstance(n, int) else n // self.side)
        self.part = Index(f"{index.name}.part", self.side // step)
        self.first = self.tile * self.side
        if isinstance(n, int) and n % self.side:
            self.first = minimum(self.first, as_index(n - self.side))
