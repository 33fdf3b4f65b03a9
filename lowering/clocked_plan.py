"""The tick of a clocked program as a plan over the storage of its state."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..dialect.kernel_ir.execution_plan import Plan
from ..dialect.kernel_ir.expressions import Tensor
from ..dialect.kernel_ir.loops import Kernel


@dataclass(frozen=True)
class StateSlot:
    """The place of a state: an array of the tick's arguments, and the element, if the array is
    shared.
    """

    array: int
    element: int | None = None


@dataclass(frozen=True)
class Group:
    """Isomorphic scalars: number n is in lane n // rows of row n % rows; the rows begin at an
    element of the array.
    """

    first: int
    size: int
    rows: int
    lanes: int

    def place(self, n: int) -> int:
        return self.first + n % self.rows * self.lanes + n // self.rows

    def row(self, j: int) -> list[int | None]:
        """The scalars of a row, lane by lane."""
        return [
            n if n < self.size else None
            for n in [lane * self.rows + j for lane in range(self.lanes)]
        ]


@dataclass(frozen=True)
class StepPlan:
    """The plan of a tick: its arguments are arrays of state, its results the second buffers of
    double-buffered ones.

    `places` has an entry per state; `turns` maps each result to the argument that it alternates
    with. `groups` are the isomorphic scalars of each shared array. `several`, if any, advances
    `ticks` ticks at once over the same arrays.
    """

    plan: Plan
    places: tuple[StateSlot, ...]
    turns: tuple[int, ...]
    groups: Mapping[Tensor, tuple[Group, ...]] = field(default_factory=dict)
    several: Plan | None = None
    ticks: int = 1

    @property
    def plans(self) -> list[Plan]:
        """The plan of a tick, and that of several if there is one."""
        return [self.plan] if self.several is None else [self.plan, self.several]

    @property
    def only_kernel(self) -> Kernel | None:
        """The kernel of a tick that has one kernel, no groups, and no kernel for several ticks
        yet.
        """
        return (
            self.plan.kernels[0]
            if len(self.plan.kernels) == 1 and not self.groups and not self.several
            else None
        )

    def with_several(self, kernel: Kernel, ticks: int) -> "StepPlan":
        """The tick with a kernel that advances several ticks at once."""
        return replace(self, several=replace(self.plan, kernels=(kernel,)), ticks=ticks)
