"""Pack the state of a clocked program into the arrays that a tick updates.

    advance(a, b, s, t) -> (next a, next b, next s, next t)
    =>  tick(a, b, scalars) -> (next a)    b in place; 0-dimensional s and t in place, in one array

State is updated in place if a tick reads it only at the point it writes (`in_place`); other state
has two buffers.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...dialect.kernel_ir.execution_plan import Plan
from ...dialect.kernel_ir.expressions import Const, Expr, Tensor, as_index
from ...dialect.kernel_ir.loops import Kernel, redirect
from ...dialect.types.tensor_types import ElementType
from ..analysis.accesses import with_tensors
from ..clocked_plan import Group, StateSlot, StepPlan
from ..pass_context import Context
from ..passes import plan_pass
from .slp_vectorize import arrange


@plan_pass
def pack_state(plan: Plan, context: Context) -> StepPlan:
    """The plan of a function that gives the next value of each state that `context.overwritten`
    maps it to.
    """
    nexts = {argument: plan.results[n] for n, argument in context.overwritten.items()}
    packing = _Packing(plan.arguments, plan.kernels, nexts, {*plan.views, *plan.views.values()})
    arrays, seconds = tuple(packing.arrays), tuple(packing.seconds)
    packed = replace(
        plan, arguments=arrays, results=seconds, kernels=tuple(map(packing.kernel, plan.kernels))
    )
    return StepPlan(packed, tuple(packing.places), tuple(packing.turns), packing.groups)


class _Packing:
    """Arrays for all states: one per state with axes or views, one for the scalars of a type that
    change alike.
    """

    def __init__(
        self,
        arguments: tuple[Tensor, ...],
        kernels: Sequence[Kernel],
        nexts: dict[int, Tensor],
        views: set[Tensor],
    ) -> None:
        self.kernels = kernels
        self.arrays: list[Tensor] = []
        self.seconds: list[Tensor] = []
        self.turns: list[int] = []
        self.places: list[StateSlot] = []
        self.moved: dict[
            Tensor, tuple[Tensor, tuple[Expr, ...]]
        ] = {}  # array and element of each packed scalar
        self.groups: dict[Tensor, tuple[Group, ...]] = {}
        pairs = [(argument, nexts.get(n, argument)) for n, argument in enumerate(arguments)]
        kinds = [  # of the array that holds a state beside others
            None if a.rank or a in views or following in views else (a.element, following is not a)
            for a, following in pairs
        ]
        shared: dict[tuple[ElementType, bool], int] = {}
        for (argument, following), kind in zip(pairs, kinds, strict=True):
            if kind is None:
                self.places.append(StateSlot(self.add(argument, following)))
                continue
            if kind not in shared:
                shared[kind] = self.add_shared(
                    *kind, [pair for pair, k in zip(pairs, kinds, strict=True) if k == kind]
                )
            (element,) = self.moved[argument][1]
            assert isinstance(element, Const)
            self.places.append(StateSlot(shared[kind], element.value))

    def add(self, array: Tensor, second: Tensor) -> int:
        self.arrays.append(array)
        if second is not array:
            self.turns.append(len(self.arrays) - 1)
            self.seconds.append(second)
        return len(self.arrays) - 1

    def add_shared(
        self, element: ElementType, turning: bool, members: list[tuple[Tensor, Tensor]]
    ) -> int:
        arranged = arrange(() if turning else self.kernels, [argument for argument, _ in members])
        name = f"scalars.{element}.turning" if turning else f"scalars.{element}"
        array = Tensor(name, (arranged.size,), element)
        second = replace(array, name=f"{array.name}.next") if turning else array
        for argument, following in members:
            at = (as_index(arranged.places[argument]),)
            self.moved[following] = second, at
            self.moved[argument] = array, at
        if arranged.groups:
            self.groups[array] = arranged.groups
        return self.add(array, second)

    def kernel(self, kernel: Kernel) -> Kernel:
        if not self.moved.keys() & set(kernel.parameters):
            return kernel
        body = redirect(kernel.body, lambda tensor, at: self.moved.get(tensor))
        return with_tensors(
            kernel, body, lambda tensor: self.moved[tensor][0] if tensor in self.moved else tensor
        )
