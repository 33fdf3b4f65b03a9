"""What of a nest may run at once: which of its outer loops have iterations that do not see each other."""

from __future__ import annotations

from ...dialect.ir.sizes import Dim
from ...dialect.notation.index import ZERO, Index
from ...dialect.notation.loops import Alloc, Block, For, Kernel, statements
from .accesses import accesses

THREADS, LEAST = 256, 32  # of a block, and where there are few in all
MULTIPROCESSORS = 132  # that should all have some


def block_size(work: Dim) -> int:
    """So many that every processor has a block, if that can be."""
    threads = THREADS
    while threads > LEAST and isinstance(work, int) and work < threads * MULTIPROCESSORS:
        threads //= 2
    return threads


def independent(loop: For) -> bool:
    """Whether every iteration has its own part of what the loop writes: one axis of it is indexed by the loop's index."""
    own = {s.tensor for s in statements(loop.body) if isinstance(s, Alloc)}
    if any(t.space == "heap" for t in own):  # one buffer for all iterations
        return False
    read, stored = accesses(loop.body)
    for tensor in stored.keys() - own:
        places = [*stored[tensor], *read.get(tensor, [])]
        if not any(all(at[axis] is loop.index for at in places) for axis in range(tensor.rank)):
            return False
    return True


def independent_loops(kernel: Kernel) -> tuple[list[Index], Block]:
    """The indices of the outer loops that may run at once, and what stands inside them."""
    indices: list[Index] = []
    block = kernel.body
    while len(block) == 1 and isinstance(loop := block[0], For) and whole(loop) and independent(loop):
        indices.append(loop.index)
        block = loop.body
    return indices, block


def whole(loop: For) -> bool:
    """Whether a loop runs over all of its index."""
    return loop.start is ZERO and loop.stop is None
