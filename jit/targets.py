"""The registry of targets. A target is one object: how to lower, emit, load and show a function,
and what else it can do.

The registry imports no code of a target: `lazy` functions import theirs when called.
docs/targets.md adds a target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..dialect.support.diagnostics import TargetError
from ..lowering.processor import lowering_for

if TYPE_CHECKING:
    from ..dialect.ir.function import Function
    from ..dialect.ir.module import Module
    from ..dialect.kernel_ir.execution_plan import Plan
    from ..dialect.kernel_ir.formulas import Formulas
    from ..lowering.clocked_plan import StepPlan
    from .functions.clocked_program import CompiledGraph
    from .functions.compiled_function import CompiledFunction
    from .functions.profile import Spent
    from .functions.steppers import Stepper
    from .options import CompileOptions


def lazy(place: str) -> Callable[..., Any]:
    """The function at `module:name`, relative to this package or absolute, imported when it is
    called.
    """
    module, _, name = place.partition(":")
    return lambda *arguments, **named: getattr(import_module(module, __package__), name)(
        *arguments, **named
    )


_LOWER, _LOWER_FOR_GPU = (
    lazy("..lowering.pipeline:lower"),
    lazy("..lowering.pipeline:lower_for_gpu"),
)
_EMIT_LLVM, _EMIT_CUDA = lazy(".llvm.emit:emit_plans"), lazy(".cuda.emit:emit")
_STEPPER = lazy(".functions.steppers:PythonStepper")


def _for_cpu(module: Module, function: Function, options: CompileOptions) -> Plan:
    return _LOWER(module, function, optimize=options.optimize, checks=options.sanitize)


@dataclass(frozen=True)
class Target:
    """A target of compilation."""

    name: str
    load: Callable[[Module, Function, CompileOptions], CompiledFunction]
    load_with_effects: Callable[..., CompiledFunction] | None = None  # the same, of those that act
    load_kernels: Callable[..., CompiledFunction] | None = (
        None  # a plan of a text without a program, as functions are
    )
    lower: Callable[[Module, Function, CompileOptions], Plan] = _for_cpu
    emit: Callable[[Plan, CompileOptions], object] = lambda plan, _: plan
    stages: Mapping[str, Callable[[Any, CompileOptions], str]] = field(default_factory=dict)
    stepper: Callable[[CompiledGraph], Stepper] = _STEPPER
    emit_steps: Callable[[StepPlan], object] | None = None
    missing: Callable[[], str] = str
    profile: Callable[..., list[Spent]] | None = None  # times each kernel of a call
    # recalls functions by the text of their program
    compile_text: Callable[..., CompiledFunction | CompiledGraph] | None = None
    is_direct: bool = False  # calls can be made without Python
    unchecked: str = "sanitize is for the target cpu"  # empty where kernels can check themselves

    def plan(self, module: Module, function: Function, options: CompileOptions) -> Plan:
        """Lower a function, with strategies for any target and for this one."""
        with lowering_for(self.name):
            return self.lower(module, function, options)

    def compile(
        self, module: Module, function: Function, options: CompileOptions, acts: bool = False
    ) -> CompiledFunction:
        """Loads a function, which has effects if it `acts`; TargetError where the target cannot
        run here, or has no effects.
        """
        self._check(options)
        return (self.load if not acts else self._loads_effects())(module, function, options)

    def _loads_effects(self) -> Callable[..., CompiledFunction]:
        if self.load_with_effects is None:
            able = ", ".join(name for name, t in TARGETS.items() if t.load_with_effects)
            raise TargetError(f"effects run on the targets {able}, not on {self.name}")
        return self.load_with_effects

    def compile_kernels(
        self, plan: Plan, options: CompileOptions, *declared: Formulas
    ) -> CompiledFunction:
        """Loads kernels that have no program; `declared` are the formulas that they compute, if
        these were given.
        """
        self._check(options)
        if self.load_kernels is None:
            able = ", ".join(name for name, t in TARGETS.items() if t.load_kernels)
            raise TargetError(f"kernels run on the targets {able}, not on {self.name}")
        return self.load_kernels(plan, options, *declared)

    def _check(self, options: CompileOptions) -> None:
        if lacking := self.missing() or (options.sanitize and self.unchecked):
            raise TargetError(f"target {self.name}: {lacking}")


TARGETS: dict[str, Target] = {}


def register(target: Target) -> Target:
    """Adds a target, for `cvm.compile(..., target=name)` and the command line."""
    if target.name in TARGETS:
        raise TargetError(f"target {target.name!r} is registered already")
    if taken := [stage for stage in target.stages if stage in _stages()]:
        raise TargetError(f"target {target.name!r}: another target has the stage {taken[0]!r}")
    TARGETS[target.name] = target
    return target


def find_target(name: object) -> Target:
    """Find a target by name; raise TargetError if there is none."""
    return (TARGETS.get(name) if isinstance(name, str) else None) or _offered(name)


def _offered(name: object) -> Target:
    """The target of this name of another package."""
    from ..dialect.support.entry_points import load_offered

    if not isinstance(name, str) or not load_offered("cvm.targets", name) or name not in TARGETS:
        raise TargetError(f"unknown target {name!r}; the targets are {', '.join(target_names())}")
    return TARGETS[name]


def target_names() -> tuple[str, ...]:
    """The names of all targets, those that other packages offer last; these are not imported."""
    from ..dialect.support.entry_points import offered

    return tuple(dict.fromkeys((*TARGETS, *(e.name for e in offered("cvm.targets")))))


def all_targets() -> Mapping[str, Target]:
    """The targets by name, with those of all installed packages; a warning for one that cannot be
    imported.
    """
    from ..dialect.support.entry_points import load_offered

    load_offered("cvm.targets")
    return TARGETS


def all_stages() -> tuple[str, ...]:
    """The stages of lowering, then those of the targets."""
    from ..lowering.stages import STAGES

    all_targets()
    return (*STAGES, *_stages())


def target_of_stage(stage: str) -> Target:
    """Find the target that prints a stage; raise TargetError if there is none."""
    if stage not in _stages() and stage not in all_stages():
        raise TargetError(f"unknown stage {stage!r}; the stages are {', '.join(all_stages())}")
    return _stages()[stage]


def _stages() -> dict[str, Target]:
    return {stage: target for target in TARGETS.values() for stage in target.stages}


register(
    Target(
        "cpu",
        load=lazy(".functions.native_function:native_function"),
        load_with_effects=lazy(".functions.effect_function:EffectFunction"),
        load_kernels=lazy(".functions.kernel_function:KernelFunction"),
        emit=lambda plan, options: _EMIT_LLVM(plan, optimize=options.optimize > 0),
        stages={
            "llvm": lambda text, _: str(text.module),
            "llvm-opt": lazy(".llvm.native_code:optimised_text"),
            "asm": lazy(".llvm.native_code:assembly"),
        },
        stepper=lazy(".functions.steppers:native_stepper"),
        emit_steps=lazy(".functions.steppers:emit_steps"),
        profile=lazy(".functions.profile:profile"),
        compile_text=lazy(".source_cache:compile_text"),
        is_direct=True,
        unchecked="",
    )
)
_REFERENCE = lazy(".functions.reference_function:ReferenceFunction")
register(Target("reference", load=_REFERENCE, load_with_effects=_REFERENCE))
_CUDA = register(
    Target(
        "cuda",
        load=lazy(".functions.cuda_function:CudaFunction"),
        load_kernels=lazy(".functions.cuda_function:CudaKernels"),
        lower=lambda module, function, options: _LOWER_FOR_GPU(module, function, options.optimize),
        emit=lambda plan, _: _EMIT_CUDA(plan),
        stages={"cuda": lambda source, _: source.text, "ptx": lazy(".cuda.nvrtc:ptx")},
        stepper=lazy(".functions.cuda_function:DeviceStepper"),
        missing=lazy(".cuda.device:missing"),
    )
)
register(
    Target(
        "cuda-sim",
        load=lazy(".functions.gpu_function:SimulatedFunction"),
        load_kernels=lazy(".functions.kernel_function:SimulatedKernels"),
        lower=_CUDA.lower,
        emit=_CUDA.emit,
        missing=lazy(".cuda.nvrtc:missing"),
    )
)
