"""Distribute the loops of a body over kernels of their own (LLVM: LoopDistribute).

    kernel k { for i { t[i] = f }; for j { y[j] = g(t[j]) } }
    =>  kernel k { for i { t[i] = f } }
        kernel k { for j { y[j] = g(t[j]) } }

Legal where a body is nothing but loops and their scratch buffers, which become parameters, no loop
ends the kernel, and the kernel's condition reads nothing that it writes: each part tests it again.
A grid has to: its threads meet only between kernels.
"""

from dataclasses import replace

from ...dialect.kernel_ir.execution_plan import Kernels
from ...dialect.kernel_ir.expressions import Expr, Read, Tensor
from ...dialect.kernel_ir.loops import Alloc, Block, For, Kernel, Return, statements
from ...dialect.kernel_ir.traverse import walk
from ..analysis.accesses import accesses
from ..analysis.parallel_loops import is_mapped
from ..passes import scheduled_gpu_pass


@scheduled_gpu_pass
def loop_fission(kernel: Kernel) -> Kernels | None:
    loops = [s for s in kernel.body if isinstance(s, For)]
    buffers = [s for s in kernel.body if isinstance(s, Alloc) and s.tensor.space == "heap"]
    if len(loops) + len(buffers) < len(kernel.body) or not loops or is_mapped(kernel):
        return None
    if any(isinstance(s, Return) for s in statements(kernel.body)):
        return None
    if kernel.condition is not None and _tested(kernel.condition) & {*kernel.outputs}:
        return None
    return Kernels(tuple(_with_parameters(kernel, (loop,)) for loop in loops))


def _with_parameters(kernel: Kernel, body: Block) -> Kernel:
    """The kernel with this body; its parameters are the arrays that the body uses, those it writes
    last.
    """
    read, stored = accesses(body)
    needed = {*read, *(() if kernel.condition is None else _tested(kernel.condition))}
    own = {s.tensor for s in statements(body) if isinstance(s, Alloc)}
    used = [*kernel.parameters, *(s.tensor for s in kernel.body if isinstance(s, Alloc))]
    inputs = [t for t in used if t in needed and t not in stored and t not in own]
    results = [t for t in used if t in stored and t not in own]
    return replace(kernel, parameters=(*inputs, *results), body=body, results=len(results))


def _tested(condition: Expr) -> set[Tensor]:
    """The arrays that a condition reads."""
    return {e.tensor for e in walk(condition) if isinstance(e, Read)}
