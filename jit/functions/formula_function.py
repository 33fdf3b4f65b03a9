"""Formulas that were given as text: compiled for a CPU, or evaluated as they are defined."""

import numpy as np

from ...dialect.kernel_ir.execution_plan import Plan
from ...dialect.kernel_ir.expressions import Expr, Tensor
from ...dialect.kernel_ir.formulas import Formula, Formulas, View
from ...dialect.kernel_ir.kernel_printer import plan_text
from ...dialect.support.diagnostics import TargetError
from ...lowering import pipeline
from ...lowering.analysis.evaluate_expressions import Evaluation
from ...lowering.formulas.formula_printer import formulas_text
from ...lowering.pass_context import Context
from ...lowering.passes import run_passes
from ...lowering.processor import compiling_for
from ..cache.measured_costs import measured_host
from ..calls.arguments import size_place
from ..calls.dispatch_table import atoms_of
from ..options import DEFAULT, CompileOptions
from .compiled_function import CompiledFunction
from .kernel_function import KernelFunction


def kernels_of(formulas: Formulas) -> Plan:
    """A nest for each of the formulas."""
    return run_passes((*pipeline.FORMULAS, *pipeline.LOOPS), formulas, Context())


class FormulaFunction(KernelFunction):
    """Formulas as native code."""

    def __init__(self, formulas: Formulas, options: CompileOptions = DEFAULT) -> None:
        self.formulas = formulas
        super().__init__(kernels_of(formulas), options, formulas)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.formulas, self.options)

    def _prepared(self, plan: Plan) -> Plan:
        with compiling_for(self.options.cpu or measured_host()):
            scheduled = run_passes((*pipeline.CPU_LOOPS, *pipeline.CPU_SCHEDULE), plan, Context())
        return super()._prepared(scheduled)

    def lower(self, stage: str = "loops") -> str:
        """The formulas, their loops, these scheduled for a CPU, or a target's text for them."""
        if stage == "formulas":
            return formulas_text(self.formulas)
        return plan_text(self.plan) if stage == "schedule" else super().lower(stage)


class FormulaReference(FormulaFunction):
    """Formulas evaluated in NumPy, sums in the order of their terms."""

    target = "reference"
    _called = CompiledFunction._called  # nothing is compiled

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        program = self.formulas
        places = (
            (atom, *size_place(self.head, atom)) for atom in atoms_of(self.head.argument_types)
        )
        known: dict[Tensor, np.ndarray] = {
            **program.constants,
            **dict(zip(program.arguments, arrays, strict=True)),
        }
        evaluation = Evaluation(known, {atom: arrays[n].shape[axis] for atom, n, axis in places})
        for step in program.steps:
            match step:
                case Formula(tensor, indices, value):
                    shape = evaluation.shape(tensor)
                    grid = np.ogrid[tuple(slice(0, n) for n in shape)]
                    mesh: dict[Expr, np.ndarray] = dict(zip(indices, grid, strict=True))
                    known[tensor] = np.broadcast_to(evaluation.values(value, mesh), shape)
                case View(tensor, of, _):
                    known[tensor] = known[of].reshape(evaluation.shape(tensor))
                case _:
                    raise TargetError(
                        "the reference evaluates formulas; loops and nests run on the target cpu"
                    )
        for output, result in zip(outputs, program.results, strict=True):
            output[...] = known[result]
