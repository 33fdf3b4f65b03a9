"""Give float reductions the lanes and blocks of the documented order (LLVM: ordered reductions).

    for k { acc = acc + x[k] }
    =>  for b { part = 0; for k in block b { by 16 lanes: part = part + x[k] }; acc = acc + part }

Legal always: the order is the one that CPU kernels have, so loops are partitioned as theirs are.
Nothing changes where that gives a reduction neither lanes nor blocks.
"""

from dataclasses import replace

from ...dialect.kernel_ir.loops import For, Kernel, rewrite_block, statements
from ..analysis.accesses import reduces_floats
from ..loops.collapse import collapse
from ..loops.index_set_split import index_set_split
from ..loops.inline_lets import inline_lets
from ..loops.loop_partition import loop_partition
from ..loops.tighten_bounds import tighten_bounds
from ..passes import gpu_pass
from ..processor import processor
from ..reductions.blocked_sums import blocked_sums
from ..reductions.lane_reduction import by_lanes

PARTITIONED = (inline_lets, index_set_split, collapse, loop_partition, tighten_bounds)


@gpu_pass
def ordered_reduction(kernel: Kernel) -> Kernel:
    if not reduces_floats(kernel):
        return kernel
    plain = kernel
    for change in PARTITIONED:
        plain = change(plain)
    blocked = blocked_sums(plain)
    laned = by_lanes_of_a_warp(blocked)
    if blocked is plain and not any(
        isinstance(s, For) and s.kind == "vector" for s in statements(laned.body)
    ):
        return kernel
    return replace(laned, scheduled=True)


def by_lanes_of_a_warp(kernel: Kernel) -> Kernel:
    return kernel.with_body(rewrite_block(kernel.body, lambda s: by_lanes(s, processor().gpu.warp)))
