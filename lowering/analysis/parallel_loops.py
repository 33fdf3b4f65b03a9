"""Find the parallel outer loops of a nest, whose iterations carry no dependence (TVM's
data-parallel, MLIR's isLoopParallel).
"""

from ...dialect.kernel_ir.expressions import ZERO, Index
from ...dialect.kernel_ir.loops import Block, For, Kernel, outer_loops
from ...dialect.types.sizes import Dim
from ..processor import processor
from .accesses import accesses, allocated

# threads of a block: the default, and the least (a warp) for little work; counted, not timed on a
# GPU
THREADS, LEAST = 256, 32


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
    axis.
    """
    own = allocated(loop.body)
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
