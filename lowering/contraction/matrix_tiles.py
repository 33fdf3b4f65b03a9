"""Contract bytes by matrix tiles: products of some rows of 64 bytes by 64 bytes of some columns,
added to a tile of i32, as x86 has them (AMX).

    for panel in columns by 32 parallel {
      panel[k, q] = words of these columns
      for tile in rows by 32 {
        for r in 0..32 matrix { for v in 0..2 {
          sums[r, v] = 0
          for k { sums[r, v] = sums[r, v] + quaddot_us(panel[k, v], rows[r, k]) }
        } }
        y[r, q] = f(sums[r, v])
      }
    }

The matrix loop is the product of a block of tiles. Its meaning is the nest: a processor with tiles
executes it by their instructions, any other as the loops that it is, with the same sums modulo
2^32. Words, panels and epilogues are those of `packed_product`. Each factor may have a sign or not.
Rows are cut into blocks of one size, as evenly as they can be, since a tile takes as long as it has
rows. Short lines of columns, as those of small images, lie in one tile side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import (
    Expr,
    Index,
    Tensor,
    Var,
    apply,
    as_index,
    both,
    constant,
)
from ...dialect.types.sizes import Dim
from ...dialect.types.tensor_types import I8, I64, UI8, ElementType
from ..processor import processor
from .contraction_problem import (
    TOO_FEW,
    Constants,
    Problem,
    Strategy,
    why_not_integers,
)
from .macro_kernel import PanelTiling, Row, Sum, sizes_of
from .match_contraction import Contraction, LoweredContraction, kernel_from_body
from .micro_kernel import INT8_DOT_PRODUCT, MicroKernel
from .operand_bitwidths import Magnitude
from .pack_panels import PanelPacking
from .packed_product import WordPairs, panel_of_words, unproved
from .vnni_packing import (
    QUADS,
    Terms,
    by_words,
    divided,
    extent_of,
    is_plain,
    only_read,
    tile_start,
)

SIDE = 16  # rows of a tile, at most, and words of a row: 64 bytes (AMX, palette 1)
REGISTERS = 8  # tiles that registers hold (AMX, palette 1)
LEAST_COLUMNS = 8  # half a tile: with fewer, most of its work is wasted
MOST = 4  # tiles of a block along a side, at most: more would gain little
# cost model: cycles of byte dot products' unit, of which there are two, for a row of a tile: one
# cycle (Intel's optimization manual)
ROW = 2
# the same for a line of 64 bytes of a factor, read from the second-level cache; by the rate that a
# product of 192 x 256 x 2304 was measured at on a Granite Rapids, 2.9 times that of dot products
LINE = 4
STORED = 2  # the same for a line of sums that is stored and read again; estimated, not timed
START = 128  # the same for a block: its latency of 52 cycles, and clearing tiles; estimated
FILLED = 2  # the same for a vector that is copied to a panel: a load and a store; counted


def even_steps(words: int) -> tuple[int, int]:
    """The words of a sum, and of a step, where all steps have as many: registers have one shape
    each.
    """
    count = -(-words // SIDE)
    each = -(-words // count)
    return count * each, each


def even_sides(extent: int) -> tuple[int, int]:
    """The tiles along an extent, and the lines of each; none where they would differ."""
    count = -(-extent // SIDE)
    return (count, extent // count) if extent % count == 0 else (0, 0)


@dataclass(frozen=True)
class Block:
    """Tiles of sums together in registers: rows, and vectors of `lanes` columns, which are `pitch`
    columns apart.
    """

    rows: int
    vectors: int
    lanes: int
    pitch: int

    @property
    def columns(self) -> int:
        """The tiles side by side."""
        return even_sides(self.vectors * self.pitch)[0]

    @property
    def fits(self) -> bool:
        """Test whether registers hold the sums and the factors of a step."""
        return fits(even_sides(self.rows)[0], self.columns)

    def cost(self, rows: int, blocks: int, words: int, gathered: bool) -> float:
        """The cycles of a dot product's unit for the sums of `rows` and `blocks` of columns."""
        panels, tiles = -(-blocks // self.vectors), -(-rows // self.rows)
        compute = ROW * self.rows * self.columns * -(-words // SIDE)
        lines = LINE * (self.rows * -(-words // SIDE) + words * self.columns)
        each = compute + lines + STORED * self.rows * self.columns + START
        filled = FILLED * words * self.vectors if gathered else 0
        return panels * (tiles * each + filled)


def fits(down: int, along: int) -> bool:
    """Test whether registers hold `down` by `along` tiles of sums, those of the shorter side, and
    one of the other side.
    """
    return 0 < down * along < REGISTERS - min(down, along)


def whole_lines(words: int) -> int:
    """The words of as many lines of a tile as hold these."""
    return -(-words // SIDE) * SIDE


@lru_cache(maxsize=1 << 10)
def best_block(
    rows: int, columns: int, lines: int, words: int, gathered: bool, lanes: int
) -> Block:
    """The block of least cost, for lines of columns: vectors as long as they can be, or as even."""
    widest = min(lanes, columns)
    even = -(-columns // -(-columns // widest))
    blocks = [
        Block(height, vectors, wide, pitch)
        for wide in (widest, even)
        for pitch in (1 << (wide - 1).bit_length() if gathered else wide,)
        for vectors in range(1, min(MOST * SIDE // pitch, -(-columns // wide) * lines) + 1)
        for height in range(1, min(rows, MOST * SIDE) + 1)
    ]
    return min(
        (b for b in blocks if b.fits),
        key=lambda b: b.cost(rows, -(-columns // b.lanes) * lines, words, gathered),
    )


def _block(c: Contraction) -> tuple[Block, float]:
    """The block of a contraction, and what it costs."""
    read = only_read(c.b)
    gathered = bool(c.guard) or read is None or not is_plain(read)
    words = -(-prod(map(extent_of, c.reduction_axes)) // INT8_DOT_PRODUCT.terms)
    rows, columns, lines = extent_of(c.row), extent_of(c.column), extent_of(c.window)
    block = best_block(rows, columns, lines, words, gathered, min(processor().lanes, SIDE))
    return block, block.cost(rows, -(-columns // block.lanes) * lines, words, gathered)


class _Tiling(PanelTiling):
    """The kernel that computes a contraction of panels by matrix tiles. Vectors of a panel that is
    gathered begin where a tile does, or a half or quarter of one; nothing reads what lies between.
    """

    def __init__(self, kernel: ir.Kernel, c: Contraction, block: Block) -> None:
        micro = MicroKernel(INT8_DOT_PRODUCT, block.rows, block.vectors)
        super().__init__(kernel, c, micro, sizes_of(c, micro, block.lanes, block.pitch))
        self.column_of_tile = Index("l", block.pitch)

    def tiles(self, reduction_axes: Sequence[Index], sum: Sum, parts: int = 1) -> ir.Block:
        """For every block of rows: a matrix loop over all steps of the panel, and the epilogue."""
        (step,), height = reduction_axes, self.sizes.height
        rows = self.c.row.extent
        tile, r = Index("tile", divided(rows, height)), Index("r", height)
        start = ir.Let(Var("row", I64), tile_start(tile, rows, height))
        sums = Tensor("sums", (height, whole_lines(self.sizes.width)), self.element, "stack")
        place = (r, self.at.place)
        clear = ir.Store(sums, place, constant(0, self.element))
        add = ir.Store(sums, place, sum(sums[place], tile, start.var + r, r))
        clear_row, add_row = (
            ir.vector_loop(
                self.column_of_tile, *ir.substitute_block((s,), {self.at.lane: self.column_of_tile})
            )
            for s in (clear, add)
        )
        columns = ir.For(self.at.v, (clear_row, ir.For(step, (add_row,))))
        product = ir.For(r, (columns,), kind="matrix")
        finish = self.finish(sums, r, start.var, r)
        return self.order.each_tile(tile, (start, ir.Alloc(sums), product, finish))


class _Packing(PanelPacking):
    """Lines of a tile begin on lines of the cache. Those of constant rows are an odd number of them
    apart, and so lie in different sets.
    """

    def __init__(self, tiling: PanelTiling, constants: Constants) -> None:
        super().__init__(tiling, constants)
        self.step = Index("s", self.depth(self.words.steps))  # those that no term is in, too

    def depth(self, steps: Dim) -> Dim:
        assert isinstance(steps, int)
        return even_steps(steps)[0]

    def buffer(self, name: str, steps: Dim) -> Tensor:
        found = super().buffer(name, steps)
        return replace(found, shape=(*found.shape[:-1], whole_lines(self.tiling.sizes.width)))

    def known_panels(self, terms: Terms) -> np.ndarray | None:
        known = super().known_panels(terms)
        return None if known is None else self.padded(known.swapaxes(-1, -2)).swapaxes(-1, -2)

    def padded(self, known: np.ndarray, pitch: int = 0) -> np.ndarray:
        """Known words with zeros for the steps that no term is in."""
        more = max(pitch, self.step.extent) - known.shape[-1]
        return np.pad(known, [(0, 0)] * (known.ndim - 1) + [(0, more)])

    def lined(
        self, name: str, factor: Expr, lines: Sequence[Index], bits: Expr | None = None
    ) -> Tensor:
        words = Tensor("rows", (*(i.extent for i in lines), self.step.extent), self.element, "heap")
        at = (*lines, self.words.step)
        order = (*lines, *self.words.reduction_axes)
        body = by_words(self.words, factor, order, lambda value: (ir.Store(words, at, value),))
        zeros = ir.For(
            self.step,
            (ir.Store(words, (*lines, self.step), constant(0, self.element)),),
            as_index(self.words.steps),
        )
        if self.step.extent > self.words.steps:
            body = (*body, *ir.nested(lines, (zeros,)))
        self.kernels.append(kernel_from_body(self.kernel, name, body, (words,)))
        return words

    def rows(self) -> Row:
        if (known := self.known_rows()) is None:
            return super().rows()
        pitch = whole_lines(known.shape[-1]) | SIDE
        lines = self.constant("rows", self.padded(known, pitch))
        return lambda tile, at, r: lines[(*self.around, at, self.step)]


def _byte(factor: Magnitude) -> tuple[ElementType, Expr | bool]:
    """The type of bytes that a factor is taken for, and where that is exact."""
    byte = UI8 if factor.negative is False else I8
    return byte, factor.size <= byte.limits[1]


def lower_matrix_tiles(problem: Problem) -> LoweredContraction | None:
    """The kernels by matrix tiles; None if the factors are never bytes."""
    (row, rows_fit), (column, columns_fit) = map(_byte, (problem.sizes.rows, problem.sizes.columns))
    if (exact := both(rows_fit, columns_fit)) is False:
        return None
    c = problem.contraction
    block, _ = _block(c)
    packing = _Packing(_Tiling(problem.kernel, c, block), problem.constants)

    def products(words: WordPairs) -> Expr:
        ((a, b),) = words
        if (row, column) == (I8, UI8):
            return apply(QUADS[column, row], b, a)
        return apply(QUADS[row, column], a, b)

    body = panel_of_words(packing, products)
    return None if body is None else replace(packing.contracted(body), exact=exact)


def _why_not_matrix_tiles(problem: Problem) -> str:
    if not processor().matrix_tiles:
        return "the processor has no matrix tiles"
    if why := why_not_integers(problem):
        return why
    if problem.contraction.unknown:
        return "sizes are known only by a call"
    c, tuning = problem.contraction, processor().tuning
    rows, columns = extent_of(c.row), extent_of(c.column) * extent_of(c.window)
    few = (
        rows < tuning.packed_rows
        or columns < LEAST_COLUMNS
        or problem.terms < tuning.packed_terms
        or rows * columns * problem.terms < processor().packing_products
    )
    return TOO_FEW if few else ""


MATRIX_TILES = Strategy(
    "matrix_tiles",
    _why_not_matrix_tiles,
    lambda problem: _block(problem.contraction)[1] * unproved(problem),
    lower_matrix_tiles,
)
