"""Contractions of bytes where the processor adds the products of four to a sum in one instruction:

    for s { sums[r, q] = sums[r, q] + quaddot_us(panel[s, q], rows[r, s]) }

One factor of such a product has no sign. Where neither is known to have none, but one is constant, 128 is added to the
bytes of the other, which is to turn their highest bits, and what that adds is taken from the sums in the end:

    sum of x * w  =  sum of (x + 128) * w  -  128 * sum of w
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...dialect.ir.types import I8, I32, UI8
from ...dialect.notation.expressions import Expr, Tensor, apply, both, constant, select
from ...dialect.notation.loops import Kernel
from ..analysis.accesses import depends
from ..processor import processor
from .k_packing import extent_of, known_terms, pack_k_axis
from .match import Contraction, LoweredContraction
from .operand_bitwidths import OperandMagnitudes
from .pack_panels import PackedContraction

TERMS_PER_WORD = 4  # terms of a word
MIDDLE = 128
TILES = {16: ((6, 2),), 32: ((8, 2), (8, 3), (4, 5), (3, 7))}  # by registers
LOADS = 8  # that take as long as a sum
HIGHEST = -0x7F7F7F80  # bits of a word's bytes: 0x80808080


def lower_dot4(
    kernel: Kernel,
    c: Contraction,
    sizes: OperandMagnitudes,
    constants: Mapping[Tensor, np.ndarray],
) -> tuple[LoweredContraction, Expr | bool] | None:
    """The kernels that multiply bytes, and where they compute what they should; None where they never do."""
    height, together = cost(c, processor().vector_registers)[1]
    return with_sign_offset(sizes, lambda swapped: Dot4Tiles(kernel, c, constants, swapped, height, together))


def with_sign_offset(
    sizes: OperandMagnitudes, quads: Callable[[bool], Dot4Tiles]
) -> tuple[LoweredContraction, Expr | bool] | None:
    """The kernels with the factor that has no sign in its place, or moved there, and where they compute what they should."""
    below, under = sizes.negative
    for plain in (True, False):
        for unsigned, signed, sign, swapped in (
            (sizes.columns, sizes.rows, under, False),
            (sizes.rows, sizes.columns, below, True),
        ):
            held = both(signed <= I8.limits[1], _is_byte(unsigned, sign))
            if held is False or plain != (sign is False):
                continue
            way = quads(swapped)
            if not plain and not way.moved(sign):
                if not isinstance(sign, Expr):
                    continue
                held = both(held, ~sign)
            made = way.made()
            return None if made is None else (made, held)
    return None


def are_bytes(c: Contraction, sizes: OperandMagnitudes, constants: Mapping[Tensor, np.ndarray]) -> bool:
    """Test whether the factors are known to be such bytes at compile time."""
    least, most = I8.limits[1], UI8.limits[1]
    rows = known_terms(c.a, constants, [i for i in (*c.outer, c.row, *c.folds) if depends(c.a, {i})]) is not None
    below, under = sizes.negative
    if not isinstance(sizes.rows, int) or not isinstance(sizes.columns, int):
        return False
    by_rows = sizes.rows <= least and sizes.columns <= (least if under else most) and (rows or under is False)
    return by_rows or (sizes.columns <= least and sizes.rows <= most and below is False)


def _is_byte(size: Expr | int, sign: Expr | bool) -> Expr | bool:
    """Test whether numbers fit a byte: unsigned, or signed and offset by 128."""
    small, large = size <= I8.limits[1], size <= UI8.limits[1]
    if isinstance(sign, bool):
        return small if sign else large
    assert isinstance(small, Expr) and isinstance(large, Expr)
    return small | large & ~sign


def cost(c: Contraction, registers: int) -> tuple[int, tuple[int, int]]:
    """The estimated time of a step of all tiles, one accumulation costing LOADS, and the best tile as rows and vectors
    of a panel: the one with the fewest superfluous products, then the fewest loads.
    """
    rows, blocks = extent_of(c.row), -(-extent_of(c.column) // processor().lanes) * extent_of(c.window)

    def of(tile: tuple[int, int]) -> int:
        height, together = tile
        steps = -(-blocks // together) * -(-rows // height)
        return steps * (LOADS * height * together + height + together)

    return min((of(tile), tile) for tile in TILES[registers])


class Dot4Tiles(PackedContraction):
    """The factor of the columns has no sign, or that of the rows where they are `swapped`."""

    def __init__(
        self,
        kernel: Kernel,
        c: Contraction,
        constants: Mapping[Tensor, np.ndarray],
        swapped: bool,
        most: int,
        blocks: int,
    ) -> None:
        super().__init__(kernel, c, constants, pack_k_axis(c.folds, TERMS_PER_WORD), blocks)
        self.swapped, self.most = swapped, most

    def moved(self, sign: Expr | bool) -> bool:
        """Adds 128 to the factor that may have a sign, where the other is constant."""
        known = self.known_panels(self.words) if self.swapped else self.known_rows()
        if known is None:
            return False
        parts = np.ascontiguousarray(known).view(np.int8).reshape(*known.shape, TERMS_PER_WORD).sum(-1, dtype=np.int32)
        sums = parts.sum(-2 if self.swapped else -1, dtype=np.int32) * MIDDLE
        more = Tensor("more", sums.shape, I32, "constant")
        self.constants[more] = sums
        turned: Expr = constant(HIGHEST, I32)
        if isinstance(sign, Expr):
            turned = select(sign, turned, 0)
        if self.swapped:
            self.row_bits = turned
        else:
            self.column_bits = turned

        def rest(sum: Expr, row: Expr) -> Expr:
            found = more[(*self.beside, self.panel, self.place)] if self.swapped else more[(*self.around, row)]
            return sum - (select(sign, found, 0) if isinstance(sign, Expr) else found)

        self.rest = rest
        return True

    def made(self) -> LoweredContraction | None:
        height = self.height(self.most)
        self.share_rows(height, self.words.steps)
        columns = self.columns()
        if columns is None:
            return None
        fill, column = columns
        row = self.rows(height)

        def added(sum: Expr, tile: Expr, at: Expr, r: Expr) -> Expr:
            word = row(tile, at, r)
            return sum + apply("quaddot_us", *((word, column) if self.swapped else (column, word)))

        return self.contracted((*fill, *self.tiles((self.step,), height, added, self.parts(self.words.steps))))
