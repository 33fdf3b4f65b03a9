"""Contractions over packed panels, in tiles of registers:

    for r { for q { acc = 0; for k { acc = acc + a[r, k] * b[k, q] }; y[r, q] = f(acc) } }
    =>  rows[r, k / 2] = a[r, k] and a[r, k + 1] as halves of a word       the same for the columns, as an image or as panels
        for panel in columns by 16 parallel {
          panel[k / 2, q] = those words of these columns
          if everything fits 16 bits {
            for tile in rows by 6 {
              sums[6, 16] = 0 in registers
              for k / 2 { sums[r, q] = sums[r, q] + pairdot(rows[r, k / 2], panel[k / 2, q]) }
              y[r, q] = f(sums[r, q])
            }
          } else { the same with numbers in place of words }
        }

A sum of two products of 16-bit factors is one instruction, exact modulo 2^32. Whether factors fit is known from their ranges
or found by kernels that look at all of them first; the result does not depend on it. A block of 8 columns is a vector, two
blocks a panel, or three of floats. Blocks and tiles that would reach beyond the end move back and compute elements again, so
that nothing is masked; guards become zeros of the panel. Constants are packed beforehand. Where bytes hold both factors and
one has no sign, `bytewise` does the same with words of four terms; where the processor adds their products to a sum by one
instruction, `quads` does, and signs do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from types import MappingProxyType

import numpy as np

from ...dialect.ir.sizes import Dim, product
from ...dialect.ir.types import F32, F64, I16, I32
from ...dialect.notation.index import Expr, Read, Tensor, apply, both
from ...dialect.notation.loops import Alloc, Block, If, Kernel, reshaped_parameters
from ...dialect.notation.traverse import substitute, walk
from ..analysis.integer_ranges import Ranges
from ..loops.collapse import flatten
from ..processor import Processor, compiling_for, processor
from .depthwise import lower_depthwise
from .dot4 import are_bytes, lower_dot4
from .k_packing import Terms, at_least, extent_of, pack_k_axis, size_of
from .m_vectorized import lower_m_vectorized
from .maddubs import lower_maddubs
from .match import Contraction, LoweredContraction, match_contraction
from .micro_kernel import BLOCKS, LANES, ROWS, SUMS
from .operand_bitwidths import OperandMagnitudes, operand_magnitudes
from .pack_panels import PackedContraction
from .split_groups import split_groups
from .winograd import lower_winograd
from .winograd_transforms import F2X2_3X3, F4X4_3X3

Constants = Mapping[Tensor, np.ndarray]
Kernels = Callable[[Kernel], LoweredContraction | None]

FLAT = 1.25  # rows of columns that waste more of their vectors are joined
MIN_ROWS, MIN_K = 4, 8
WIDTHS = {16: (2, 3), 32: (2, 3, 4)}  # vectors of a panel of floats, by registers
MOST_SUMS = {16: SUMS, 32: 2 * SUMS}  # of a tile of these


def lower_contraction(
    kernel: Kernel,
    constants: Constants = MappingProxyType({}),
    ranges: Ranges = MappingProxyType({}),
    described: Processor | None = None,
) -> LoweredContraction | None:
    """The kernels that compute a contraction by panels and tiles; None where the kernel is not one, or too small.

    `constants` are packed here, once. Where `ranges` tell that factors fit 16 bits, nothing looks whether they do.
    """
    with compiling_for(described):
        return _lowered(kernel, constants, ranges)


def _lowered(kernel: Kernel, constants: Constants, ranges: Ranges) -> LoweredContraction | None:
    found = match_contraction(kernel)
    if found is None and (cut := split_groups(kernel)) is not None and match_contraction(cut.kernel) is not None:
        made = _seen_as(kernel, cut.kernel, _lowered, constants, ranges)
        if made is None or not isinstance(cut.whole, Expr):
            return made
        plain = replace(kernel, name=f"{kernel.name}.other")
        return made.only(cut.whole).beside(LoweredContraction((plain,), {}).only(~cut.whole))
    if found is None:
        return lower_depthwise(kernel, constants, ranges)
    if found.unknown:
        return _where_large(kernel, found, constants, ranges)
    sizes = operand_magnitudes(kernel, found, ranges, constants) if found.accumulator.element is I32 else None

    def others(kernel: Kernel) -> LoweredContraction | None:
        return _by_panels(kernel, sizes, constants, ranges)

    made = _turned(found, sizes, constants, kernel, others)
    return None if made is None else _after(sizes, made)


def _where_large(kernel: Kernel, c: Contraction, constants: Constants, ranges: Ranges) -> LoweredContraction | None:
    """Of sizes that are not known: by panels where they turn out to be large, and else as it was."""
    large = _worth_packing(c)
    if not isinstance(large, Expr):
        return None
    sizes = operand_magnitudes(kernel, c, ranges, constants) if c.accumulator.element is I32 else None

    def others(kernel: Kernel) -> LoweredContraction | None:
        return _by_panels(replace(kernel, name=f"{kernel.name}.large"), sizes, constants, ranges)

    made = _turned(c, sizes, constants, kernel, others)
    if made is None:
        return None
    plain = replace(kernel, name=f"{kernel.name}.small")
    return _after(sizes, made).only(large).beside(LoweredContraction((plain,), {}).only(~large))


def _after(sizes: OperandMagnitudes | None, made: LoweredContraction) -> LoweredContraction:
    """Kernels, and before them those that look how large factors are, if anything depends on it."""
    if sizes is None or not any(sizes.found in (*k.parameters, *_read(made.where.get(k))) for k in made.kernels):
        return made
    return LoweredContraction(sizes.kernels, {}).beside(made)


def _read(e: Expr | None) -> set[Tensor]:
    return set() if e is None else {r.tensor for r in walk(e) if isinstance(r, Read)}


def _seen_as(
    kernel: Kernel,
    other: Kernel,
    contracted: Callable[[Kernel, Constants, Ranges], LoweredContraction | None],
    constants: Constants,
    ranges: Ranges,
) -> LoweredContraction | None:
    """What becomes of a kernel whose arrays are given other shapes."""
    shapes = reshaped_parameters(kernel, other)
    arrays = {**constants, **{new: constants[old] for new, old in shapes.items() if old in constants}}
    known = {**ranges, **{new: ranges[old] for new, old in shapes.items() if old in ranges}}
    made = contracted(other, arrays, known)
    return None if made is None else replace(made, views={**made.views, **shapes})


def _turned(
    c: Contraction,
    sizes: OperandMagnitudes | None,
    constants: Constants,
    kernel: Kernel,
    others: Kernels,
) -> LoweredContraction | None:
    """By windows that are turned where that is right, by large tiles where these are, and others where neither is."""
    if sizes is None:
        return others(kernel)

    def by_two(kernel: Kernel) -> LoweredContraction | None:
        if processor().has_dot4 and are_bytes(c, sizes, constants):  # twice as many products at once are nearly as good
            return others(kernel)
        return _with(lower_winograd(F2X2_3X3, kernel, c, sizes, constants), kernel, others)

    return _with(lower_winograd(F4X4_3X3, kernel, c, sizes, constants), kernel, by_two)


def _with(
    quick: tuple[LoweredContraction, Expr | bool] | None, kernel: Kernel, others: Kernels
) -> LoweredContraction | None:
    """The quick kernels where a condition holds, and others where it does not, or the kernel as it was."""
    if quick is None:
        return others(kernel)
    first, held = quick
    if not isinstance(held, Expr):
        return first
    plain = replace(kernel, name=f"{kernel.name}.other")
    made = others(plain) or LoweredContraction((plain,), {})
    return first.only(held).beside(made.only(~held))


def _by_panels(
    kernel: Kernel, sizes: OperandMagnitudes | None, constants: Constants, ranges: Ranges
) -> LoweredContraction | None:
    """By panels of columns as they are, or of all that a window goes over as one."""

    def contracted(kernel: Kernel, constants: Constants, ranges: Ranges) -> LoweredContraction | None:
        c = match_contraction(kernel)
        if c is None or _worth_packing(c) is False:
            return None
        element = c.accumulator.element
        quick = None
        if sizes is not None and not c.unknown:
            quick = _of_bytes(kernel, c, sizes, constants, ranges)

        def plain(kernel: Kernel) -> LoweredContraction | None:
            pairs = pack_k_axis(c.folds, 2)
            words = None if sizes is None else _Contract(kernel, c, constants, pairs).in_words(sizes)
            if words is None and element is I32:
                return _Contract(kernel, c, constants, pairs).in_full()
            if element in (F32, F64) and not c.guard:  # a guard's zero could make a NaN
                return _Contract(kernel, c, constants, pairs, *choose_tile(c, processor().vector_registers)).in_full()
            return words

        return _with(quick, kernel, plain)

    found = match_contraction(kernel)
    if found is not None and sizes is not None and processor().has_dot4:
        flat = kernel if found.window is None else flatten(kernel)
        last = match_contraction(flat)
        if last is not None and _worth_packing(last) is True:
            quick = lower_m_vectorized(kernel, found, (flat, last), sizes, constants)
            if quick is not None:
                return _with(quick, kernel, lambda other: _flat_or_not(other, contracted, constants, ranges))
    return _flat_or_not(kernel, contracted, constants, ranges)


def _flat_or_not(
    kernel: Kernel,
    contracted: Callable[[Kernel, Constants, Ranges], LoweredContraction | None],
    constants: Constants,
    ranges: Ranges,
) -> LoweredContraction | None:
    """As it is, or with all that a window goes over as one where lines of it waste vectors."""
    found = match_contraction(kernel)
    if found is not None and found.window is not None and _waste(found.window.extent, found.column.extent) > FLAT:
        flat = flatten(kernel)
        if flat is not kernel and match_contraction(flat) is not None:
            return _seen_as(kernel, flat, contracted, constants, ranges)
    return contracted(kernel, constants, ranges)


def _of_bytes(
    kernel: Kernel, c: Contraction, sizes: OperandMagnitudes, constants: Constants, ranges: Ranges
) -> tuple[LoweredContraction, Expr | bool] | None:
    """By words of four bytes, as the processor multiplies them."""
    if processor().has_dot4:
        return lower_dot4(kernel, c, sizes, constants)
    return lower_maddubs(kernel, c, sizes, constants, ranges)


def _waste(rows: Dim, columns: Dim) -> float:
    """How many lanes are computed for each that is needed; without end where a vector does not fit."""
    if not isinstance(rows, int) or not isinstance(columns, int):
        return 1
    return inf if columns < LANES else -(-columns // LANES) * LANES / columns


def _worth_packing(c: Contraction) -> Expr | bool:
    """Whether there are tiles to fill and enough to do; what has to be seen when called, if sizes are not known."""
    rows, columns, terms = c.row.extent, c.column.extent, product(tuple(i.extent for i in c.folds))
    work = rows * columns * size_of(c.window) * terms
    exact = c.accumulator.element.is_integer and isinstance(rows, int)
    fewest = MIN_ROWS if exact else ROWS  # floats of a size are summed in one order, known beforehand or not
    wanted = ((rows, fewest), (columns, LANES), (terms, MIN_K), (work, processor().packing_products))
    return both(*(at_least(n, least) for n, least in wanted))


def choose_tile(c: Contraction, registers: int) -> tuple[int, int]:
    """How many vectors of floats a panel has, and how many sums a tile, which has the fewer rows the more vectors: as many as
    take the least time. What a step loads takes a third of the time of its sums."""
    most = MOST_SUMS[registers]
    if c.unknown:
        return BLOCKS, most
    rows, blocks = extent_of(c.row), -(-extent_of(c.column) // LANES) * extent_of(c.window)

    def cost(together: int) -> int:
        height = min(ROWS, most // together)
        return -(-blocks // together) * -(-rows // height) * (3 * height * together + height + together)

    return min(WIDTHS[registers], key=cost), most


class _Contract(PackedContraction):
    """The kernels of one contraction, with factors as they are or in words of two."""

    def in_full(self) -> LoweredContraction:
        """With factors as they are. Sums of floats go in the order of the terms, each product rounded with its sum."""
        return self.contracted(self.full() if self.element is I32 else self.of_floats())

    def full(self) -> Block:
        """With the columns of a panel at hand."""
        fill, column = self.filled()

        def added(sum: Expr, tile: Expr, at: Expr, r: Expr) -> Expr:
            return sum + substitute(self.c.a, {self.c.row: at}) * column

        return *fill, *self.tiles(self.c.folds, self.height(ROWS // 2), added, self.parts(self.terms))

    def of_floats(self) -> Block:
        """The same of floats, by some panels at a time where that is possible."""
        c, terms = self.c, Terms(self.c.folds)
        columns = self.some_panels(terms)
        if columns is None:
            element = self.panels_of(terms, self.k)
            columns = self.filled() if element is None else ((), element)
        fill, column = columns

        def added(sum: Expr, tile: Expr, at: Expr, r: Expr) -> Expr:
            return apply("fma", substitute(c.a, {c.row: at}), column, sum)

        tiles = self.tiles(c.folds, self.height(self.highest), added, self.parts(self.terms))
        return *fill, *self.each_of_group(tiles)

    def filled(self) -> tuple[Block, Expr]:
        """What fills a panel with factors as they are, and the one of a step."""
        panel = self.buffer("full", self.terms)
        return (Alloc(panel), *self.of_factors(panel)), panel[(*self.own, self.k, self.place)]

    def in_words(self, sizes: OperandMagnitudes) -> LoweredContraction | None:
        """With factors in words of two, where they fit; None where they never do, or cannot be read so."""
        held = both(*(n <= I16.limits[1] for n in (sizes.rows, sizes.columns)))
        if held is False:
            return None
        height = self.height(ROWS)
        self.share_rows(height, self.terms)
        row = self.rows(height)
        columns = self.columns()
        if columns is None:
            return None
        fill, column = columns

        def added(sum: Expr, tile: Expr, at: Expr, r: Expr) -> Expr:
            return sum + apply("pairdot", row(tile, at, r), column)

        body = (*fill, *self.tiles((self.step,), height, added, self.parts(self.words.steps)))
        return self.contracted(body if held is True else (If(held, body, self.full()),))
