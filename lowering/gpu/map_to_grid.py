"""Map the independent outer loops of a nest to the threads of a grid, one for each iteration.

    for i in 0..n { for j in 0..m { y[i, j] = f } }
    =>  for t in 0..n*m parallel { y[t // m, t % m] = f }

Legal where iterations carry no dependence; any other nest runs in one thread. The innermost index
runs fastest, so that neighboring threads access neighboring elements. For what no other pass has
mapped.
"""

from ...dialect.kernel_ir.expressions import Expr, Index, unflatten
from ...dialect.kernel_ir.loops import For, Kernel, substitute_block
from ...dialect.types.sizes import product
from ..analysis.parallel_loops import independent_loops
from ..passes import scheduled_gpu_pass


@scheduled_gpu_pass
def map_to_grid(kernel: Kernel) -> Kernel:
    indices, block = independent_loops(kernel)
    if not indices:
        return kernel
    if len(indices) == 1:
        return kernel.with_body((For(indices[0], block, kind="parallel"),))
    shape = tuple(i.extent for i in indices)
    thread = Index("t", product(shape))
    places: dict[Expr, Expr] = dict(zip(indices, unflatten(thread, shape), strict=True))
    return kernel.with_body((For(thread, substitute_block(block, places), kind="parallel"),))
