"""The loop passes in their order, by name, and a plan's kernels through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..dialect.index import Expr, Tensor
from ..dialect.loops import Kernel
from .borders import borders
from .collapse import collapse
from .contraction.contract import contract, reshaped
from .contraction.structure import only_where
from .folds.blocks import blocks, goes_in_order
from .folds.bools import bools
from .folds.keep import keep
from .folds.lanes import lanes
from .folds.partial import partial
from .folds.parts import in_parts
from .folds.shares import in_shares
from .folds.sweep import sweep
from .folds.unroll import unroll
from .meet import meet, repeats
from .movement.interleave import interleave
from .movement.stream import stream
from .movement.tile import tile
from .narrow import narrow
from .parallelise import parallelise
from .plan import Plan, make_plan
from .ranges.intervals import Interval
from .saturate import saturate
from .split import split
from .unname import unname
from .vectorise import vectorise

PASSES: dict[str, Callable[[Kernel], Kernel]] = {
    "keep": keep,
    "unname": unname,
    "split": split,
    "collapse": collapse,
    "borders": borders,
    "narrow": narrow,
    "bools": bools,
    "sweep": sweep,
    "interleave": interleave,
    "tile": tile,
    "parallelise": parallelise,
    "repeats": repeats,
    "vectorise": vectorise,
    "partial": partial,
    "blocks": blocks,
    "lanes": lanes,
    "saturate": saturate,
    "unroll": unroll,
    "stream": stream,
}
LAST = ("saturate", "unroll")  # what the kernels of a contraction, which come with their schedule, still go through


def schedule(plan: Plan, passes: Callable[[Kernel], Sequence[str]] = lambda kernel: tuple(PASSES)) -> Plan:
    """The plan with its kernels scheduled. A pass may give parameters other shapes, not other storage."""
    views = {t: home for t, home in plan.home.items() if t is not home}
    constants, ranges = dict(plan.constants), dict(plan.ranges)
    kernels: list[Kernel] = []
    for kernel in plan.kernels:
        for part, names, condition in _parts(kernel, passes(kernel), views, constants, ranges):
            made = part
            for name in names:
                made = PASSES[name](made)
            views.update(reshaped(part, made))
            kernels.append(made if condition is None else only_where(condition, made))
    made = make_plan(plan.name, plan.arguments, plan.results, constants, tuple(kernels), views, ranges)
    used = {made.home[p] for k in kernels for p in k.parameters}  # others are packed now
    return replace(made, constants={t: a for t, a in constants.items() if t in used})


def _parts(
    kernel: Kernel,
    names: Sequence[str],
    views: dict[Tensor, Tensor],
    constants: dict[Tensor, np.ndarray],
    ranges: dict[Tensor, Interval],
) -> list[tuple[Kernel, Sequence[str], Expr | None]]:
    """The kernels that take a kernel's place, each with the passes it goes through, and where it computes anything."""
    if "collapse" not in names:
        return [(kernel, names, None)]
    if (met := meet(kernel)) is not None:
        shapes = reshaped(kernel, met.kernel)
        views.update(shapes)
        ranges.update({new: ranges[old] for new, old in shapes.items() if old in ranges})
        equal = _parts(replace(met.kernel, name=f"{kernel.name}.equal"), names, views, constants, ranges)
        found = [(k, n, met.condition if c is None else met.condition & c) for k, n, c in equal]
        return [*found, (kernel, names, ~met.condition)]
    plain = collapse(unname(kernel))
    shapes = reshaped(kernel, plain)
    known = {**constants, **{new: constants[old] for new, old in shapes.items() if old in constants}}
    ranges.update({new: ranges[old] for new, old in shapes.items() if old in ranges})
    last = tuple(n for n in names if n in LAST)
    if in_order := goes_in_order(plain):
        names = tuple(n for n in names if n != "blocks")
    found = contract(plain, known, ranges)
    if found is None:
        if "sweep" not in names:
            return [(kernel, names, None)]
        shares, parts = in_shares(plain), None if in_order else in_parts(plain)
        if shares is None and parts is None:
            return [(kernel, names, None)]
        views.update(shapes)
        if shares is not None:
            return [(k, names, None) for k in shares]
        assert parts is not None
        two = [(parts.parts, names, None), (parts.joined, last, parts.long)]
        if parts.long is None:
            return two
        short = replace(kernel, name=f"{kernel.name}.short")
        return [*two, (short, tuple(n for n in names if n != "blocks"), ~parts.long)]
    views.update(shapes)
    views.update(found.views)
    constants.update(found.constants)
    return [(k, last if k in found.ready else names, found.where.get(k)) for k in found.kernels]
