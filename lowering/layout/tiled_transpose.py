"""Tile transposes, loops that write along one axis and read along another, and transpose squares in
registers.

    for i in 0..4096 { for j in 0..4096 { y[i, j] = x[j, i] } }
    =>  for i.tile in 0..64 parallel { for j.tile in 0..16 {
          for j.part in 0..32 { for i.part in 0..16 {
            for u in 0..4 unrolled { for l in 0..8 vector 8 {
              let i = i.tile * 64 + i.part * 4 + u, let j = j.tile * 256 + j.part * 8 + l
              y[i, j] = x[j, i]
            } }
          } }
        } }

Legal if iterations are independent. Pays if stores are contiguous along one of two loops and reads
along the other. Code generation loads a vector per lane for the unrolled square and transposes it
by shuffles. A last tile that does not fit begins earlier (elements are written twice, to the same
value); for unknown sizes the last part of a tile does.

A result larger than the caches is written by strips. Each tile is transposed into a buffer, whose
rows are written by non-temporal stores of whole cache lines, while the input of a later tile is
prefetched:

    =>  for j.tile in 0..65 parallel { for i.tile in 0..64 {
          alloc stack turned: tensor<64x80xf32>
          for j.part in 0..8 { for i.part in 0..16 { ... turned[...] = x[j, i] ... } }
          let i.next = i.tile + 2, let j.next = j.tile       in the next strip at the end of one
          for r in 0..64 {
            for k in 0..4 unrolled { ask x[j.next * 64 + r, i.next * 64 + k * 16 + 15] }
            for c in j.tile * 64 - skew(y)..(j.tile + 1) * 64 - skew(y) vector 8 {
              y[i.tile * 64 + r, c] = turned[r, c - j.first] streaming
            }
          }
        } }

The alignment of the array is known at run time only; strips begin and end at cache lines of it. If
rows of the result are aligned differently, strips are wider, overlap by a line, and write only
their own elements.

For small elements, the rows of a tile's input are first copied side by side, by whole cache lines
if all rows are aligned alike, so that a tile begins at a cache line wherever the array begins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.affine import key
from ...dialect.kernel_ir.traverse import rewrite, substitute
from ...dialect.types.sizes import Dim
from ...dialect.types.tensor_types import I64
from ..analysis.accesses import alignment, reads, stores, stride
from ..loops.nontemporal_stores import is_large
from ..loops.vectorize import independent
from ..passes import kernel_pass
from ..processor import processor

ROW = 16  # bytes of a row of a square that is transposed in registers
# associativity of the cache: rows a power of two apart that it holds; tuned by hand (Zen 4,
# Zen 5)
WAYS = 16
# rows read across that need no copy, even if not by whole cache lines; tuned by hand (Zen 4,
# Zen 5)
FEW = 8
# bytes of a row that a buffered tile writes, and that it reads; tuned by hand (Zen 4, Zen 5)
PIECE = 256
# bytes of a row that a buffered tile writes if its input is copied first; tuned by hand (Zen 4,
# Zen 5)
FURTHER = 128
# prefetch: distance in bytes of tiles, at least two tiles; tuned by hand (Zen 4, Zen 5)
AHEAD = 1 << 14


@kernel_pass
def tiled_transpose(kernel: ir.Kernel) -> ir.Kernel:
    match kernel.body:
        case (ir.For() as loop,) if tiles := _tiles(loop, alone=True):
            return kernel.with_body(tiles)
        case _:
            return kernel.with_body(ir.rewrite_block(kernel.body, _tiles))


def _tiles(s: ir.Statement, alone: bool = False) -> ir.Block | None:
    if isinstance(s, ir.For) and s.kind in ("serial", "parallel"):
        *outer_loops, inner = chain = ir.perfect_nest(s)
        for outer in outer_loops:
            if _crosses(outer, inner):
                return _tiled(chain, outer, inner, alone)
    return None


def _crosses(outer: ir.For, inner: ir.For) -> bool:
    """Test whether reads are contiguous along the outer loop, and stores along the inner one."""
    body = inner.body
    nested = any(isinstance(s, (ir.For, ir.If, ir.Alloc)) for s in ir.statements(body))
    if nested or not (outer.is_whole and inner.is_whole):
        return False
    if not isinstance(body[-1], ir.Store) or sum(1 for _ in stores(body)) > 1:
        return False
    if not (independent(inner) and independent(outer)):
        return False
    if not (far := _far(inner)) or any(
        stride(s.tensor, s.indices, inner.index) != 1 for s in stores(body)
    ):
        return False
    crosses = all(stride(r.tensor, r.indices, outer.index) == 1 for r in far)
    rows, lanes = _block(inner)
    return (
        crosses and not _below(outer.index.extent, rows) and not _below(inner.index.extent, lanes)
    )


def _far(inner: ir.For) -> list[ex.Read]:
    found = [(r, stride(r.tensor, r.indices, inner.index)) for r in reads(inner.body)]
    return [r for r, n in found if n not in (0, 1)]


def _block(inner: ir.For) -> tuple[int, int]:
    """The rows and lanes of a square that is transposed at once."""
    size = max(r.type.bytes for r in _far(inner))
    return max(ROW // size, 1), processor().vector_bytes // size


def _below(extent: Dim, least: int) -> bool:
    return isinstance(extent, int) and extent < least


def _tiled(chain: list[ir.For], outer: ir.For, inner: ir.For, alone: bool) -> ir.Block:
    """The chain of loops with the two that cross replaced by loops over tiles."""
    rows, lanes = _block(inner)
    size = processor().vector_bytes // lanes
    tuning = processor().tuning
    store = inner.body[-1]
    assert isinstance(store, ir.Store)
    shared = (
        alone and len(chain) == 2
    )  # tiles write disjoint elements, so they may run on different threads
    if is_large(store.tensor):
        block = _by_strips(outer, inner, rows, lanes, shared)
    else:
        j = _Axis(inner.index, lanes, tuning.tile_row_bytes // size)
        i = _Axis(outer.index, rows, tuning.tile_rows)
        block = (ir.For(j.tile, _squares(inner.body, i, j)),)
        if isinstance(fits := ex.both(i.fits, j.fits), ex.Expr):
            block = (
                ir.If(fits, block, (ir.replace(outer, start=i.first, stop=i.end, body=(inner,)),)),
            )
        block = (ir.For(i.tile, block, kind="parallel" if shared else "serial"),)
    for s in reversed(chain[:-1]):
        if s is not outer:
            block = (ir.replace(s, body=block),)
    return block


def _squares(body: ir.Block, i: _Axis, j: _Axis, first: ir.Block = ()) -> ir.Block:
    """The squares of a tile."""
    row, lane = ex.Index("u", i.step), ex.Index("l", j.step)
    there: dict[ex.Expr, ex.Expr] = {i.index: i.begin + row, j.index: j.begin + lane}
    square = ir.For(
        row, (ir.vector_loop(lane, *ir.substitute_block(body, there)),), kind="unrolled"
    )
    return (ir.For(j.part, (*first, ir.For(i.part, (square,), stop=i.stop)), stop=j.stop),)


def _by_strips(outer: ir.For, inner: ir.For, rows: int, lanes: int, shared: bool) -> ir.Block:
    """Strips of a result larger than the caches; each tile is transposed in a buffer."""
    store = inner.body[-1]
    far = _far(inner)
    assert isinstance(store, ir.Store)
    tuning, line_bytes = processor().tuning, processor().line_bytes
    size = processor().vector_bytes // lanes
    out = store.tensor.element.bytes
    line = line_bytes // out
    one = len({key(r) for r in far}) == 1
    skew = _skew(far[0], outer.index) if one and lanes > FEW else None
    many = one and (lanes > WAYS or skew is not None)
    short = _below(outer.index.extent, tuning.short_row_bytes // size + 1)
    lines = max(
        line, lanes
    )  # of a row: a tile owns whole cache lines and overlaps the next tile by one
    whole = (
        None
        if short or _below(inner.index.extent, tuning.tile_write_bytes // out)
        else _skew(store, inner.index)
    )
    if whole is None:
        j = _Axis(
            inner.index,
            lanes,
            -(-max(tuning.tile_write_bytes // out, 1) // lines) * lines + lines,
            lines,
        )
        copied = tuning.tile_copy_bytes if many and skew is None else tuning.tile_read_bytes
        across = copied if j.overlap else line_bytes
    else:
        j = _Axis(
            inner.index,
            lanes,
            max((FURTHER if many else PIECE) // max(size, out), lines),
            skew=whole,
        )
        across = min(PIECE, processor().l1_bytes // 2 // j.side)
    i = _Axis(outer.index, rows, (tuning.short_row_bytes if short else across) // size, skew=skew)
    lets = (*i.named(), *j.named())
    tile = ex.Tensor("turned", (i.side, j.side + line), store.tensor.element, "stack")
    put = ir.replace(store, tensor=tile, indices=(i.index - i.first, j.index - j.first))
    body = (*inner.body[:-1], put)
    first = ()
    if many:
        part = line_bytes // size
        near = ex.Tensor("near", (lanes, i.side + part), far[0].tensor.element, "stack")
        k = ex.Index("k", lanes)
        c = ex.Index("c", i.side)
        value = substitute(far[0], {i.index: i.first + c, j.index: j.begin + k})
        piece = ir.For(c, (ir.Store(near, (k, c), value),))
        first = (
            ir.Alloc(near),
            ir.For(k, (piece if i.side % part else ir.replace(piece, kind="vector", width=part),)),
        )
        place, copy = key(far[0]), near[j.index - j.begin, i.index - i.first]
        copied = partial(
            rewrite, change=lambda n: copy if isinstance(n, ex.Read) and key(n) == place else None
        )
        body = ir.map_expressions(body, copied)
    large = list({key(r): r for r in far if is_large(r.tensor)}.values())
    later, fetch = _prefetches([] if j.overlap else large, i, j)
    block = (
        *lets,
        ir.Alloc(tile),
        *_squares(body, i, j, first),
        *later,
        _copy(store, tile, fetch, i, j),
    )
    return (
        ir.For(
            j.tile, (ir.For(i.tile, block, stop=i.tiles),), kind="parallel" if shared else "serial"
        ),
    )


def _skew(access: ex.Read | ir.Store, along: ex.Index) -> ex.Misalignment | None:
    """The misalignment that all rows of an access share; None if rows are aligned differently."""
    line = processor().line_bytes // access.tensor.element.bytes
    row = alignment(access.tensor, access.indices, along)
    return None if row is None or row % line else ex.Misalignment(access.tensor, line)


def _copy(
    store: ir.Store, tile: ex.Tensor, fetch: Callable[[ex.Index], ir.Block], i: _Axis, j: _Axis
) -> ir.Statement:
    """The loops that write a tile from its buffer, row by row, by whole cache lines, and prefetch
    another tile.
    """
    width = processor().vector_bytes // tile.element.bytes

    def by_rows(along: ir.For, here: ex.Expr, there: ex.Expr) -> ir.For:
        r = ex.Index("r", i.side)
        body = ir.substitute_block(
            (ir.replace(store, value=tile[r, here]),), {i.index: i.first + r, j.index: there}
        )
        return ir.For(r, (*fetch(r), ir.replace(along, body=body)))

    if j.own is None and not j.overlap:
        c = ex.Index("c", j.side)
        return by_rows(ir.For(c, ()), c, j.first + c)
    start, stop = (j.first, j.end) if j.own is None else j.own
    c = ex.Index("c", j.index.extent)
    part = by_rows(ir.For(c, (), start, stop, "vector", width, j.overlap), c - j.first, c)
    if j.begins is None:
        return part
    c = ex.Index("c", j.side)
    whole = by_rows(ir.For(c, (), kind="vector", width=width), c, j.begins + c)
    return ir.If((j.begins >= 0) & (j.begins <= j.index.extent - j.side), (whole,), (part,))


def _prefetches(
    far: list[ex.Read], i: _Axis, j: _Axis
) -> tuple[ir.Block, Callable[[ex.Index], ir.Block]]:
    """The tile to prefetch, and the prefetches of its cache lines per row written."""
    ends, strips = i.tile.extent, j.tile.extent
    ahead = max(
        AHEAD // (i.side * j.side * max((r.tensor.element.bytes for r in far), default=1)), 2
    )
    if not (isinstance(ends, int) and isinstance(strips, int)) or ends * strips <= ahead or not far:
        return (), lambda r: ()
    later = i.tile + ahead
    tiles = ex.as_index(ends) if i.tiles is None else i.tiles
    past = later >= tiles  # beyond the end of the strip
    next_i = ex.as_index(0) if ends == 1 else ex.select(past, later - tiles, later)
    next_j = ex.minimum(
        j.tile + ahead if ends == 1 else ex.select(past, j.tile + 1, j.tile), strips - 1
    )
    along, row = ex.Var("along.next", I64), ex.Var("row.next", I64)
    lets = (
        ir.Let(along, substitute(i.origin, {i.tile: next_i})),
        ir.Let(row, substitute(j.origin, {j.tile: next_j})),
    )

    def lines_of(read: ex.Read, r: ex.Index) -> ir.For:
        part = processor().line_bytes // read.tensor.element.bytes
        lines = -(-i.side // part)  # of a row of the input
        each = ex.Index("k", -(-j.side * lines // i.side))
        line = r * each.extent + each
        last = along + line % lines * part + (part - 1)
        places: dict[ex.Expr, ex.Expr] = {i.index: last, j.index: row + line // lines}
        prefetch = ir.Prefetch(read.tensor, tuple(substitute(e, places) for e in read.indices))
        return ir.For(each, (prefetch,), kind="unrolled")

    return lets, lambda r: tuple(lines_of(read, r) for read in far)


class _Axis:
    """An index by tiles and parts of a tile, `step` elements each. For a known size, a last tile
    that does not fit begins earlier; for an unknown size, a last part does. Long tiles may overlap
    by `overlap` elements, or begin some elements earlier.
    """

    def __init__(
        self,
        index: ex.Index,
        step: int,
        most: int,
        overlap: int = 0,
        skew: ex.Misalignment | None = None,
    ) -> None:
        n = index.extent
        known = isinstance(n, int)
        self.index, self.step = index, step
        most = max(most, step)
        self.overlap = overlap if known and n >= most else 0
        self.side = (min(most, n) if known else most) // step * step
        if known and not self.overlap:  # tiles as equal as whole cache lines allow
            even = -(-n // -(-n // self.side))
            self.side = min(-(-even // processor().line_bytes) * processor().line_bytes, self.side)
        pace = self.side - self.overlap
        self.tile = ex.Index(f"{index.name}.tile", (n + (pace - 1 - self.overlap)) // pace)
        self.part = ex.Index(f"{index.name}.part", self.side // step)
        self.first = self.tile * pace  # first element of a tile
        if known and (n - self.overlap) % pace:
            self.first = ex.minimum(self.first, ex.as_index(n - self.side))
        self.tiles: ex.Expr | None = None  # number of tiles, if it is not the extent of the index
        self.begins: ex.Expr | None = None  # first element of a tile that begins early
        self.own: tuple[ex.Expr, ex.Expr] | None = (
            None  # bounds of the elements that only this tile writes
        )
        if skew is not None and known and n > self.side:
            self.tile = ex.Index(self.tile.name, (n + (pace + skew.line - 2)) // pace)
            self.tiles = (skew + (n + pace - 1)) // pace
            self.begins = self.tile * pace - skew
            begin = ex.maximum(self.begins, 0)
            self.first = ex.minimum(begin, ex.as_index(n - self.side))
            self.own = (
                ex.minimum(begin, ex.as_index(n)),
                ex.minimum((self.tile + 1) * pace - skew, ex.as_index(n)),
            )
        self.begin = self.first + self.part * step  # first element of a part
        self.end = self.first + self.side
        self.stop: ex.Expr | None = None
        self.fits: ex.Expr | bool = True
        if not known:
            self.end = ex.minimum(self.end, ex.as_index(n))
            self.stop = (self.end - self.first + (step - 1)) // step
            self.begin = ex.minimum(self.begin, ex.as_index(n - step))
            self.fits = ex.as_index(n) >= step
        self.origin = self.first

    def named(self) -> ir.Block:
        """A name for the first element of a tile, used from then on, if it is no multiple of the
        pace.
        """
        if self.begins is None:
            return ()
        self.first = ex.Var(f"{self.index.name}.first", I64)
        self.begin = self.first + self.part * self.step
        self.end = self.first + self.side
        return (ir.Let(self.first, self.origin),)
