"""Prefetch memory where the hardware prefetcher fails: it follows one row to its end, but not

- rows side by side:  for r { for j vector { for u in 0..8 unrolled { acc = acc + x[r * 8 + u, j] }
  } }: the next eight rows are prefetched;
- the next row while this one is read again:  for i { for k { ... x[i, k] ... }; for j { ... x[i, j]
  ... } }: the second loop, which finds its row in the cache, prefetches the next one;
- pieces of rows:  for p { for k in 0..16 { for c in 0..64 vector { y[k, c] = x[p * 16 + k, c] } };
  ... }: the pieces of later iterations are prefetched;
- selected rows:  for i { for j vector { y[i, j] = x[w[i], j] } }: the rows of later iterations are
  prefetched;
- a few numbers per iteration:  for s { for r in 0..6 unrolled { for l vector { acc[r, l] = acc[r,
  l] + w[s, r] * x[s, l] } } }: numbers some cache lines ahead are prefetched, since the hardware
  prefetcher stops at the end of a page.
"""

from collections.abc import Iterator

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
from ...dialect.kernel_ir.loops import Block, For, Kernel, Prefetch, statements
from ...dialect.kernel_ir.traverse import substitute, walk
from ...lowering.analysis.accesses import allocated, depends, reads, stores, stride
from ...lowering.loops.nontemporal_stores import is_large
from ...lowering.processor import processor

# prefetch: bytes of a piece of a row, and rows ahead; tuned by hand (Zen 4, Zen 5)
SHORT, AHEAD = 256, 64
# prefetch: bytes that an iteration reads, at least, and the distance in bytes; tuned by hand
# (Zen 4, Zen 5)
FEWEST, FURTHER = 16, 1 << 11
# prefetch: iterations ahead for a row that is picked by index, and lines of it, at most; tuned by
# hand (Zen 4, Zen 5)
LATER, MOST = 8, 8


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


def prefetch_distance(kernel: Kernel) -> dict[int, int]:
    """The reads, by id, that prefetch a later element, and its distance."""
    distances: dict[int, int] = {}
    said = any(isinstance(s, Prefetch) for s in statements(kernel.body))
    for s in statements(kernel.body):
        if isinstance(s, For):
            distances.update(_next_rows(s))
            distances.update(_side_by_side(s))
            distances.update(() if said else _pieces(s))
    return distances


def _side_by_side(s: For) -> Iterator[tuple[int, int]]:
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
                    yield id(r), step * count


def _pieces(s: For) -> Iterator[tuple[int, int]]:
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
                        yield id(r), step * count * max(AHEAD // count, 1)


def _next_rows(s: For) -> Iterator[tuple[int, int]]:
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
                    yield id(first), step
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


def few_each_time(kernel: Kernel) -> dict[int, list[Read]]:
    """The first of the numbers of large constants that each iteration of a loop reads, by its
    id.
    """
    prefetched: dict[int, list[Read]] = {}
    for s in statements(kernel.body):
        if isinstance(s, For) and s.kind == "serial":
            inner: list[For] = []
            body = s.body
            while len(body) == 1 and isinstance(loop := body[0], For):
                inner = [*inner, loop]
                body = loop.body
            kinds = [loop.kind for loop in inner]
            if kinds[-2:] == ["unrolled", "vector"] and set(kinds[:-1]) == {"unrolled"}:
                first: dict[Expr, Expr] = {loop.index: loop.start for loop in inner}
                few = [r for r in reads(body) if _is_few(r, s.index, inner[-1].index)]
                prefetched[id(s)] = [
                    Read(r.tensor, tuple(substitute(e, first) for e in r.indices)) for r in few
                ]
    return prefetched


def _is_few(r: Read, along: Index, lane: Index) -> bool:
    """Test whether each iteration reads a few consecutive numbers of a large constant, the same for
    all lanes.
    """
    if (step := stride(r.tensor, r.indices, along)) is None or r.tensor.space != "constant":
        return False
    few = FEWEST <= step * r.tensor.element.bytes <= 2 * processor().line_bytes
    return few and leaves_cache(r.tensor) and not any(depends(e, {lane}) for e in r.indices)


def picked_later(kernel: Kernel) -> dict[int, list[Read]]:
    """The rows selected by later iterations, to be prefetched before a vector loop, by its id."""
    prefetched: dict[int, list[Read]] = {}
    changed = {s.tensor for s in stores(kernel.body)}
    for s in statements(kernel.body):
        if isinstance(s, For) and s.kind in ("serial", "parallel"):
            later: dict[Expr, Expr] = {s.index: minimum(s.index + LATER, s.end - 1)}
            for inner in s.body:
                if (
                    isinstance(inner, For)
                    and inner.kind == "vector"
                    and isinstance(inner.start, Const)
                ):
                    prefetched[id(inner)] = [
                        Read(
                            r.tensor,
                            tuple(
                                substitute(e, {**later, inner.index: as_index(n)})
                                for e in r.indices
                            ),
                        )
                        for r in reads(inner.body)
                        if _is_picked(r, s.index, inner, changed)
                        for n in _lines(r, inner)
                    ]
    return prefetched


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
