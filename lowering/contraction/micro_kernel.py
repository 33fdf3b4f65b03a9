"""Micro-kernels as values: the product of a step, and the rows and vectors of sums that registers
hold.

    for k { for r of `rows` { for v of `vectors` { sums[r, v] = sums[r, v] + product(a[r, k], b[k,
    v]) } } }

A step takes one word of each row, a scalar, and some vectors of words. Where the vectors lie along
the rows of the result, a step takes a word of each column instead. BLIS calls rows and vectors MR
and NR.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import inf

from ...dialect.types.sizes import Dim
from ..processor import Processor, processor
from .vnni_packing import is_multiple

# cost model: loads per instruction of a product, beside which most of them run; tuned by hand
# (Zen 4, Zen 5)
LOADS_PER_PRODUCT = 8
# rows of a tile, at most: more would gain little and be longer code; tuned by hand (Zen 4, Zen 5)
MAX_ROWS = 14
MAX_VECTORS = 7  # vectors of a tile's row, at most; tuned by hand (Zen 4, Zen 5)
# the fewer of the rows and vectors of a step, at most, which LLVM keeps in registers together
# with the others; seen in machine code: sums are spilled for more
MAX_SIDE = 4
# cost model: instructions of an iteration over steps, beside its products; counted, not timed
LOOP_INSTRUCTIONS = 4
# cost model: instructions of a product of pairs where the processor has none for it; counted, not
# timed
PLAIN_PAIRDOT = 10
GUESS = 64  # cost model: the size that an unknown one counts as; tuned by hand (Zen 4, Zen 5)
# rows, and columns, from which a contraction of floats or of unknown sizes is packed; tuned by
# hand (Zen 4, Zen 5)
MIN_ORDERED = 6


@dataclass(frozen=True)
class Product:
    """The products of the terms in a word, added to a sum: how many terms, and what that takes of a
    processor.
    """

    terms: int
    instructions: float = 1  # of each vector
    temporaries: int = 0  # registers beside those of sums, columns and a row's word
    max_rows: int = MAX_ROWS

    def shapes(self) -> "Iterator[MicroKernel]":
        """The micro-kernels that registers have room for."""
        for vectors in range(1, MAX_VECTORS + 1):
            for rows in range(1, self.max_rows + 1):
                room = processor().vector_registers - vectors - 1 - self.temporaries
                if rows * vectors <= room and min(rows, vectors) <= MAX_SIDE:
                    yield MicroKernel(self, rows, vectors)

    def best(self, rows: Dim, blocks: Dim | None, fixed: int = 0, more: float = 0) -> "MicroKernel":
        """The micro-kernel of least cost, with a `fixed` number of vectors where that is given."""
        extents = [n if isinstance(n, int) else None for n in (rows, blocks)]
        return _best(self, *extents, fixed, more, processor())


@dataclass(frozen=True)
class MicroKernel:
    """A product, and the sums of a tile."""

    product: Product
    rows: int
    vectors: int

    def steps_together(self, steps: Dim) -> int:
        """The unrolled steps: two, where registers hold the columns of both, which LLVM loads
        early.
        """
        registers = (self.rows + 2) * self.vectors + 1 + self.product.temporaries
        fits = self.vectors > 1 and registers <= processor().vector_registers + 1
        return 2 if fits and is_multiple(steps, 2) else 1

    def cost(self, rows: Dim | None, blocks: Dim | None, more: float = 0) -> float:
        """The cycles that a step of all tiles occupies a multiply-add unit, with `more`
        instructions for each sum.
        """
        sums = self.rows * self.vectors
        cycles = processor().fma_cycles  # of whatever is done with whole vectors
        beside = self.rows + self.vectors * cycles + LOOP_INSTRUCTIONS / self.steps_together(2)
        step = (self.product.instructions + more) * sums * cycles + beside / LOADS_PER_PRODUCT
        return _tiles(rows, self.rows) * _tiles(blocks, self.vectors) * step


@lru_cache(maxsize=1 << 12)
def _best(
    product: Product, rows: int | None, blocks: int | None, fixed: int, more: float, _: Processor
) -> MicroKernel:
    """The micro-kernel of least cost for a processor, the one at hand."""
    least_rows = MIN_ORDERED if rows is None else rows
    least_blocks = inf if blocks is None else blocks
    low_enough = (m for m in product.shapes() if m.rows <= least_rows)
    candidates = [
        m for m in low_enough if (m.vectors == fixed if fixed else m.vectors <= least_blocks)
    ]
    return min(candidates, key=lambda m: (m.cost(rows, blocks, more), -m.rows * m.vectors))


def _tiles(size: Dim | None, each: int) -> float:
    return -(-size // each) if isinstance(size, int) else GUESS / each


FMA = Product(1)
MUL_I32 = Product(
    1, instructions=3, temporaries=1, max_rows=3
)  # the product takes so long that it hides all loads
INT8_DOT_PRODUCT = Product(4)
INT8_PAIR_PRODUCTS = Product(4, instructions=3, temporaries=4)


def pairdot() -> Product:
    """Pairs of 16 bits: one instruction with VNNI, else a product that waits in a register, and a
    sum, or plain integers.
    """
    if all(d.function != "pairdot" for d in processor().dot_products):
        return Product(2, instructions=PLAIN_PAIRDOT, temporaries=2)
    return (
        Product(2)
        if processor().has_int8_dot_product
        else Product(2, instructions=2, temporaries=1)
    )
