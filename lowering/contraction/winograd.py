"""Windows of 3 x 3 that move by one, in tiles of 2 x 2 results with 16 products in place of 36: Winograd's F(2 x 2, 3 x 3),
in integers and exact.

    y[2 i + u, 2 j + v] = sum over c, r, s of w[c, r, s] * x[c, 2 i + u + r, 2 j + v + s]      u, v < 2
    =>  weights[n] = (2 G) w (2 G)'                     16 numbers n for each 3 x 3
        turned[n] = B' x B                              16 numbers n for each 4 x 4 that a tile of y is made of
        y = A' (sum over c of weights[n] * turned[n]) A / 4

    2 G = 2  0  0      B' = 1  0 -1  0      A' = 1  1  1  0
          1  1  1           0  1  1  0           0  1 -1 -1
          1 -1  1           0 -1  1  0
          0  0  2           0  1  0 -1

Sums are modulo 2^32, so the quotient is right wherever 4 y is an i32; `turned` has at most 4 times the magnitude of x and
`weights` 9 times that of w, which have to fit 16 bits. Where ranges do not tell, what the factors are is looked at, and
where they are too large the contraction is computed as any other.

Two channels share a word, and are turned together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ...dialect.broadcasting import certainly
from ...dialect.index import (
    Expr,
    Index,
    Read,
    Tensor,
    Var,
    apply,
    as_index,
    both,
    cast,
    constant,
    minimum,
    unflatten,
)
from ...dialect.loops import Alloc, Block, For, If, Kernel, Let, Statement, Store, map_expressions, substitute_block
from ...dialect.sizes import Dim, larger, product, same_size, smaller
from ...dialect.traverse import rewrite, substitute
from ...dialect.types import I16, I32, I64
from ..accesses import depends
from ..affine import affine
from .panels import BLOCKS, LANES, ROWS, UNROLLED
from .structure import Contracted, Contraction, made
from .widths import Sizes
from .words import (
    Words,
    at_least,
    extent_of,
    in_words,
    is_edge,
    known_terms,
    loops_of,
    only_read,
    read_at,
    size_of,
    word,
)

POINTS = 16  # products of a tile
MOST_INPUT = 8191  # magnitudes that fit 16 bits when they are turned
MOST_WEIGHT = 3639
LEAST = 1 << 15  # products, rows, tiles and words of a sum for which it pays
LEAST_ROWS, LEAST_TILES, LEAST_STEPS = 8, 16, 8
LEAST_RESULTS = 512  # of a channel, for which it pays to turn weights in every call
MOST_STEPS = 1024  # turned columns of a panel are on the stack
GROUPS = 8  # iterations at least that threads share


@dataclass(frozen=True, eq=False)
class Windows:
    """What a contraction over windows of 3 x 3 that move by one is made of."""

    rows: Index  # of the window
    columns: Index
    axes: tuple[int, int]  # of the array, along which they go
    read: Read
    pairs: Words  # of the other terms

    @property
    def terms(self) -> int:
        return 9 * extent_of(self.pairs.index) * prod(map(extent_of, self.pairs.folds)) // extent_of(self.pairs.part)


def windows_of(c: Contraction) -> Windows | None:
    """The windows of a contraction; None where it has none, or other ones."""
    read = only_read(c.b)
    if c.window is None or read is None or not all(is_edge(g, read) for g in c.guard):
        return None
    found = [_slides(read, along, c.folds) for along in (c.window, c.column)]
    if None in found:
        return None
    (axis, rows), (other, columns) = (f for f in found if f is not None)
    rest = tuple(i for i in c.folds if i not in (rows, columns))
    mine = only_read(c.a)
    if axis == other or not rest or mine is None or any(sum(i is k for i in mine.indices) != 1 for k in c.folds):
        return None
    pairs = in_words(rest, 2)
    return None if pairs.partial else Windows(rows, columns, (axis, other), read, pairs)


def _slides(read: Read, along: Index, folds: Sequence[Index]) -> tuple[int, Index] | None:
    """The axis at which a read is at along + k + a constant, and the k of three that is nowhere else."""
    for axis, e in enumerate(read.indices):
        sum = affine(e)
        k = next((k for k in folds if sum.factor(k) == 1 and extent_of(k) == 3), None)
        if k is not None and sum.factor(along) == 1 and len(sum.terms) == 2:
            others = [i for n, i in enumerate(read.indices) if n != axis]
            return None if any(depends(i, {k, along}) for i in others) else (axis, k)
    return None


def turned_input(x: Sequence[Expr]) -> list[Expr]:
    """B' x, of words of two."""
    sum = apply("addhalves", x[1], x[2])
    return [apply("subhalves", x[0], x[2]), sum, apply("subhalves", x[2], x[1]), apply("subhalves", x[1], x[3])]


def turned_weights(g: Sequence[Any]) -> list[Any]:
    """2 G g."""
    ends = g[0] + g[2]
    return [g[0] << 1, ends + g[1], ends - g[1], g[2] << 1]


def turned_sums(m: Sequence[Any]) -> list[Any]:
    """A' m."""
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def known_points(array: np.ndarray) -> np.ndarray:
    """The points of weights, the last two axes of an array, along its first axis."""
    rows = turned_weights([array[..., r, :].astype(np.int32) for r in range(3)])
    return np.stack([n for row in rows for n in turned_weights([row[..., s] for s in range(3)])])


def by_turning(
    kernel: Kernel, c: Contraction, sizes: Sizes, constants: Mapping[Tensor, np.ndarray]
) -> tuple[Contracted, Expr | bool] | None:
    """The kernels that turn 3 x 3 windows, and where what they compute is right; None where that does not pay."""
    known = c.accumulator.element is I32 and c.unknown.isdisjoint((c.row, *c.folds))
    windows = windows_of(c) if known else None
    pays = windows is not None and _pays(c, windows)
    if windows is None or pays is False:
        return None
    turned = Turned(kernel, c, windows)
    array = known_terms(c.a, constants, (*turned.rows, *turned.folds))
    if array is None and (pays := both(pays, at_least(size_of(c.window) * c.column.extent, LEAST_RESULTS))) is False:
        return None
    packed: dict[Tensor, np.ndarray] = {}
    views: dict[Tensor, Tensor] = {}
    kernels: list[Kernel] = []
    if array is None:
        held = fits(sizes.columns, sizes.rows, windows.terms)
        shaped, body = turned.weights()
        weights = replace(shaped, shape=(*shaped.shape[: len(turned.rows) + 1], windows.pairs.steps))
        views[weights] = shaped
        kernels.append(made(kernel, "weights", body, (shaped,)))
    else:
        if max(array.max(), -array.min()) > I16.limits[1]:
            return None
        points = known_points(array)
        if max(points.max(), -points.min()) > I16.limits[1]:
            return None
        reach = np.abs(array.astype(np.int64)).sum(tuple(range(len(turned.rows), array.ndim))).max()
        held = fits(sizes.columns, sizes.rows, windows.terms, int(reach))
        weights = turned.packed(points, packed)
    if (held := both(held, pays)) is False:
        return None
    shaped, body = turned.image()
    image = replace(shaped, shape=(*shaped.shape[:-2], turned.wide * (turned.high + 1)))
    views[image] = shaped
    kernels.append(made(kernel, "image", body, (shaped,)))
    loops = turned.multiply(image, weights, array is not None)  # each a kernel, to be shared by threads
    multiply = [
        made(kernel, name, (loop,), (turned.results,)) for name, loop in zip(("turned", "last"), loops, strict=False)
    ]
    results = kernel.outputs
    finish = made(kernel, "finish", turned.finish(), results)
    return Contracted((*kernels, *multiply, finish), views, packed, frozenset({*multiply, finish})), held


def _pays(c: Contraction, windows: Windows) -> Expr | bool:
    """Whether there is enough to do; what has to be seen when called, if it is not known how far windows move."""
    high, wide = size_of(c.window), c.column.extent
    work = high * wide * (extent_of(c.row) * windows.terms)
    if extent_of(c.row) < LEAST_ROWS or not LEAST_STEPS <= windows.pairs.steps <= MOST_STEPS:
        return False
    least = [(((high + 1) // 2) * ((wide + 1) // 2), LEAST_TILES), (work, LEAST)]
    if c.unknown:
        least.append((wide, 2 * LANES))
    return both(*(at_least(n, most) for n, most in least))


class Turned:
    """The kernels of one contraction over windows."""

    def __init__(self, kernel: Kernel, c: Contraction, windows: Windows) -> None:
        self.kernel, self.c, self.windows, self.pairs = kernel, c, windows, windows.pairs
        self.high, self.wide = ((size_of(i) + 1) // 2 for i in (c.window, c.column))
        self.count = self.high * self.wide
        self.around = tuple(i for i in c.outer if depends(c.a, {i}))
        self.beside = tuple(i for i in c.outer if depends(c.b, {i}))
        self.rows = (*self.around, c.row)
        self.folds = (*(i for i in c.folds if i not in (windows.rows, windows.columns)), windows.rows, windows.columns)
        self.height = min(ROWS, extent_of(c.row))
        self.lane = Index("l", LANES)
        outer = tuple(i.extent for i in c.outer)
        self.results = Tensor("turned", (*outer, extent_of(c.row), 4, self.count), I32, "heap")

    def weights(self) -> tuple[Tensor, Block]:
        """The words of the weights, by rows and points."""
        c, w, pairs = self.c, self.windows, self.pairs
        words = Tensor("weights", (*(i.extent for i in (*self.around, c.row)), POINTS, *pairs.shape), I32, "heap")
        body: list[Statement] = []
        points: list[list[Expr]] = []
        for half, e in zip(("low", "high"), pairs.each(c.a), strict=True):
            g = [[substitute(e, {w.rows: as_index(r), w.columns: as_index(s)}) for s in range(3)] for r in range(3)]
            rows = [self.named(body, half, turned_weights(column)) for column in zip(*g, strict=True)]
            points.append([n for row in zip(*rows, strict=True) for n in turned_weights(row)])
        at = (*self.around, c.row)
        for n, (low, high) in enumerate(zip(*points, strict=True)):
            body.append(Store(words, (*at, as_index(n), *pairs.folds), word((low, high), 2)))
        return words, loops_of((*at, *pairs.folds), tuple(body))

    def packed(self, points: np.ndarray, packed: dict[Tensor, np.ndarray]) -> Tensor:
        """The same of constant weights, as they are used: by tiles of rows."""
        count = extent_of(self.c.row)
        words = self.pairs.packed(points)
        starts = np.minimum(np.arange(-(-count // self.height)) * self.height, count - self.height)
        tiles = words[..., starts[:, None] + np.arange(self.height), :]  # points, around, tile, row, step
        tiles = np.moveaxis(tiles, 0, len(self.rows)).swapaxes(-1, -2)
        tensor = Tensor("weights", tiles.shape, I32, "constant")
        packed[tensor] = np.ascontiguousarray(tiles)
        return tensor

    def named(self, body: list[Statement], name: str, values: Sequence[Expr]) -> list[Expr]:
        names = [Var(f"{name}{n}", I32) for n in range(len(values))]
        body += [Let(v, value) for v, value in zip(names, values, strict=True)]
        return list(names)

    def image(self) -> tuple[Tensor, Block]:
        """Words of the array by where they are in tiles: a plane for each of 4 columns and for even and odd rows."""
        w, pairs = self.windows, self.pairs
        h, t = Index("h", 2 * self.high + 2), Index("t", self.wide)
        lines = (*self.beside, *pairs.folds)
        words = Tensor("image", (*(i.extent for i in lines), 4, 2, self.high + 1, self.wide), I32, "heap")
        sizes = [w.read.tensor.shape[axis] for axis in w.axes]
        height, width = sizes
        assert self.c.window is not None
        top, left = (affine(w.read.indices[axis]).constant for axis in w.axes)
        body: list[Statement] = []
        above, below = max(0, -top), smaller(h.extent, height - top)
        covered = above == 0 and same_size(below, h.extent) and left >= 0
        if not covered or not certainly(lambda: 2 * self.wide + 2 + left <= width):
            plane = Index("s", 4)
            body += loops_of((plane, h, t), (Store(words, (*lines, plane, h % 2, h // 2, t), constant(0, I32)),))
        for s in range(4):
            place = (*lines, as_index(s), h % 2, h // 2, t)
            moved: dict[Expr, Expr] = {
                self.c.window: h,
                w.rows: as_index(0),
                self.c.column: t * 2,
                w.columns: as_index(s),
            }
            low, high = (self.moved(e, moved) for e in pairs.each(self.c.b))
            first, stop = max(0, -((left + s) // 2)), smaller(self.wide, (width - 1 - left - s) // 2 + 1)
            inner = For(t, (Store(words, place, word((low, high), 2)),), as_index(first), as_index(stop))
            body.append(For(h, (inner,), as_index(above), as_index(below)))
        return words, loops_of(lines, tuple(body))

    def moved(self, e: Expr, values: dict[Expr, Expr]) -> Expr:
        read = only_read(e)
        assert read is not None
        return read_at(e, read, [affine(substitute(i, values)).expression() for i in read.indices])

    def multiply(self, image: Tensor, weights: Tensor, tiled: bool) -> Block:
        """The loops over panels of tiles, and over a narrower one at the end where that is enough."""
        if not isinstance(self.count, int):
            width = BLOCKS * LANES
            return self.panels(image, weights, tiled, width, 0, (self.count + (width - 1)) // width)
        width = min(BLOCKS, self.count // LANES) * LANES
        panels, rest = divmod(self.count, width)
        if not panels or not 0 < rest <= width - LANES:
            return self.panels(image, weights, tiled, width, 0, -(-self.count // width))
        last = self.panels(image, weights, tiled, -(-rest // LANES) * LANES, self.count - rest, 1)
        return *self.panels(image, weights, tiled, width, 0, panels), *last

    def panels(self, image: Tensor, weights: Tensor, tiled: bool, width: int, begin: int, panels: Dim) -> Block:
        """Panels of so many columns, that move back where they would go beyond the end: turned, multiplied by those of all
        rows, and sums turned back."""
        c, height = self.c, self.height
        self.width, self.v = width, Index("v", width // LANES)
        rows = extent_of(c.row)
        tiles = -(-rows // height)
        shape = tuple(i.extent for i in c.outer)
        sure = prod(n for n in shape if isinstance(n, int))
        groups = min(tiles, -(-GROUPS // (sure * panels))) if isinstance(panels, int) else 1
        flat = Index("panel", product((*shape, panels, groups)))
        *outer, panel, group = unflatten(flat, (*shape, panels, groups))
        end = self.count - width
        single = isinstance(panels, int) and panels == 1
        at = as_index(smaller(begin, end)) if single else minimum(panel * width + begin, end)
        first = Let(Var("first", I64), at)
        steps = self.pairs.steps + 1  # one more, so that points do not all want the same places of a near cache
        turned = Tensor("columns", (POINTS, steps, self.width), I32, "stack")
        per = -(-tiles // groups)
        tile, start = Index("tile", tiles), Var("row", I64)
        loop = For(
            tile,
            (
                Let(start, minimum(tile * height, rows - height) if rows % height else tile * height),
                *self.products(turned, weights, tiled, tile, start, height, first.var),
            ),
            group * per if groups > 1 else as_index(0),
            minimum(group * per + per, tiles) if groups > 1 else None,
        )
        body: Block = (first, Alloc(turned), *self.turn(image, turned, first.var), loop)
        names = [Var(i.name, I64) for i in c.outer]
        body = substitute_block(body, dict(zip(c.outer, names, strict=True)))
        body = (*(Let(v, e) for v, e in zip(names, outer, strict=True)), *body)
        return (For(flat, body, kind="parallel"),)

    def turn(self, image: Tensor, turned: Tensor, first: Expr) -> Block:
        """Columns of a panel: every tile's 16 elements turned, for all pairs of channels."""
        place = first + self.v * LANES + self.lane
        body: list[Statement] = []
        lines = (*self.beside, *self.pairs.folds)
        x = [[image[(*lines, s, r % 2, place + r // 2 * self.wide)] for s in range(4)] for r in range(4)]
        across = [self.named(body, f"x{r}", turned_input(x[r])) for r in range(4)]
        columns = [turned_input([across[r][s] for r in range(4)]) for s in range(4)]
        for r in range(4):
            for s, n in enumerate(self.named(body, f"n{r}", [columns[s][r] for s in range(4)])):
                at = (as_index(4 * r + s), self.pairs.step, self.v * LANES + self.lane)
                body.append(Store(turned, at, n))
        lanes = For(self.lane, tuple(body), kind="vector", width=LANES)
        return loops_of((*self.pairs.folds, self.v), (lanes,))

    def products(
        self, turned: Tensor, weights: Tensor, tiled: bool, tile: Index, start: Expr, height: int, first: Expr
    ) -> Block:
        """A tile of rows: the sums of all points, turned back."""
        steps = self.pairs.steps
        r, n = Index("r", height), Index("n", POINTS)
        sums = Tensor("sums", (height, self.width), I32, "register")
        points = Tensor("points", (POINTS, height, self.width), I32, "stack")
        unrolled = next(k for k in range(UNROLLED, 0, -1) if steps % k == 0)
        block, u = Index("s", steps // unrolled), Index("u", unrolled)
        step, column = block * unrolled + u, self.v * LANES + self.lane
        w = weights[(*self.around, tile, n, step, r)] if tiled else weights[(*self.around, start + r, n, step)]
        added = sums[r, column] + apply("pairdot", w, turned[n, step, column])

        def each(store: Store) -> For:
            lanes = For(self.lane, (store,), kind="vector", width=LANES)
            return For(r, (For(self.v, (lanes,), kind="unrolled"),), kind="unrolled")

        point: Block = (
            Alloc(sums),
            each(Store(sums, (r, column), constant(0, I32))),
            For(block, (For(u, (each(Store(sums, (r, column), added)),), kind="unrolled"),)),
            each(Store(points, (n, r, column), sums[r, column])),
        )
        back: list[Statement] = []
        m = [[points[4 * a + b, r, column] for b in range(4)] for a in range(4)]
        down = [self.named(back, f"m{b}", turned_sums([m[a][b] for a in range(4)])) for b in range(4)]
        for a in range(2):
            for b, y in enumerate(turned_sums([down[k][a] for k in range(4)])):
                at = (*self.c.outer, start + r, as_index(2 * a + b), first + column)
                back.append(Store(self.results, at, y >> 2))
        lanes = For(self.lane, tuple(back), kind="vector", width=LANES)
        return Alloc(points), For(n, point), *loops_of((r, self.v), (lanes,))

    def finish(self) -> Block:
        """What follows the fold, from the tiles of results to where they belong: two beside each other at once."""
        c, window = self.c, self.c.window
        assert window is not None
        t, side = Index("t", self.wide), Index("u", 2)

        def element(column: Expr, tile: Expr, u: Expr | int) -> Block:
            result = self.results[(*c.outer, c.row, window % 2 * 2 + u, window // 2 * self.wide + tile)]

            def of_sums(e: Expr) -> Expr | None:
                return result if isinstance(e, Read) and e.tensor is c.accumulator else None

            return substitute_block(map_expressions(c.epilogue, lambda e: rewrite(e, of_sums)), {c.column: column})

        columns = c.column.extent
        whole, known = columns // 2, isinstance(columns, int)
        width = next((n for n in (LANES, LANES // 2) if whole >= n), 1) if known else LANES
        b, lane = Index("b", larger(whole // width, 1) if known else whole // width), Index("l", width)
        body: list[Statement] = []
        if width > 1:
            over = not known or bool(whole % width)
            for begin in (b * width, *((as_index(whole - width),) if over else ())):
                two = For(side, element((begin + lane) * 2 + side, begin + lane, side), kind="unrolled")
                lanes = For(lane, (two,), kind="vector", width=width)
                body.append(For(b, (lanes,)) if depends(begin, {b}) else lanes)
        else:
            body.append(For(t, (For(side, element(t * 2 + side, t, side), kind="unrolled"),), stop=as_index(whole)))
        last = element(as_index(columns - 1), as_index(whole), 0)
        if not known:
            body.append(If(as_index(columns % 2) > 0, last))
        elif columns % 2:
            body += last
        inner: Block = loops_of((window,), tuple(body))
        first, *rest = (*c.outer, c.row)
        inner = loops_of(rest, inner)
        return (For(first, inner, kind="parallel"),)


def fits(x: Expr | int, w: Expr | int, terms: int, reach: int | None = None) -> Expr | bool:
    """Whether factors of these magnitudes are turned within 16 bits, and results times 4 are i32; `reach` is the largest sum
    of magnitudes of known weights, which are within 16 bits."""
    one, other = (cast(n, I64) + 1 if isinstance(n, Expr) else n + 1 for n in (x, w))
    largest = one * other * terms if reach is None else one * reach
    tests = [x <= MOST_INPUT, largest < 1 << 29, *(() if reach is not None else (w <= MOST_WEIGHT,))]
    return both(*tests)
