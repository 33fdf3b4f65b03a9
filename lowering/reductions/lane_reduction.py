"""Vectorize reductions along contiguous memory by partial sums per lane, in one fixed order.

    for k in 0..100 { acc = acc + x[k] }
    =>  alloc register sums: tensor<32xi32>
        for l in 0..32 vector 32 { sums[l] = 0 }
        for b in 0..3 { for l in 0..32 vector 32 { sums[l] = sums[l] + x[b * 32 + l] } }
        for h in 0..16 vector 16 { sums[h] = sums[h] + sums[h + 16] }   and so on by halves
        acc = acc + sums[0]
        for k of 100 in 96..100 { acc = acc + x[k] }

Legal for integers, whose sums have no order. For floats it is the documented order of a reduction along a contiguous
axis: lane l of 16 takes the elements l, l + 16, ... of whole blocks of 16; lanes are added pairwise by halves (l with l
+ 8, then l + 4, ...); the remaining elements follow one by one. The order is the same for every vector width, target
and number of threads. Other float reductions keep the order of their indices; long ones of either kind are blocked by
`blocked_sums`. The maximum of floats has no order: it takes more lanes first, and 16 for the remainder.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.ir.types import F32, F64, ElementType
from ...dialect.notation.fold_order import LANES
from ...dialect.notation.index import Apply, Const, Expr, Index, Read, Tensor, apply, as_index, maximum
from ...dialect.notation.loops import (
    Alloc,
    Block,
    For,
    Kernel,
    Let,
    Statement,
    Store,
    identity,
    is_rare,
    rewrite_block,
    substitute_block,
)
from ...dialect.notation.scalars import SCALARS
from ...dialect.notation.traverse import walk
from ..analysis.accesses import accumulators, reads, stores, stride
from ..processor import processor

ORDERED = ("add", "mul")  # float reductions whose order decides their bits
VECTORS = 4  # vectors of integer sums, each of which waits for the one before
FLOAT_VECTORS = 8  # vectors of float maxima, each a chain of several dependent instructions


def lane_reduction(kernel: Kernel) -> Kernel:
    return kernel.with_body(rewrite_block(kernel.body, _folds))


def _folds(s: Statement) -> Block | None:
    if isinstance(s, For) and s.kind == "vector":
        return (s,)
    return fold(s, *found) if isinstance(s, For) and (found := along_memory(s)) is not None else None


def along_memory(s: For) -> tuple[Store, str, Expr] | None:
    """The update of a loop that reduces contiguous memory: store, function and operand; None if it does not."""
    match s:
        case For(body=(*before, Store() as store), kind="serial") if _is_straight(tuple(before)):
            found = folded_value(store)
            if found is not None and _contiguous(s.body, store.tensor, s.index):
                return store, *found
    return None


def has_lanes(s: For) -> bool:
    """Test whether a loop reduces floats by lanes, which decides their bits."""
    found, extent = along_memory(s), s.index.extent
    is_float = found is not None and found[0].tensor.element.kind == "float" and found[1] in ORDERED
    return is_float and not (isinstance(extent, int) and extent < LANES)


def fold(s: For, store: Store, function: str, value: Expr) -> Block | None:
    """The loop by lanes, if it may be long enough."""
    acc, extent = store.tensor, s.index.extent
    widths = [w for w in _widths(acc.element, function) if not isinstance(extent, int) or w <= extent]
    if not widths:
        return None
    sums = Tensor("sums", (widths[0],), acc.element, "register")
    lane = Index("l", widths[0])
    start = Store(sums, (lane,), identity(function, acc.element))
    made: list[Statement] = [Alloc(sums), For(lane, (start,), kind="vector", width=widths[0])]
    names = tuple(n for n in s.body if n is not store)
    left, before = s.start, widths[0]
    for width in widths:
        made += _halves(function, sums, before, width)
        lane, block, whole = Index("l", width), Index("b", extent), maximum(s.end - left, 0) // width
        step = (*names, Store(sums, (lane,), apply(function, sums[lane], value)))
        step = substitute_block(step, {s.index: left + block * width + lane})
        if not (isinstance(whole, Const) and not whole.value):
            made.append(For(block, (For(lane, step, kind="vector", width=width),), stop=whole))
        left, before = left + whole * width, width
    made += _halves(function, sums, before, 1)
    made.append(Store(acc, (), apply(function, acc[()], sums[as_index(0)])))
    if not (isinstance(left, Const) and isinstance(s.end, Const) and left.value == s.end.value):
        made.append(replace(s, start=left))
    return tuple(made)


def _widths(element: ElementType, function: str) -> tuple[int, ...]:
    """The lanes of a reduction, and those of its remainder."""
    if element not in (F32, F64):
        return (max(VECTORS * processor().vector_bytes // element.bytes, 8),)
    floats = FLOAT_VECTORS * processor().vector_bytes // element.bytes
    return (LANES,) if function in ORDERED else (floats, LANES)


def _is_straight(block: Block) -> bool:
    """Test whether statements before a reduction only define variables, with rare branches, in accumulators of their
    own.
    """
    own = accumulators(block)
    return all(
        isinstance(s, Let) or is_rare(s) or (isinstance(s, (Alloc, Store)) and s.tensor in own) for s in block
    ) and all(s.tensor in own for s in stores(block))


def folded_value(store: Store) -> tuple[str, Expr] | None:
    """The f and x of acc = f(acc, x), if the reduction may be split: f has an identity, and acc is a scalar."""
    match store:
        case Store(Tensor(space="register", shape=()) as acc, (), Apply(function, (Read(again, ()), value), _)):
            if again is acc and SCALARS[function].identity and not _mentions(value, acc):
                return function, value
    return None


def _mentions(value: Expr, tensor: Tensor) -> bool:
    return any(isinstance(n, Read) and n.tensor is tensor for n in walk(value))


def _contiguous(block: Block, acc: Tensor, index: Index) -> bool:
    """Test whether every read of a reduction moves by one element, or not at all, along the index."""
    if any(r.tensor is acc for s in block[:-1] for r in reads((s,))):
        return False
    strides = [stride(r.tensor, r.indices, index) for r in reads(block) if r.tensor is not acc]
    return 1 in strides and all(n in (0, 1) for n in strides)


def _halves(function: str, sums: Tensor, width: int, least: int) -> list[Statement]:
    made: list[Statement] = []
    while width > least:
        width //= 2
        lane = Index("h", width)
        step = Store(sums, (lane,), apply(function, sums[lane], sums[lane + width]))
        kind = {"kind": "vector", "width": width} if width > 1 else {"kind": "unrolled"}
        made.append(For(lane, (step,), **kind))  # type: ignore[arg-type]
    return made
