"""Loops whose reads stay in the order in which memory lies:

    for b { for l in 0..16 vector 16 { sums[l] = sums[l] + x[b * 16 + l] } }

of arrays that no cache holds, or whose size nobody knows. Of several turns at once LLVM would read
the third line before the second; processors foresee lines that follow each other.
"""

from ...dialect.kernel_ir.loops import For
from ...dialect.types.sizes import product
from ...lowering.analysis.accesses import reads, stride
from ...lowering.loops.nontemporal_stores import is_large
from .ir_builder import VOID, Instruction

SINGLE_THREAD_ACQUIRE = (
    Instruction(  # no machine instruction: the compiler must not move reads across it
        "fence", VOID, (), 'syncscope("singlethread") acquire'
    )
)


def reads_in_order(s: For) -> bool:
    """Test whether each iteration of a loop reads consecutive vectors of arrays, one of which is
    large.
    """
    match s.body:
        case (For(kind="vector", width=width) as lanes,):
            arrays = [r for r in reads(lanes.body) if r.tensor.space != "register"]
            steps = (
                (stride(r.tensor, r.indices, s.index), stride(r.tensor, r.indices, lanes.index))
                for r in arrays
            )
            large = any(
                is_large(r.tensor) or not isinstance(product(r.tensor.shape), int) for r in arrays
            )
            return large and all(step == (width, 1) for step in steps)
    return False
