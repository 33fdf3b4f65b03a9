"""Tiles of a thread block in a contraction: their positions, their buffers in shared memory, and the epilogue.

A tile's rows are one axis, its columns (batch and column joined) another, the reduced indices the third. A block
computes a tile of rows and columns in steps along the reduced axis: one half of a double buffer in shared memory is
read while the factors of the next step are loaded into registers, and from there stored to the other half. Its shape
is that which leaves the least to do for the busiest multiprocessor: small tiles for small problems."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence

from ...dialect.ir.sizes import Dim, larger, product
from ...dialect.notation.expressions import Expr, Index, Read, Tensor, as_index, both, constant, unflatten
from ...dialect.notation.index_bounds import inside
from ...dialect.notation.loops import Alloc, Block, For, If, Statement, Store, nested
from ...dialect.notation.traverse import substitute
from ..analysis.parallel_loops import THREADS
from ..contraction.match import Contraction
from ..contraction.vnni_packing import divided
from ..processor import processor

SIDES = (128, 64, 32)  # of a tile
ROW = 16  # threads side by side along a tile's rows, and its columns
UNKNOWN = 1 << 16  # what a size that only a call tells counts as


def may_reach(size: Dim, least: int) -> bool:
    """Test whether a size is at least `least`, or unknown."""
    return not isinstance(size, int) or size >= least


def digits(position: Expr, extents: Sequence[Dim]) -> list[Expr]:
    """Delinearize a row-major position: one division of the position per index."""
    values: list[Expr] = []
    for n, extent in enumerate(extents):
        digit = position // product(tuple(extents[n + 1 :]))
        values.append(digit % extent if n else digit)
    return values


def within(places: dict[Expr, Expr]) -> Expr | bool:
    """Test whether a position is inside its axis: it is if its first digit is."""
    first, value = next(iter(places.items()), (None, None))
    return inside(value, first.extent) if isinstance(first, Index) and value is not None else True


class Tiles:
    """A kernel over tiles of `high` rows and `wide` columns, in steps along the reduced axis."""

    each: tuple[Index, ...]  # indices of a thread's sums
    left: Tensor  # the buffer of the rows' factor
    right: Tensor
    acc: Tensor  # the sums, by thread

    def __init__(self, c: Contraction, steps: Dim, sides: Iterable[tuple[int, int]]) -> None:
        self.c = c
        self.rows, self.columns = c.row.extent, product(tuple(i.extent for i in c.columns))
        self.steps = larger(steps, 1)
        outer = tuple(i.extent for i in c.outer)
        self.high, self.wide = min(sides, key=lambda s: self.cost(outer, *s))
        shape = (*outer, divided(self.rows, self.high), divided(self.columns, self.wide))
        self.thread = Index("t", THREADS)
        self.index = Index("b", product(shape))
        *at, self.row_tile, self.column_tile = unflatten(self.index, shape)
        self.outer: dict[Expr, Expr] = dict(zip(c.outer, at, strict=True))

    def cost(self, outer: Sequence[Dim], high: int, wide: int) -> int:
        """The work of the busiest multiprocessor: twice the instructions of a thread per term, as the emulator counts."""
        rows, columns, *around = (n if isinstance(n, int) else UNKNOWN for n in (self.rows, self.columns, *outer))
        down, along = high // ROW, wide // ROW
        tiles = -(-rows // high) * -(-columns // wide) * math.prod(around)
        return -(-tiles // processor().gpu.multiprocessors) * (2 * down * along + down + along + 4)

    def buffers(self) -> Block:
        return allocated(self.left, self.right, self.acc)

    def zero(self) -> Expr:
        return constant(0, self.c.accumulator.element)

    def fetch(self, step: Expr, half: Expr) -> tuple[Block, Block]:
        """Loads of a step's factors into a thread's registers, and their stores to a half of the buffers."""
        (a, left), (b, right) = (self.part(tile, step, half) for tile in (self.left, self.right))
        return (*a, *b), (*left, *right)

    @abstractmethod
    def part(self, tile: Tensor, step: Expr, half: Expr) -> tuple[Block, Block]:
        """The same of one factor, for its buffer."""

    @abstractmethod
    def products(self, half: Expr, last: bool) -> Block:
        """The update of a thread's sums by the products of a step."""

    @abstractmethod
    def sum(self) -> tuple[Read, Expr, Expr]:
        """A thread's sum, and its row and column in the tile."""

    def block(self) -> For:
        step = Index("k", self.steps - 1)
        fetched, stores = self.fetch(as_index(0), as_index(0))
        clear = nested(self.each, (Store(self.acc, (self.thread, *self.each), self.zero()),), "unrolled")
        body: list[Statement] = [*self.buffers(), self.threads(clear), self.threads((*fetched, *stores))]
        if may_reach(self.steps, 2):
            half = step % 2
            fetched, stores = self.fetch(step + 1, 1 - half)
            body.append(For(step, (self.threads((*fetched, *self.products(half, False), *stores)),)))
        body.append(self.threads(self.products(as_index((self.steps - 1) % 2), True)))
        body.append(self.threads(nested(self.each, self.finish(), "unrolled")))
        return For(self.index, tuple(body), kind="block")

    def threads(self, body: Block) -> For:
        return For(self.thread, body, kind="thread")

    def row_at(self, row: Expr) -> dict[Expr, Expr]:
        """The contraction's row index at a row of the tile."""
        return {self.c.row: self.row_tile * self.high + row}

    def column_at(self, column: Expr) -> dict[Expr, Expr]:
        shape = tuple(i.extent for i in self.c.columns)
        return dict(zip(self.c.columns, unflatten(self.column_tile * self.wide + column, shape), strict=True))

    def finish(self) -> Block:
        """The epilogue: the contraction's result from a sum."""
        sum, row, column = self.sum()
        rows, columns = self.row_at(row), self.column_at(column)
        return guarded(self.c.finish(sum, {**self.outer, **rows, **columns}), both(within(rows), within(columns)))

    def placed(self, e: Expr, *places: dict[Expr, Expr]) -> Expr:
        """An expression of the contraction at values of its indices."""
        return substitute(e, {**self.outer, **{i: value for place in places for i, value in place.items()}})


def guarded(body: Block, *guards: Expr | bool, otherwise: Block = ()) -> Block:
    """The body under each guard that is not known to hold, the last outermost."""
    for guard in guards:
        body = (If(guard, body, otherwise),) if isinstance(guard, Expr) else body
    return body


def allocated(*tensors: Tensor) -> Block:
    return tuple(map(Alloc, tensors))
