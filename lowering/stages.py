"""The printed stages of a program: graph (the program itself), mlir (the same in MLIR's generic
form), linalg (MLIR that other compilers run), formulas (index notation), loops (a nest for each
formula), strategies (how each contraction and reduction is computed, and why) and schedule (the
nests after the loop passes).
"""

from typing import Any

import numpy as np

from ..dialect.ir.function import Function
from ..dialect.ir.module import Module
from ..dialect.ir.program_printer import print_module
from ..dialect.kernel_ir.execution_plan import Plan, hoist_constants
from ..dialect.kernel_ir.formulas import Formulas, LoopNest
from ..dialect.kernel_ir.kernel_printer import Names, array_names, plan_text
from .explain_strategies import strategies_text
from .formulas.formula_printer import MOST_ELEMENTS, formulas_text
from .mlir.linalg import linalg_text
from .pipeline import lower, to_formulas, unoptimized, unscheduled
from .processor import processor

STAGES = ("graph", "mlir", "linalg", "formulas", "loops", "strategies", "schedule")


def show(module: Module, function: Function, stage: str, optimize: int = 2) -> str:
    lowered = at_stage(module, function, stage, optimize)
    return {Formulas: formulas_text, Plan: plan_text}.get(type(lowered), str)(lowered)


def at_stage(module: Module, function: Function, stage: str, optimize: int = 2) -> Any:
    """The program, formulas or kernels of a stage; of others, the text."""
    makes = {
        "graph": lambda: module,
        "mlir": lambda: print_module(module, generic=True),
        "linalg": lambda: linalg_text(to_formulas(module, function, 0)),
        "formulas": lambda: to_formulas(module, function, optimize),
        "loops": lambda: (unscheduled if optimize else unoptimized)(module, function),
        "strategies": lambda: strategies_text(module, function),
        "schedule": lambda: lower(module, function, processor(), optimize),
    }
    return makes[stage]()


def left_out(lowered: Formulas | Plan) -> dict[str, np.ndarray]:
    """The constants whose values the text of formulas or kernels leaves out, by their names
    there.
    """
    if isinstance(lowered, Plan):
        plan = hoist_constants(lowered)
        return {
            name[1:]: plan.constants[t]
            for t, name in array_names(plan).items()
            if t in plan.constants
        }
    names = Names()
    shown = {t: names.of(t)[1:] for t in (*lowered.arguments, *lowered.constants)}
    arrays = {
        shown[t]: array for t, array in lowered.constants.items() if array.size > MOST_ELEMENTS
    }
    inner = [
        s.program
        for s in lowered.steps
        if isinstance(s, LoopNest) and isinstance(s.program, Formulas)
    ]
    return arrays | {
        f"{p.name}.{name}": array for p in inner for name, array in left_out(p).items()
    }
