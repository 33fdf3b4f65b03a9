"""A function as formulas: in index notation, what every element of each tensor is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..support.diagnostics import NOWHERE, Span
from .expressions import Expr, Index, Tensor
from .integer_interval import Interval
from .loops import NO_STEPS, Block, Steps

if TYPE_CHECKING:
    from .execution_plan import Plan


@dataclass(frozen=True, eq=False)
class Formula:
    """A tensor's elements in index notation: tensor[indices] = value."""

    tensor: Tensor
    indices: tuple[Index, ...]
    value: Expr
    span: Span = NOWHERE
    spans: tuple[
        Span, ...
    ] = ()  # of all operations that are computed here, once formulas are fused


@dataclass(frozen=True, eq=False)
class Nest:
    """Hand-written statements that compute several tensors from their operands."""

    tensors: tuple[Tensor, ...]
    operands: tuple[Tensor, ...]
    body: Block
    span: Span = NOWHERE


@dataclass(frozen=True, eq=False)
class LoopNest(Nest):
    """A loop over another program, whose arguments are the operands or slices of them; its plan,
    once that is built.
    """

    program: "Formulas | Plan" = None  # type: ignore[assignment]  # a field after those with defaults
    steps: Steps = NO_STEPS


@dataclass(frozen=True, eq=False)
class View:
    """A tensor with the elements of `of`, in the same order, under another shape."""

    tensor: Tensor
    of: Tensor
    formula: Formula


Step: TypeAlias = Formula | Nest | View


@dataclass(frozen=True, eq=False)
class Formulas:
    """A function as formulas, in the order of its operations."""

    name: str
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    constants: dict[Tensor, np.ndarray]
    steps: tuple[Step, ...]
    requirements: tuple[
        tuple[str, Span], ...
    ]  # messages and places of the checks in the steps, before any pass
    ranges: Mapping[Tensor, Interval] = field(
        default_factory=dict
    )  # of integer arrays, once they are inferred
    slices: Steps | None = None  # the steps of the loop whose body this is
