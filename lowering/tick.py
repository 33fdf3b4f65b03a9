"""A graph's tick as a plan over the storage of its state.

    advance(a, b, s, t) -> (next a, next b, next s, next t)
    =>  tick(a, b, scalars) -> (next a): b and the scalars in place, 0-dimensional ones side by side in one array

State is in place where a tick reads it only at the point it writes; what else moves has two buffers, which take turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..dialect.index import Expr, Read, Tensor, as_index, rewrite
from ..dialect.loops import Block, Kernel, Statement, Store, map_expressions, rewrite_block
from ..dialect.program import Module
from ..dialect.types import ElementType
from .clock import Clockwork, State
from .combine import combine
from .complexes import split_complex
from .inplace import in_place
from .pipeline import to_formulas, to_kernels
from .plan import Plan, make_plan
from .schedule import PASSES, schedule
from .skew import skew

SCALARS = 10_000  # 0-dimensional states that one kernel may hold


@dataclass(frozen=True)
class Place:
    """Where a state is: which array of the tick's arguments, and which element of it, if the array is shared."""

    array: int
    element: int | None = None


@dataclass(frozen=True)
class Tick:
    """The plan, whose arguments are arrays of state and whose results are the second buffers of some of them.

    `places` has an entry for each state; `turns` gives the argument that each result takes turns with.
    `several`, where there is one, does so many `ticks` at once over the same arrays.
    """

    plan: Plan
    places: tuple[Place, ...]
    turns: tuple[int, ...]
    several: Plan | None = None
    ticks: int = 1


def make_tick(module: Module, clockwork: Clockwork, scheduled: bool = True) -> Tick:
    """The tick of a graph for a CPU; not `scheduled`, before any loop pass."""
    program = to_formulas(module, clockwork.advance)
    kernels, views, results = to_kernels(program)
    kernels = combine(kernels, results, views, SCALARS)
    moving = [n for n, s in enumerate(clockwork.states) if s.driver is not None]
    arguments = program.arguments
    kernels, results = in_place(kernels, results, arguments, dict(enumerate(moving)))
    packing = _Packing(arguments, clockwork.states, dict(zip(moving, results, strict=True)))
    plan = make_plan(
        clockwork.advance.name,
        tuple(packing.arrays),
        tuple(packing.seconds),
        program.constants,
        tuple(map(packing.kernel, kernels)),
        views,
    )
    plan = split_complex(plan)
    tick = Tick(schedule(plan, _passes) if scheduled else plan, tuple(packing.places), tuple(packing.turns))
    return _several(tick) if scheduled else tick


def _passes(kernel: Kernel) -> tuple[str, ...]:
    """All but that which writes past the caches: the next tick reads what this one writes."""
    return tuple(name for name in PASSES if name != "stream")


def _several(tick: Tick) -> Tick:
    """The tick, with a plan for several where one pass over the state can do them."""
    plan = tick.plan
    if len(plan.kernels) != 1:
        return tick
    states = {plan.arguments[n]: result for n, result in zip(tick.turns, plan.results, strict=True)}
    found = skew(plan.kernels[0], states)
    if found is None:
        return tick
    views = {t: home for t, home in plan.home.items() if t is not home}
    several = make_plan(plan.name, plan.arguments, plan.results, plan.constants, (found.kernel,), views)
    return replace(tick, several=several, ticks=found.ticks)


class _Packing:
    """Arrays for all states: one for each, and one for all 0-dimensional ones of an element type that move alike."""

    def __init__(self, arguments: tuple[Tensor, ...], states: tuple[State, ...], nexts: dict[int, Tensor]) -> None:
        self.arrays: list[Tensor] = []
        self.seconds: list[Tensor] = []
        self.turns: list[int] = []
        self.places: list[Place] = []
        self.moved: dict[Tensor, tuple[Tensor, int]] = {}  # of a packed scalar: the array and the element
        shared: dict[tuple[ElementType, bool], list[int]] = {}
        for n, argument in enumerate(arguments):
            turning = nexts.get(n, argument) is not argument
            if argument.rank == 0:
                shared.setdefault((argument.element, turning), []).append(n)
        rows = {n: (key, k) for key, members in shared.items() for k, n in enumerate(members)}
        made: dict[tuple[ElementType, bool], int] = {}
        for n, argument in enumerate(arguments):
            if n not in rows:
                self.places.append(Place(self.add(argument, nexts.get(n, argument))))
                continue
            key, k = rows[n]
            if key not in made:
                made[key] = self.add_shared(key, [(arguments[m], nexts.get(m)) for m in shared[key]])
            self.places.append(Place(made[key], k))

    def add(self, array: Tensor, second: Tensor) -> int:
        self.arrays.append(array)
        if second is not array:
            self.turns.append(len(self.arrays) - 1)
            self.seconds.append(second)
        return len(self.arrays) - 1

    def add_shared(self, key: tuple[ElementType, bool], members: list[tuple[Tensor, Tensor | None]]) -> int:
        element, turning = key
        array = Tensor(f"scalars.{element}.turning" if turning else f"scalars.{element}", (len(members),), element)
        second = replace(array, name=f"{array.name}.next") if turning else array
        for k, (argument, following) in enumerate(members):
            self.moved[argument] = array, k
            if turning and following is not None:
                self.moved[following] = second, k
        return self.add(array, second)

    def kernel(self, kernel: Kernel) -> Kernel:
        if not self.moved.keys() & set(kernel.parameters):
            return kernel
        first = len(kernel.parameters) - kernel.results
        written = dict.fromkeys(self.held(t) for t in kernel.parameters[first:])
        read = dict.fromkeys(t for p in kernel.parameters[:first] if (t := self.held(p)) not in written)
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
