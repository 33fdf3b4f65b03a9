"""Kernels that were given as text, as native code: arrays in by their names, arrays out.

The kernels run as they are, in their order; LLVM optimizes each. To schedule them first is the caller's affair."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...dialect.ir.diagnostics import TargetError
from ...dialect.ir.sizes import evaluate
from ...dialect.ir.types import TensorType, Type, as_given
from ...dialect.ir.unify import bind
from ...dialect.notation.formulas import Formulas
from ...dialect.notation.loops import For, Kernel, statements
from ...dialect.notation.plan import Plan
from ...dialect.notation.printer import plan_text
from ...dialect.program.function import Function, Value
from ...dialect.program.module import Module
from ...lowering.analysis.verify_kernel import check_kernel
from ...lowering.loops.legalize_types import legalize_types
from ...lowering.loops.sanitize import sanitize
from ...lowering.pass_context import Context
from ...lowering.passes import run_passes
from ...lowering.pipeline import schedule, schedule_for_gpu
from ...lowering.processor import compiling_for
from ...lowering.stages import STAGES
from ...lowering.storage.place_buffers import place_buffers
from ..host_processor import check_runs_here
from ..options import DEFAULT, CompileOptions
from ..targets import target_of_stage
from .compiled_function import CompiledFunction
from .native_function import NativeFunction


class KernelFunction(NativeFunction):
    """Runs the kernels of a plan that has no program."""

    def __init__(self, plan: Plan, options: CompileOptions = DEFAULT, formulas: Formulas | None = None) -> None:
        if not options.optimize:
            raise TargetError("kernels run as they are; -O 0 is for programs of functions")
        legal = legalize_types(plan)
        if options.sanitize or any(map(check_kernel, legal.all_kernels)):  # accesses that nothing else proves or checks
            legal = run_passes((sanitize,), legal, Context())
        self.given, self.plan = plan, place_buffers(legal)
        typed = plan if formulas is None else formulas
        values = {t: Value(t.name, TensorType(t.shape, t.element)) for t in (*typed.arguments, *typed.results)}
        head = Function(
            plan.name, tuple(values[t] for t in typed.arguments), (), tuple(values[t] for t in typed.results)
        )
        CompiledFunction.__init__(self, Module({plan.name: head}), head, options)
        self.overwritten = {n: plan.arguments.index(t) for n, t in enumerate(plan.results) if t in plan.arguments}

    def __reduce__(self) -> tuple[object, ...]:
        return KernelFunction, (self.given, self.options)

    @property
    def _computed_in_place(self) -> frozenset[int]:
        return frozenset(self.overwritten)

    def _called(self, arguments: tuple[Any, ...], out: Any) -> Any:
        if not hasattr(self, "_made"):
            check_runs_here(self.options.cpu)
            self._serve(self._compile())
        return super()._called(arguments, out)

    def _call_directly(self) -> None:
        """Calls stay in Python: they are checked here."""

    def _scheduled(self, plain: Plan, ready: Callable[[Kernel], None]) -> Plan:
        for kernel in plain.all_kernels:
            ready(kernel)
        return plain

    @property
    def _plain(self) -> Plan:
        return self.plan

    def _result_types(self, arrays: list[np.ndarray]) -> list[Type]:
        declared = self.head.argument_types
        given = [as_given(t, a.shape) for t, a in zip(declared, arrays, strict=True)]
        sizes = {atom: n for atom, n in bind(declared, given).items() if isinstance(n, int)}
        return [t.with_array_shape(tuple(evaluate(d, sizes) for d in t.array_shape)) for t in self.head.result_types]

    def lower(self, stage: str = "loops") -> str:
        """The kernels as they are, scheduled for a CPU, or a target's text for them."""
        with compiling_for(self.options.cpu):
            if stage == "loops":
                return plan_text(self.plan)
            if stage == "schedule":
                return plan_text(schedule(self.plan))
            if stage in STAGES:
                raise TargetError(f"{stage} is a stage of programs of functions; these are kernels")
            target = target_of_stage(stage)
            loops = (s for k in self.plan.kernels for s in statements(k.body) if isinstance(s, For))
            on_grid = any(s.kind in ("block", "thread") for s in loops)  # of a GPU
            plan = schedule_for_gpu(self.plan) if target.name == "cuda" and not on_grid else self.plan
            return target.stages[stage](target.emit(plan, self.options), self.options)
