"""Apply steps to a kernel, each verified: a step that is refused leaves the kernel as it was."""

from collections.abc import Mapping, Sequence
from dataclasses import replace as plan_replace
from typing import Any

from ...dialect.kernel_ir.execution_plan import Plan
from ...dialect.kernel_ir.expressions import Tensor
from ...dialect.kernel_ir.kernel_printer import statement_text
from ...dialect.kernel_ir.loops import Kernel, Statement, replace
from ...dialect.support.diagnostics import Diagnostic, VerifyError
from ..analysis.accesses import every_access, stores
from ..analysis.verify_kernel import LoweringError, check_kernel
from ..analysis.written import unwritten
from ..passes import Pass
from . import copies, fuse_and_distribute, kinds, reorder, restructure, stage
from .find_loops import loops_by_name
from .steps import STEPS, Refused, Step

CODE = "kernel.schedule"  # of diagnostics
MODULES = restructure, reorder, kinds, fuse_and_distribute, stage, copies  # that declare the steps


def apply_step(kernel: Kernel, step: Step) -> Kernel:
    """The kernel after a step, whose loops no later pass changes; raises Refused."""
    if kernel.aliasing:
        raise Refused(f"{step.name}: the arrays of the kernel may overlap, so nothing may move")
    known = {*check_kernel(kernel)}
    try:
        made = step.apply(kernel)
        unproved = {*check_kernel(made, strict=True)}
    except LoweringError as e:
        places = " and ".join(_line(s) for s in (e.other, e.statement) if s is not None)
        said = e.message.removeprefix(f"kernel @{kernel.name}: ")
        raise Refused(f"{step.name}: {said}" + (places and f", in {places}")) from None
    new = sorted(u for u in unproved - known if u.replace(copies.SUFFIX, "") not in known)
    if new:
        raise Refused(f"{step.name}: {new[0]}, which is not proved to be wrong or right")
    return replace(made, scheduled=True)


def apply_to_plan(plan: Plan, step: Step, name: str | None = None) -> Plan:
    """The plan with a step applied to the kernel of this name, or to the one that has the loops;
    raises Refused.
    """
    names: set[str] = set()
    for option in ("loop", "loops", "at"):
        value = step.options.get(option, ())
        if isinstance(value, str):
            names.add(value)
        elif isinstance(value, tuple):
            names.update(map(str, value))
    kernels = [k for k in plan.kernels if name in (None, k.name)]
    fitting = [k for k in kernels if names <= loops_by_name(k).keys()] or kernels
    if len(fitting) != 1:
        listed = ", ".join(f"@{k.name}" for k in fitting) or "none"
        raise Refused(f"{step}: expected one kernel that has the loops, got {listed}")
    check_one_name(fitting[0], plan.home)
    made = apply_step(fitting[0], step)
    kernels = tuple(made if k is fitting[0] else k for k in plan.kernels)
    result = plan_replace(plan, kernels=kernels)
    if lacking := next((u for u in unwritten(result) if u.sure), None):
        raise Refused(f"{step.name}: {lacking.message}")
    return result


def check_one_name(kernel: Kernel, home: Mapping[Tensor, Tensor]) -> None:
    """Raise Refused if a kernel stores to an array that it accesses by another name, too:
    dependences are those of names.
    """
    names: dict[Tensor, set[Tensor]] = {}
    for t, _ in every_access(kernel.body):
        names.setdefault(home.get(t, t), set()).add(t)
    for store in stores(kernel.body):
        others = names[home.get(store.tensor, store.tensor)] - {store.tensor}
        if others:
            listed = ", ".join(sorted(f"%{t.name}" for t in others))
            raise Refused(f"%{store.tensor.name} and {listed} are one array, so nothing may move")


def step_pass(step: Step) -> Pass[..., Any]:
    """A step as a pass over kernels, for a pipeline."""

    def run(plan: Plan, context: object) -> Plan:
        try:
            return apply_to_plan(plan, step)
        except Refused as e:
            raise VerifyError(Diagnostic(str(e), plan.kernels[0].span, CODE)) from None

    function = STEPS[step.name]
    summary = " ".join((function.__doc__ or "").split()).partition(".")[0]
    return Pass(step.name, "loops", summary, run, Plan, run, True, dict(step.options))


def apply_steps(kernel: Kernel, steps: Sequence[Step]) -> Kernel:
    """The kernel after steps that have been applied to one like it."""
    for n, step in enumerate(steps, 1):
        try:
            kernel = apply_step(kernel, step)
        except Refused as e:
            message = f"step {n} of the schedule, {step}, is refused: {e}"
            raise VerifyError(Diagnostic(message, kernel.span, CODE)) from None
    return kernel


def _line(s: Statement) -> str:
    return f"`{statement_text(s).partition(chr(10))[0]}`"
