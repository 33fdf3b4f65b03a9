"""Prefetch memory where the hardware prefetcher fails.

    for i { for j { ... x[i, j] } }  =>  for i { for j { prefetch x[i + 8, j]; ... x[i, j] } }

The hardware follows one row to its end, but not

- rows side by side:  for r { for j vector { for u in 0..8 unrolled { acc = acc + x[r * 8 + u, j] }
  } }: the next eight rows are prefetched;
- the next row while this one is read again:  for i { for k { ... x[i, k] ... }; for j { ... x[i, j]
  ... } }: the second loop, which finds its row in the cache, prefetches the next one;
- pieces of rows:  for p { for k in 0..16 { for c in 0..64 vector { y[k, c] = x[p * 16 + k, c] } };
  ... }: the pieces of later iterations are prefetched;
- selected rows:  for i { for j vector { y[i, j] = x[w[i], j] } }: the rows of later iterations are
  prefetched;
- rows side by side that vectors are transposed from:  for u in 0..4 unrolled { for l in 0..4 vector
  { t[u * 4 + l] = x[l * 64 + u] } }: each row, further on;
- a few numbers per iteration:  for s { for r in 0..6 unrolled { for l vector { acc[r, l] = acc[r,
  l] + w[s, r] * x[s, l] } } }: numbers some cache lines ahead are prefetched, since the hardware
  prefetcher stops at the end of a page.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import (
    Const,
    Expr,
    Index,
    Read,
    Tensor,
    Var,
    as_index,
    minimum,
)
from ...dialect.kernel_ir.loops import (
    Block,
    For,
    Kernel,
    Let,
    Prefetch,
    Statement,
    as_before,
    expressions,
    map_blocks,
    may_jump,
    statements,
)
from ...dialect.kernel_ir.traverse import substitute, walk
from ..analysis.accesses import allocated, depends, reads, stores, stride
from ..analysis.lane_offsets import is_square, square_of
from ..passes import scheduled_kernel_pass
from ..processor import processor
from .nontemporal_stores import is_large

# prefetch: bytes of a piece of a row, and rows ahead; tuned by hand (Zen 4, Zen 5)
SHORT, AHEAD = 256, 64
# prefetch: bytes that an iteration reads, at least, and the distance in bytes; tuned by hand
# (Zen 4, Zen 5)
FEWEST, FURTHER = 16, 1 << 11
# prefetch: iterations ahead for a row that is picked by index, and lines of it, at most; tuned by
# hand (Zen 4, Zen 5)
LATER, MOST = 8, 8
# prefetch: distance in bytes of transposed rows, long and short ones, and bytes of a short one;
# tuned by hand (Zen 4, Zen 5)
TRANSPOSED, TRANSPOSED_SHORT, SHORT_ROW = 1 << 8, 1 << 13, 1 << 9

Moved = dict[Expr, Expr]  # indices of a read by those of what to prefetch


@scheduled_kernel_pass
def prefetch(kernel: Kernel) -> Kernel:
    body = _Prefetches(kernel).inserted(kernel.body)
    return kernel if body is kernel.body else kernel.with_body(body)


class _Prefetches:
    """The prefetches of one kernel, each at the place where it is due."""

    def __init__(self, kernel: Kernel) -> None:
        self.asked = {s.tensor for s in statements(kernel.body) if isinstance(s, Prefetch)}
        self.changed = {s.tensor for s in stores(kernel.body)}
        self.is_fed_by_memory = is_fed_by_memory(kernel)
        self.later = _later(kernel.body, bool(self.asked)) if self.is_fed_by_memory else {}
        self.done: set[Read] = set()  # of the vector loop around

    def inserted(self, block: Block, around: For | None = None, lanes: For | None = None) -> Block:
        """The block of a loop `around` it and of vectors `lanes`, with prefetches."""
        made: list[Statement] = []
        if around is lanes:
            self.done = set()
        if around is not None and self.is_fed_by_memory:
            made += _few(around)
        for s in block:
            loop = s if isinstance(s, For) else None
            if loop is not None and loop.kind == "intrinsic":  # its nest is what code stands for
                made.append(s)
                continue
            if loop is not None:
                made += _transposed(loop, self.asked)
                if around is not None and self.is_fed_by_memory:
                    made += _picked(around, loop, self.changed)
            if lanes is not None:
                made += self.further_on(s, lanes)
            of_vectors = loop is not None and loop.kind == "vector"
            inner = partial(self.inserted, around=loop, lanes=loop if of_vectors else lanes)
            made.append(map_blocks(s, inner))
        return as_before(block, made)

    def further_on(self, s: Statement, lanes: For) -> Iterator[Prefetch]:
        """Prefetches of the lines that lanes read in a later iteration, once for each read."""
        for r in (r for e in expressions(s) for r in walk(e) if isinstance(r, Read)):
            along = r in self.later and stride(r.tensor, r.indices, lanes.index) == 1
            if along and r not in self.done:
                self.done.add(r)
                line = processor().line_bytes // r.tensor.element.bytes
                yield from (_at(r, self.later[r], n) for n in range(0, lanes.width, line))


def _at(r: Read, moved: Mapping[Expr, Expr], further: int = 0) -> Prefetch:
    """A prefetch `further` elements beyond a read with other indices."""
    *outer, last = (substitute(e, {**moved}) for e in r.indices)
    return Prefetch(r.tensor, (*outer, last + further if further else last))


def cache_bytes() -> int:
    """The bytes that stay in the cache until it is their turn: half of the second level."""
    return processor().l2_bytes // 2


def is_fed_by_memory(kernel: Kernel) -> bool:
    """Test whether there is anything to prefetch: an array that may exceed the cache."""
    return any(
        is_large(t) or leaves_cache(t) for t in (*kernel.parameters, *allocated(kernel.body))
    )


def leaves_cache(t: Tensor) -> bool:
    """Test whether an array is known to exceed the cache."""
    return isinstance(size := t.bytes, int) and size >= cache_bytes()


def _later(block: Block, said: bool) -> dict[Read, Moved]:
    """The reads that prefetch a later element, and where that is; nothing of pieces where the
    kernel has prefetches of its own.
    """
    later: dict[Read, Moved] = {}
    for s in statements(block):
        if isinstance(s, For):
            for reads_of in (_next_rows, _side_by_side, *(() if said else (_pieces,))):
                later |= {r: {s.index: s.index + turns} for r, turns in reads_of(s)}
    return later


def _side_by_side(s: For) -> Iterator[tuple[Read, int]]:
    """Reads that an unrolled loop moves by rows, where the next iteration continues at the last
    row.
    """
    for lanes in s.body:
        if not isinstance(lanes, For) or lanes.kind != "vector":
            continue
        length = lanes.length
        for turn in lanes.body:
            if not isinstance(turn, For) or turn.kind != "unrolled":
                continue
            assert isinstance(turn.start, Const) and isinstance(turn.end, Const)
            count = turn.end.value - turn.start.value
            for r, step in _apart(turn.body, turn.index):
                in_cache = (
                    bool(length.terms)
                    or length.constant * count * r.tensor.element.bytes <= cache_bytes()
                )
                if in_cache and stride(r.tensor, r.indices, s.index) == step * count:
                    yield r, 1


def _pieces(s: For) -> Iterator[tuple[Read, int]]:
    """Reads of short pieces of rows, one below the other, where the next iteration continues at the
    last one.
    """
    for rows in s.body:
        if (
            not isinstance(rows, For)
            or rows.kind != "serial"
            or not isinstance(rows.index.extent, int)
        ):
            continue
        match rows.body:
            case (For(_, _, Const(0), _, "vector") as lanes,) if rows.stop is None:
                count = rows.index.extent
                length = affine(lanes.end)
                for r, step in _apart(lanes.body, rows.index):
                    short = not length.terms and length.constant * r.tensor.element.bytes <= SHORT
                    goes_on = stride(r.tensor, r.indices, s.index) == step * count
                    if short and goes_on and stride(r.tensor, r.indices, lanes.index) == 1:
                        yield r, max(AHEAD // count, 1)


def _next_rows(s: For) -> Iterator[tuple[Read, int]]:
    """Reads of rows that a loop before this one has read in the same turn; of all of a row, or
    nearly.
    """
    loops: dict[Tensor, int] = {}
    for inner in s.body:
        if isinstance(inner, For):
            turns = _turns(inner)
            reads = {
                r.tensor: (r, step)
                for r, step in reversed([*_apart((inner,), s.index)])
                if 2 * turns > step
            }
            for tensor, (first, step) in reads.items():
                if loops.get(tensor) == 1 and step * tensor.element.bytes <= cache_bytes():
                    yield first, 1
                loops[tensor] = loops.get(tensor, 0) + 1


def _turns(s: For) -> int:
    """The trip count of the statements of a loop, or of its inner loop; 0 if unknown."""
    length = s.length
    if length.terms:
        return 0
    inner = next((b for b in s.body if isinstance(b, For)), None)
    return length.constant if inner is None else length.constant * _turns(inner)


def _apart(block: Block, index: Index) -> Iterator[tuple[Read, int]]:
    """The reads of large arrays that an index moves by a page or more."""
    for r in reads(block):
        step = stride(r.tensor, r.indices, index) if is_large(r.tensor) else None
        if step is not None and step * r.tensor.element.bytes >= processor().page_bytes:
            yield r, step


def _few(s: For) -> list[Prefetch]:
    """The numbers of large constants that each iteration of a loop reads."""
    if s.kind != "serial":
        return []
    inner: list[For] = []
    body = s.body
    while len(body) == 1 and isinstance(loop := body[0], For):
        inner = [*inner, loop]
        body = loop.body
    kinds = [loop.kind for loop in inner]
    if kinds[-2:] != ["unrolled", "vector"] or set(kinds[:-1]) != {"unrolled"}:
        return []
    first: Moved = {loop.index: loop.start for loop in inner}
    few = (r for r in reads(body) if _is_few(r, s.index, inner[-1].index))
    return [_at(r, first, FURTHER // r.tensor.element.bytes) for r in few]


def _is_few(r: Read, along: Index, lane: Index) -> bool:
    """Test whether each iteration reads a few consecutive numbers of a large constant, the same for
    all lanes.
    """
    if (step := stride(r.tensor, r.indices, along)) is None or r.tensor.space != "constant":
        return False
    few = FEWEST <= step * r.tensor.element.bytes <= 2 * processor().line_bytes
    return few and leaves_cache(r.tensor) and not any(depends(e, {lane}) for e in r.indices)


def _picked(s: For, inner: For, changed: set[Tensor]) -> list[Prefetch]:
    """The rows that later iterations select, before a vector loop."""
    if s.kind not in ("serial", "parallel") or inner.kind != "vector" or may_jump(s.body):
        return []
    if not isinstance(inner.start, Const):
        return []
    later: Moved = {s.index: minimum(s.index + LATER, s.end - 1)}
    picked = (r for r in reads(inner.body) if _is_picked(r, s.index, inner, changed))
    return [_at(r, {**later, inner.index: as_index(n)}) for r in picked for n in _lines(r, inner)]


def _is_picked(r: Read, outer: Index, inner: For, changed: set[Tensor]) -> bool:
    """Test whether a loop runs along a row of a large array that the loop around selects by a
    read.
    """
    parts = [x for e in r.indices for x in walk(e)]
    where = [x for x in parts if isinstance(x, Read)]
    by_index = all(x is outer or x is inner.index for x in parts if isinstance(x, (Index, Var)))
    if not (where and by_index and leaves_cache(r.tensor)) or changed & {
        r.tensor,
        *(x.tensor for x in where),
    }:
        return False
    picks = all(depends(x, {outer}) and not depends(x, {inner.index}) for x in where)
    return picks and stride(r.tensor, r.indices, inner.index) == 1


def _lines(r: Read, inner: For) -> list[int]:
    """The values of a loop's index at which the lines of a row begin, and the last one of a short
    row.
    """
    assert isinstance(inner.start, Const)
    length = inner.length
    line = processor().line_bytes // r.tensor.element.bytes
    if length.terms:
        return [inner.start.value]
    starts = [*range(0, length.constant, line)][:MOST]
    return [inner.start.value + n for n in (*starts, min(length.constant, MOST * line) - 1)]


def _transposed(s: For, asked: set[Tensor]) -> Iterator[Prefetch]:
    """The rows that an unrolled loop transposes into a buffer: processors foresee one row, not many
    side by side.
    """
    if s.kind != "unrolled" or (lanes := square_of(s)) is None:
        return
    written = {t.tensor for t in stores(s.body)}
    if all(t.space != "stack" for t in written):
        return
    own: set[Expr] = {t.var for t in statements(s.body) if isinstance(t, Let)}
    for r in reads(lanes.body):
        size = r.tensor.element.bytes
        apart = stride(r.tensor, r.indices, lanes.index)
        if (
            r.tensor in written | asked
            or r.tensor.space == "stack"
            or apart is None
            or apart in (0, 1)
        ):
            continue
        if (
            not is_square(s.index.extent, lanes.width, size)
            or stride(r.tensor, r.indices, s.index) != 1
        ):
            continue
        if not any(depends(e, own) for e in r.indices):
            further = (TRANSPOSED if apart * size > SHORT_ROW else TRANSPOSED_SHORT) // size
            for n in range(lanes.width):
                yield _at(r, {s.index: s.start, lanes.index: as_index(n)}, further)
