"""What contractions by tiles of a block's threads have in common: where a block's tile lies, and what becomes of its sums.

A contraction's rows are one axis of a tile, its window and its column together the other, all indices of the fold the
third. A block has a tile of rows and columns and goes along the fold in steps, the factors of a step in one half of a
buffer in shared memory while those of the next are fetched into registers, and from there into the other half.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from ...dialect.ir.sizes import Dim, larger, product
from ...dialect.notation.index import Expr, Index, Read, Tensor, as_index, both, unflatten
from ...dialect.notation.index_bounds import inside
from ...dialect.notation.loops import Alloc, Block, For, If, Statement, map_expressions, substitute_block
from ...dialect.notation.traverse import rewrite, substitute
from ..analysis.parallel_loops import MULTIPROCESSORS, THREADS
from ..contraction.match import Contraction

LARGE, SMALL = (
    128,
    64,
)  # sides of a tile; small where there would be fewer than processors; large ones of 8 bytes an element do not fit in registers


def at_least(size: Dim, least: int) -> bool:
    """Whether a size is so much; one that is not known is."""
    return not isinstance(size, int) or size >= least


def digits(position: Expr, extents: Sequence[Dim]) -> list[Expr]:
    """The indices at a row-major position, each by one division of the position itself."""
    found: list[Expr] = []
    for n, extent in enumerate(extents):
        digit = position // product(tuple(extents[n + 1 :]))
        found.append(digit % extent if n else digit)
    return found


def within(places: dict[Expr, Expr]) -> Expr | bool:
    """Whether a position is one of its axis: it is if its first digit is."""
    first, value = next(iter(places.items()), (None, None))
    return inside(value, first.extent) if isinstance(first, Index) and value is not None else True


class Tiles:
    """One kernel over tiles of `high` rows and `wide` columns, in steps of the fold."""

    each: tuple[Index, ...]  # the sums of a thread

    def __init__(self, c: Contraction, steps: Dim) -> None:
        self.c = c
        self.across = tuple(i for i in (c.window, c.column) if i is not None)
        self.rows, self.columns = c.row.extent, product(tuple(i.extent for i in self.across))
        self.steps = larger(steps, 1)
        outer = tuple(i.extent for i in c.outer)
        large = at_least(product((*outer, *self.tiles(*self.sides(LARGE)))), MULTIPROCESSORS)
        self.high, self.wide = self.sides(LARGE if large and c.accumulator.element.bytes <= 4 else SMALL)
        shape = (*outer, *self.tiles(self.high, self.wide))
        self.thread = Index("t", THREADS)
        self.index = Index("b", product(shape))
        *at, self.row_tile, self.column_tile = unflatten(self.index, shape)
        self.outer: dict[Expr, Expr] = dict(zip(c.outer, at, strict=True))

    def sides(self, most: int) -> tuple[int, int]:
        """The rows and columns of a tile."""
        return tuple(most if at_least(n, SMALL + 1) else SMALL for n in (self.rows, self.columns))  # type: ignore[return-value]

    def tiles(self, high: int, wide: int) -> tuple[Dim, Dim]:
        return (self.rows + (high - 1)) // high, (self.columns + (wide - 1)) // wide

    @abstractmethod
    def buffers(self) -> Block:
        """The buffers of a block."""

    @abstractmethod
    def clear(self) -> Block:
        """What a thread's sums begin with."""

    @abstractmethod
    def fetch(self, step: Expr, half: Expr) -> tuple[Block, Block]:
        """The factors of a step into registers of a thread, and from there into a half of the buffers."""

    @abstractmethod
    def products(self, half: Expr, last: bool) -> Block:
        """A thread's sums with the products of a step."""

    @abstractmethod
    def sum(self) -> tuple[Read, Expr, Expr]:
        """A sum of a thread, and the row and column of the tile that it is at."""

    def block(self) -> For:
        step = Index("k", self.steps - 1)
        fetched, kept = self.fetch(as_index(0), as_index(0))
        body: list[Statement] = [*self.buffers(), self.threads(self.clear()), self.threads((*fetched, *kept))]
        if at_least(self.steps, 2):
            half = step % 2
            fetched, kept = self.fetch(step + 1, 1 - half)
            body.append(For(step, (self.threads((*fetched, *self.products(half, False), *kept)),)))
        body.append(self.threads(self.products(as_index((self.steps - 1) % 2), True)))
        body.append(self.threads(self.unrolled(self.each, self.finish())))
        return For(self.index, tuple(body), kind="block")

    def threads(self, body: Block) -> For:
        return For(self.thread, body, kind="thread")

    @staticmethod
    def unrolled(indices: Sequence[Index], body: Block) -> Block:
        for i in reversed(indices):
            body = (For(i, body, kind="unrolled"),)
        return body

    def row_at(self, row: Expr) -> dict[Expr, Expr]:
        """The row of the contraction at one of the tile."""
        return {self.c.row: self.row_tile * self.high + row}

    def column_at(self, column: Expr) -> dict[Expr, Expr]:
        shape = tuple(i.extent for i in self.across)
        return dict(zip(self.across, unflatten(self.column_tile * self.wide + column, shape), strict=True))

    def finish(self) -> Block:
        """What the contraction makes of a sum."""
        found, row, column = self.sum()
        rows, columns = self.row_at(row), self.column_at(column)

        def change(e: Expr) -> Expr | None:
            return found if isinstance(e, Read) and e.tensor is self.c.accumulator else None

        body = map_expressions(self.c.epilogue, lambda e: rewrite(e, change))
        body = substitute_block(body, {**self.outer, **rows, **columns})
        held = both(within(rows), within(columns))
        return (If(held, body),) if isinstance(held, Expr) else body

    def placed(self, e: Expr, *places: dict[Expr, Expr]) -> Expr:
        """An expression of the contraction at places of its indices."""
        values = dict(self.outer)
        for p in places:
            values.update(p)
        return substitute(e, values)


def allocated(*tensors: Tensor) -> Block:
    return tuple(map(Alloc, tensors))
