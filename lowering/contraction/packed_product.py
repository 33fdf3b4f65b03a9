"""Contractions over packed panels, by pairs of 16-bit terms, or by single terms where these do not fit or are floats:

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

from collections.abc import Mapping

import numpy as np

from ...dialect.ir.sizes import product
from ...dialect.ir.types import I16, I32
from ...dialect.notation.expressions import Expr, Tensor, apply, both
from ...dialect.notation.loops import Alloc, Block, If, Kernel
from ...dialect.notation.traverse import substitute
from ..processor import processor
from .k_packing import Terms, at_least, extent_of, pack_k_axis, size_of
from .macro_kernel import BLOCKS, ROWS, SUMS
from .match import Contraction, LoweredContraction
from .operand_bitwidths import OperandMagnitudes
from .pack_panels import PackedContraction

MIN_ROWS, MIN_K = 4, 8  # rows and terms of a contraction for which packing pays
WIDTHS = {16: (2, 3), 32: (2, 3, 4)}  # vectors of a panel of floats, by registers
MOST_SUMS = {16: SUMS, 32: 2 * SUMS}  # vectors of sums of a tile of floats, by registers


def lower_pairdot(
    kernel: Kernel, c: Contraction, magnitudes: OperandMagnitudes, constants: Mapping[Tensor, np.ndarray]
) -> LoweredContraction | None:
    """The kernels of an integer contraction by pairs of terms, where they fit 16 bits, and else by single terms; None where
    operands cannot be read so, or never fit."""
    return _Contract(kernel, c, constants, pack_k_axis(c.folds, 2)).in_words(magnitudes)


def lower_single_terms(
    kernel: Kernel, c: Contraction, constants: Mapping[Tensor, np.ndarray]
) -> LoweredContraction | None:
    """The kernels of a contraction whose products are of single terms, of 32-bit integers or floats."""
    pairs = pack_k_axis(c.folds, 2)
    if c.accumulator.element is I32:
        return _Contract(kernel, c, constants, pairs).in_full()
    return _Contract(kernel, c, constants, pairs, *choose_tile(c, processor().vector_registers)).in_full()


def worth_packing(c: Contraction) -> Expr | bool:
    """Test whether tiles are filled and there are enough products; a run-time condition for unknown sizes."""
    rows, columns, terms = c.row.extent, c.column.extent, product(tuple(i.extent for i in c.folds))
    work = rows * columns * size_of(c.window) * terms
    exact = c.accumulator.element.is_integer and isinstance(rows, int)
    fewest = MIN_ROWS if exact else ROWS  # floats of a size are summed in one order, known beforehand or not
    wanted = (
        (rows, fewest),
        (columns, max(processor().lanes, ROWS)),
        (terms, MIN_K),
        (work, processor().packing_products),
    )
    return both(*(at_least(n, least) for n, least in wanted))


def choose_tile(c: Contraction, registers: int) -> tuple[int, int]:
    """The vectors of floats of a panel, and the sums of a tile with the least estimated time: the more vectors, the
    fewer rows. The loads of a step take a third of the time of its sums.
    """
    most = MOST_SUMS[registers]
    if c.unknown:
        return BLOCKS, most
    rows, blocks = extent_of(c.row), -(-extent_of(c.column) // processor().lanes) * extent_of(c.window)

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
        """The statements that fill a panel with unpacked factors, and the factor of a step."""
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
