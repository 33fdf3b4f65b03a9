"""Give each array one name in a kernel that writes it.

    kernel k(x) -> (y view of x) { for i { y[i] = x[i] + 1 } }
    =>  kernel k -> y { for i { y[i] = y[i] + 1 } }

Legal always. Needed since kernels are scheduled and emitted as if arrays of different names did not
overlap (LLVM's noalias, `__restrict__` of CUDA). Cf. copy propagation of memory references.
"""

from collections.abc import Mapping
from dataclasses import replace

from ...dialect.kernel_ir.execution_plan import Loop, Plan
from ...dialect.kernel_ir.expressions import Expr, Read, Tensor, unflatten
from ...dialect.kernel_ir.loops import Kernel, replace_arrays, written
from ...dialect.kernel_ir.simplify_node import linear_index
from ...dialect.kernel_ir.traverse import rewrite
from ...dialect.types.sizes import same_size
from ..analysis.accesses import with_tensors


def name_arrays_once(plan: Plan) -> Plan:
    """The plan with one name of each array that a kernel writes, in that kernel."""
    home = plan.home
    kernels = (
        k.with_plan(name_arrays_once(k.plan)) if isinstance(k, Loop) else _named_once(k, home)
        for k in plan.kernels
    )
    return replace(plan, kernels=tuple(kernels))


def _named_once(kernel: Kernel, home: Mapping[Tensor, Tensor]) -> Kernel:
    stored = written(kernel)
    names = {home[p]: p for p in kernel.parameters if p in stored}
    others = {p: names[home[p]] for p in kernel.parameters if names.get(home[p], p) is not p}
    if not others:
        return kernel

    def place(array: Tensor, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        shape = others[array].shape
        if len(at) == len(shape) and all(map(same_size, array.shape, shape)):
            return at
        return unflatten(linear_index(at, array.shape), shape)

    def read(e: Expr) -> Expr | None:
        if not isinstance(e, Read) or e.tensor not in others:
            return None
        return Read(others[e.tensor], place(e.tensor, tuple(rewrite(i, read) for i in e.indices)))

    body = replace_arrays(kernel.body, others, place)
    condition = None if kernel.condition is None else rewrite(kernel.condition, read)
    renamed = replace(kernel, condition=condition)
    return with_tensors(renamed, body, lambda t: others.get(t, t))
