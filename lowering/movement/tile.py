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
unrolled around lanes, code generation reads a vector for each lane, along the other loop. A last tile that does not fit
begins earlier (elements are written twice, to the same value); where sizes are known only when called, the last part of a
tile does.

A result larger than the caches is made by strips of many rows that are read, two lines of memory of each at a time, which
are asked for early. Such a tile is put together in a buffer, and then streams row by row, by whole lines. Where these begin
is known when the program runs; strips overlap by a line, and write what is theirs:

    =>  for j.tile in 0..16 parallel { for i.tile in 0..128 {
          alloc stack turned: tensor<32x288xf32>
          for j.part in 0..34 { for i.part in 0..8 { ... turned[...] = x[j, i] ... } }
          for r in 0..32 { for c in j.first..j.first + 272 vector 8 overlap 16 {
            y[i.tile * 32 + r, c] = turned[r, c - j.first] streaming
          } }
        } }

Where elements are small, the many rows that are read across are first copied side by side, by whole lines of memory where
all rows begin alike: tiles then begin at such lines, wherever the array does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...dialect.index import Expr, Index, Read, Skew, Tensor, as_index, both, maximum, minimum
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
from ..accesses import allocated, reads, steps, stores, stride
from ..affine import key
from ..collapse import is_whole
from ..vectorise import independent
from .stream import LINE, is_large

ROW = 16  # bytes that are turned at once
VECTOR = 32  # bytes
WAYS = 16  # as many rows that lie a power of two apart stay near enough,
FEW = 8  # even if that is not by whole lines
DOWN, ALONG = 64, 1024  # elements of a tile along the outer loop, and bytes along the inner one
RUN = 1024  # bytes of a row that are written by a tile in a buffer
ACROSS = 128  # bytes of a row that are read for it,
NEAR = 256  # of one that is copied first,
SHORT = 512  # and of one read whole


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
    shared = alone and len(chain) == 2  # different threads may take different tiles: they write different elements
    if is_large(store.tensor):
        block = _by_strips(outer, inner, rows, lanes, shared)
    else:
        j, i = _Axis(inner.index, lanes, ALONG // size), _Axis(outer.index, rows, DOWN)
        block = (For(j.tile, _turned(body, i, j, rows, lanes)),)
        if isinstance(fits := both(i.fits, j.fits), Expr):
            block = (If(fits, block, (replace(outer, start=i.first, stop=i.end, body=(inner,)),)),)
        block = (For(i.tile, block, kind="parallel" if shared else "serial"),)
    for s in reversed(chain[:-1]):
        if s is not outer:
            block = (replace(s, body=block),)
    return block


def _turned(body: Block, i: _Axis, j: _Axis, rows: int, lanes: int, first: Block = ()) -> Block:
    """The squares of a tile."""
    row, lane = Index("u", rows), Index("l", lanes)
    there: dict[Expr, Expr] = {i.index: i.begin + row, j.index: j.begin + lane}
    square = For(row, (For(lane, substitute_block(body, there), kind="vector", width=lanes),), kind="unrolled")
    return (For(j.part, (*first, For(i.part, (square,), stop=i.stop)), stop=j.stop),)


def _by_strips(outer: For, inner: For, rows: int, lanes: int, shared: bool) -> Block:
    """A result past the caches: strips of many rows that are read, each tile of which is put together in a buffer."""
    store, far = inner.body[-1], _far(inner)
    assert isinstance(store, Store)
    size, out = VECTOR // lanes, store.tensor.element.bytes
    line, one = LINE // out, len({key(r) for r in far}) == 1
    skew = _skew(far[0], outer.index) if one and lanes > FEW else None
    many = one and (lanes > WAYS or skew is not None)
    short = _below(outer.index.extent, SHORT // size + 1)
    lines = max(line, lanes)  # of a row: a tile's own are whole, and it overlaps the next by one
    j = _Axis(inner.index, lanes, -(-max(RUN // out, 1) // lines) * lines + lines, lines)
    across = SHORT if short else NEAR if many and skew is None else ACROSS
    i = _Axis(outer.index, rows, across // size, skew=skew)
    held = Tensor("turned", (i.side, j.side + line), store.tensor.element, "stack")
    put = replace(store, tensor=held, indices=(outer.index - i.first, inner.index - j.first))
    body, first = (*inner.body[:-1], put), ()
    if many:
        near = Tensor("near", (lanes, i.side + LINE // size), far[0].tensor.element, "stack")
        k, c, part = Index("k", lanes), Index("c", i.side), LINE // size
        value = substitute(far[0], {outer.index: i.first + c, inner.index: j.begin + k})
        piece = For(c, (Store(near, (k, c), value),))
        first = (Alloc(near), For(k, (piece if i.side % part else replace(piece, kind="vector", width=part),)))
        body = _read_from(near[inner.index - j.begin, outer.index - i.first], key(far[0]), body)
    block = (Alloc(held), *_turned(body, i, j, rows, lanes, first), _copied(store, held, outer, inner, i, j))
    return (For(j.tile, (For(i.tile, block, stop=i.tiles),), kind="parallel" if shared else "serial"),)


def _skew(r: Read, along: Index) -> Skew | None:
    """Where in a line of memory all rows begin that a read goes along; None where they do not begin alike."""
    line, row = LINE // r.tensor.element.bytes, steps(r.tensor, r.indices, along)
    return None if row is None or any(n % line for n in row) else Skew(r.tensor, line)


def _copied(store: Store, held: Tensor, outer: For, inner: For, i: _Axis, j: _Axis) -> For:
    """The loops that write a tile from its buffer, row by row; where strips overlap, by whole lines of memory."""
    r, c = Index("r", i.side), Index("c", inner.index.extent if j.overlap else j.side)
    here, there = (c - j.first, c) if j.overlap else (c, j.first + c)
    places: dict[Expr, Expr] = {outer.index: i.first + r, inner.index: there}
    along = For(c, substitute_block((replace(store, value=held[r, here]),), places))
    if j.overlap:
        width = VECTOR // held.element.bytes
        along = replace(along, start=j.first, stop=j.end, kind="vector", width=width, overlap=j.overlap)
    return For(r, (along,))


def _read_from(there: Read, place: object, body: Block) -> Block:
    """The body with another read for those of one place."""

    def change(e: Expr) -> Expr | None:
        return there if isinstance(e, Read) and key(e) == place else None

    return map_expressions(body, lambda e: rewrite(e, change))


class _Axis:
    """An index by tiles and parts of a tile, `step` elements each. Where a size is known a last tile that would not fit
    begins earlier; where it is not, a last part does. Long ones may overlap by as much as is asked for, or begin some
    elements earlier."""

    def __init__(self, index: Index, step: int, most: int, overlap: int = 0, skew: Skew | None = None) -> None:
        n = index.extent
        known = isinstance(n, int)
        self.index = index
        most = max(most, step)
        self.overlap = overlap if known and n >= most else 0
        self.side = (min(most, n) if known else most) // step * step
        if known and not self.overlap:  # as even tiles as whole cache lines allow
            even = -(-n // -(-n // self.side))
            self.side = min(-(-even // LINE) * LINE, self.side)
        pace = self.side - self.overlap
        self.tile = Index(f"{index.name}.tile", (n + (pace - 1 - self.overlap)) // pace)
        self.part = Index(f"{index.name}.part", self.side // step)
        self.first = self.tile * pace  # of a tile
        if known and (n - self.overlap) % pace:
            self.first = minimum(self.first, as_index(n - self.side))
        self.tiles: Expr | None = None  # how many, if that is not the extent of their index
        if skew is not None and known and n > self.side:
            self.tile = Index(self.tile.name, (n + (pace + skew.line - 2)) // pace)
            self.tiles = (skew + (n + pace - 1)) // pace
            self.first = minimum(maximum(self.tile * pace - skew, 0), as_index(n - self.side))
        self.begin = self.first + self.part * step  # of a part
        self.end = self.first + self.side
        self.stop: Expr | None = None
        self.fits: Expr | bool = True
        if not known:
            self.end = minimum(self.end, as_index(n))
            self.stop = (self.end - self.first + (step - 1)) // step
            self.begin = minimum(self.begin, as_index(n - step))
            self.fits = as_index(n) >= step
