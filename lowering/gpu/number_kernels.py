"""Name the kernels of a plan by their numbers.

    kernel main.0.parts, kernel main.0, kernel main.1
    =>  kernel main.0, kernel main.1, kernel main.2

Kernels of a CUDA module need different names.
"""

from dataclasses import replace

from ...dialect.kernel_ir.execution_plan import Plan
from ..passes import declare


@declare("gpu", Plan)
def number_kernels(plan: Plan) -> Plan:
    return replace(
        plan, kernels=tuple(replace(k, name=f"{plan.name}.{n}") for n, k in enumerate(plan.kernels))
    )
