"""The table of ways to compute a contraction, and the choice among them by estimated cost.

A strategy says why it does not apply to a problem, estimates its cost, and builds kernels together with the condition under
which they are exact. The cheapest that applies is taken; where its condition is known only by a call, the next ones are compiled
beside it, each guarded by the failure of those before. `cvm lower --to strategies` prints the whole table for a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from ...dialect.ir.sizes import Dim
from ...dialect.ir.types import F32, F64, I32, ElementType
from ...dialect.notation.expressions import Expr, Index, Read, Tensor
from ...dialect.notation.loops import Kernel, reshaped_parameters
from ...dialect.notation.traverse import walk
from ..analysis.integer_ranges import Ranges
from ..loops.collapse import flatten
from ..processor import Processor, compiling_for, processor
from .channel_lanes import channel_lanes_cost, lower_channel_lanes, match_channel_lanes, why_not_channel_lanes
from .depthwise import lower_depthwise
from .direct_convolution import Pixels, direct_cost, lower_direct, pixels_of, why_not_direct
from .few_rows import few_rows_cost, lower_few_rows, match_few_rows, why_not_few_rows, why_not_panels
from .match import Contraction, LoweredContraction, match_contraction, windowed
from .micro_kernel import FMA, GUESS, INT8_DOT_PRODUCT, INT8_PAIR_PRODUCTS, MIN_ORDERED, MUL_I32, Product, pairdot
from .operand_bitwidths import OperandMagnitudes, operand_magnitudes
from .packed_product import (
    lower_int8_dot_product,
    lower_int8_pair_products,
    lower_pairdot,
    lower_single_terms,
    product_cost,
    worth_packing,
)
from .row_lanes import lower_row_lanes, row_lanes_cost
from .sign_offset import Version, are_bytes
from .split_groups import split_groups
from .vnni_packing import extent_of, is_plain, only_read, size_of
from .winograd import lower_winograd, winograd_products
from .winograd_transforms import WINOGRAD_F2X2_3X3, WINOGRAD_F4X4_3X3, WinogradTransform

Constants = Mapping[Tensor, np.ndarray]
T = TypeVar("T")

TOO_FEW = "too few rows, columns, terms or products for packing to pay"
FLAT = 1.25  # ratio of lanes computed to lanes needed from which the lines of a window are joined to one
# cost factor of byte products whose operands only a call can tell to be bytes: rarely, or a range would say so
UNPROVED = 1.5
GATHERED = 1.15  # cost factor of panels whose columns are gathered from an image


@dataclass(frozen=True, eq=False)
class Problem:
    """A kernel to be computed, matched as a contraction unless it is none, and what is known of its operands."""

    kernel: Kernel
    c: Contraction | None
    constants: Constants
    ranges: Ranges
    magnitudes: OperandMagnitudes | None = None  # of operands that are i32
    shapes: Mapping[Tensor, Tensor] = field(default_factory=dict)  # parameters seen in another shape, and as they were

    @property
    def contraction(self) -> Contraction:
        assert self.c is not None
        return self.c

    @property
    def element(self) -> ElementType:
        return self.contraction.accumulator.element

    @cached_property
    def panels(self) -> Problem:
        """The problem as panels see it: the lines of a window joined to one, where each by itself would waste vectors."""
        c, kernel = self.contraction, self.kernel
        if c.unknown:
            kernel = replace(kernel, name=f"{kernel.name}.large")
        if c.window is not None and _waste(c.window.extent, c.column.extent) > FLAT:
            flat = _reshaped(self, flatten(kernel))
            if flat is not None and flat.kernel is not kernel:
                return flat
        return replace(self, kernel=kernel)

    @cached_property
    def joined(self) -> Problem | None:
        """The problem with the lines of its window joined, in any case."""
        return self if self.contraction.window is None else _reshaped(self, flatten(self.kernel))

    @cached_property
    def pays(self) -> bool:
        """Test whether packing may pay."""
        return worth_packing(self.contraction) is not False

    @property
    def terms(self) -> int:
        """The terms of each sum, by estimate."""
        terms = 1
        for i in self.contraction.reduction_axes:
            terms *= _guess(i)
        return terms


@dataclass(frozen=True)
class Strategy:
    """One way to compute a contraction. `applies` gives the reason why it does not, or nothing; `cost` is in vector
    instructions; `build` may find that operands do not fit after all, and gives None."""

    name: str
    applies: Callable[[Problem], str]
    cost: Callable[[Problem], float]
    build: Callable[[Problem], Version | None]


@dataclass(frozen=True)
class Choice:
    """A candidate for a problem: why it does not apply, its cost by the vectors that suit it best, and where it is taken,
    `None` standing for nowhere."""

    strategy: Strategy
    processor: Processor  # with vectors of that width
    why_not: str
    cost: float
    taken: Expr | bool | None = None

    def build(self, problem: Problem) -> Version | None:
        with compiling_for(self.processor):
            return self.strategy.build(replace(problem))


def candidates_of(problem: Problem) -> list[Choice]:
    """Every strategy by the vectors that suit it best, in the order of the table."""
    found: list[Choice] = []
    for described in processor().by_tile_width:
        with compiling_for(described):
            own = replace(problem)  # what it knows of panels depends on their width
            reasons = [(s, s.applies(own)) for s in STRATEGIES]
            new = [Choice(s, described, why, inf if why else s.cost(own)) for s, why in reasons]
        found = [min(pair, key=lambda choice: choice.cost) for pair in zip(found or new, new, strict=True)]
    return found


def lower_by_strategy(
    kernel: Kernel,
    constants: Constants = MappingProxyType({}),
    ranges: Ranges = MappingProxyType({}),
    described: Processor | None = None,
    explained: list[tuple[Problem, list[Choice]]] | None = None,
) -> LoweredContraction | None:
    """Replace a contraction by kernels that pack its operands and multiply them tile by tile.

        for r { for q { acc = 0; for k { acc = acc + a[r, k] * b[k, q] }; y[r, q] = f(acc) } }
        =>  kernels that pack a and b;  for panel { for tile { sums in registers; ...; y[r, q] = f(sums) } }

    Legal for sums of products whose epilogue stores contiguous columns. Pays from processor().packing_products on; None
    where no strategy applies. Constants are packed here, once. `explained` receives the candidates of every problem.
    """
    with compiling_for(described):
        return _lowered(kernel, constants, ranges, [] if explained is None else explained)


def _lowered(
    kernel: Kernel, constants: Constants, ranges: Ranges, explained: list[tuple[Problem, list[Choice]]]
) -> LoweredContraction | None:
    c = match_contraction(kernel)
    problem = Problem(kernel, c, constants, ranges)
    if c is None and (cut := split_groups(kernel)) is not None and match_contraction(cut.kernel) is not None:
        seen = _reshaped(problem, cut.kernel)
        assert seen is not None
        made = _with_shapes(seen, _lowered(seen.kernel, seen.constants, seen.ranges, explained))
        if made is None or not isinstance(cut.whole, Expr):
            return made
        plain = replace(kernel, name=f"{kernel.name}.other")
        return made.only(cut.whole).beside(LoweredContraction((plain,), {}).only(~cut.whole))
    if c is not None and c.accumulator.element is I32:
        problem = replace(problem, magnitudes=operand_magnitudes(kernel, c, ranges, constants))
    candidates = candidates_of(problem)
    explained.append((problem, candidates))
    large = worth_packing(c) if c is not None and c.unknown else True
    if large is False:
        return None
    order = sorted((c for c in candidates if not c.why_not), key=lambda c: c.cost)
    made = _versions(problem, order, candidates)
    if made is None:
        return None
    sizes = problem.magnitudes
    if isinstance(large, Expr):
        plain = replace(kernel, name=f"{kernel.name}.small")
        rows = match_few_rows(plain, constants)
        few = rows is not None and rows.known is not None and not why_not_panels(rows)
        small = lower_few_rows(plain, rows, constants) if rows is not None and few else LoweredContraction((plain,), {})
        return _after(sizes, made).only(large).beside(small.only(~large))
    return _after(sizes, made)


def _versions(problem: Problem, order: Sequence[Choice], found: list[Choice]) -> LoweredContraction | None:
    """The kernels of the first strategy that can be built, and of others for where it is not exact; each is noted as taken."""
    for n, choice in enumerate(order):
        made = choice.build(problem)
        place = found.index(choice)
        if made is None:
            found[place] = replace(choice, why_not="operands do not fit, or are not read so that they can be packed")
            continue
        first, exact = made
        found[place] = replace(choice, taken=exact)
        if not isinstance(exact, Expr):
            return first
        plain = replace(problem.kernel, name=f"{problem.kernel.name}.other")
        others = _versions(replace(problem, kernel=plain), order[n + 1 :], found)
        return first.only(exact).beside((others or LoweredContraction((plain,), {})).only(~exact))
    return None


def _after(sizes: OperandMagnitudes | None, made: LoweredContraction) -> LoweredContraction:
    """Kernels, and before them those that look how large factors are, if anything depends on it."""
    if sizes is None or not any(sizes.found in (*k.parameters, *_read(made.where.get(k))) for k in made.kernels):
        return made
    return LoweredContraction(sizes.kernels, {}).beside(made)


def _read(e: Expr | None) -> set[Tensor]:
    return set() if e is None else {r.tensor for r in walk(e) if isinstance(r, Read)}


def _reshaped(problem: Problem, other: Kernel) -> Problem | None:
    """The problem of a kernel whose parameters have other shapes; None where it is no contraction."""
    c = match_contraction(other)
    if c is None:
        return None
    shapes = reshaped_parameters(problem.kernel, other)
    constants, ranges = problem.constants, problem.ranges
    arrays = {**constants, **{new: constants[old] for new, old in shapes.items() if old in constants}}
    known = {**ranges, **{new: ranges[old] for new, old in shapes.items() if old in ranges}}
    return replace(problem, kernel=other, c=c, constants=arrays, ranges=known, shapes=shapes)


def _with_shapes(problem: Problem, made: LoweredContraction | None) -> LoweredContraction | None:
    return None if made is None else replace(made, views={**made.views, **problem.shapes})


def _guess(index: Index | None) -> int:
    size = size_of(index)
    return size if isinstance(size, int) else GUESS


def _waste(rows: Dim, columns: Dim) -> float:
    """The ratio of computed to needed lanes; infinite if a vector does not fit."""
    lanes = processor().lanes
    if not isinstance(rows, int) or not isinstance(columns, int):
        return 1
    return inf if columns < max(lanes, MIN_ORDERED) else -(-columns // lanes) * lanes / columns


# what strategies have in common: reasons why they do not apply, and builders


def _of_integers(problem: Problem) -> str:
    if problem.c is None:
        return "no factor has rows of its own"
    if problem.element is not I32:
        return f"sums are {problem.element}, not i32"
    return "" if problem.magnitudes is not None else "no kernel can tell how large the operands are"


def _of_panels(problem: Problem) -> str:
    """The reason why operands are not packed into panels, if so."""
    if problem.c is None:
        return "no factor has rows of its own"
    return "" if problem.panels.pays else TOO_FEW


def _of_bytes(problem: Problem) -> str:
    unknown = "" if problem.c is None or not problem.c.unknown else "sizes are known only by a call"
    return _of_integers(problem) or unknown or _of_panels(problem)


def _by_panels(build: Callable[[Problem], Version | LoweredContraction | None]) -> Callable[[Problem], Version | None]:
    """The builder of a strategy that packs panels."""

    def built(problem: Problem) -> Version | None:
        seen = problem.panels
        made = build(seen)
        first, exact = made if isinstance(made, tuple) else (made, True)
        shaped = _with_shapes(seen, first)
        return None if shaped is None else (shaped, exact)

    return built


def _magnitudes(problem: Problem) -> OperandMagnitudes:
    assert problem.magnitudes is not None
    return problem.magnitudes


def _unproved(problem: Problem) -> float:
    known = are_bytes(problem.contraction, _magnitudes(problem), problem.constants)
    return 1 if known else UNPROVED


# the strategies


def _winograd(name: str, transform: WinogradTransform) -> Strategy:
    def applies(problem: Problem) -> str:
        if why := _of_integers(problem):
            return why
        c = problem.contraction
        if (
            transform is WINOGRAD_F2X2_3X3
            and processor().has_int8_dot_product
            and are_bytes(c, _magnitudes(problem), problem.constants)
        ):
            return "products of four bytes take less time"
        return winograd_products(transform, problem.kernel, c, problem.constants)[1]

    def cost(problem: Problem) -> float:
        return winograd_products(transform, problem.kernel, problem.contraction, problem.constants)[0]

    def build(problem: Problem) -> Version | None:
        given = problem.kernel, problem.contraction, _magnitudes(problem), problem.constants
        return lower_winograd(transform, *given)

    return Strategy(name, applies, cost, build)


def _row_lanes_apply(problem: Problem) -> str:
    if why := _of_bytes(problem):
        return why
    if not processor().has_int8_dot_product:
        return "the processor has no dot product of four bytes"
    last, lanes = problem.joined, processor().lanes
    if last is None or worth_packing(last.contraction) is not True or last.contraction.window is not None:
        return TOO_FEW
    short = extent_of(last.contraction.row) < lanes or extent_of(last.contraction.column) < lanes
    return "fewer rows or columns than a vector has lanes" if short else ""


def _row_lanes_cost(problem: Problem) -> float:
    return row_lanes_cost(problem.contraction) * problem.terms / INT8_DOT_PRODUCT.terms * _unproved(problem)


def _row_lanes(problem: Problem) -> Version | None:
    last = problem.joined
    assert last is not None
    pixels = Pixels(problem.contraction, last.kernel, last.contraction)
    return lower_row_lanes(problem.kernel, pixels, _magnitudes(problem), problem.constants)


def _panel_cost(product: Callable[[], Product]) -> Callable[[Problem], float]:
    """The cost of a product's micro-kernel; panels that are gathered from an image cost more."""

    def cost(problem: Problem) -> float:
        c = problem.panels.contraction
        read = only_read(c.b)
        gathered = 1 if read is None or is_plain(read) else GATHERED
        unproved = _unproved(problem) if product() is INT8_DOT_PRODUCT else 1
        return product_cost(product(), c) * problem.terms / product().terms * gathered * unproved

    return cost


def _if_int8_dot_product(has: bool) -> Callable[[Problem], str]:
    why = (
        "the processor has a dot product of four bytes" if not has else "the processor has no dot product of four bytes"
    )
    return lambda problem: _of_bytes(problem) or ("" if processor().has_int8_dot_product is has else why)


def _single_integers(problem: Problem) -> str:
    if problem.c is not None and problem.element is not I32:
        return f"sums are {problem.element}, not i32"
    return _of_panels(problem)


def _floats(problem: Problem) -> str:
    if problem.c is None:
        return "no factor has rows of its own"
    if problem.element not in (F32, F64):
        return f"sums are {problem.element}, not f32 or f64"
    guarded = "a zero in place of a guarded operand could make a NaN" if problem.contraction.guard else ""
    return guarded or _of_panels(problem)


def _direct_applies(problem: Problem) -> str:
    if problem.c is None:
        return "no factor has rows of its own"
    if problem.element not in (F32, F64):
        return f"sums are {problem.element}, not f32 or f64"
    return why_not_direct(_pixels(problem))


def _pixels(problem: Problem) -> Pixels:
    last = problem.joined
    joined = None if last is None else (last.kernel, last.contraction)
    return pixels_of(problem.kernel, problem.contraction, joined)


def _direct(problem: Problem) -> Version | None:
    return lower_direct(problem.kernel, _pixels(problem), problem.constants), True


def _matched(
    name: str,
    match: Callable[[Problem], T | None],
    why_not: Callable[[T | None], str],
    cost: Callable[[T], float],
    build: Callable[[Problem, T], LoweredContraction],
) -> Strategy:
    """A strategy for nests that a function of its own finds."""

    def found(problem: Problem) -> T:
        nest = match(problem)
        assert nest is not None
        return nest

    return Strategy(name, lambda p: why_not(match(p)), lambda p: cost(found(p)), lambda p: (build(p, found(p)), True))


def _windows(problem: Problem) -> str:
    if problem.c is not None:
        return "a factor has rows of its own"
    return "" if windowed(problem.kernel) is not None else "no window moves over one array"


def _depthwise(problem: Problem) -> Version | None:
    made = lower_depthwise(problem.kernel, problem.constants, problem.ranges)
    return None if made is None else (made, True)


STRATEGIES = (
    _winograd("winograd_4x4", WINOGRAD_F4X4_3X3),
    _winograd("winograd_2x2", WINOGRAD_F2X2_3X3),
    Strategy("int8_dot_product_row_lanes", _row_lanes_apply, _row_lanes_cost, _row_lanes),
    Strategy(
        "int8_dot_product",
        _if_int8_dot_product(True),
        _panel_cost(lambda: INT8_DOT_PRODUCT),
        _by_panels(lambda p: lower_int8_dot_product(p.kernel, p.contraction, _magnitudes(p), p.constants)),
    ),
    Strategy(
        "int8_pair_products",
        _if_int8_dot_product(False),
        _panel_cost(lambda: INT8_PAIR_PRODUCTS),
        _by_panels(lambda p: lower_int8_pair_products(p.kernel, p.contraction, _magnitudes(p), p.constants, p.ranges)),
    ),
    Strategy(
        "pairdot",
        lambda p: _of_integers(p) or _of_panels(p),
        _panel_cost(pairdot),
        _by_panels(lambda p: lower_pairdot(p.kernel, p.contraction, _magnitudes(p), p.constants)),
    ),
    Strategy(
        "mul_i32",
        _single_integers,
        _panel_cost(lambda: MUL_I32),
        _by_panels(lambda p: lower_single_terms(p.kernel, p.contraction, p.constants)),
    ),
    Strategy(
        "fma",
        _floats,
        _panel_cost(lambda: FMA),
        _by_panels(lambda p: lower_single_terms(p.kernel, p.contraction, p.constants)),
    ),
    _matched(
        "few_rows",
        lambda p: match_few_rows(p.kernel, p.constants),
        why_not_few_rows,
        few_rows_cost,
        lambda p, found: lower_few_rows(p.kernel, found, p.constants),
    ),
    Strategy("direct", _direct_applies, lambda p: direct_cost(_pixels(p)) * processor().fma_cycles, _direct),
    _matched(
        "channel_lanes",
        lambda p: match_channel_lanes(p.kernel),
        why_not_channel_lanes,
        channel_lanes_cost,
        lambda p, found: lower_channel_lanes(p.kernel, found, p.constants),
    ),
    Strategy("depthwise", _windows, lambda p: 0, _depthwise),
)
