"""Products of integer matrices by fewer products, and exact: of pairs of words by one in place of two, and of blocks by 7 in
place of 8, Strassen's algorithm in Winograd's form.

    for r { for q { y[r, q] = sum over k of a[r, k] * b[k, q] } }
    =>  for panel in columns by 16 * side parallel {
          turned[n, s, q] = sums of b's blocks                7 numbers n for 2 x 2 blocks, 49 where these are cut again
          for tile in rows by 4 * side {
            for n {                                           rows: sums of a's blocks
              points[n, r, q] = -row[n, r] - column[n, q]
              for s / 2 {
                points[n, r, q] += pairdot(rows[n, r, s] + turned[n, s + half, q], rows[n, r, s + half] + turned[n, s, q])
              }
            }
            y = sums of the points
          }
        }

The rows of a tile, the columns of a panel and the words of a sum are `side` blocks each, or one where nothing is cut. Points
are added while they are near. What `crossed` takes away depends on rows or on columns alone. Sums of blocks are of 16-bit
halves and have up to 4 times the magnitude for each time that blocks are cut; sums of products are modulo 2^32, so all is
exact where the sums of blocks, and of those of rows and columns, fit 16 bits. Where ranges do not tell, it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import gcd, prod
from operator import add, sub

import numpy as np

from ...dialect.index import Expr, Index, Read, Tensor, Var, apply, as_index, constant, flat_index
from ...dialect.loops import (
    Alloc,
    Block,
    For,
    Kernel,
    Let,
    Statement,
    Store,
    substitute_block,
)
from ...dialect.traverse import substitute, walk
from ...dialect.types import I32, I64
from ..accesses import stride
from .crossed import crossed, fit, taken
from .packing import Packed
from .panels import BLOCKS, LANES, ROWS, UNROLLED
from .sevenths import PRODUCTS, Matrix, Operation, left, right, turned, turned_back
from .structure import Contracted, Contraction, made
from .widths import Sizes
from .words import extent_of, is_multiple, is_plain, loops_of, only_read, words_along

LEVELS = (0, 1, 2)  # how often blocks are cut
HEIGHT = 4  # rows of a tile: 8 sums, 4 vectors of the panel, two factors and two sums of them fill 16 registers
START = 8  # steps that take as long as a point's start and end
TURN = 1  # steps of a row that take as long as to turn a step of the columns, for each point and each block that it may add
TURNED = 3  # steps of rows that are turned for all points while one is multiplied
GAIN = 0.95  # of what it takes otherwise, at most
NEAR = 5 << 17  # bytes of a turned panel


@dataclass(frozen=True, eq=False)
class Factor:
    """A row's or the columns' words of a number, by the strip of steps, the step in it, and which half; and what is taken away
    for them, negative."""

    word: Callable[[Expr, Expr, int], Expr]
    taken: Expr


def by_blocks(
    kernel: Kernel, c: Contraction, sizes: Sizes, constants: Mapping[Tensor, np.ndarray]
) -> tuple[Contracted, Expr | bool] | None:
    """The kernels that multiply sums of blocks, and where they are right; None where that does not pay."""
    read = only_read(c.b)
    found = cut_of(c, read is not None and read.tensor in constants, sizes)
    made = None if found is None else _Blocks(kernel, c, constants, found).made()
    return None if made is None or found is None else (made, found.fits(sizes))


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

    def fits(self, sizes: Sizes) -> Expr | bool:
        """Whether sums of blocks, and of those of rows and columns, fit 16 bits."""
        return fit(sizes, 4**self.levels)

    def cost(self, rows: int, blocks: int, steps: int, known: bool) -> int:
        """The steps of all rows of all tiles, and what takes as long as they do; columns may be known."""
        panels = -(-blocks // (BLOCKS * self.side))
        heights = sum(extent_of(t.tile) * (2 * t.low + 1) for t in self.tiles(rows))
        turned = 0 if known else TURN * self.side * steps
        products = panels * self.points * (heights * (steps // self.side // 2 + START) + turned)
        return products + rows * steps * self.points * 2 // (TURNED * self.side**2)


def cut_of(c: Contraction, known: bool, sizes: Sizes) -> Cut | None:
    """The cut that takes the least time of those that may be right; None where none pays."""
    if c.unknown:
        return None
    rows, blocks = extent_of(c.row), -(-extent_of(c.column) // LANES) * extent_of(c.window)
    steps = -(-prod(map(extent_of, c.folds)) // 2)
    panels = -(-blocks // BLOCKS)
    plain = panels * (steps + START) * min(-(-rows // h) * (h + 2) for h in range(1, min(ROWS, rows) + 1))
    cuts: list[Cut] = []
    for levels in LEVELS:
        side = 2**levels
        along = next((i for i in c.folds if is_multiple(i.extent, 4 * side)), None)
        near = PRODUCTS**levels * (steps // side) * BLOCKS * LANES * I32.bytes <= NEAR
        if along is not None and near and blocks >= BLOCKS * side:
            cuts += [Cut(levels, height, along) for height in range(1, min(HEIGHT, rows // side) + 1)]
    cuts = [cut for cut in cuts if cut.fits(sizes) is not False]
    best = min(cuts, key=lambda cut: cut.cost(rows, blocks, steps, known), default=None)
    return None if best is None or best.cost(rows, blocks, steps, known) >= GAIN * plain else best


class _Blocks(Packed):
    """The kernels of one contraction. A block's words are in halves, whose steps are taken together."""

    def __init__(self, kernel: Kernel, c: Contraction, constants: Mapping[Tensor, np.ndarray], cut: Cut) -> None:
        assert cut.along is not None
        super().__init__(kernel, c, constants, words_along(cut.along, c.folds, 2), BLOCKS * cut.side)
        self.cut, self.side, self.points, self.n = cut, cut.side, cut.points, Index("n", cut.points)
        part = self.words.part
        self.piece = Index(part.name, extent_of(part) // (2 * self.side))
        self.pieces = tuple(self.piece if i is part else i for i in self.words.folds)
        self.steps = prod(map(extent_of, self.pieces))
        self.strip = gcd(extent_of(self.pieces[-1]), LANES)
        self.u = Index("v", BLOCKS)
        self.beside_each_other = self.u * LANES + self.lane

    def made(self) -> Contracted | None:
        tiles = self.cut.tiles(extent_of(self.c.row))
        if self.points == 1 and len(tiles) == 1:
            self.share_rows(self.cut.height, self.words.steps)
        columns = self.turned_columns()
        if columns is None:
            return None
        fill, column = columns
        return self.contracted((*fill, *(s for t in tiles for s in self.sums(t, column))))

    def sums(self, tiles: Tiles, column: Factor) -> Block:
        """A panel's tiles."""
        tile, r, high = tiles.tile, tiles.r, tiles.low * self.side
        start, line = Let(Var("row", I64), tile * high + tiles.first), Index("r", high)
        sums, place = Tensor("sums", (tiles.low, BLOCKS * LANES), I32, "register"), (r, self.beside_each_other)
        point = self.point(sums, r, self.turned_rows(tiles), column)
        if self.points == 1:
            alone = substitute_block(point, {self.n: as_index(0)})
            return self.each_tile(tile, (start, *alone, self.finish(sums, r, start.var, r)))
        points = Tensor("points", (self.points, *sums.shape), I32, "stack")
        held = Tensor("held", (high, self.width), I32, "stack")
        kept = self.each_sum(r, Store(points, (self.n, *place), sums[place]))
        body: Block = (
            *(start, Alloc(points), For(self.n, (*point, kept))),
            *(Alloc(held), *self.turned_back(points, tiles, held)),
            self.finish(held, line, start.var, line),
        )
        return (For(tile, body),)

    def each_sum(self, r: Index, store: Store) -> For:
        lanes = For(self.lane, (store,), kind="vector", width=LANES)
        return For(r, (For(self.u, (lanes,), kind="unrolled"),), kind="unrolled")

    def point(self, sums: Tensor, r: Index, row: Factor, column: Factor) -> Block:
        """The sums of a tile's products of one number."""
        unrolled = gcd(self.strip, UNROLLED)
        t, s, u = Index("t", self.steps // self.strip), Index("s", self.strip // unrolled), Index("u", unrolled)
        place, o = (r, self.beside_each_other), s * unrolled + u
        factors = [[f.word(t, o, h) for h in (0, 1)] for f in (row, column)]
        added = sums[place] + crossed(*factors)
        return (
            Alloc(sums),
            self.each_sum(r, Store(sums, place, row.taken + column.taken)),
            *loops_of((t, s), (For(u, (self.each_sum(r, Store(sums, place, added)),), kind="unrolled"),)),
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
        """What is of a step, in one piece of the sum: the halves of each block, one after the other."""
        part: dict[Expr, Expr] = {self.words.part: self.piece + n * extent_of(self.piece)}
        return substitute(substitute(e, {self.step: self.words.step}), part)

    def products_of(
        self, side: Callable[..., Matrix], words: Matrix, n: int, body: list[Statement]
    ) -> list[tuple[Expr, Expr]]:
        """The numbers of the nth of 7 products, and its sums of words, with names in a block."""
        if self.points == 1:
            return [(as_index(0), words[0][0])]
        naming = _naming(body, "addhalves"), _naming(body, "subhalves")
        first = n * self.points // PRODUCTS
        return [(as_index(m), e) for m, e in enumerate(turned(side, side(words, n, *naming), *naming), first)]

    # rows

    def turned_rows(self, tiles: Tiles) -> Factor:
        """The words of the rows, tile by tile."""
        tile, r, low = tiles.tile, tiles.r, tiles.low
        known = self.known_rows()
        if known is not None:
            stop = tiles.first + extent_of(tile) * low * self.side
            cut = [
                p.reshape(*p.shape[:-2], -1, self.side, low, p.shape[-1])
                for p in self.cut_words(known[..., tiles.first : stop, :])
            ]
            words = [[[p[..., i, :, :] for p in cut[h::2]] for i in range(self.side)] for h in (0, 1)]
            return self.known_points("rows", left, words, (*self.around, tile), r)
        each, (*rest, last) = self.strip, self.pieces
        t, o, i, k = (
            Index("t", extent_of(last) // each),
            Index("o", each),
            Index("i", self.side),
            Index("k", 2 * self.side),
        )
        inner, above = (*rest, t, r), (*self.around, tile)
        shape, deep = tuple(x.extent for x in above), tuple(x.extent for x in inner)
        to = Tensor("turned", (*shape, self.points, *deep, 2, each), I32, "heap")

        def lanes(*body: Statement) -> For:
            return For(o, body, kind="vector" if each > 1 else "serial", width=each)

        row = tile * (low * self.side) + i * low + r + tiles.first
        word = substitute(self.of_piece(self.word_of_row(), k), {self.c.row: row, last: t * each + o})
        if self.points == 1:
            alone = substitute_block((lanes(Store(to, (*above, as_index(0), *inner, k, o), word)),), {i: as_index(0)})
            body = loops_of((r, *rest, t, k), alone)
        else:
            near = Tensor("near", (self.side, 2 * self.side, *deep, each), I32, "stack")
            body = (Alloc(near), *loops_of((i, r, k, *rest, t), (lanes(Store(near, (i, k, *inner, o), word)),)))
            for h in (0, 1):
                words = [
                    [near[(as_index(y), as_index(2 * x + h), *inner, o)] for x in range(self.side)]
                    for y in range(self.side)
                ]
                for n in range(PRODUCTS):  # few places at once are written to
                    named: list[Statement] = []
                    for m, e in self.products_of(left, words, n, named):
                        named.append(Store(to, (*above, m, *inner, as_index(h), o), e))
                    body += loops_of(inner, (lanes(*named),))
        less = Tensor("less", (*shape, self.points, low), I32, "heap")
        both = apply("pairdot", *(to[(*above, self.n, *inner, as_index(h), o)] for h in (0, 1)))
        sums, part = (
            Tensor(name, (low, each), I32, space) for name, space in (("sums", "register"), ("part", "stack"))
        )

        def each_row(*body: Statement) -> For:
            return For(r, body, kind="unrolled")

        body += (
            Alloc(part),
            For(self.n, (
                *(Alloc(sums), each_row(lanes(Store(sums, (r, o), constant(0, I32))))),
                *loops_of((*rest, t), (each_row(lanes(Store(sums, (r, o), sums[r, o] - both))),)),
                *(each_row(lanes(Store(part, (r, o), sums[r, o]))),),
                each_row(Store(less, (*above, self.n, r), reduce(lambda x, y: x + y, (part[r, as_index(n)] for n in range(each))))),
            )),
        )  # fmt: skip
        self.kernels.append(made(self.kernel, "turned", loops_of(above, body), (to, less)))
        lined = replace(to, shape=(*shape, self.points, self.steps // each, low, 2, each))
        self.views[lined] = to
        at = (*above, self.n)
        return Factor(lambda block, u, h: lined[(*at, block, r, as_index(h), u)], less[(*at, r)])

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
        return [np.ascontiguousarray(p).reshape(shape).view(np.int16) for p in np.split(known, 2 * self.side, axis)]

    def known_points(
        self, name: str, side: Callable[..., Matrix], words: Sequence[Matrix], lines: Sequence[Expr], line: Expr
    ) -> Factor:
        """Sums of known blocks, which are lines of steps, as they are used: by number, step and half."""
        halves = [turned(side, half, add, sub) for half in words]
        array = np.stack([np.stack([np.ascontiguousarray(p).view(np.int32) for p in half], -3) for half in halves], -1)
        packed = self.constant(name, np.moveaxis(array, -3, -1))
        less = self.constant("less", np.stack([taken(p) for p in zip(*halves, strict=True)], -2))
        at = (*lines, self.n)
        return Factor(lambda block, u, h: packed[(*at, block * self.strip + u, as_index(h), line)], less[(*at, line)])

    def constant(self, name: str, array: np.ndarray) -> Tensor:
        tensor = Tensor(name, array.shape, I32, "constant")
        self.constants[tensor] = np.ascontiguousarray(array)
        return tensor

    # columns

    def turned_columns(self) -> tuple[Block, Factor] | None:
        """What fills a panel with words of the columns, and those of a number."""
        read = only_read(self.c.b)
        known = None if self.c.guard or read is None or not is_plain(read) else self.known_panels(self.words)
        width = BLOCKS * LANES
        if known is not None:
            cut = self.cut_words(known.swapaxes(-1, -2))
            words = [
                [[p[..., j * width : (j + 1) * width, :] for j in range(self.side)] for p in cut[h::2]] for h in (0, 1)
            ]
            return (), self.known_points("columns", right, words, (*self.beside, self.panel), self.beside_each_other)
        columns = self.columns()
        if columns is None:
            return None
        fill, column = columns
        to = Tensor("columns", (self.points, self.steps, 2, width), I32, "stack")
        body: list[Statement] = []
        at = flat_index(self.pieces, tuple(i.extent for i in self.pieces))
        for h in (0, 1):
            words = [
                [
                    _named(body, substitute(self.of_piece(column, 2 * k + h), {self.v: j * BLOCKS + self.u}))
                    for j in range(self.side)
                ]
                for k in range(self.side)
            ]
            for n in range(min(PRODUCTS, self.points)):
                for m, e in self.products_of(right, words, n, body):
                    body.append(Store(to, (m, at, as_index(h), self.beside_each_other), e))
        lanes = For(self.lane, tuple(body), kind="vector", width=LANES)
        less, place = Tensor("less", (self.points, width), I32, "stack"), (as_index(0), self.beside_each_other)
        sums, r, step = Tensor("sums", (1, width), I32, "register"), Index("r", 1), Index("s", self.steps)
        both = apply("pairdot", *(to[self.n, step, as_index(h), self.beside_each_other] for h in (0, 1)))
        turn: Block = (
            *(Alloc(to), *loops_of((*self.pieces, self.u), (lanes,)), Alloc(less)),
            For(self.n, (
                *(Alloc(sums), self.each_sum(r, Store(sums, place, constant(0, I32)))),
                For(step, (self.each_sum(r, Store(sums, place, sums[place] - both)),)),
                self.each_sum(r, Store(less, (self.n, self.beside_each_other), sums[place])),
            )),
        )  # fmt: skip
        return (*fill, *turn), Factor(
            lambda block, u, h: to[self.n, block * self.strip + u, as_index(h), self.beside_each_other],
            less[self.n, self.beside_each_other],
        )


def _named(body: list[Statement], e: Expr) -> Expr:
    """A name for an expression in a block."""
    let = Let(Var(f"n{len(body)}", I32), e)
    body.append(let)
    return let.var


def _naming(body: list[Statement], function: str) -> Operation:
    return lambda a, b: _named(body, apply(function, a, b))
