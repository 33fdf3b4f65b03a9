"""Passes as values, and what runs lists of them.

A pass transforms a function, formulas, a plan or a kernel. Kernel passes that follow each other run kernel by kernel,
depth first, as nested pass managers of MLIR do: the first kernels are done, and may be compiled, before the last begin.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from itertools import groupby
from typing import Any, Literal

from ..dialect.ir.compilation_context import check_time
from ..dialect.notation.formulas import Formulas, LoopNest, Step
from ..dialect.notation.loops import Kernel, Loop, reshaped_parameters
from ..dialect.notation.plan import Kernels, Plan
from .pass_context import Context
from .stepping.step_plan import StepPlan

Level = Literal["graph", "formulas", "loops", "gpu"]
LEVELS: tuple[Level, ...] = ("graph", "formulas", "loops", "gpu")


@dataclass(frozen=True)
class Pass:
    """A step of a pipeline: its name, the level of the program it is for, what it does, and the function that does it.

    `unit` is what `run` transforms, with a context; None where the pass does not apply. A kernel pass gives a kernel whose
    parameters are views of the old one's, or Kernels. It runs on kernels that come with their schedule if `on_scheduled`.
    `options` are the further arguments of the function, with their values.
    """

    name: str
    level: Level
    summary: str
    run: Callable[[Any, Context], Any]
    unit: type
    on_scheduled: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None

    def with_options(self, **options: object) -> Pass:
        """The pass with other values of some options."""
        assert self.function is not None
        return declare(self.function, self.level, self.unit, self.on_scheduled, **{**self.options, **options})


def declare(
    function: Callable[..., Any], level: Level, unit: type, on_scheduled: bool = False, **options: object
) -> Pass:
    """The pass that a function is, under the name of its file, and of the function.

    The function takes what it transforms and, if it has a parameter of that name, the context; `options` are further
    arguments of it.
    """
    file = function.__module__
    text = " ".join((sys.modules[file].__doc__ or "").split())
    summary = re.split(r": | \(|\.(?: |$)", text, maxsplit=1)[0]
    known = signature(function).parameters
    defaults = {n: p.default for n, p in known.items() if isinstance(p.default, (bool, int))}
    values = {**defaults, **options}

    def run(item: object, context: Context) -> object:
        return function(item, context, **values) if "context" in known else function(item, **values)

    return Pass(file.rpartition(".")[2], level, summary, run, unit, on_scheduled, values, function)


REGISTERED: dict[str, Pass] = {}  # passes of other packages, by name


Watch = Callable[[Pass, Any, Any], None]


def run_passes(
    passes: Sequence[Pass],
    item: Any,
    context: Context,
    ready: Callable[[Kernel], None] = lambda kernel: None,
    watch: Watch = lambda done, before, after: None,
) -> Any:
    """The function, formulas, plan or plans of a tick after the passes.

    `ready` gets each kernel as soon as no kernel pass is left for it; `watch` gets each pass with what it transformed and
    what that became.
    """

    for of_kernels, found in groupby(passes, lambda p: p.unit is Kernel):
        for group in [[*found]] if of_kernels else [[p] for p in found]:
            item = _through(group, item, context, ready, watch)
    return item


def _through(group: Sequence[Pass], item: Any, context: Context, ready: Callable[[Kernel], None], watch: Watch) -> Any:
    """What one pass, or kernel passes that follow each other, make of an item."""
    unit = group[0].unit
    if isinstance(item, Plan) or (isinstance(item, Formulas) and unit is Formulas):
        item = _in_loops(item, lambda inside: _through(group, inside, Context(context.module), ready, watch))
    if isinstance(item, StepPlan) and unit is not StepPlan:
        several = None if item.several is None else _through(group, item.several, context, ready, watch)
        return replace(item, plan=_through(group, item.plan, context, ready, watch), several=several)
    if unit is Kernel:
        assert isinstance(item, Plan)
        return _on_kernels(group, item, context, ready, watch)
    check_time()
    made = group[0].run(item, context)
    watch(group[0], item, item if made is None else made)
    return item if made is None else made


def _in_loops(item: Formulas | Plan, change: Callable[[Any], Any]) -> Formulas | Plan:
    """Formulas or a plan with the bodies of their loops changed."""
    if isinstance(item, Plan):
        loops: dict[Kernel, Kernel] = {k: k.with_plan(change(k.plan)) for k in item.kernels if isinstance(k, Loop)}
        return replace(item, kernels=tuple(loops.get(k, k) for k in item.kernels)) if loops else item
    nests: dict[Step, Step] = {s: replace(s, program=change(s.program)) for s in item.steps if isinstance(s, LoopNest)}
    return replace(item, steps=tuple(nests.get(s, s) for s in item.steps)) if nests else item


def _on_kernels(
    passes: Sequence[Pass], plan: Plan, context: Context, ready: Callable[[Kernel], None], watch: Watch
) -> Plan:
    """The plan with each of its kernels through all of the passes before the next one."""
    context = context.of_plan(plan)
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
            made = one.run(kernel, context)
            watch(one, kernel, kernel if made is None else made)
            if isinstance(made, Kernels):
                context.add(made.views, made.constants)
                waiting += [(new, n + 1) for new in reversed(made.kernels)]
                break
            if made is not None and made is not kernel:
                context.add(reshaped_parameters(kernel, made))
                kernel = made
        else:
            kernels.append(kernel)
            ready(kernel)
    made = replace(plan, kernels=tuple(kernels), views=context.views, ranges=context.ranges)
    used = {made.home[p] for k in kernels for p in k.parameters}  # other constants are packed now
    return replace(made, constants={t: a for t, a in context.constants.items() if t in used})
