"""A function as kernels: which kernels run in which order, and what the arrays they share are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ..support.diagnostics import Span
from ..types.sizes import Dim, same_size
from ..types.tensor_types import UI8
from .expressions import Read, Tensor
from .integer_interval import Interval
from .loops import (
    NO_STEPS,
    Alloc,
    If,
    Kernel,
    Steps,
    Store,
    expressions,
    reshaped_parameters,
    statements,
)
from .traverse import walk


@dataclass(frozen=True, eq=False)
class Plan:
    """The kernels of a function in the order in which they run.

    Every array of the kernels is an argument, a constant, a result, a place in the workspace, or a
    view of one of these: `views` maps a view to the array it is a view of. `ranges` bounds the
    elements of integer arrays; those of others may be anything. `requirements` are the failures
    that kernels may report, with message and location, in program order. `offsets` and `workspace`,
    in bytes, are those that `place_buffers` gave.
    """

    name: str
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    constants: Mapping[Tensor, np.ndarray]
    kernels: tuple[Kernel, ...]
    views: Mapping[Tensor, Tensor] = field(default_factory=dict)
    ranges: Mapping[Tensor, Interval] = field(default_factory=dict)
    requirements: tuple[tuple[str, Span], ...] = ()
    offsets: Mapping[Tensor, Dim] = field(default_factory=dict)
    workspace: Dim = 0

    @cached_property
    def home(self) -> Mapping[Tensor, Tensor]:
        """The array whose storage each view, parameter and scratch buffer of the kernels has;
        itself if its own.
        """
        home = {
            t: viewed(t, self.views)
            for t in {*self.views, *(p for k in self.kernels for p in k.parameters)}
        }
        own = set(self.results)
        for result in (
            self.results
        ):  # of a result that is a view of an intermediate array, that array has the storage
            if (root := home.get(result, result)) is not result and root not in own:
                home.update({t: result for t, r in home.items() if r is root})
        home.update({t: t for k in self.kernels for t in scratch_buffers(k)})
        return home

    @property
    def plans(self) -> Iterator[Plan]:
        """The plan and those of its loops."""
        yield self
        for k in self.kernels:
            if isinstance(k, Loop):
                yield from k.plan.plans

    @property
    def all_kernels(self) -> list[Kernel]:
        """The kernels that are no loops over plans, those of such plans among them, in order."""
        return [
            n for k in self.kernels for n in (k.plan.all_kernels if isinstance(k, Loop) else [k])
        ]

    @property
    def data(self) -> dict[Tensor, np.ndarray]:
        """The constants, those of loops among them."""
        return {t: array for plan in self.plans for t, array in plan.constants.items()}


@dataclass(frozen=True, eq=False)
class Loop(Kernel):
    """A loop over a plan: over the kernels of another plan, which stands among kernels and is
    scheduled by itself.

    `operands` are the places in `parameters` of the condition, if the steps have one, and of what
    the plan's arguments are or are slices of; the condition's carried values lie in the results
    throughout. The carried values of a loop of known `trips` move between the results and `spares`,
    the first `scratch` buffers; the last is the plan's workspace. One that the steps update in
    place lies in its result throughout, which is its operand.
    """

    plan: Plan = None  # type: ignore[assignment]  # a field after those with defaults
    steps: Steps = NO_STEPS
    operands: tuple[int, ...] = ()
    scratch: tuple[Tensor, ...] = ()

    @property
    def given(self) -> tuple[Tensor, ...]:
        """The operands, among them the carried values of a loop with a condition."""
        found = [self.parameters[n] for n in self.operands]
        return (*found[:1], *self.outputs, *found[1:]) if self.steps.trips is None else tuple(found)

    @property
    def in_place(self) -> list[int]:
        """The numbers of the carried values that are updated in place."""
        moving = self.steps.moving.items()
        return [k for n, k in moving if self.plan.results[n] is self.plan.arguments[k]]

    def with_plan(self, plan: Plan) -> Loop:
        """The loop over a plan, or over another form of the same plan."""
        stored = plan.results if self.steps.trips is None else plan.results[: self.steps.carry]
        spares = [Tensor(f"{r.name}.next", r.shape, r.element, "heap") for r in stored]
        *spares, workspace = self.scratch or (*spares, Tensor("workspace", (0,), UI8, "heap"))
        if not same_size(workspace.shape[0], plan.workspace):
            workspace = replace(workspace, shape=(plan.workspace,))
        return replace(self, plan=plan, scratch=(*spares, workspace))


def scratch_buffers(kernel: Kernel) -> list[Tensor]:
    """The buffers of a kernel that are too large for registers and the stack."""
    if isinstance(kernel, Loop):
        return [*kernel.scratch]
    return [
        s.tensor
        for s in statements(kernel.body)
        if isinstance(s, Alloc) and s.tensor.space == "heap"
    ]


def hoist_constants(plan: Plan) -> Plan:
    """The plan with the constants of its loops' plans as operands of the loops, which are the same
    at every step.
    """
    kernels: list[Kernel] = []
    constants = dict(plan.constants)
    for k in plan.kernels:
        if isinstance(k, Loop) and (inner := hoist_constants(k.plan)).constants:
            held = [replace(t, name=f"{inner.name}.{t.name}") for t in inner.constants]
            constants |= dict(zip(held, inner.constants.values(), strict=True))
            operands = (*k.operands, *range(n := len(k.inputs), n + len(held)))
            inner = replace(inner, arguments=(*inner.arguments, *inner.constants), constants={})
            k = replace(k, parameters=(*k.inputs, *held, *k.outputs), operands=operands, plan=inner)
        kernels.append(k)
    return (
        replace(plan, kernels=tuple(kernels), constants=constants)
        if len(constants) > len(plan.constants)
        else plan
    )


def reads_and_writes(
    kernels: Sequence[Kernel], home: Mapping[Tensor, Tensor], own: bool = False
) -> tuple[dict[Tensor, None], dict[Tensor, None]]:
    """The arrays that kernels read, or have as inputs, before any writes them, and those that they
    write. With `own`, a kernel reads what it has written itself.
    """
    read: dict[Tensor, None] = {}
    written: dict[Tensor, None] = {}
    for kernel in kernels:
        outputs = [(t, True) for t in kernel.outputs]
        found = [
            *((t, False) for t in kernel.inputs),  # a result may be a view of one
            *outputs * own,
            *((t, False) for t in (kernel.given if isinstance(kernel, Loop) else ())),
        ]
        for s in statements(
            kernel.body if kernel.condition is None else (If(kernel.condition, kernel.body),)
        ):
            found += [
                (e.tensor, False)
                for top in expressions(s)
                for e in walk(top)
                if isinstance(e, Read)
            ]
            found += [(s.tensor, True)] if isinstance(s, Store) else []
        for t, writes in (*found, *outputs):
            if t in kernel.parameters and (writes or home.get(t, t) not in written):
                (written if writes else read).setdefault(home.get(t, t))
    return read, written


@dataclass(frozen=True, eq=False)
class Kernels:
    """The kernels that a pass puts in the place of one, with the views and the packed constants
    that they read.
    """

    kernels: tuple[Kernel, ...]
    views: Mapping[Tensor, Tensor] = field(default_factory=dict)
    constants: Mapping[Tensor, np.ndarray] = field(default_factory=dict)


class Requirements:
    """The status codes of failed checks, from 1: the earliest check in program order has the
    greatest code, and wins.
    """

    def __init__(self, plans: Iterable[Plan]) -> None:
        self.listed = [r for plan in plans for r in reversed(dict.fromkeys(plan.requirements))]

    def number(self, message: str, span: Span) -> int:
        """The code of a requirement."""
        if (message, span) not in self.listed:  # kernels that were given without a program
            self.listed.append((message, span))
        return self.listed.index((message, span)) + 1


def versions(kernel: Kernel, found: Sequence[Kernel]) -> Kernels | None:
    """Versions of a kernel, whose parameters are views of its own; None if that is but the kernel
    itself.
    """
    views: dict[Tensor, Tensor] = {}
    for version in found:
        views.update(reshaped_parameters(kernel, version))
    return None if [*found] == [kernel] else Kernels(tuple(found), views)


def viewed(tensor: Tensor, views: Mapping[Tensor, Tensor]) -> Tensor:
    """The array that a tensor is a view of, in the end; itself if it is none."""
    while tensor in views:
        tensor = views[tensor]
    return tensor
