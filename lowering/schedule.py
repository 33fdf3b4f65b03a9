"""The loop passes in their order, by name, and a plan's kernels through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..dialect.notation.index import Expr, Tensor
from ..dialect.notation.loops import Kernel
from .analysis.interval_arithmetic import Interval
from .contraction.match import guard_kernel, reshaped_parameters
from .contraction.strategies import lower_contraction
from .layout.interleave import interleave
from .layout.tiled_transpose import tiled_transpose
from .loops.broadcast_versions import broadcast_versions, unswitch_broadcast
from .loops.collapse import collapse
from .loops.forward_substitute import forward_substitute
from .loops.index_set_split import index_set_split
from .loops.loop_partition import loop_partition
from .loops.nontemporal_stores import nontemporal_stores
from .loops.parallelize import parallelize
from .loops.saturating_narrow import saturating_narrow
from .loops.tighten_bounds import tighten_bounds
from .loops.unroll import unroll
from .loops.vectorize import vectorize
from .processor import Processor, compiling_for
from .processor import processor as current_processor
from .reductions.blocked_sums import blocked_sums
from .reductions.bool_reduction import bool_reduction
from .reductions.cache_row import cache_row
from .reductions.column_reduction import column_reduction
from .reductions.lane_reduction import lane_reduction
from .reductions.partition_reduction import partition_reduction
from .reductions.reduction_versions import Order, OrderedVersion, reduction_versions
from .reductions.split_reduction import split_reduction
from .reductions.widen_in_steps import widen_in_steps
from .storage.plan import Plan, make_plan

_IN_ORDER: tuple[Callable[[Kernel], Kernel], ...] = (
    cache_row,
    forward_substitute,
    index_set_split,
    collapse,
    loop_partition,
    tighten_bounds,
    bool_reduction,
    column_reduction,
    interleave,
    tiled_transpose,
    parallelize,
    unswitch_broadcast,
    vectorize,
    widen_in_steps,
    blocked_sums,
    lane_reduction,
    saturating_narrow,
    unroll,
    nontemporal_stores,
)
PASSES = {change.__name__: change for change in _IN_ORDER}
LAST = (
    "saturating_narrow",
    "unroll",
)  # what the kernels of a contraction, which come with their schedule, still go through


def schedule(
    plan: Plan,
    passes: Callable[[Kernel], Sequence[str]] = lambda kernel: tuple(PASSES),
    ready: Callable[[Kernel], None] = lambda kernel: None,
    processor: Processor | None = None,
) -> Plan:
    """The plan with its kernels scheduled; `ready` is told each as soon as it is. A pass may give parameters other shapes, not
    other storage."""
    if processor is not None:
        with compiling_for(processor):
            return schedule(plan, passes, ready)
    processor = current_processor()
    views = {t: home for t, home in plan.home.items() if t is not home}
    constants, ranges = dict(plan.constants), dict(plan.ranges)
    kernels: list[Kernel] = []
    for kernel in plan.kernels:
        for part, names, condition in _parts(kernel, passes(kernel), views, constants, ranges, processor):
            made = part
            for name in names:
                made = PASSES[name](made)
            views.update(reshaped_parameters(part, made))
            kernels.append(made if condition is None else guard_kernel(condition, made))
            ready(kernels[-1])
    sides = plan.name, plan.arguments, plan.results, constants
    made = make_plan(*sides, tuple(kernels), views, ranges, plan.requirements)
    used = {made.home[p] for k in kernels for p in k.parameters}  # others are packed now
    return replace(made, constants={t: a for t, a in constants.items() if t in used})


def _parts(
    kernel: Kernel,
    names: Sequence[str],
    views: dict[Tensor, Tensor],
    constants: dict[Tensor, np.ndarray],
    ranges: dict[Tensor, Interval],
    processor: Processor,
) -> list[tuple[Kernel, Sequence[str], Expr | None]]:
    """The kernels that take a kernel's place, each with the passes it goes through, and where it computes anything."""

    def same(new: Kernel) -> Kernel:
        """What is made of the kernel, whose parameters are its own, seen differently."""
        views.update(_reshaped(kernel, new, ranges))
        return new

    if "collapse" not in names:
        return [(kernel, names, None)]
    if (met := broadcast_versions(kernel)) is not None:
        equal = _parts(
            replace(same(met.kernel), name=f"{kernel.name}.equal"), names, views, constants, ranges, processor
        )
        found = [(k, n, _both(met.condition, c)) for k, n, c in equal]
        others = reduction_versions(kernel) if "blocked_sums" in names else [OrderedVersion(kernel, "either")]
        return [
            *found,
            *((same(o.kernel), _ordered(names, o.order), _both(~met.condition, o.condition)) for o in others),
        ]
    if "blocked_sums" not in names:
        return _of_order(kernel, "either", names, views, constants, ranges, processor)
    return [
        (k, n, _both(o.condition, c))
        for o in reduction_versions(kernel)
        for k, n, c in _of_order(same(o.kernel), o.order, names, views, constants, ranges, processor)
    ]


def _reshaped(old: Kernel, new: Kernel, ranges: dict[Tensor, Interval]) -> dict[Tensor, Tensor]:
    """The parameters that a kernel got in place of others, which have their ranges."""
    shapes = reshaped_parameters(old, new)
    ranges.update({new: ranges[old] for new, old in shapes.items() if old in ranges})
    return shapes


def _both(condition: Expr | None, other: Expr | None) -> Expr | None:
    """Where both hold; None is everywhere."""
    return condition if other is None else other if condition is None else condition & other


def _ordered(names: Sequence[str], order: Order) -> Sequence[str]:
    """The passes that keep an order."""
    return tuple(n for n in names if n != "blocked_sums") if order == "terms" else names


def _of_order(
    kernel: Kernel,
    order: Order,
    names: Sequence[str],
    views: dict[Tensor, Tensor],
    constants: dict[Tensor, np.ndarray],
    ranges: dict[Tensor, Interval],
    processor: Processor,
) -> list[tuple[Kernel, Sequence[str], Expr | None]]:
    """The same for a kernel whose folds go in this order."""
    plain = collapse(forward_substitute(kernel))
    shapes = _reshaped(kernel, plain, ranges)
    known = {**constants, **{new: constants[old] for new, old in shapes.items() if old in constants}}
    last = tuple(n for n in names if n in LAST)
    names = _ordered(names, order)
    found = None if order == "blocks" else lower_contraction(plain, known, ranges, processor)
    if found is None:
        if "column_reduction" not in names:
            return [(kernel, names, None)]
        shares, parts = partition_reduction(plain), None if order == "terms" else split_reduction(plain)
        if shares is None and parts is None:
            return [(kernel, names, None)]
        views.update(shapes)
        if shares is not None:
            return [(k, names, None) for k in shares]
        assert parts is not None
        joining = last if parts.ordered else tuple(n for n in names if n in ("lane_reduction", *LAST))
        two = [(parts.parts, _ordered(names, "terms"), None), (parts.joined, joining, parts.long)]
        if parts.long is None:
            return two
        short = replace(kernel, name=f"{kernel.name}.short")
        return [*two, (short, _ordered(names, "terms"), ~parts.long)]
    views.update(shapes)
    views.update(found.views)
    constants.update(found.constants)
    return [(k, last if k in found.ready else names, found.where.get(k)) for k in found.kernels]
