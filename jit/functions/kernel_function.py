"""Kernels that were given as text, on each target that runs them: arrays in by their names, arrays
out.

A CPU runs the kernels as they are, in their order; LLVM optimizes each. A GPU runs those that are
mapped to a grid as they are, and others once they have been.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dialect.ir.function import Function, Value
from ...dialect.ir.module import Module
from ...dialect.kernel_ir.execution_plan import Loop, Plan
from ...dialect.kernel_ir.expressions import Apply, Const, Expr, Extent, conjunction
from ...dialect.kernel_ir.formulas import Formulas, View
from ...dialect.kernel_ir.kernel_printer import plan_text
from ...dialect.kernel_ir.loops import (
    MAX_STEPS,
    Guard,
    If,
    Kernel,
    ends_iterations,
    outer_loops,
    statements,
)
from ...dialect.kernel_ir.traverse import walk
from ...dialect.support.diagnostics import CallError, Diagnostic, TargetError
from ...dialect.support.fork_safety import held_at_fork
from ...dialect.types.sizes import evaluate, product
from ...dialect.types.tensor_types import TensorType, Type, as_given
from ...dialect.types.unify import bind
from ...lowering.analysis.evaluate_expressions import Evaluation
from ...lowering.analysis.parallel_loops import uses_grid
from ...lowering.loops.expand_functions import expand_functions
from ...lowering.loops.guard_accesses import guard_accesses
from ...lowering.loops.kernel_condition_to_branch import kernel_condition_to_branch
from ...lowering.loops.legalize_types import legalize_types
from ...lowering.loops.name_arrays_once import name_arrays_once
from ...lowering.loops.prefetch import prefetch
from ...lowering.loops.sanitize import sanitize
from ...lowering.loops.zero_fill import filled
from ...lowering.pass_context import Context
from ...lowering.passes import run_passes
from ...lowering.pipeline import schedule, schedule_for_gpu
from ...lowering.processor import compiling_for
from ...lowering.stages import STAGES
from ...lowering.storage.place_buffers import place_buffers
from ..cache import disk_cache
from ..cuda.emulator.races import Fault
from ..host_processor import check_runs_here
from ..options import DEFAULT, CompileOptions
from ..targets import target_of_stage
from .compiled_function import CompiledFunction
from .gpu_function import SimulatedFunction
from .native_function import NativeFunction

_serving = held_at_fork(threading.RLock())  # signal handlers may call


def _size_tests(kernel: Kernel) -> list[Expr]:
    """The conditions on sizes without which a kernel accesses nothing."""
    _, block = outer_loops(kernel.body, lambda loop: True)
    tests = [
        s.condition for s in block if isinstance(s, If) and len(block) == 1 and not s.otherwise
    ]
    parts = [part for e in (*tests, kernel.condition) if e is not None for part in conjunction(e)]
    return [p for p in parts if all(isinstance(e, (Apply, Const, Extent)) for e in walk(p))]


class PlanFunction(CompiledFunction):
    """The calls of kernels that have no program, and their stages. `declared` has the arguments and
    results as a caller sees them, where passes have split complex ones.
    """

    def __init__(
        self, plan: Plan, options: CompileOptions = DEFAULT, declared: Formulas | None = None
    ) -> None:
        if not options.optimize:
            raise TargetError("kernels run as they are; -O 0 is for programs of functions")
        self.given, self.declared = plan, declared
        self.options = options
        given = plan if declared else name_arrays_once(filled(plan))
        self.legal: Plan = run_passes((expand_functions, legalize_types), given, Context())
        self.plan = self._prepared(self.legal)
        views = {t: of for p in plan.plans for t, of in p.views.items()}
        self.views = (
            {s.tensor: s.of for s in declared.steps if isinstance(s, View)} if declared else views
        )
        self.guards = {
            t: _size_tests(k) for p in plan.plans for k in p.kernels for t in k.parameters
        }
        sides = declared or plan
        values = {
            t: Value(t.name, TensorType(t.shape, t.element))
            for t in (*sides.arguments, *sides.results)
        }
        arguments, results = (
            tuple(values[t] for t in side) for side in (sides.arguments, sides.results)
        )
        head = Function(plan.name, arguments, (), results)
        self._begin(Module({plan.name: head}), head, options)
        self.overwritten = {
            n: plan.arguments.index(t) for n, t in enumerate(plan.results) if t in plan.arguments
        }
        self._computed_in_place = self.overwritten.keys()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.given, self.options, self.declared)

    def _checked(self, plan: Plan) -> Plan:
        """The kernels with checks of accesses that nothing else proves or checks."""
        sanitizes = self.options.sanitize
        plan = run_passes((sanitize,), plan, Context()) if sanitizes else guard_accesses(plan)
        ends = (s for k in plan.all_kernels for s in statements(k.body) if isinstance(s, Guard))
        if self.target == "cuda" and any(ends):  # it goes on after a check that fails
            raise TargetError(
                "accesses in vector or thread loops of these kernels depend on data: the targets "
                "cpu and cuda-sim check them"
            )
        return plan

    def _on_grid(self, plan: Plan) -> Plan:
        """The kernels mapped to the grid of a GPU; as they are where they have been."""
        plan = run_passes((expand_functions.with_options(words=True),), plan, Context())
        if any(ends_iterations(k.body) for k in plan.all_kernels):
            raise TargetError("GPUs do not run a `return` of an iteration of a parallel loop yet")
        on_grid = any(uses_grid(k.body) for k in plan.all_kernels)
        checked = self._checked(plan)
        return (
            run_passes((kernel_condition_to_branch, place_buffers), checked, Context())
            if on_grid
            else schedule_for_gpu(checked)
        )

    _prepared = _on_grid  # the kernels as the target runs them

    def _begin(self, module: Module, function: Function, options: CompileOptions = DEFAULT) -> None:
        super().__init__(module, function, options)

    def _result_types(self, arrays: list[np.ndarray]) -> list[Type]:
        declared = self.head.argument_types
        given = [as_given(t, a.shape) for t, a in zip(declared, arrays, strict=True)]
        sizes = {atom: n for atom, n in bind(declared, given).items() if isinstance(n, int)}
        for view, of in self.views.items():
            count, expected = (evaluate(product(t.shape), sizes) for t in (view, of))
            if count != expected and all(
                Evaluation({}, sizes).values(e, {}) for e in self.guards.get(view, ())
            ):
                message = (
                    f"%{view.name} is a view of %{of.name}, and has {count} elements, not "
                    f"{expected}"
                )
                raise CallError(Diagnostic(message, self.head.span, "run"))
        for k in (k for p in self.plan.plans for k in p.kernels if isinstance(k, Loop)):
            if (
                not 0
                < (trips := evaluate(1 if (n := k.steps.trips) is None else n, sizes))
                <= MAX_STEPS
            ):
                message = f"@{k.name} takes between 1 and {MAX_STEPS} steps, got {trips}"
                raise CallError(Diagnostic(message, k.span, "run"))
        return [
            t.with_array_shape(tuple(evaluate(d, sizes) for d in t.array_shape))
            for t in self.head.result_types
        ]

    def lower(self, stage: str = "loops") -> str:
        """The kernels as they are, scheduled for a CPU, or a target's text for them."""
        with compiling_for(self.options.cpu):
            if stage == "loops":
                return plan_text(self.given)
            if stage == "schedule":
                return plan_text(schedule(self.legal))
            if stage in STAGES:
                raise TargetError(f"{stage} is a stage of programs of functions; these are kernels")
            target = target_of_stage(stage)
            plan = self._on_grid(self.legal) if target.name == "cuda" else self.plan
            return target.stages[stage](target.emit(plan, self.options), self.options)


class KernelFunction(PlanFunction, NativeFunction):
    """Kernels as native code."""

    takes_kept = True  # a schedule from the disk cache
    _begin = CompiledFunction.__init__  # nothing is compiled before the first call

    def _prepared(self, plan: Plan) -> Plan:
        passes = (kernel_condition_to_branch, prefetch, place_buffers)
        return run_passes(passes, self._checked(plan), Context())

    def _called(self, arguments: tuple[object, ...], out: object) -> Any:
        if not self._is_served:
            check_runs_here(self.options.cpu)
            self._take_kept(arguments)
            made = self._compile()
            with _serving:  # a second library would free the code of the first, which may run
                if not self._is_served:
                    self._serve(made)
        return super()._called(arguments, out)

    def _take_kept(self, arguments: tuple[Any, ...]) -> None:
        """Take the schedule that a search has kept for these shapes, if there is one."""
        if self.takes_kept and self.declared is None and disk_cache.folder() is not None:
            from .tune import kept

            shapes = [np.shape(a) for a in arguments]
            if (plan := kept(self.given, shapes, self.compiled_for)) is not None:
                given = name_arrays_once(filled(plan))
                self.legal = run_passes((expand_functions, legalize_types), given, Context())
                self.plan = self._prepared(self.legal)

    @property
    def _is_served(self) -> bool:
        return hasattr(self, "table")  # which `_serve` sets last

    def _call_directly(self) -> None:
        """Calls stay in Python: they are checked here."""

    def _scheduled(self, plain: Plan, ready: Callable[[Kernel], None]) -> Plan:
        for kernel in plain.all_kernels:
            ready(kernel)
        return plain

    @property
    def _plain(self) -> Plan:
        return self.plan


class SimulatedKernels(PlanFunction, SimulatedFunction):
    """Kernels on a simulated GPU, which finds accesses outside of arrays."""

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        try:
            super()._run(arrays, outputs)
        except Fault as e:
            raise CallError(Diagnostic(str(e), self.head.span, "run")) from None
