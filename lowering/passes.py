"""Passes as values, and the runners of pipelines.

A pass transforms a function, formulas, a plan or a kernel. Kernel passes that follow each other run
kernel by kernel, depth first, as nested pass managers of MLIR do: the first kernels may be compiled
before the last begin.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature, unwrap
from itertools import groupby
from keyword import iskeyword
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from ..dialect.ir.function import Function
from ..dialect.kernel_ir.execution_plan import Kernels, Loop, Plan
from ..dialect.kernel_ir.formulas import Formulas, LoopNest, Step
from ..dialect.kernel_ir.loops import (
    Block,
    Kernel,
    Statement,
    Steps,
    reshaped_parameters,
    rewrite_block,
)
from ..dialect.support.compilation_context import check_time
from .clocked_plan import StepPlan
from .pass_context import Context
from .processor import processor

P = ParamSpec("P")
R = TypeVar("R")
Level = Literal["graph", "formulas", "loops", "gpu"]
OPTIONS = (bool, int, str)  # the types of options that pipelines can give
LEVELS: tuple[Level, ...] = ("graph", "formulas", "loops", "gpu")


@dataclass(frozen=True, eq=False)
class Pass(Generic[P, R]):
    """A step of a pipeline: its name, the level of the program it is for, what it does, and the
    function that it is.

    `unit` is what `run` transforms, with a context; None where the pass does not apply. A kernel
    pass gives a kernel whose parameters are views of the old one's, or Kernels. It runs on kernels
    that come with their schedule if `on_scheduled`. `options` are the further arguments of the
    function, with their values. A pass of another package runs in every compilation `after` the
    pass of that name, if it names one. Errors name its `package`; `guard` has its results verified.
    A graph pass keeps the types of arguments and results unless it `changes_signature`.
    """

    name: str
    level: Level
    summary: str
    run: Callable[[Any, Context], Any]
    unit: type
    function: Callable[P, R]
    on_scheduled: bool
    options: Mapping[str, Any]
    after: str = ""
    package: str = "cvm"
    guard: Callable[["Pass[..., Any]"], "Pass[..., Any]"] = lambda step: step
    changes_signature: bool = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def with_options(self, **options: object) -> "Pass[P, R]":
        """The pass with other values of some options."""
        options = {**self.options, **options}
        new = _declared(self.function, self.level, self.unit, self.on_scheduled, options)
        return self.guard(replace(self, run=new.run, options=new.options))


def declare(
    level: Level, unit: type, on_scheduled: bool = False, **options: object
) -> Callable[[Callable[P, R]], Pass[P, R]]:
    """Decorate a function as a pass of its name; the summary is its file's first sentence;
    `options` are arguments.
    """
    return lambda function: _declared(function, level, unit, on_scheduled, options)


def _declared(
    function: Callable[P, R],
    level: Level,
    unit: type,
    on_scheduled: bool,
    options: Mapping[str, object],
) -> Pass[P, R]:
    text = " ".join((getattr(unwrap(function), "__globals__", {}).get("__doc__") or "").split())
    summary = re.split(r": | \(|\.(?: |$)", text, maxsplit=1)[0]
    known = signature(function).parameters
    defaults = {
        n.rstrip("_"): p.default for n, p in known.items() if isinstance(p.default, OPTIONS)
    }
    values: dict[str, Any] = {**defaults, **options}
    call: Callable[..., Any] = function

    def run(item: object, context: Context) -> object:
        return call(
            item,
            *[context] * ("context" in known),
            **{n + "_" * iskeyword(n): v for n, v in values.items()},
        )

    return Pass(function.__name__, level, summary, run, unit, function, on_scheduled, values)


graph_pass = declare("graph", Function)
formula_pass = declare("formulas", Formulas)
plan_pass = declare("loops", Plan)
kernel_pass = declare("loops", Kernel)


def statement_pass(change: Callable[[Statement], Block | None]) -> Pass[[Kernel], Kernel]:
    """Decorate a rewriting of statements, as `rewrite_block` takes one, as a pass of its name over
    kernels.
    """
    return kernel_pass(
        wraps(change)(lambda kernel: kernel.with_body(rewrite_block(kernel.body, change)))
    )


scheduled_kernel_pass = declare("loops", Kernel, on_scheduled=True)
step_pass = declare("loops", StepPlan)
gpu_pass = declare("gpu", Kernel)
scheduled_gpu_pass = declare("gpu", Kernel, on_scheduled=True)

REGISTERED: dict[str, Pass[..., object]] = {}  # passes of other packages, by name


def placed(passes: Sequence[Pass[..., Any]]) -> Sequence[Pass[..., Any]]:
    """The passes of a target that are not skipped, and those of other packages at their places, if
    for a GPU among its.
    """
    passes = [p for p in passes if p.name not in processor().tuning.skipped_passes]
    of_gpu = any(p.level == "gpu" for p in passes)
    added = [p for p in REGISTERED.values() if p.after and (of_gpu or p.level != "gpu")]
    return [p for one in passes for p in (one, *(a for a in added if a.after == one.name))]


Watch = Callable[[Pass[..., object], object, object], None]


def run_passes(
    passes: Sequence[Pass[..., Any]],
    item: Any,
    context: Context,
    ready: Callable[[Kernel], None] = lambda kernel: None,
    watch: Watch = lambda done, before, after: None,
) -> Any:
    """The function, formulas, plan or plans of a tick after the passes.

    `ready` gets each kernel as soon as no kernel pass is left for it; `watch` gets each pass with
    what it transformed and what that became.
    """
    for of_kernels, found in groupby(passes, lambda p: p.unit is Kernel):
        for group in [[*found]] if of_kernels else [[p] for p in found]:
            item = _through(group, item, context, ready, watch)
    return item


def _through(
    group: Sequence[Pass[..., object]],
    item: object,
    context: Context,
    ready: Callable[[Kernel], None],
    watch: Watch,
) -> Any:
    """Run one pass, or kernel passes that follow each other, on an item and the loops inside of
    it.
    """
    unit = group[0].unit
    if isinstance(item, Plan) or (isinstance(item, Formulas) and unit is Formulas):
        item = _in_loops(
            item,
            lambda inside, steps: _through(
                group, inside, Context(context.module, carried=steps.moving), ready, watch
            ),
        )
    if isinstance(item, StepPlan) and unit is not StepPlan:
        several = (
            None if item.several is None else _through(group, item.several, context, ready, watch)
        )
        return replace(
            item, plan=_through(group, item.plan, context, ready, watch), several=several
        )
    if unit is Kernel:
        assert isinstance(item, Plan)
        return _on_kernels(group, item, context, ready, watch)
    check_time()
    result = group[0].run(item, context) or item
    watch(group[0], item, result)
    return result


def _in_loops(item: Formulas | Plan, change: Callable[[Any, Steps], Any]) -> Formulas | Plan:
    """Formulas or a plan with the bodies of their loops changed."""
    if isinstance(item, Plan):
        loops: dict[Kernel, Kernel] = {
            k: k.with_plan(change(k.plan, k.steps)) for k in item.kernels if isinstance(k, Loop)
        }
        return (
            replace(item, kernels=tuple(loops.get(k, k) for k in item.kernels)) if loops else item
        )
    nests: dict[Step, Step] = {
        s: replace(s, program=change(s.program, s.steps))
        for s in item.steps
        if isinstance(s, LoopNest)
    }
    return replace(item, steps=tuple(nests.get(s, s) for s in item.steps)) if nests else item


def _on_kernels(
    passes: Sequence[Pass[..., object]],
    plan: Plan,
    context: Context,
    ready: Callable[[Kernel], None],
    watch: Watch,
) -> Plan:
    """The plan with each of its kernels through all of the passes before the next one."""
    context = replace(
        context, constants=dict(plan.constants), ranges=dict(plan.ranges), views=dict(plan.views)
    )
    kernels: list[Kernel] = []
    waiting = [(kernel, 0) for kernel in reversed(plan.kernels)]  # and the number of its next pass
    while waiting:
        kernel, first = waiting.pop()
        if isinstance(kernel, Loop):  # its plan has been through them
            kernels.append(kernel)
            continue
        for n, one in enumerate(passes[first:], first):
            check_time()
            if kernel.scheduled and not one.on_scheduled:
                continue
            result = one.run(kernel, context) or kernel
            watch(one, kernel, result)
            if isinstance(result, Kernels):
                context.add(result.views, result.constants)
                waiting += [(new, n + 1) for new in reversed(result.kernels)]
                break
            if result is not kernel:
                context.add(reshaped_parameters(kernel, result))
                kernel = result
        else:
            kernels.append(kernel)
            ready(kernel)
    plan = replace(plan, kernels=tuple(kernels), views=context.views, ranges=context.ranges)
    used = {plan.home[p] for k in kernels for p in k.parameters}  # other constants are packed now
    return replace(plan, constants={t: a for t, a in context.constants.items() if t in used})
