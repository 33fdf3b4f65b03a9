"""Give groups of channels an axis of their own where that makes a nest a contraction.

    for g { for c { ... x[g * 16 + c] ... } }  =>  for g { for c { ... x[g, c] ... } }

Legal where all accesses go by the same groups; parameters keep their storage.
"""

from ...dialect.notation.loops import Kernel
from ..contraction.delinearize import delinearize
from ..contraction.match import match_contraction
from ..contraction.split_groups import split_groups
from ..passes import gpu_pass


@gpu_pass
def delinearize_groups(kernel: Kernel) -> Kernel:
    groups = split_groups(kernel)
    split = delinearize(kernel if groups is None or groups.whole is not True else groups.kernel)
    return split if match_contraction(kernel) is None and match_contraction(split) is not None else kernel
