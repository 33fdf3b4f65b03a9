"""Plan a tick over the storage of its state.

    advance(a, b, s, t) -> (next a, next b, next s, next t)
    =>  tick(a, b, scalars) -> (next a): b and the scalars in place, 0-dimensional ones side by side in one array

State is updated in place if a tick reads it only at the point it writes; other state is double-buffered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...dialect.ir.types import ElementType
from ...dialect.notation.index import Expr, Read, Tensor, as_index
from ...dialect.notation.loops import Block, Kernel, Statement, Store, map_expressions, rewrite_block
from ...dialect.notation.traverse import rewrite
from ...dialect.program.module import Module
from ..loops.fuse_kernels import fuse_kernels
from ..loops.split_complex import split_complex
from ..pipeline import to_formulas, to_kernels
from ..schedule import PASSES, schedule
from ..storage.inplace import in_place
from ..storage.plan import Plan, make_plan
from .fast_forward import TICKS_AT_ONCE, fast_forward
from .slp_vectorize import Group, arrange, roll
from .split_state import StepAndObserve
from .time_skew import time_skew

SCALARS = 10_000  # 0-dimensional states in one kernel, at most


@dataclass(frozen=True)
class StateSlot:
    """The place of a state: an array of the tick's arguments, and the element, if the array is shared."""

    array: int
    element: int | None = None


@dataclass(frozen=True)
class StepPlan:
    """The plan of a tick: its arguments are arrays of state, its results the second buffers of double-buffered ones.

    `places` has an entry per state; `turns` maps each result to the argument that it alternates with. `several`, if not
    None, advances `ticks` ticks at once over the same arrays.
    """

    plan: Plan
    places: tuple[StateSlot, ...]
    turns: tuple[int, ...]
    several: Plan | None = None
    ticks: int = 1


def make_step_plan(module: Module, clockwork: StepAndObserve, scheduled: bool = True) -> StepPlan:
    """The tick of a clocked program for a CPU; before any loop pass unless `scheduled`."""
    program = to_formulas(module, clockwork.advance)
    kernels, views, results = to_kernels(program)
    kernels = fuse_kernels(kernels, results, views, SCALARS)
    moving = [n for n, s in enumerate(clockwork.states) if s.driver is not None]
    arguments = program.arguments
    kernels, results = in_place(kernels, results, arguments, dict(enumerate(moving)), views)
    packing = _Packing(arguments, kernels, dict(zip(moving, results, strict=True)), {*views, *views.values()})
    plan = make_plan(
        clockwork.advance.name,
        tuple(packing.arrays),
        tuple(packing.seconds),
        program.constants,
        tuple(map(packing.kernel, kernels)),
        views,
    )
    tick = StepPlan(split_complex(plan), tuple(packing.places), tuple(packing.turns))
    if not scheduled:
        return tick
    tick = replace(tick, plan=schedule(tick.plan, _passes))
    return _by_rows(tick, packing.groups) if packing.groups else _several(tick)


def _passes(kernel: Kernel) -> tuple[str, ...]:
    """All passes but `nontemporal_stores`: the next tick reads the results of this one."""
    return tuple(name for name in PASSES if name != "stream")


def _by_rows(tick: StepPlan, groups: Mapping[Tensor, tuple[Group, ...]]) -> StepPlan:
    """The tick with its scalars SLP-vectorized, two ticks at a time if it does nothing else."""
    plan, constants = tick.plan, dict(tick.plan.constants)
    once: list[Kernel] = []
    twice: list[Kernel | None] = []
    for kernel in plan.kernels:
        found = next((r for t in groups if t in kernel.parameters if (r := roll(kernel, t, groups[t]))), None)
        constants.update(found.constants if found else {})
        once.append(found.kernel if found else kernel)
        twice.append(found.twice if found else None)
    one, two = (
        make_plan(plan.name, plan.arguments, plan.results, constants, tuple(k for k in kernels if k), _views(plan))
        for kernels in (once, twice)
    )
    if twice == [None] * len(twice) or len(twice) > 1 or tick.turns:
        return replace(tick, plan=one)
    return replace(tick, plan=one, several=two, ticks=2)


def _views(plan: Plan) -> dict[Tensor, Tensor]:
    return {t: home for t, home in plan.home.items() if t is not home}


def _several(tick: StepPlan) -> StepPlan:
    """The tick with a plan for several ticks, if one pass over the state can do them."""
    plan = tick.plan
    if len(plan.kernels) != 1:
        return tick
    (kernel,) = plan.kernels
    states = {plan.arguments[n]: result for n, result in zip(tick.turns, plan.results, strict=True)}
    if skewed := time_skew(kernel, states):
        kernel, ticks = skewed.kernel, skewed.ticks
    elif leaping := fast_forward(kernel):
        kernel, ticks = leaping, TICKS_AT_ONCE
    else:
        return tick
    several = make_plan(plan.name, plan.arguments, plan.results, plan.constants, (kernel,), _views(plan))
    return replace(tick, several=several, ticks=ticks)


class _Packing:
    """Arrays for all states: one per state, and one for all 0-dimensional states of an element type that change in the
    same way.

    A state with views has an array of its own, since a view is of a whole array.
    """

    def __init__(
        self, arguments: tuple[Tensor, ...], kernels: list[Kernel], nexts: dict[int, Tensor], views: set[Tensor]
    ) -> None:
        self.kernels = kernels
        self.arrays: list[Tensor] = []
        self.seconds: list[Tensor] = []
        self.turns: list[int] = []
        self.places: list[StateSlot] = []
        self.moved: dict[Tensor, tuple[Tensor, int]] = {}  # array and element of each packed scalar
        shared: dict[tuple[ElementType, bool], list[int]] = {}
        for n, argument in enumerate(arguments):
            following = nexts.get(n, argument)
            turning = following is not argument
            if argument.rank == 0 and argument not in views and following not in views:
                shared.setdefault((argument.element, turning), []).append(n)
        self.groups: dict[Tensor, tuple[Group, ...]] = {}
        rows = {n: key for key, members in shared.items() for n in members}
        made: dict[tuple[ElementType, bool], int] = {}
        for n, argument in enumerate(arguments):
            if n not in rows:
                self.places.append(StateSlot(self.add(argument, nexts.get(n, argument))))
                continue
            key = rows[n]
            if key not in made:
                made[key] = self.add_shared(key, [(arguments[m], nexts.get(m)) for m in shared[key]])
            self.places.append(StateSlot(made[key], self.moved[argument][1]))

    def add(self, array: Tensor, second: Tensor) -> int:
        self.arrays.append(array)
        if second is not array:
            self.turns.append(len(self.arrays) - 1)
            self.seconds.append(second)
        return len(self.arrays) - 1

    def add_shared(self, key: tuple[ElementType, bool], members: list[tuple[Tensor, Tensor | None]]) -> int:
        element, turning = key
        found = arrange(() if turning else self.kernels, [argument for argument, _ in members])
        name = f"scalars.{element}.turning" if turning else f"scalars.{element}"
        array = Tensor(name, (found.size,), element)
        second = replace(array, name=f"{array.name}.next") if turning else array
        for argument, following in members:
            self.moved[argument] = array, found.places[argument]
            if turning and following is not None:
                self.moved[following] = second, found.places[argument]
        if found.groups:
            self.groups[array] = found.groups
        return self.add(array, second)

    def kernel(self, kernel: Kernel) -> Kernel:
        if not self.moved.keys() & set(kernel.parameters):
            return kernel
        written = dict.fromkeys(self.held(t) for t in kernel.outputs)
        read = dict.fromkeys(t for p in kernel.inputs if (t := self.held(p)) not in written)
        body = _moved(map_expressions(kernel.body, self.change), self.moved)
        return replace(kernel, parameters=(*read, *written), body=body, results=len(written))

    def held(self, tensor: Tensor) -> Tensor:
        return self.moved[tensor][0] if tensor in self.moved else tensor

    def change(self, e: Expr) -> Expr:
        def one(x: Expr) -> Expr | None:
            if isinstance(x, Read) and x.tensor in self.moved:
                array, k = self.moved[x.tensor]
                return array[k]
            return None

        return rewrite(e, one)


def _moved(block: Block, moved: dict[Tensor, tuple[Tensor, int]]) -> Block:
    def change(s: Statement) -> Block | None:
        if not isinstance(s, Store) or s.tensor not in moved:
            return None
        array, k = moved[s.tensor]
        return (replace(s, tensor=array, indices=(as_index(k),)),)

    return rewrite_block(block, change)
