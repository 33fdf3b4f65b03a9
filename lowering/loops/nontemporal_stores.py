"""Store large results by non-temporal (streaming) stores, past the caches.

    y[i] = f(x[i])  =>  y[i] = f(x[i]) streaming, over all of a row

Legal for any store that the kernel does not read back. Pays where a result is larger than the
caches, or a large part of a kernel's traffic, and is written once, by vectors: no cache line is
read before it is written, which saves a third of the traffic of a copy. For a result of unknown
size the kernel tests the size at run time.
"""

from math import gcd

from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import Expr, Tensor, as_index, both
from ...dialect.kernel_ir.loops import (
    Block,
    For,
    If,
    Kernel,
    Statement,
    Store,
    is_one_turn,
    replace,
    rewrite_block,
)
from ...dialect.types.sizes import Size, product
from ..analysis.accesses import alignment, reads, stores, stride
from ..analysis.vector_alignment import begins_lines, can_shift
from ..passes import kernel_pass
from ..processor import processor

PART = 16  # bytes of the smallest streaming store, and its alignment


@kernel_pass
def nontemporal_stores(kernel: Kernel) -> Kernel:
    if not processor().streams:
        return kernel
    read = {r.tensor for r in reads(kernel.body)}
    sizes = {t: t.bytes for t in kernel.parameters}
    all_bytes = sum(n for n in sizes.values() if isinstance(n, int))
    least = large_bytes() // 4 if all_bytes >= processor().l3_bytes else large_bytes()
    written = {t: sizes[t] for t in kernel.outputs if t not in read}
    if not (large := {t for t, n in written.items() if not isinstance(n, int) or n >= least}):
        return kernel
    return kernel.with_body(rewrite_block(_joined(kernel.body, large), lambda s: _chosen(s, large)))


def _joined(block: Block, large: set[Tensor]) -> Block:
    """Join consecutive vector loops along a row whose stores stream; code generation handles the
    ends.
    """
    joined: list[Statement] = []
    for s in block:
        match s:
            case For(body=body) if s.kind != "vector":
                s = replace(s, body=_joined(body, large))
            case If(condition, then, otherwise):
                s = If(condition, _joined(then, large), _joined(otherwise, large))
        if joined and (both := _both(joined[-1], s, large)) is not None:
            joined[-1] = both
        else:
            joined.append(s)
    return tuple(joined)


def _both(a: Statement, b: Statement, large: set[Tensor]) -> For | None:
    if not (isinstance(a, For) and isinstance(b, For) and a.kind == b.kind == "vector"):
        return None
    ends = [affine(e) - affine(a.start) for e in (b.start, a.end, b.end)]
    follows = (
        not any(e.terms for e in ends)
        and 0 <= ends[0].constant <= ends[1].constant <= ends[2].constant
    )
    if not follows or a.body is not b.body or a.index is not b.index or a.width != b.width:
        return None
    both = replace(a, stop=b.end)
    streamed = (
        s
        for s in stores(both.body)
        if s.tensor in large and stride(s.tensor, s.indices, both.index) == 1
    )
    return both if any(can_peel_to_align(s, both) for s in streamed) else None


def _chosen(s: Statement, large: set[Tensor]) -> Block | None:
    """Vector loops with streaming stores, under a test of unknown sizes. None for a single
    vector.
    """
    match s:
        case For(kind="vector"):
            alone = is_one_turn(s)
            streaming = replace(s, body=_streamed(s.body, large, s))
        case For(body=(For(kind="vector") as lane,), kind="unrolled"):
            alone = False
            streaming = replace(s, body=(replace(lane, body=_streamed(lane.body, large, lane)),))
        case _:
            return None
    extents = (
        (product(t.tensor.shape), least_size(t.tensor))
        for t in stores(streaming.body)
        if t.streaming
    )
    tests = {(n.key, least): as_index(n) >= least for n, least in extents if isinstance(n, Size)}
    if not isinstance(are_large := both(*tests.values()), Expr):
        return (streaming,)
    return (s,) if alone else (If(are_large, (streaming,), (s,)),)


def large_bytes() -> int:
    """The size from which an array does not stay in the caches beside others: half of the last
    level.
    """
    return processor().l3_bytes // 2


def is_large(t: Tensor) -> bool:
    size = product(t.shape)
    return isinstance(size, int) and size >= least_size(t)


def least_size(t: Tensor) -> int:
    """The elements of a large array of this type."""
    return large_bytes() // t.element.bytes


def _streamed(block: Block, large: set[Tensor], lane: For) -> Block:
    def change(s: Statement) -> Block | None:
        if not isinstance(s, Store) or s.tensor not in large:
            return None
        whole = can_peel_to_align(s, lane) or _aligned(s, lane) or writes_lines(lane, s)
        return (replace(s, streaming=whole and stride(s.tensor, s.indices, lane.index) == 1),)

    return rewrite_block(block, change)


def leading_store(s: For) -> Store | None:
    """The store that a vector loop is aligned for: its first streaming store of whole vectors."""
    return next((t for t in stores(s.body) if t.streaming and can_peel_to_align(t, s)), None)


def can_peel_to_align(s: Store, lane: For) -> bool:
    """Test whether a vector loop can be aligned for a store: its vectors are whole, and may begin
    anywhere.
    """
    return lane.width * s.tensor.element.bytes % processor().vector_bytes == 0 and can_shift(lane)


def writes_lines(s: For, store: Store) -> bool:
    """Test whether a loop writes whole cache lines only."""
    length = s.length
    line = processor().line_bytes // store.tensor.element.bytes
    return (
        not length.terms
        and not length.constant % line
        and not line % s.width
        and begins_lines(s, store)
    )


def _aligned(s: Store, lane: For) -> bool:
    """Test whether every vector begins at a multiple of 16 bytes in its array."""
    element = s.tensor.element.bytes
    row = alignment(s.tensor, s.indices, lane.index)
    return row is not None and not gcd(affine(lane.start).divisor, lane.width, row) * element % PART
