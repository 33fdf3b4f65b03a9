"""Large results past the caches:  y[i] = f(x[i])  =>  y[i] = f(x[i]) streaming, over all of a row

A store that streams does not read its cache line first, which saves a third of the traffic of a copy. It pays where a
result is larger than the caches, or a good part of what a kernel moves through them, written once by vectors and not read by
the kernel. Of a result whose size is not known a call finds out how large it is.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.ir.sizes import Size, product
from ...dialect.notation.index import Expr, Misalignment, Tensor, as_index, both
from ...dialect.notation.loops import (
    Alloc,
    Assert,
    Block,
    For,
    If,
    Kernel,
    Let,
    Statement,
    Store,
    is_rare,
    rewrite_block,
)
from ...dialect.notation.traverse import walk
from ..analysis.accesses import reads, steps, stores, stride
from ..analysis.affine import affine
from ..analysis.lane_offsets import period
from .vectorize import is_one_turn, overlaps

LARGE_BYTES = 1 << 24  # bytes
ALL_ARRAYS_BYTES = 2 * LARGE_BYTES  # bytes of a kernel's arrays that are large together: of them a result
MIN_RESULT_BYTES = LARGE_BYTES // 4  # of so many bytes streams
PART = 16  # bytes of an access that streams, which is aligned
WHOLE = 32  # bytes of the widest such access
LINE = 64  # bytes that memory takes at once
MIN_VECTORS = 16  # vectors of a loop that is worth being aligned


def nontemporal_stores(kernel: Kernel) -> Kernel:
    read = {r.tensor for r in reads(kernel.body)}
    sizes = {t: product(t.shape) * t.element.bytes for t in kernel.parameters}
    least = (
        MIN_RESULT_BYTES if sum(n for n in sizes.values() if isinstance(n, int)) >= ALL_ARRAYS_BYTES else LARGE_BYTES
    )
    written = {t: sizes[t] for t in kernel.outputs if t not in read}
    large = {t for t, n in written.items() if not isinstance(n, int) or n >= least}
    if not large:
        return kernel
    return kernel.with_body(rewrite_block(_joined(kernel.body, large), lambda s: _chosen(s, large)))


def _joined(block: Block, large: set[Tensor]) -> Block:
    """A block with one loop for vector loops that go along a row one after the other, where that streams: code generation
    sees to its ends, and what a vector writes again would be partly past the caches, and partly not."""
    made: list[Statement] = []
    for s in block:
        match s:
            case For(body=body) if s.kind != "vector":
                s = replace(s, body=_joined(body, large))
            case If(condition, then, otherwise):
                s = If(condition, _joined(then, large), _joined(otherwise, large))
        if made and (both := _both(made[-1], s, large)) is not None:
            made[-1] = both
        else:
            made.append(s)
    return tuple(made)


def _both(a: Statement, b: Statement, large: set[Tensor]) -> For | None:
    if not (isinstance(a, For) and isinstance(b, For) and a.kind == b.kind == "vector"):
        return None
    if a.body is not b.body or a.index is not b.index or a.width != b.width:
        return None
    begins, first_ends, ends = (affine(e) - affine(a.start) for e in (b.start, a.end, b.end))
    if begins.terms or first_ends.terms or ends.terms:
        return None
    made = replace(a, stop=b.end)
    follows = 0 <= begins.constant <= first_ends.constant <= ends.constant
    return made if follows and any(_streams(t, made) for t in stores(made.body) if t.tensor in large) else None


def _streams(s: Store, lane: For) -> bool:
    return stride(s.tensor, s.indices, lane.index) == 1 and can_peel_to_align(s, lane)


def _chosen(s: Statement, large: set[Tensor]) -> Block | None:
    """Vector loops whose stores stream; where sizes are not known, if arrays turn out to be large, and else as they were.
    A single vector of a row is not worth asking."""
    match s:
        case For(kind="vector"):
            alone = is_one_turn(s)
            made = replace(s, body=_streamed(s.body, large, s))
        case For(body=(For(kind="vector") as lane,), kind="unrolled"):
            alone = False
            made = replace(s, body=(replace(lane, body=_streamed(lane.body, large, lane)),))
        case _:
            return None
    found = ((product(t.tensor.shape), least_size(t.tensor)) for t in stores(made.body) if t.streaming)
    tests = {(n.key, least): as_index(n) >= least for n, least in found if isinstance(n, Size)}
    known = both(*tests.values())
    if not isinstance(known, Expr):
        return (made,)
    return (s,) if alone else (If(known, (made,), (s,)),)


def is_large(t: Tensor) -> bool:
    size = product(t.shape)
    return isinstance(size, int) and size >= least_size(t)


def least_size(t: Tensor) -> int:
    """The elements of a large array of this type."""
    return LARGE_BYTES // t.element.bytes


def _streamed(block: Block, large: set[Tensor], lane: For) -> Block:
    def change(s: Statement) -> Block | None:
        match s:
            case Store(tensor, at, _) if tensor in large:
                along = stride(tensor, at, lane.index) == 1
                streams = _streams(s, lane) or (along and (_aligned(s, lane) or writes_lines(lane, s)))
                return (replace(s, streaming=streams),)
        return None

    return rewrite_block(block, change)


def leading_store(s: For) -> Store | None:
    """The store that a vector loop may be aligned for: its first one of whole vectors that streams."""
    return next((t for t in stores(s.body) if t.streaming and can_peel_to_align(t, s)), None)


def can_peel_to_align(s: Store, lane: For) -> bool:
    """Whether a vector loop may be aligned for a store: its vectors are whole, and may begin anywhere."""
    return lane.width * s.tensor.element.bytes % WHOLE == 0 and can_shift(lane)


def can_shift(s: For) -> bool:
    """Whether the vectors of a long loop may begin anywhere: what two of them share is computed twice, to the same value."""
    if s.kind != "vector" or not all(isinstance(b, (Let, Store, Alloc, Assert)) or is_rare(b) for b in s.body):
        return False
    length = affine(s.end) - affine(s.start)
    if not length.terms and length.constant < least_length(s):
        return False
    return overlaps(s) and period(reads(s.body), s.index) == 1


def least_length(s: For) -> int:
    """The elements of a loop that is worth being aligned, and reaches the first line of memory that begins in it."""
    return max(MIN_VECTORS * s.width, LINE // min((t.tensor.element.bytes for t in stores(s.body)), default=LINE))


def begins_lines(s: For, store: Store) -> bool:
    """Whether a loop is meant to write whole lines of memory: it says where these begin."""
    places = (s.start, *store.indices)
    if s.kind != "vector":
        return False
    return any(isinstance(e, Misalignment) and e.tensor is store.tensor for place in places for e in walk(place))


def writes_lines(s: For, store: Store) -> bool:
    """Whether that is all that it writes, if lines are where it says."""
    length, line = affine(s.end) - affine(s.start), LINE // store.tensor.element.bytes
    whole = not length.terms and not length.constant % line and not line % s.width
    return whole and begins_lines(s, store)


def left_over(s: For) -> int:
    """The elements of a vector loop of known length that are fewer than a vector."""
    length = affine(s.end) - affine(s.start)
    return 0 if length.terms or s.kind != "vector" else length.constant % s.width


def _aligned(s: Store, lane: For) -> bool:
    """Whether every vector begins at a multiple of 16 bytes, the array doing so."""
    element = s.tensor.element.bytes
    start = affine(lane.start)
    terms = [start.constant, *(f for _, f in start.terms.values()), lane.width]
    if any(t * element % PART for t in terms):
        return False
    row = steps(s.tensor, s.indices, lane.index)
    return row is not None and not any(n * element % PART for n in row)
