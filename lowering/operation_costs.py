"""Count the operations and bytes of each operation of a function by itself, from its formula,
before any pass.

%y = cvm.dense %x, %w  =>  64 mul and 64 add; reads 192 bytes, writes 64
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..dialect.builtin import Const
from ..dialect.ir.function import Function
from ..dialect.ir.module import Module
from ..dialect.ir.program_printer import Names, operation_text
from .analysis.count_operations import Cost, cost, sum_of
from .passes import run_passes
from .pipeline import UNOPTIMIZED, UNOPTIMIZED_FORMULAS, UNOPTIMIZED_GRAPH, context_of

AFTER_GRAPH = UNOPTIMIZED_FORMULAS[len(UNOPTIMIZED_GRAPH) :]
AFTER_FORMULAS = UNOPTIMIZED[len(UNOPTIMIZED_FORMULAS) : -1]  # the last one places buffers


def operation_costs(
    module: Module, function: Function, sizes: Mapping[Any, int] | None = None
) -> Cost:
    """The cost of a function, its parts being those of its operations that some result needs."""
    context = context_of(module, function)
    plain: Function = run_passes(UNOPTIMIZED_GRAPH, function, context)
    program = run_passes(AFTER_GRAPH, plain, context)
    names = Names(plain.arguments)
    costs: list[Cost] = []
    computed = [o for o in plain.operations if not isinstance(o.operator, Const)]
    for operation, step in zip(computed, program.steps, strict=True):
        counted = cost(
            run_passes(AFTER_FORMULAS, replace(program, steps=(step,), results=()), context), sizes
        )
        costs.append(replace(counted, name=operation_text(operation, names), memory=0, parts=()))
    return sum_of(costs, function.name)
