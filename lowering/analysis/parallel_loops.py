"""Find the parallel outer loops of a nest, whose iterations carry no dependence (TVM's
data-parallel, MLIR's isLoopParallel).
"""

from ...dialect.kernel_ir.expressions import ZERO, Index
from ...dialect.kernel_ir.loops import (
    Assert,
    Block,
    For,
    If,
    Kernel,
    Statement,
    Store,
    blocks,
    may_jump,
    may_leave,
    outer_loops,
    replace,
    rewrite_block,
    statements,
)
from ...dialect.types.sizes import Dim
from ..processor import processor
from .accesses import accesses, allocated

# threads of a block: the default, and the least (a warp) for little work; counted, not timed on a
# GPU
THREADS, LEAST = 256, 32


MAX_THREADS = 1024  # threads of a block, at most; CUDA's limit


def block_size(work: Dim) -> int:
    """The threads of a block: THREADS, halved while blocks would not reach every multiprocessor."""
    threads = THREADS
    while (
        threads > LEAST
        and isinstance(work, int)
        and work < threads * processor().gpu.multiprocessors
    ):
        threads //= 2
    return threads


def independent(loop: For) -> bool:
    """Test whether every tensor that the loop writes is indexed by the loop's index along one
    axis, and every iteration runs.
    """
    own = allocated(loop.body)
    if may_leave(loop.body):
        return False
    if any(t.space == "heap" for t in own):  # one buffer shared by all iterations
        return False
    read, stored = accesses(loop.body)
    for tensor in stored.keys() - own:
        places = [*stored[tensor], *read.get(tensor, [])]
        if not any(all(at[axis] is loop.index for at in places) for axis in range(tensor.rank)):
            return False
    return True


def independent_loops(kernel: Kernel) -> tuple[list[Index], Block]:
    """The indices of the parallel outer loops, and the block inside them; none of a kernel that is
    mapped.
    """
    mapped = is_mapped(kernel)
    return outer_loops(
        kernel.body, lambda s: not mapped and s.start is ZERO and s.stop is None and independent(s)
    )


def is_mapped(kernel: Kernel) -> bool:
    """Test whether the iterations of a kernel have been assigned to blocks or threads."""
    return any(isinstance(s, For) and s.kind in ("block", "parallel") for s in kernel.body)


def block_threads(kernel: Kernel) -> int | None:
    """The threads of a block of a kernel in the form of a grid, None of any other kernel.

    The body is one loop over blocks. Its threads are whole loops of one constant extent, a power of
    two, and only they store: what stands between them is executed by every thread.
    """
    match kernel.body:
        case (For(kind="block") as loop,):
            extents: set[object] = set()
            if not _is_distributed(loop.body, extents) or len(extents) != 1:
                return None
            (threads,) = extents
            if isinstance(threads, int) and 0 < threads <= MAX_THREADS:
                return None if threads & (threads - 1) else threads
    return None


def _is_distributed(block: Block, extents: set[object]) -> bool:
    """Test whether only loops over threads store, and collect their extents."""
    if may_jump(block):
        return False
    for s in block:
        match s:
            case For(kind="thread"):
                if s.start is not ZERO or s.stop is not None or uses_grid(s.body):
                    return False
                extents.add(s.index.extent)
            case For(kind="block" | "parallel") | Store() | Assert():
                return False
            case For() | If():
                if not all(_is_distributed(b, extents) for b in blocks(s)):
                    return False
    return True


def uses_grid(block: Block) -> bool:
    """Test whether loops of a block are marked as those over blocks or threads."""
    return any(isinstance(s, For) and s.kind in ("block", "thread") for s in statements(block))


def serialized(kernel: Kernel) -> Kernel:
    """The kernel with serial loops where it is not in the form of a grid that its marks ask for."""
    if not uses_grid(kernel.body) or block_threads(kernel) is not None:
        return kernel

    def change(s: Statement) -> Block | None:
        if isinstance(s, For) and s.kind in ("block", "thread", "parallel", "matrix"):
            return (replace(s, kind="serial", body=rewrite_block(s.body, change)),)
        return None

    return kernel.with_body(rewrite_block(kernel.body, change))
