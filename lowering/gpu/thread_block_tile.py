"""Tiles of a thread block in a contraction: their positions, their buffers in shared memory, and
the epilogue.

A tile's rows are one axis, its columns (batch and column joined) another, the reduced indices the
third. A block computes a tile of rows and columns in steps along the reduced axis: factors of later
steps arrive in shared memory while those of a step are multiplied (`pipeline`). Its shape is that
which leaves the least to do for the busiest multiprocessor: small tiles for small problems.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence

from ...dialect.kernel_ir.expressions import (
    Expr,
    Index,
    Read,
    Tensor,
    as_index,
    both,
    constant,
    unflatten,
)
from ...dialect.kernel_ir.index_bounds import inside
from ...dialect.kernel_ir.loops import Alloc, Block, For, If, Store, nested
from ...dialect.kernel_ir.traverse import substitute
from ...dialect.types.sizes import Dim, product
from ..analysis.parallel_loops import THREADS
from ..contraction.match_contraction import Contraction
from ..contraction.vnni_packing import divided
from ..processor import processor

SIDES = (128, 64, 32)  # sides of a tile, in elements; counted, not timed on a GPU
# threads side by side along the rows of a tile, and its columns; counted, not timed on a GPU
ROW = 16
# cost model: what a size counts as that only a call tells; counted, not timed on a GPU
UNKNOWN = 1 << 16


def may_reach(size: Dim, least: int) -> bool:
    """Test whether a size is at least `least`, or unknown."""
    return not isinstance(size, int) or size >= least


def digits(position: Expr, extents: Sequence[Dim]) -> tuple[list[Expr], Expr | bool]:
    """Delinearize a row-major position by one division per index, and test that it is inside. A
    size of 0, known at a call only, is not divided by.
    """
    values: list[Expr] = []
    for n, extent in enumerate(extents):
        digit = position // product(tuple(extents[n + 1 :]))
        values.append(digit % extent if n else digit)
    known = all(isinstance(n, int) for n in extents[1:])
    return values, inside(values[0], extents[0]) if known else inside(
        position, product(tuple(extents))
    )


def within(places: dict[Expr, Expr]) -> Expr | bool:
    """Test whether a position is inside its axis: it is if its first digit is."""
    first, value = next(iter(places.items()), (None, None))
    return inside(value, first.extent) if isinstance(first, Index) and value is not None else True


class Tiles:
    """A kernel over tiles of `high` rows and `wide` columns, in steps along the reduced axis."""

    steps: Dim  # at least as many as arrive
    ahead: int  # steps whose factors arrive while those of a step are multiplied
    each: tuple[Index, ...]  # indices of a thread's sums
    left: Tensor  # the buffer of the rows' factor
    right: Tensor
    acc: Tensor  # the sums, by thread

    def __init__(self, c: Contraction, sides: Iterable[tuple[int, int]]) -> None:
        self.c = c
        self.rows, self.columns = c.row.extent, product(tuple(i.extent for i in c.columns))
        outer = tuple(i.extent for i in c.outer)
        self.high, self.wide = min(sides, key=lambda s: self.cost(outer, *s))
        shape = (*outer, divided(self.rows, self.high), divided(self.columns, self.wide))
        self.thread = Index("t", THREADS)
        self.index = Index("b", product(shape))
        *at, self.row_tile, self.column_tile = unflatten(self.index, shape)
        self.outer: dict[Expr, Expr] = dict(zip(c.outer, at, strict=True))

    def cost(self, outer: Sequence[Dim], high: int, wide: int) -> int:
        """The work of the busiest multiprocessor: twice the instructions of a thread per term, as
        the emulator counts.
        """
        rows, columns, *around = (
            n if isinstance(n, int) else UNKNOWN for n in (self.rows, self.columns, *outer)
        )
        down, along = high // ROW, wide // ROW
        tiles = -(-rows // high) * -(-columns // wide) * math.prod(around)
        return -(-tiles // processor().gpu.multiprocessors) * (2 * down * along + down + along + 4)

    def buffers(self) -> Block:
        return allocated(self.left, self.right, self.acc)

    def zero(self) -> Expr:
        return constant(0, self.c.accumulator.element)

    @abstractmethod
    def fetch(self, step: Expr, stage: Expr) -> tuple[Block, Block]:
        """The statements of a thread before the products of a step, and after them, for a later
        step's factors to be in a stage.
        """

    @abstractmethod
    def products(self, stage: Expr, last: bool) -> Block:
        """A thread's products of a stage's factors, which may be fewer in the last step."""

    @abstractmethod
    def sum(self) -> tuple[Read, Expr, Expr]:
        """A thread's sum, and its row and column in the tile."""

    def block(self) -> For:
        clear = nested(
            self.each, (Store(self.acc, (self.thread, *self.each), self.zero()),), "unrolled"
        )
        finish = nested(self.each, self.finish(), "unrolled")
        body = (*self.buffers(), self.threads(clear), *self.pipeline(), self.threads(finish))
        return For(self.index, body, kind="block")

    def pipeline(self) -> Block:
        """All products; a stage of the buffers is multiplied while the others are filled, and then
        filled again.
        """
        ahead = self.ahead
        stages = self.ahead + 1
        step = Index("k", self.steps - ahead)
        first = [
            (*before, *after)
            for before, after in (self.fetch(n, n) for n in map(as_index, range(ahead)))
        ]
        before, after = self.fetch(step + ahead, (step + ahead) % stages)
        body = (self.threads((*before, *self.products(step % stages, False), *after)),)
        last = [
            self.products(as_index((self.steps - n) % stages), n == 1) for n in range(ahead, 0, -1)
        ]
        loop = (For(step, body),) if may_reach(step.extent, 1) else ()
        return (*map(self.threads, first), *loop, *map(self.threads, last))

    def threads(self, body: Block) -> For:
        return For(self.thread, body, kind="thread")

    def row_at(self, row: Expr) -> dict[Expr, Expr]:
        """The contraction's row index at a row of the tile."""
        return {self.c.row: self.row_tile * self.high + row}

    def column_at(self, column: Expr) -> dict[Expr, Expr]:
        shape = tuple(i.extent for i in self.c.columns)
        return dict(
            zip(
                self.c.columns, unflatten(self.column_tile * self.wide + column, shape), strict=True
            )
        )

    def finish(self) -> Block:
        """The epilogue: the contraction's result from a sum."""
        sum, row, column = self.sum()
        rows, columns = self.row_at(row), self.column_at(column)
        return guarded(
            self.c.finish(sum, {**self.outer, **rows, **columns}),
            both(within(rows), within(columns)),
        )

    def placed(self, e: Expr, *places: dict[Expr, Expr]) -> Expr:
        """An expression of the contraction at values of its indices."""
        return substitute(
            e, {**self.outer, **{i: value for place in places for i, value in place.items()}}
        )


def guarded(body: Block, *guards: Expr | bool, otherwise: Block = ()) -> Block:
    """The body under each guard that is not known to hold, the last outermost."""
    for guard in guards:
        body = (If(guard, body, otherwise),) if isinstance(guard, Expr) else body
    return body


def allocated(*tensors: Tensor) -> Block:
    return tuple(map(Alloc, tensors))
