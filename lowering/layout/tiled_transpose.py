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

A result larger than the caches is made by strips of rows that are read, a few lines of memory of each at a time. Such a tile
is put together in a buffer, and then streams row by row, by whole lines. Meanwhile what another tile is made of is asked for:
memory reads and writes all the time, and never waits for squares to be turned:

    =>  for j.tile in 0..65 parallel { for i.tile in 0..64 {
          alloc stack turned: tensor<64x80xf32>
          for j.part in 0..8 { for i.part in 0..16 { ... turned[...] = x[j, i] ... } }
          let i.next = i.tile + 2, let j.next = j.tile                         (of the next strip, at the end of one)
          for r in 0..64 {
            for k in 0..4 unrolled { ask x[j.next * 64 + r, i.next * 64 + k * 16 + 15] }
            for c in j.tile * 64 - skew(y)..(j.tile + 1) * 64 - skew(y) vector 8 {
              y[i.tile * 64 + r, c] = turned[r, c - j.first] streaming
            }
          }
        } }

Where lines begin is known when the program runs. Strips begin and end there; if rows of the result do not all begin alike,
strips are wider, overlap by a line, and write what is theirs.

Where elements are small, the many rows that are read across are first copied side by side, by whole lines of memory where
all rows begin alike: tiles then begin at such lines, wherever the array does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...dialect.ir.sizes import Dim
from ...dialect.ir.types import I64
from ...dialect.notation.index import (
    Expr,
    Index,
    Misalignment,
    Read,
    Tensor,
    Var,
    as_index,
    both,
    maximum,
    minimum,
    select,
)
from ...dialect.notation.loops import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Let,
    Prefetch,
    Statement,
    Store,
    map_expressions,
    rewrite_block,
    statements,
    substitute_block,
)
from ...dialect.notation.traverse import rewrite, substitute
from ..analysis.accesses import allocated, reads, steps, stores, stride
from ..analysis.affine import key
from ..loops.collapse import is_whole
from ..loops.nontemporal_stores import LINE, is_large
from ..loops.vectorize import independent

ROW = 16  # bytes that are turned at once
VECTOR = 32  # bytes
WAYS = 16  # as many rows that lie a power of two apart stay near enough,
FEW = 8  # even if that is not by whole lines
DOWN, ALONG = 64, 1024  # elements of a tile along the outer loop, and bytes along the inner one
PIECE = 256  # bytes of a row that are written by a tile in a buffer, and of one that is read for it,
TILE = 1 << 14  # so many of all rows,
FURTHER = 128  # and of one that is written if those that are read are copied first
AHEAD = 1 << 14  # bytes of tiles, and two of them at least, after which another one is made that is asked for
MIN_WRITE_BYTES = 1024  # bytes of a row that are written where strips overlap,
MIN_READ_BYTES = 128  # of one that is read for it,
MIN_COPIED_BYTES = 256  # of one that is copied first, and a line where rows that are written are short,
SHORT_ROW_BYTES = 512  # and of one read whole, in any case


def tiled_transpose(kernel: Kernel) -> Kernel:
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
    short = _below(outer.index.extent, SHORT_ROW_BYTES // size + 1)
    lines = max(line, lanes)  # of a row: a tile's own are whole, and it overlaps the next by one
    whole = None if short or _below(inner.index.extent, MIN_WRITE_BYTES // out) else _skew(store, inner.index)
    if whole is None:
        j = _Axis(inner.index, lanes, -(-max(MIN_WRITE_BYTES // out, 1) // lines) * lines + lines, lines)
        across = LINE if not j.overlap else MIN_COPIED_BYTES if many and skew is None else MIN_READ_BYTES
    else:
        j = _Axis(inner.index, lanes, max((FURTHER if many else PIECE) // max(size, out), lines), skew=whole)
        across = min(PIECE, TILE // j.side)
    i = _Axis(outer.index, rows, (SHORT_ROW_BYTES if short else across) // size, skew=skew)
    named = (*i.named(), *j.named())
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
    large = list({key(r): r for r in far if is_large(r.tensor)}.values())
    asking, asked = _asked([] if j.overlap else large, outer.index, inner.index, i, j)
    written = _copied(store, held, asked, outer.index, inner.index, i, j)
    block = (*named, Alloc(held), *_turned(body, i, j, rows, lanes, first), *asking, written)
    return (For(j.tile, (For(i.tile, block, stop=i.tiles),), kind="parallel" if shared else "serial"),)


def _skew(access: Read | Store, along: Index) -> Misalignment | None:
    """Where in a line of memory all rows begin that an access goes along; None where they do not begin alike."""
    line, row = LINE // access.tensor.element.bytes, steps(access.tensor, access.indices, along)
    return None if row is None or any(n % line for n in row) else Misalignment(access.tensor, line)


def _copied(
    store: Store, held: Tensor, asked: Callable[[Index], Block], outer: Index, inner: Index, i: _Axis, j: _Axis
) -> Statement:
    """The loops that write a tile from its buffer, row by row, by whole lines of memory, and ask for another tile."""
    width = VECTOR // held.element.bytes

    def by_rows(along: For, here: Expr, there: Expr) -> For:
        r = Index("r", i.side)
        places: dict[Expr, Expr] = {outer: i.first + r, inner: there}
        body = substitute_block((replace(store, value=held[r, here]),), places)
        return For(r, (*asked(r), replace(along, body=body)))

    if j.own is None and not j.overlap:
        c = Index("c", j.side)
        return by_rows(For(c, ()), c, j.first + c)
    start, stop = (j.first, j.end) if j.own is None else j.own
    c = Index("c", inner.extent)
    part = by_rows(For(c, (), start, stop, "vector", width, j.overlap), c - j.first, c)
    if j.begins is None:
        return part
    c = Index("c", j.side)
    whole = by_rows(For(c, (), kind="vector", width=width), c, j.begins + c)
    inside = (j.begins >= 0) & (j.begins <= inner.extent - j.side)
    return If(inside, (whole,), (part,))


def _asked(far: list[Read], outer: Index, inner: Index, i: _Axis, j: _Axis) -> tuple[Block, Callable[[Index], Block]]:
    """Which tile is asked for, and with each row that is written as many lines of it."""
    ends, strips = i.tile.extent, j.tile.extent
    size = i.side * j.side * max((r.tensor.element.bytes for r in far), default=1)
    ahead = max(AHEAD // size, 2)
    if not (isinstance(ends, int) and isinstance(strips, int)) or ends * strips <= ahead or not far:
        return (), lambda r: ()
    later, tiles = i.tile + ahead, as_index(ends) if i.tiles is None else i.tiles
    past = later >= tiles  # the end of the strip
    next_i = as_index(0) if ends == 1 else select(past, later - tiles, later)
    next_j = minimum(j.tile + ahead if ends == 1 else select(past, j.tile + 1, j.tile), strips - 1)
    along, row = Var("along.next", I64), Var("row.next", I64)
    named = Let(along, substitute(i.origin, {i.tile: next_i})), Let(row, substitute(j.origin, {j.tile: next_j}))

    def lines_of(read: Read, r: Index) -> For:
        part = LINE // read.tensor.element.bytes
        lines = -(-i.side // part)  # of a row that is read
        each = Index("k", -(-j.side * lines // i.side))
        line = r * each.extent + each
        places: dict[Expr, Expr] = {outer: along + line % lines * part + (part - 1), inner: row + line // lines}
        return For(each, (Prefetch(read.tensor, tuple(substitute(e, places) for e in read.indices)),), kind="unrolled")

    return named, lambda r: tuple(lines_of(read, r) for read in far)


def _read_from(there: Read, place: object, body: Block) -> Block:
    """The body with another read for those of one place."""

    def change(e: Expr) -> Expr | None:
        return there if isinstance(e, Read) and key(e) == place else None

    return map_expressions(body, lambda e: rewrite(e, change))


class _Axis:
    """An index by tiles and parts of a tile, `step` elements each. Where a size is known a last tile that would not fit
    begins earlier; where it is not, a last part does. Long ones may overlap by as much as is asked for, or begin some
    elements earlier."""

    def __init__(self, index: Index, step: int, most: int, overlap: int = 0, skew: Misalignment | None = None) -> None:
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
        self.begins: Expr | None = None  # of a tile inside, where tiles begin earlier than at multiples,
        self.own: tuple[Expr, Expr] | None = None  # and the elements of any tile that no other has
        if skew is not None and known and n > self.side:
            self.tile = Index(self.tile.name, (n + (pace + skew.line - 2)) // pace)
            self.tiles = (skew + (n + pace - 1)) // pace
            self.begins = self.tile * pace - skew
            begin = maximum(self.begins, 0)
            self.first = minimum(begin, as_index(n - self.side))
            self.own = minimum(begin, as_index(n)), minimum((self.tile + 1) * pace - skew, as_index(n))
        self.begin = self.first + self.part * step  # of a part
        self.end = self.first + self.side
        self.stop: Expr | None = None
        self.fits: Expr | bool = True
        if not known:
            self.end = minimum(self.end, as_index(n))
            self.stop = (self.end - self.first + (step - 1)) // step
            self.begin = minimum(self.begin, as_index(n - step))
            self.fits = as_index(n) >= step
        self.origin = self.first

    def named(self) -> Block:
        """A name for where a tile begins, which is used from now on, if that is no multiple."""
        if self.begins is None:
            return ()
        self.first = Var(f"{self.index.name}.first", I64)
        self.begin, self.end = self.first + self.part * (self.side // self.part.extent), self.first + self.side
        return (Let(self.first, self.origin),)
