"""A contraction to be computed, and a way to compute one: what `strategies` chooses among."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, prod
from typing import TypeVar

import numpy as np

from ...dialect.kernel_ir.expressions import Expr, Tensor, both
from ...dialect.kernel_ir.loops import Kernel, reshaped_parameters
from ...dialect.types.sizes import Dim, product
from ...dialect.types.tensor_types import I32, ElementType
from ..analysis.integer_ranges import Ranges
from ..loops.collapse import flatten
from ..processor import processor
from .match_contraction import Contraction, LoweredContraction, match_contraction
from .micro_kernel import GUESS, MIN_ORDERED
from .operand_bitwidths import OperandMagnitudes
from .vnni_packing import at_least, size_of

Constants = Mapping[Tensor, np.ndarray]
T = TypeVar("T")

TOO_FEW = "too few rows, columns, terms or products for packing to pay"
# ratio of lanes computed to lanes needed, from which the lines of a window are joined to one;
# tuned by hand (Zen 4, Zen 5)
FLAT = 1.25


@dataclass(frozen=True, eq=False)
class Problem:
    """A kernel to compute, the contraction it matches, if any, and the known facts about its
    operands.
    """

    kernel: Kernel
    c: Contraction | None
    constants: Constants
    ranges: Ranges
    magnitudes: OperandMagnitudes | None = None  # of operands that are i32
    shapes: Mapping[Tensor, Tensor] = field(
        default_factory=dict
    )  # parameters seen in another shape, and as they were

    @property
    def contraction(self) -> Contraction:
        assert self.c is not None
        return self.c

    @property
    def sizes(self) -> OperandMagnitudes:
        assert self.magnitudes is not None
        return self.magnitudes

    @property
    def element(self) -> ElementType:
        return self.contraction.accumulator.element

    @cached_property
    def panels(self) -> "Problem":
        """The problem as panels see it: the lines of a window joined to one, where each by itself
        would waste vectors.
        """
        c, kernel = self.contraction, self.kernel
        if c.unknown:
            kernel = replace(kernel, name=f"{kernel.name}.large")
        if c.window is not None and _waste(c.window.extent, c.column.extent) > FLAT:
            flat = self.reshaped(flatten(kernel))
            if flat is not None and flat.kernel is not kernel:
                return flat
        return replace(self, kernel=kernel)

    @cached_property
    def joined(self) -> "Problem | None":
        """The problem with the lines of its window joined, in any case."""
        return self if self.contraction.window is None else self.reshaped(flatten(self.kernel))

    @property
    def terms(self) -> int:
        """The terms of each sum, by estimate."""
        return prod(
            i.extent if isinstance(i.extent, int) else GUESS
            for i in self.contraction.reduction_axes
        )

    def reshaped(self, kernel: Kernel) -> "Problem | None":
        """The problem of a kernel whose parameters have other shapes; None where it is no
        contraction.
        """
        if (c := match_contraction(kernel)) is None:
            return None
        shapes = reshaped_parameters(self.kernel, kernel)
        constants = {
            new: self.constants[old] for new, old in shapes.items() if old in self.constants
        }
        ranges = {new: self.ranges[old] for new, old in shapes.items() if old in self.ranges}
        constants = {**self.constants, **constants}
        ranges = {**self.ranges, **ranges}
        return replace(self, kernel=kernel, c=c, constants=constants, ranges=ranges, shapes=shapes)

    def viewed(self, lowered: LoweredContraction | None) -> LoweredContraction | None:
        """Kernels of this problem, over the parameters as they were."""
        return None if lowered is None else replace(lowered, views={**lowered.views, **self.shapes})


@dataclass(frozen=True)
class Strategy:
    """A way to compute a contraction: the reason why not, the cost in vector instructions, the
    build (None: no fit).
    """

    name: str
    applies: Callable[[Problem], str]
    cost: Callable[[Problem], float]
    build: Callable[[Problem], LoweredContraction | None]
    adds_blocks: bool = False  # of long float sums


def why_not(strategy: Strategy, problem: Problem) -> str:
    """The reason why a strategy does not apply to a problem, or nothing."""
    if problem.kernel.sum_order == "blocks" and not strategy.adds_blocks:
        return "float sums of 262,144 terms or more are added in blocks"
    return strategy.applies(problem)


def matched_strategy(
    name: str,
    match: Callable[[Problem], T | None],
    why_not: Callable[[T | None], str],
    cost: Callable[[T], float],
    build: Callable[[Problem, T], LoweredContraction],
) -> Strategy:
    """A strategy for nests that a function of its own finds."""

    def matched(problem: Problem) -> T:
        nest = match(problem)
        assert nest is not None
        return nest

    return Strategy(
        name,
        lambda p: why_not(match(p)),
        lambda p: cost(matched(p)),
        lambda p: build(p, matched(p)),
    )


def _waste(rows: Dim, columns: Dim) -> float:
    """The ratio of computed to needed lanes; infinite if a vector does not fit."""
    lanes = processor().lanes
    if not isinstance(rows, int) or not isinstance(columns, int):
        return 1
    return inf if columns < max(lanes, MIN_ORDERED) else -(-columns // lanes) * lanes / columns


def worth_packing(c: Contraction) -> Expr | bool:
    """Test whether tiles are filled and there are enough products; a run-time condition for unknown
    sizes.
    """
    rows = c.row.extent
    columns = c.column.extent
    terms = product(tuple(i.extent for i in c.reduction_axes))
    work = rows * columns * size_of(c.window) * terms
    exact = c.accumulator.element.is_integer and isinstance(rows, int)
    required = (
        (rows, processor().tuning.packed_rows if exact else MIN_ORDERED),
        (columns, max(processor().lanes, MIN_ORDERED)),
        (terms, processor().tuning.packed_terms),
        (work, processor().packing_products),
    )
    return both(*(at_least(n, least) for n, least in required))


# reasons why a strategy does not apply, or nothing


def why_not_of(problem: Problem, *elements: ElementType) -> str:
    if problem.c is None:
        return "no factor has rows of its own"
    return (
        ""
        if problem.element in elements
        else f"sums are {problem.element}, not {' or '.join(map(str, elements))}"
    )


def why_not_integers(problem: Problem) -> str:
    has_magnitudes = problem.magnitudes is not None
    return why_not_of(problem, I32) or (
        "" if has_magnitudes else "no kernel can tell how large the operands are"
    )


def why_not_panels(problem: Problem) -> str:
    if problem.c is None:
        return "no factor has rows of its own"
    return TOO_FEW if worth_packing(problem.panels.contraction) is False else ""


def why_not_bytes(problem: Problem) -> str:
    unknown = problem.c is not None and problem.c.unknown
    return why_not_integers(problem) or (
        "sizes are known only by a call" if unknown else why_not_panels(problem)
    )
