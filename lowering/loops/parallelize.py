"""Run the outermost loop of a large nest on all threads (MLIR's affine-parallelize).

    for i { for j { ... } }  =>  for i parallel { for j { ... } }
    for i in 0..n { ... }
    =>  for b in 0..ceil(n / 4096) parallel { for i in b * 4096..min(...) { ... } }

Legal for a nest of one loop, or of the parts of one, whose iterations write disjoint elements:
every array that it writes is indexed by the loop's index itself. Pays above MIN_OPERATIONS; their
cost decides how many form a task.
"""

from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import ZERO, Const, Expr, Index, as_index, minimum
from ...dialect.kernel_ir.loops import (
    Block,
    For,
    If,
    Kernel,
    has_loops,
    nodes,
    outer_loops,
    replace,
    substitute_block,
)
from ...dialect.types.sizes import Dim, same_size
from ..analysis.accesses import allocated, stores
from ..analysis.cost import Sizes, block_operations
from ..passes import kernel_pass
from ..processor import processor
from .vectorize import can_be_vector

# number of blocks from which on they grow, and by which factor: longer runs of memory; tuned by
# hand (Zen 4, Zen 5)
MANY, LARGER = 128, 4
# blocks are multiples of whole vectors, so that equal blocks have no remainder
WHOLE = (32, 16, 8)
# cost model: operations that take as long as moving an element through memory; tuned by hand
# (Zen 4, Zen 5)
MOVED = 2
UNKNOWN = 64  # cost model: the extent that an unknown size counts as; tuned by hand (Zen 4, Zen 5)


@kernel_pass
def parallelize(kernel: Kernel) -> Kernel:
    """The kernel with its outermost loop parallel, if that is legal and pays."""
    single, inner = outer_loops(kernel.body, lambda s: same_size(s.index.extent, 1) and s.is_whole)
    body = rejoined(substitute_block(inner, {i: ZERO for i in single}) if single else kernel.body)
    if len(body) != 1 or not isinstance(loop := body[0], For) or not loop.is_whole:
        return kernel
    if not _own_places(loop) or (
        isinstance(loop.index.extent, int) and loop.index.extent <= grain(loop)
    ):
        return kernel
    reduces = has_loops(loop.body)
    tuning = processor().tuning
    if reduces and not can_be_vector(loop):
        return kernel.with_body((replace(loop, kind="parallel"),))
    return kernel.with_body(
        (in_blocks(loop, tuning.task_reductions if reduces else tuning.task_iterations),)
    )


def in_blocks(loop: For, most: int) -> For:
    """Strip-mine a loop into blocks of iterations."""
    if isinstance(n := loop.index.extent, int):
        most *= LARGER if n >= MANY * most else 1
        size = next(
            (b for whole in WHOLE for b in range(most, most // 8, -whole) if n % b == 0), most
        )
    else:
        size = most
    block = Index("b", (n + size - 1) // size)
    first, stop = block_bounds(n, size, block)
    return For(block, (replace(loop, start=first, stop=stop),), kind="parallel")


def block_bounds(extent: Dim, size: Dim | Expr, block: Expr) -> tuple[Expr, Expr]:
    """The bounds of one block of the iterations of a loop over an extent."""
    first = block * size
    even = isinstance(size, int) and isinstance(extent, int) and extent % size == 0
    return first, first + size if even else minimum(first + size, as_index(extent))


def adjoining(loop: For) -> For | None:
    """The only loop inside another, if it runs consecutive parts: for b { for i in b * 16..b * 16 +
    16 { ... } }
    """
    match loop.body:
        case (For(_, body, start, kind="serial" | "vector", overlap=0) as inner,):
            begin = affine(start)
            step = begin.factor(loop.index)
            length = affine(inner.end) - begin
            goes_on = step > 0 and not length.terms and length.constant == step
            return inner if goes_on and not any(n is loop.index for n in nodes(body)) else None
    return None


def rejoined(block: Block) -> Block:
    """Join loops over consecutive parts of a range into one, with a branch to the part of an
    iteration.

    for i of 9 in 0..1 { a }; for i of 9 in 1..9 { b }
    =>  for i in 0..9 { if i < 1 { a } else { b } }
    """
    parts = [s for s in block if isinstance(s, For) and s.kind == "serial" and not can_be_vector(s)]
    starts = [s.start.value for s in parts if isinstance(s.start, Const)]
    ends = [s.end.value for s in parts if isinstance(s.end, Const)]
    whole = 1 < len(block) == len(parts) == len(starts) == len(ends) and starts == [0, *ends[:-1]]
    if not whole or any(
        s.index.extent != ends[-1] or not any(isinstance(i, For) for i in s.body) for s in parts
    ):
        return block
    index = parts[0].index
    *first, last = (substitute_block(s.body, {s.index: index}) for s in parts)
    for body, end in reversed([*zip(first, ends, strict=False)]):
        last = (If(index < end, body, last),)
    return (For(index, last),)


def grain(loop: For) -> int:
    """The number of iterations that form a task for another thread."""
    return max(
        1,
        -(
            -processor().wake_operations
            // max(1, block_operations(loop.body, Sizes(default=UNKNOWN), MOVED))
        ),
    )


def _own_places(loop: For) -> bool:
    """Test whether each iteration has its own buffers, and stores to its own elements."""
    own = allocated(loop.body)
    private = all(t.space != "heap" for t in own)
    return private and all(
        s.tensor in own or any(i is loop.index for i in s.indices) for s in stores(loop.body)
    )
