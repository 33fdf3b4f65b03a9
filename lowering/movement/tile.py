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
the caches a tile is first put together in a buffer, and then streams row by row; where elements are small, the many rows
that are read across are first copied side by side. A last tile that does not fit begins earlier (elements are written twice,
to the same value); where sizes are known only when called, the last part of a tile does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...dialect.index import Expr, Index, Read, Tensor, as_index, both, minimum
from ...dialect.loops import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Statement,
    Store,
    map_expressions,
    rewrite_block,
    statements,
    substitute_block,
)
from ...dialect.sizes import Dim
from ...dialect.traverse import rewrite, substitute
from ..accesses import allocated, reads, stores, stride
from ..affine import key
from ..collapse import is_whole
from ..vectorise import independent
from .stream import is_large

ROW = 16  # bytes that are turned at once
VECTOR = 32  # bytes
LINE = 64  # bytes that a row of a buffer has more than a tile's: rows then lie in different places of the nearest cache
WAYS = 16  # as many rows that lie a power of two apart stay near enough
DOWN, ALONG = 64, 1024  # elements of a tile along the outer loop, and bytes along the inner one
HELD, RUN = 1 << 18, 1 << 12  # bytes of a tile that is put together in a buffer, and of a row that is read for it


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
    """The chain of loops with loops over tiles around the two that cross."""
    rows, lanes = _block(inner)
    body, size = inner.body, VECTOR // lanes
    store = body[-1]
    assert isinstance(store, Store)
    large = is_large(store.tensor)
    j = _Axis(inner.index, lanes, ALONG // size)
    held_rows = HELD // (j.side * max(size, store.tensor.element.bytes))
    i = _Axis(outer.index, rows, max(min(held_rows, RUN // size), rows) if large else DOWN)
    row, lane = Index("u", rows), Index("l", lanes)
    before, after = (), ()
    if large:
        held = Tensor("turned", (i.side, j.side + LINE // size), store.tensor.element, "stack")
        body = (*body[:-1], replace(store, tensor=held, indices=(i.part * rows + row, j.part * lanes + lane)))
        r, c = Index("r", i.side), Index("c", j.side)
        copied = replace(store, value=held[r, c])
        there: dict[Expr, Expr] = {outer.index: i.first + r, inner.index: j.first + c}
        before, after = (Alloc(held),), (For(r, (For(c, substitute_block((copied,), there)),)),)
    first, far = (), _far(inner)
    if large and lanes > WAYS and len({key(r) for r in far}) == 1:
        near = Tensor("near", (lanes, i.side + LINE // size), far[0].tensor.element, "stack")
        k, c = Index("k", lanes), Index("c", i.side)
        value = substitute(far[0], {outer.index: i.first + c, inner.index: j.begin + k})
        first = (Alloc(near), For(k, (For(c, (Store(near, (k, c), value),)),)))
        body = _read_from(near[lane, i.part * rows + row], key(far[0]), body)
    body = substitute_block(body, {outer.index: i.begin + row, inner.index: j.begin + lane})
    block: Block = (
        For(i.part, (For(row, (For(lane, body, kind="vector", width=lanes),), kind="unrolled"),), stop=i.stop),
    )
    block = (For(j.tile, (*before, For(j.part, (*first, *block), stop=j.stop), *after)),)
    if isinstance(fits := both(i.fits, j.fits), Expr):
        block = (If(fits, block, (replace(outer, start=i.first, stop=i.end, body=(inner,)),)),)
    shared = alone and len(chain) == 2  # different threads may take different tiles: they write different elements
    block = (For(i.tile, block, kind="parallel" if shared else "serial"),)
    for s in reversed(chain[:-1]):
        if s is not outer:
            block = (replace(s, body=block),)
    return block


def _read_from(there: Read, place: object, body: Block) -> Block:
    """The body with another read for those of one place."""

    def change(e: Expr) -> Expr | None:
        return there if isinstance(e, Read) and key(e) == place else None

    return map_expressions(body, lambda e: rewrite(e, change))


class _Axis:
    """An index by tiles and parts of a tile, `step` elements each. Where a size is known a last tile that would not fit
    begins earlier; where it is not, a last part does."""

    def __init__(self, index: Index, step: int, most: int) -> None:
        n = index.extent
        known = isinstance(n, int)
        self.side = (min(most, n) if known else most) // step * step
        if known:  # as even tiles as whole cache lines allow
            even = -(-n // -(-n // self.side))
            self.side = min(-(-even // LINE) * LINE, self.side)
        self.tile = Index(f"{index.name}.tile", (n + (self.side - 1)) // self.side)
        self.part = Index(f"{index.name}.part", self.side // step)
        self.first = self.tile * self.side  # of a tile
        if known and n % self.side:
            self.first = minimum(self.first, as_index(n - self.side))
        self.begin = self.first + self.part * step  # of a part
        self.end = self.first + self.side
        self.stop: Expr | None = None
        self.fits: Expr | bool = True
        if not known:
            self.end = minimum(self.end, as_index(n))
            self.stop = (self.end - self.first + (step - 1)) // step
            self.begin = minimum(self.begin, as_index(n - step))
            self.fits = as_index(n) >= step
