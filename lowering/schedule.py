"""The loop passes in their order, by name, and a plan's kernels through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..dialect.index import Tensor
from ..dialect.loops import Kernel
from .borders import borders
from .collapse import collapse
from .contract import contract, reshaped
from .lanes import lanes
from .narrow import narrow
from .parallelise import parallelise
from .plan import Plan, make_plan
from .split import split
from .unname import unname
from .unroll import unroll
from .vectorise import vectorise

PASSES: dict[str, Callable[[Kernel], Kernel]] = {
    "unname": unname,
    "split": split,
    "collapse": collapse,
    "borders": borders,
    "narrow": narrow,
    "parallelise": parallelise,
    "vectorise": vectorise,
    "lanes": lanes,
    "unroll": unroll,
}


def schedule(plan: Plan, passes: Callable[[Kernel], Sequence[str]] = lambda kernel: tuple(PASSES)) -> Plan:
    """The plan with its kernels scheduled. A pass may give parameters other shapes, not other storage."""
    views = {t: home for t, home in plan.home.items() if t is not home}
    kernels: list[Kernel] = []
    for kernel in plan.kernels:
        for part, names in _parts(kernel, passes(kernel), views):
            made = part
            for name in names:
                made = PASSES[name](made)
            views.update(reshaped(part, made))
            kernels.append(made)
    planned = make_plan(plan.name, plan.arguments, plan.results, plan.constants, tuple(kernels), views)
    return replace(
        plan, kernels=planned.kernels, home=planned.home, offsets=planned.offsets, workspace=planned.workspace
    )


def _parts(kernel: Kernel, names: Sequence[str], views: dict[Tensor, Tensor]) -> list[tuple[Kernel, Sequence[str]]]:
    """The kernels that take a kernel's place, each with the passes it goes through."""
    if "collapse" not in names:
        return [(kernel, names)]
    plain = collapse(unname(kernel))
    found = contract(plain)
    if found is None:
        return [(kernel, names)]
    views.update(reshaped(kernel, plain))
    views.update(found.views)
    *packing, multiply = found.kernels
    return [*((k, names) for k in packing), (multiply, ("lanes",))]
