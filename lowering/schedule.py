"""The loop passes in their order, by name, and a plan's kernels through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..dialect.index import Tensor
from ..dialect.loops import Kernel
from .borders import borders
from .collapse import collapse
from .lanes import lanes
from .narrow import narrow
from .plan import Plan, make_plan
from .split import split
from .unname import unname
from .vectorise import vectorise

PASSES: dict[str, Callable[[Kernel], Kernel]] = {
    "unname": unname,
    "split": split,
    "collapse": collapse,
    "borders": borders,
    "narrow": narrow,
    "vectorise": vectorise,
    "lanes": lanes,
}


def schedule(plan: Plan, passes: Callable[[Kernel], Sequence[str]] = lambda kernel: tuple(PASSES)) -> Plan:
    """The plan with its kernels scheduled. A pass may give parameters other shapes, not other storage."""
    views = {t: home for t, home in plan.home.items() if t is not home}
    kernels: list[Kernel] = []
    for kernel in plan.kernels:
        made = kernel
        for name in passes(kernel):
            made = PASSES[name](made)
        views.update(_reshaped(kernel, made))
        kernels.append(made)
    planned = make_plan(plan.name, plan.arguments, plan.results, plan.constants, tuple(kernels), views)
    return replace(
        plan, kernels=planned.kernels, home=planned.home, offsets=planned.offsets, workspace=planned.workspace
    )


def _reshaped(old: Kernel, new: Kernel) -> dict[Tensor, Tensor]:
    return {n: o for o, n in zip(old.parameters, new.parameters, strict=True) if n is not o}
