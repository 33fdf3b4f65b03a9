"""Lower the condition of a kernel to a branch.

    kernel k where n >= 6 { for i parallel { f } }
    =>  kernel k { for i parallel { if n >= 6 { f } } }

Legal always; the last pass of each target. The branch stands inside a loop that threads or blocks
share, since a kernel is launched whether its condition holds or not. The fields of a kernel that
only passes read get their defaults.
"""

from dataclasses import replace

from ...dialect.kernel_ir.loops import Block, For, If, Kernel
from ..passes import scheduled_kernel_pass


@scheduled_kernel_pass
def kernel_condition_to_branch(kernel: Kernel) -> Kernel:
    if kernel.condition is None and kernel.sum_order == "either" and not kernel.scheduled:
        return kernel
    body = (
        kernel.body
        if kernel.condition is None
        else _guarded(kernel.body, If(kernel.condition, kernel.body))
    )
    return replace(kernel, body=body, condition=None, sum_order="either", scheduled=False)


def _guarded(body: Block, guard: If) -> Block:
    match body:
        case (For(kind="parallel" | "block") as loop,):
            return (replace(loop, body=(replace(guard, then=loop.body),)),)
    return (guard,)
