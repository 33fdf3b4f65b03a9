"""Rearrangements by small squares, whose rows and columns stay in the cache:

    for i in 0..4096 { for j in 0..4096 { y[i, j] = x[j, i] } }
    =>  for i.tile in 0..256 { for j.tile in 0..256 {
          for i of 4096 in i.tile * 16..i.tile * 16 + 16 { for j of 4096 in j.tile * 16..j.tile * 16 + 16 { y[i, j] = x[j, i] } }
        } }

Two loops are tiled if what is written moves by single elements along the one, and what is read along the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..dialect.index import Const, Index, as_index, minimum
from ..dialect.loops import Block, For, If, Kernel, Statement, rewrite_block, statements
from .accesses import allocated, reads, stores, stride
from .vectorise import independent

SIDE = 16  # a cache line of i32
LEAST = 8 * SIDE  # iterations of each loop, below which the cache holds all of it


def tile(kernel: Kernel) -> Kernel:
    return kernel.with_body(rewrite_block(kernel.body, _tiles))


def _tiles(s: Statement) -> Block | None:
    if isinstance(s, For) and s.kind in ("serial", "parallel"):
        *others, inner = chain = list(_chain(s))
        for outer in others:
            if _crosses(outer, inner):
                return (_tiled(chain, outer, inner),)
    return None


def _chain(s: For) -> Iterator[For]:
    """Loops that hold nothing but each other, over all of their ranges."""
    yield s
    if len(s.body) == 1 and isinstance(inner := s.body[0], For) and inner.kind == "serial":
        yield from _chain(inner)


def _crosses(outer: For, inner: For) -> bool:
    """Whether reads go along the outer loop, writes along the inner one."""
    if not all(_is_whole(s) and isinstance(s.index.extent, int) and s.index.extent >= LEAST for s in (outer, inner)):
        return False
    body, own = inner.body, allocated(inner.body)
    if any(isinstance(s, (For, If)) for s in statements(body)) or not (independent(inner) and independent(outer)):
        return False
    written = [stride(s.tensor, s.indices, inner.index) for s in stores(body) if s.tensor not in own]
    read = [(r, stride(r.tensor, r.indices, inner.index)) for r in reads(body) if r.tensor not in own]
    far = [r for r, n in read if n is None or n not in (0, 1)]
    return all(n == 1 for n in written) and any(stride(r.tensor, r.indices, outer.index) == 1 for r in far)


def _is_whole(s: For) -> bool:
    return s.kind == "serial" and s.stop is None and isinstance(s.start, Const) and s.start.value == 0


def _tiled(chain: list[For], outer: For, inner: For) -> Statement:
    """The chain of loops with loops over tiles around, and the two that cross innermost."""
    block = inner.body
    tiles: list[Index] = []
    for s in (inner, outer):
        n = s.index.extent
        assert isinstance(n, int)
        index = Index(f"{s.index.name}.tile", -(-n // SIDE))
        first = index * SIDE
        stop = first + SIDE if n % SIDE == 0 else minimum(first + SIDE, as_index(n))
        block = (replace(s, start=first, stop=stop, body=block),)
        tiles.insert(0, index)
    block = (For(tiles[1], block),)
    alone = len(chain) == 2  # then different threads may take different tiles: they write different elements
    block = (For(tiles[0], block, kind="parallel" if alone else "serial"),)
    for s in reversed(chain[:-1]):
        if s is not outer:
            block = (replace(s, body=block),)
    return block[0]
