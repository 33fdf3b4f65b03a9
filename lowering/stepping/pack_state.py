"""Pack the state of a clocked program into the arrays that a tick updates.

    advance(a, b, s, t) -> (next a, next b, next s, next t)
    =>  tick(a, b, scalars) -> (next a): b and the scalars in place, 0-dimensional ones side by side in one array

State is updated in place if a tick reads it only at the point it writes (`in_place`); other state is double-buffered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...dialect.ir.types import ElementType
from ...dialect.notation.expressions import Expr, Read, Tensor, as_index
from ...dialect.notation.loops import Block, Kernel, Statement, Store, map_expressions, rewrite_block
from ...dialect.notation.plan import Plan
from ...dialect.notation.traverse import rewrite
from ..pass_context import Context
from ..passes import plan_pass
from ..step_plan import Group, StateSlot, StepPlan
from .slp_vectorize import arrange


@plan_pass
def pack_state(plan: Plan, context: Context) -> StepPlan:
    """The plan of a function that gives the next value of each state that `context.overwritten` maps it to."""
    nexts = {argument: plan.results[n] for n, argument in context.overwritten.items()}
    packing = _Packing(plan.arguments, plan.kernels, nexts, {*plan.views, *plan.views.values()})
    arrays, seconds = tuple(packing.arrays), tuple(packing.seconds)
    packed = replace(plan, arguments=arrays, results=seconds, kernels=tuple(map(packing.kernel, plan.kernels)))
    return StepPlan(packed, tuple(packing.places), tuple(packing.turns), packing.groups)


class _Packing:
    """Arrays for all states: one per state, and one for all 0-dimensional states of an element type that change in the
    same way.

    A state with views has an array of its own, since a view is of a whole array.
    """

    def __init__(
        self, arguments: tuple[Tensor, ...], kernels: Sequence[Kernel], nexts: dict[int, Tensor], views: set[Tensor]
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
