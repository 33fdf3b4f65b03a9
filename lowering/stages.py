"""The printed stages of a program: graph (the program itself), mlir (the same in MLIR's generic form), linalg (MLIR that
other compilers run), formulas (index notation), loops (a nest for each formula), strategies (how each contraction and
reduction is computed, and why) and schedule (the nests after the loop passes)."""

from collections.abc import Callable

from ..dialect.notation.printer import plan_text
from ..dialect.program.function import Function
from ..dialect.program.module import Module
from ..dialect.program.printer import print_module
from .explain_strategies import strategies_text
from .formulas.printer import formulas_text
from .mlir.linalg import linalg_text
from .pipeline import lower, to_formulas, unoptimized, unscheduled
from .processor import processor

STAGES = ("graph", "mlir", "linalg", "formulas", "loops", "strategies", "schedule")


def show(module: Module, function: Function, stage: str, optimize: int = 2) -> str:
    """The text of one stage of STAGES."""
    shows: dict[str, Callable[[], str]] = {
        "graph": lambda: str(module),
        "mlir": lambda: print_module(module, generic=True),
        "linalg": lambda: linalg_text(to_formulas(module, function, 0)),
        "formulas": lambda: formulas_text(to_formulas(module, function, optimize)),
        "loops": lambda: plan_text((unscheduled if optimize else unoptimized)(module, function)),
        "strategies": lambda: strategies_text(module, function),
        "schedule": lambda: plan_text(lower(module, function, processor(), optimize)),
    }
    return shows[stage]()
