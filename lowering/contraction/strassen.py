"""Products of integer matrices by 7 products of blocks in place of 8: Strassen's algorithm in Winograd's form, and exact.

    for r { for q { y[r, q] = sum over k of a[r, k] * b[k, q] } }
    =>  for panel in columns by 16 * side parallel {
          turned[n, s, q] = sums of b's blocks                7 numbers n for 2 x 2 blocks, 49 where these are cut again
          for tile in rows by 6 * side {
            for n { points[n, r, q] = sum over s of pairdot(rows[n, r, s], turned[n, s, q]) }     rows: sums of a's blocks
            y = sums of the points
          }
        }

The rows of a tile, the columns of a panel and the words of a sum are `side` blocks each. Points are added while they are
near. Sums of blocks are of 16-bit halves and have up to 4 times the magnitude for each time that blocks are cut; sums of
products are modulo 2^32, so all is exact where the sums of blocks fit 16 bits. Where ranges do not tell, it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from operator import add, sub

import numpy as np

from ...dialect.ir.types import I16, I32, I64
from ...dialect.notation.index import Expr, Index, Read, Tensor, Var, apply, as_index, both, constant, flat_index
from ...dialect.notation.loops import Alloc, Block, For, Kernel, Let, Statement, Store
from ...dialect.notation.traverse import substitute, walk
from ..analysis.accesses import stride
from .k_packing import extent_of, is_multiple, is_plain, loops_of, only_read, words_along
from .match import Contraction, LoweredContraction, kernel_from_body
from .micro_kernel import BLOCKS, LANES, ROWS, UNROLLED
from .operand_bitwidths import OperandMagnitudes
from .pack_panels import PackedContraction
from .strassen_coefficients import PRODUCTS, Matrix, Operation, left, right, turned, turned_back

LEVELS = (1, 2)  # how often blocks are cut
START = 3  # steps that take as long as a point's start and end
TURN = 1  # steps of a row that take as long as to turn a step of the columns, for each point and each block that it may add
MAX_COST_RATIO = 0.95  # of what it takes otherwise, at most
MAX_NEAR_BYTES = 5 << 17  # bytes of a turned panel

Row = Callable[[Expr, Expr], Expr]  # a row's word, of the strip of steps and the step in it
Column = Callable[[Expr], Expr]  # the columns' words, of the step


def lower_strassen(
    kernel: Kernel, c: Contraction, sizes: OperandMagnitudes, constants: Mapping[Tensor, np.ndarray]
) -> tuple[LoweredContraction, Expr | bool] | None:
    """The kernels that multiply sums of blocks, and where they are right; None where that does not pay."""
    read = only_read(c.b)
    found = cut_of(c, read is not None and read.tensor in constants)
    if found is None:
        return None
    most = (I16.limits[1] >> 2 * found.levels) - 1  # magnitudes of negative numbers count one less
    held = both(sizes.rows <= most, sizes.columns <= most)
    made = None if held is False else _Blocks(kernel, c, constants, found).made()
    return None if made is None else (made, held)


@dataclass(frozen=True, eq=False)
class Tiles:
    """Tiles of rows that are cut alike: the index of the tile, that of a row of a block, and where they begin."""

    tile: Index
    r: Index
    first: int = 0

    @property
    def low(self) -> int:
        return extent_of(self.r)


@dataclass(frozen=True, eq=False)
class Cut:
    """How often blocks are cut, how many rows the smallest have, and which index of the sum is cut."""

    levels: int
    height: int
    along: Index | None = None

    @property
    def side(self) -> int:
        return 2**self.levels

    @property
    def points(self) -> int:
        return PRODUCTS**self.levels

    def tiles(self, rows: int) -> list[Tiles]:
        """The tiles of so many rows, with a lower one at the end that may overlap the one before."""
        count, rest = divmod(rows, self.height * self.side)
        low = -(-rest // self.side)
        last = [Tiles(Index("tile", 1), Index("r", low), rows - low * self.side)] if rest else []
        return [Tiles(Index("tile", count), Index("r", self.height)), *last]

    def cost(self, rows: int, blocks: int, steps: int, known: bool) -> int:
        """The steps of all rows of all tiles, and what takes as long as they do; columns may be known."""
        panels = -(-blocks // (BLOCKS * self.side))
        heights = sum(extent_of(t.tile) * (t.low + 2) for t in self.tiles(rows))
        turned = TURN * self.side * steps if self.levels and not known else 0
        return panels * self.points * (heights * (steps // self.side + START) + turned)


def cut_of(c: Contraction, known: bool) -> Cut | None:
    """The cut that takes the least time; None where none pays."""
    if c.unknown:
        return None
    rows, blocks = extent_of(c.row), -(-extent_of(c.column) // LANES) * extent_of(c.window)
    steps = -(-prod(map(extent_of, c.folds)) // 2)
    plain = min(Cut(0, height).cost(rows, blocks, steps, known) for height in range(1, min(ROWS, rows) + 1))
    cuts: list[Cut] = []
    for levels in LEVELS:
        side = 2**levels
        along = next((i for i in c.folds if is_multiple(i.extent, 2 * side)), None)
        near = PRODUCTS**levels * (steps // side) * BLOCKS * LANES * I32.bytes <= MAX_NEAR_BYTES
        if along is not None and near and blocks >= BLOCKS * side:
            cuts += [Cut(levels, height, along) for height in range(1, min(ROWS, rows // side) + 1)]
    best = min(cuts, key=lambda cut: cut.cost(rows, blocks, steps, known), default=None)
    return None if best is None or best.cost(rows, blocks, steps, known) >= MAX_COST_RATIO * plain else best


class _Blocks(PackedContraction):
    """The kernels of one contraction."""

    def __init__(self, kernel: Kernel, c: Contraction, constants: Mapping[Tensor, np.ndarray], cut: Cut) -> None:
        assert cut.along is not None
        super().__init__(kernel, c, constants, words_along(cut.along, c.folds, 2), BLOCKS * cut.side)
        self.cut, self.side, self.points, self.n = cut, cut.side, cut.points, Index("n", cut.points)
        part = self.words.part
        self.piece = Index(part.name, extent_of(part) // self.side)
        self.pieces = tuple(self.piece if i is part else i for i in self.words.folds)
        self.steps = prod(map(extent_of, self.pieces))
        self.strip = gcd(extent_of(self.pieces[-1]), LANES)
        self.u = Index("v", BLOCKS)
        self.beside_each_other = self.u * LANES + self.lane

    def made(self) -> LoweredContraction | None:
        columns = self.turned_columns()
        if columns is None:
            return None
        fill, column = columns
        tiles = [self.sums(t, column) for t in self.cut.tiles(extent_of(self.c.row))]
        return self.contracted((*fill, *tiles))

    def sums(self, tiles: Tiles, column: Column) -> For:
        """A panel's tiles."""
        high = tiles.low * self.side
        start, line = Let(Var("row", I64), tiles.tile * high + tiles.first), Index("r", high)
        points = Tensor("points", (self.points, tiles.low, BLOCKS * LANES), I32, "stack")
        held = Tensor("held", (high, self.width), I32, "stack")
        body: Block = (
            *(start, Alloc(points), For(self.n, self.point(points, tiles.r, self.turned_rows(tiles), column))),
            *(Alloc(held), *self.turned_back(points, tiles, held)),
            self.finish(held, line, start.var, line),
        )
        return For(tiles.tile, body)

    def point(self, points: Tensor, r: Index, row: Row, column: Column) -> Block:
        """The sums of a tile's products of one number."""
        sums = Tensor("sums", (extent_of(r), BLOCKS * LANES), I32, "register")
        unrolled = gcd(self.strip, UNROLLED)
        t, s, u = Index("t", self.steps // self.strip), Index("s", self.strip // unrolled), Index("u", unrolled)
        place, o = (r, self.beside_each_other), s * unrolled + u
        added = sums[place] + apply("pairdot", row(t, o), column(t * self.strip + o))

        def each(store: Store) -> For:
            lanes = For(self.lane, (store,), kind="vector", width=LANES)
            return For(r, (For(self.u, (lanes,), kind="unrolled"),), kind="unrolled")

        return (
            Alloc(sums),
            each(Store(sums, place, constant(0, I32))),
            *loops_of((t, s), (For(u, (each(Store(sums, place, added)),), kind="unrolled"),)),
            each(Store(points, (self.n, *place), sums[place])),
        )

    def turned_back(self, points: Tensor, tiles: Tiles, held: Tensor) -> Block:
        """The tile's sums, of those of its points."""
        body: list[Statement] = []
        each = [_named(body, points[n, tiles.r, self.beside_each_other]) for n in range(self.points)]
        for i, line in enumerate(turned_back(each, _naming(body, "add"), _naming(body, "sub"))):
            for j, e in enumerate(line):
                at = j * BLOCKS * LANES + self.beside_each_other
                body.append(Store(held, (i * tiles.low + tiles.r, at), e))
        return loops_of((tiles.r, self.u), (For(self.lane, tuple(body), kind="vector", width=LANES),))

    def of_piece(self, e: Expr, n: Expr | int) -> Expr:
        """What is of a step, in one piece of the sum."""
        part: dict[Expr, Expr] = {self.words.part: self.piece + n * extent_of(self.piece)}
        return substitute(substitute(e, {self.step: self.words.step}), part)

    def products_of(
        self, side: Callable[..., Matrix], words: Matrix, n: int, body: list[Statement]
    ) -> list[tuple[Expr, Expr]]:
        """The numbers of the nth of 7 products, and its sums of words, with names in a block."""
        naming = _naming(body, "addhalves"), _naming(body, "subhalves")
        first = n * self.points // PRODUCTS
        return [(as_index(m), e) for m, e in enumerate(turned(side, side(words, n, *naming), *naming), first)]

    # rows

    def turned_rows(self, tiles: Tiles) -> Row:
        """The words of the rows, tile by tile."""
        tile, r, low = tiles.tile, tiles.r, tiles.low
        known = self.known_rows()
        if known is not None:
            stop = tiles.first + extent_of(tile) * low * self.side
            cut = [
                p.reshape(*p.shape[:-2], -1, self.side, low, p.shape[-1])
                for p in self.cut_words(known[..., tiles.first : stop, :])
            ]
            words = [[p[..., i, :, :] for p in cut] for i in range(self.side)]
            packed = self.known_points("rows", turned(left, words, add, sub))
            return lambda block, u: packed[(*self.around, tile, self.n, block * self.strip + u, r)]
        each, (*rest, last) = self.strip, self.pieces
        t, o, i, k = Index("t", extent_of(last) // each), Index("o", each), Index("i", self.side), Index("k", self.side)
        inner = (*rest, t, r, o)
        shape, deep = tuple(x.extent for x in (*self.around, tile)), tuple(x.extent for x in inner)
        near = Tensor("near", (self.side, self.side, *deep), I32, "stack")
        to = Tensor("turned", (*shape, self.points, *deep), I32, "heap")

        def each_word(loops: Sequence[Index], body: Block) -> Block:
            lanes = For(o, body, kind="vector" if each > 1 else "serial", width=each)
            return loops_of(loops, (lanes,))

        row = tile * (low * self.side) + i * low + r + tiles.first
        word = substitute(self.of_piece(self.word_of_row(), k), {self.c.row: row, last: t * each + o})
        body: Block = (Alloc(near), *each_word((i, r, k, *rest, t), (Store(near, (i, k, *inner), word),)))
        words = [[near[(as_index(y), as_index(x), *inner)] for x in range(self.side)] for y in range(self.side)]
        for n in range(PRODUCTS):  # few places at once are written to
            named: list[Statement] = []
            for m, e in self.products_of(left, words, n, named):
                named.append(Store(to, (*self.around, tile, m, *inner), e))
            body += each_word((*rest, t, r), tuple(named))
        self.kernels.append(kernel_from_body(self.kernel, "turned", loops_of((*self.around, tile), body), (to,)))
        lined = replace(to, shape=(*shape, self.points, self.steps // each, low, each))
        self.views[lined] = to
        return lambda block, u: lined[(*self.around, tile, self.n, block, r, u)]

    def word_of_row(self) -> Expr:
        """A row's word in a step: of the factor itself where its terms are side by side, so that vectors can be made of it."""
        apart = [stride(r.tensor, r.indices, self.words.index) for r in walk(self.c.a) if isinstance(r, Read)]
        if self.pieces[-1] is self.piece and all(n == 1 for n in apart):
            return self.words.value(self.c.a)
        lines = (*self.around, self.c.row)
        return self.lined("rows", self.c.a, lines)[(*lines, self.step)]

    def cut_words(self, known: np.ndarray) -> list[np.ndarray]:
        """Known words by the pieces of the sum, which is their last axis, each in halves."""
        words = self.words
        axis = known.ndim - 1 + words.folds.index(words.part)
        known = known.reshape(*known.shape[:-1], *map(extent_of, words.folds))
        shape = (*known.shape[: -len(words.folds)], -1)
        return [np.ascontiguousarray(p).reshape(shape).view(np.int16) for p in np.split(known, self.side, axis)]

    def known_points(self, name: str, points: list[np.ndarray]) -> Tensor:
        """Sums of blocks, which are lines of steps, as they are used: by number and step."""
        array = np.stack([np.ascontiguousarray(p).view(np.int32) for p in points], -3).swapaxes(-1, -2)
        packed = Tensor(name, array.shape, I32, "constant")
        self.constants[packed] = np.ascontiguousarray(array)
        return packed

    # columns

    def turned_columns(self) -> tuple[Block, Column] | None:
        """What fills a panel with words of the columns, and one of them, of a number and a place at hand in a step."""
        read = only_read(self.c.b)
        known = None if self.c.guard or read is None or not is_plain(read) else self.known_panels(self.words)
        width = BLOCKS * LANES
        if known is not None:
            cut = self.cut_words(known.swapaxes(-1, -2))
            words = [[p[..., j * width : (j + 1) * width, :] for j in range(self.side)] for p in cut]
            packed = self.known_points("columns", turned(right, words, add, sub))
            return (), lambda step: packed[(*self.beside, self.panel, self.n, step, self.beside_each_other)]
        columns = self.columns()
        if columns is None:
            return None
        fill, column = columns
        to = Tensor("columns", (self.points, self.steps, width), I32, "stack")
        body: list[Statement] = []
        words = [
            [
                _named(body, substitute(self.of_piece(column, k), {self.v: j * BLOCKS + self.u}))
                for j in range(self.side)
            ]
            for k in range(self.side)
        ]
        at = flat_index(self.pieces, tuple(i.extent for i in self.pieces))
        for n in range(PRODUCTS):
            for m, e in self.products_of(right, words, n, body):
                body.append(Store(to, (m, at, self.beside_each_other), e))
        lanes = For(self.lane, tuple(body), kind="vector", width=LANES)
        turn = (Alloc(to), *loops_of((*self.pieces, self.u), (lanes,)))
        return (*fill, *turn), lambda step: to[self.n, step, self.beside_each_other]


def _named(body: list[Statement], e: Expr) -> Expr:
    """A name for an expression in a block."""
    let = Let(Var(f"n{len(body)}", I32), e)
    body.append(let)
    return let.var


def _naming(body: list[Statement], function: str) -> Operation:
    return lambda a, b: _named(body, apply(function, a, b))
