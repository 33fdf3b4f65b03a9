"""Give each array one name in a kernel that writes it.

    kernel k(x) -> (y view of x) { for i { y[i] = x[i] + 1 } }
    =>  kernel k -> y { for i { y[i] = y[i] + 1 } }

Legal always. Needed since kernels are scheduled and emitted as if arrays of different names did not
overlap (LLVM's noalias, `__restrict__` of CUDA). Cf. copy propagation of memory references.
"""

from collections.abc import Mapping
from dataclasses import replace

from ...dialect.kernel_ir.execution_plan import Loop, Plan
from ...dialect.kernel_ir.expressions import Expr, Tensor, unflatten
from ...dialect.kernel_ir.loops import Kernel, written
from ...dialect.kernel_ir.simplify_node import linear_index
from ...dialect.types.sizes import same_size
from ..analysis.accesses import over_arrays


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

    def place(array: Tensor, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        shape = others[array].shape
        if len(at) == len(shape) and all(map(same_size, array.shape, shape)):
            return at
        return unflatten(linear_index(at, array.shape), shape)

    return over_arrays(kernel, others, place)
