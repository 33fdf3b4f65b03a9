"""Lower a sum of products to kernels that pack its factors and multiply them by tiles, as
`strategies` chooses.

    for r { for q { acc = 0; for k { acc = acc + a[r, k] * b[k, q] }; y[r, q] = acc } }
    =>  rows = packed a;  columns = packed b
        for tile { sums[6, 16] = 0; for k { sums += rows * columns }; y[...] = sums }

Legal where the nest is a contraction (`match`). Pays from `processor().packing_products` products
on.
"""

from dataclasses import replace
from functools import partial

from ...dialect.kernel_ir.execution_plan import Kernels
from ...dialect.kernel_ir.loops import Kernel, reshaped_parameters
from ..loops.collapse import collapsed
from ..pass_context import Context
from ..passes import kernel_pass
from . import strategies


@kernel_pass
def lower_contraction(kernel: Kernel, context: Context) -> Kernels | None:
    plain = collapsed(kernel)
    views = reshaped_parameters(kernel, plain)
    constants, ranges = context.seen(views)
    if (lowered := strategies.lower_by_strategy(plain, constants, ranges)) is None:
        return None
    order = "blocks" if kernel.sum_order == "blocks" else "terms"
    own = partial(replace, condition=kernel.condition, sum_order=order)
    kernels = tuple(
        own(k, scheduled=k in lowered.ready).only(lowered.where.get(k)) for k in lowered.kernels
    )
    return Kernels(kernels, {**views, **lowered.views}, lowered.constants)
