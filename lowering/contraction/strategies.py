"""The table of ways to compute a contraction, and the choice among them by estimated cost.

A strategy says why it does not apply to a problem, estimates its cost, and builds kernels together
with the condition under which they are exact. The cheapest that applies is taken; where its
condition is known only by a call, the next ones are compiled beside it, each guarded by the failure
of those before. `cvm lower --to strategies` prints the table for a program.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType

from ...dialect.kernel_ir.expressions import Expr, Read
from ...dialect.kernel_ir.loops import Kernel
from ...dialect.kernel_ir.traverse import walk
from ...dialect.types.tensor_types import I32
from ..analysis.integer_ranges import Ranges
from ..processor import Processor, compiling_for, processor
from .channel_vectorized_window import CHANNEL_LANES
from .contraction_problem import Constants, Problem, Strategy, why_not, worth_packing
from .depthwise import DEPTHWISE
from .direct_convolution import DIRECT
from .few_rows import FEW_ROWS, lower_few_rows, match_few_rows, why_not_weights
from .match_contraction import LoweredContraction, match_contraction, match_reduction
from .matrix_tiles import MATRIX_TILES
from .operand_bitwidths import OperandMagnitudes, operand_magnitudes
from .packed_product import PACKED
from .row_vectorized_product import ROW_LANES
from .split_groups import split_groups
from .winograd import WINOGRAD

STRATEGIES = [
    *WINOGRAD,
    MATRIX_TILES,
    ROW_LANES,
    *PACKED,
    FEW_ROWS,
    DIRECT,
    CHANNEL_LANES,
    DEPTHWISE,
]


@dataclass(frozen=True)
class Choice:
    """A candidate for a problem: why it does not apply, its cost, and where it is taken (None:
    nowhere).
    """

    strategy: Strategy
    processor: Processor  # with vectors of that width
    why_not: str
    cost: float
    taken: Expr | bool | None = None

    def build(self, problem: Problem) -> LoweredContraction | None:
        with compiling_for(self.processor):
            return self.strategy.build(replace(problem))


def candidates_of(problem: Problem) -> list[Choice]:
    """Every strategy by the vectors that suit it best, in the order of the table."""
    choices: list[Choice] = []
    scale = dict(processor().tuning.strategy_costs)
    for described in processor().by_tile_width:
        with compiling_for(described):
            own = replace(problem)  # what it knows of panels depends on their width
            reasons = [
                (s, "left out" if scale.get(s.name) == inf else why_not(s, own)) for s in STRATEGIES
            ]
            new = [
                Choice(s, described, why, inf if why else s.cost(own) * scale.get(s.name, 1))
                for s, why in reasons
            ]
        choices = [
            min(pair, key=lambda choice: choice.cost)
            for pair in zip(choices or new, new, strict=True)
        ]
    return choices


def lower_by_strategy(
    kernel: Kernel,
    constants: Constants = MappingProxyType({}),
    ranges: Ranges = MappingProxyType({}),
    explained: list[tuple[Problem, list[Choice]]] | None = None,
) -> LoweredContraction | None:
    """The kernels by the strategies of least cost; None where none pays; `explained` receives all
    candidates.
    """
    if (
        explained is None and match_reduction(kernel, 1) is None
    ):  # all strategies are for reductions
        return None
    c = match_contraction(kernel)
    problem = Problem(kernel, c, constants, ranges)
    if (
        c is None
        and (cut := split_groups(kernel)) is not None
        and (groups := problem.reshaped(cut.kernel)) is not None
    ):
        lowered = groups.viewed(
            lower_by_strategy(groups.kernel, groups.constants, groups.ranges, explained)
        )
        if lowered is None or not isinstance(cut.whole, Expr):
            return lowered
        return lowered.or_else(cut.whole, _plain(kernel, "other"))
    if c is not None and c.accumulator.element is I32:
        problem = replace(problem, magnitudes=operand_magnitudes(kernel, c, ranges, constants))
    candidates = candidates_of(problem)
    if explained is not None:
        explained.append((problem, candidates))
    if (large := worth_packing(c) if c is not None and c.unknown else True) is False:
        return None
    order = sorted(
        (choice for choice in candidates if not choice.why_not), key=lambda choice: choice.cost
    )
    if (lowered := _versions(problem, order, candidates)) is None:
        return None
    lowered = _after_magnitudes(problem.magnitudes, lowered)
    if not isinstance(large, Expr):
        return lowered
    plain = _plain(kernel, "small")
    small = replace(problem, kernel=plain.kernels[0])
    rows = match_few_rows(small)
    few = rows is not None and rows.weights is not None and not why_not_weights(rows)
    return lowered.or_else(
        large, lower_few_rows(small, rows) if rows is not None and few else plain
    )


def _plain(kernel: Kernel, name: str) -> LoweredContraction:
    return LoweredContraction((replace(kernel, name=f"{kernel.name}.{name}"),))


def _versions(
    problem: Problem, order: Sequence[Choice], candidates: list[Choice]
) -> LoweredContraction | None:
    """The kernels of the first strategy that can be built, and of others for where it is not exact;
    each is noted as taken.
    """
    for n, choice in enumerate(order):
        lowered, place = choice.build(problem), candidates.index(choice)
        if lowered is None:
            why = "operands do not fit, or are not read so that they can be packed"
            candidates[place] = replace(choice, why_not=why)
            continue
        candidates[place] = replace(choice, taken=lowered.exact)
        if not isinstance(lowered.exact, Expr):
            return lowered
        plain = _plain(problem.kernel, "other")
        fallback = _versions(replace(problem, kernel=plain.kernels[0]), order[n + 1 :], candidates)
        return lowered.or_else(lowered.exact, fallback or plain)
    return None


def _after_magnitudes(
    sizes: OperandMagnitudes | None, lowered: LoweredContraction
) -> LoweredContraction:
    """Kernels, after those that find how large factors are, if anything depends on it."""
    needed = {r.tensor for e in lowered.where.values() for r in walk(e) if isinstance(r, Read)}
    needed.update(p for k in lowered.kernels for p in k.parameters)
    return (
        lowered
        if sizes is None or sizes.bits not in needed
        else LoweredContraction(sizes.kernels).beside(lowered)
    )
