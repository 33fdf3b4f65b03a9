"""The kernels of a Winograd convolution: packing of the input, transformed columns, products with transformed weights,
inverse transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ...dialect.ir.sizes import certainly, larger, product, same_size, smaller
from ...dialect.ir.types import I32, I64
from ...dialect.notation import expressions as ex
from ...dialect.notation import loops as ir
from ...dialect.notation.affine import affine
from ...dialect.notation.traverse import rewrite, substitute
from ..analysis.accesses import depends
from ..processor import processor
from .match import Contraction
from .micro_kernel import GUESS, pairdot
from .vnni_packing import Words, divided, extent_of, loops_of, only_read, read_at, size_of, word
from .winograd_transforms import WinogradTransform

VECTORS = 2  # of tiles in a panel: all points of its columns stay in the L2 cache
GROUPS, FEW = 16, 8  # iterations at least that threads share; as many panels are enough
ENDINGS = (32, 16, 8, 4, 2)  # columns of results that are finished together


@dataclass(frozen=True, eq=False)
class Windows:
    """The parts of a contraction over 3 x 3 windows of stride 1."""

    rows: ex.Index  # of the window
    columns: ex.Index
    axes: tuple[int, int]  # of the array, along which they go
    read: ex.Read
    pairs: Words  # of the other terms

    @property
    def terms(self) -> int:
        return (
            9
            * extent_of(self.pairs.index)
            * prod(map(extent_of, self.pairs.reduction_axes))
            // extent_of(self.pairs.part)
        )


class WinogradKernels:
    """The kernels of one contraction over windows."""

    def __init__(self, kernel: ir.Kernel, c: Contraction, windows: Windows, turning: WinogradTransform) -> None:
        self.kernel, self.c, self.windows, self.pairs, self.turning = kernel, c, windows, windows.pairs, turning
        self.high, self.wide = (divided(size_of(i), turning.size) for i in (c.window, c.column))
        self.count = self.high * self.wide
        self.blocks = -(-self.count // processor().lanes) if isinstance(self.count, int) else None
        self.around = tuple(i for i in c.outer if depends(c.a, {i}))
        self.beside = tuple(i for i in c.outer if depends(c.b, {i}))
        self.rows = (*self.around, c.row)
        self.reduction_axes = (
            *(i for i in c.reduction_axes if i not in (windows.rows, windows.columns)),
            windows.rows,
            windows.columns,
        )
        self.micro = pairdot().best(
            c.row.extent, self.blocks, fixed=VECTORS if self.blocks is None else min(VECTORS, self.blocks)
        )
        self.height = self.micro.rows
        self.tiles = -(-extent_of(c.row) // self.height)
        self.lane = ex.Index("l", processor().lanes)
        self.outer = tuple(i.extent for i in c.outer)
        self.by_panels()
        self.results = ex.Tensor("turned", (*self.outer, extent_of(c.row), turning.size**2, self.room), I32, "heap")

    @property
    def cost(self) -> float:
        """The vector instructions of the products, where the last panel may be narrower."""
        rows, steps = self.c.row.extent, self.pairs.steps
        blocks = self.blocks if self.blocks is not None else GUESS // self.turning.size**2
        assert isinstance(steps, int)
        left = blocks % self.micro.vectors
        last = replace(self.micro, vectors=left).cost(rows, left) if left else 0
        return self.turning.points * steps * (self.micro.cost(rows, blocks - left) + last)

    def by_panels(self) -> None:
        """Panels of so many tiles of results, that move back where they would go beyond the end, the last one narrower where
        that is enough. Of fewer tiles than it has there is room for whole vectors, which hold anything in the places of others.
        Where panels are few, threads share the rows as well, and columns are turned before."""
        self.narrow = self.width = width = VECTORS * processor().lanes
        self.panels, left = divided(self.count, width), self.count % width
        if isinstance(left, int) and left:
            self.narrow = -(-left // processor().lanes) * processor().lanes
        self.room, self.lines = self.count, self.high  # tiles, and rows of them, that there are places for
        if isinstance(self.count, int) and self.count < self.narrow:
            self.room, self.lines = self.narrow, max(int(self.high), -(-self.narrow // int(self.wide)))
        sure = prod(n for n in (*self.outer, self.panels) if isinstance(n, int))
        few = isinstance(self.panels, int) and sure < FEW
        self.groups = min(self.tiles, -(-GROUPS // sure)) if few else 1
        steps = self.pairs.steps + 1  # one more, so that points do not all want the same places of a near cache
        shape, space = (self.turning.points, steps, self.width), "stack"
        if self.groups > 1:
            shape, space = (*(i.extent for i in self.beside), self.panels, *shape), "heap"
        self.columns = ex.Tensor("columns", shape, I32, space)

    def named(self, body: list[ir.Statement], name: str, values: Sequence[ex.Expr]) -> list[ex.Expr]:
        names = [ex.Var(f"{name}{n}", I32) for n in range(len(values))]
        body += [ir.Let(v, value) for v, value in zip(names, values, strict=True)]
        return list(names)

    # weights

    def weights(self) -> tuple[ex.Tensor, ir.Block]:
        """The words of the weights, by rows and points."""
        c, w, pairs = self.c, self.windows, self.pairs
        words = ex.Tensor("weights", (*(i.extent for i in self.rows), self.turning.points, *pairs.shape), I32, "heap")
        body: list[ir.Statement] = []
        points: list[list[ex.Expr]] = []
        for half, e in zip(("low", "high"), pairs.each(c.a), strict=True):
            g = [
                [substitute(e, {w.rows: ex.as_index(r), w.columns: ex.as_index(s)}) for s in range(3)] for r in range(3)
            ]
            rows = [self.named(body, half, self.turning.weights(column)) for column in zip(*g, strict=True)]
            points.append([n for row in zip(*rows, strict=True) for n in self.turning.weights(row)])
        for n, (low, high) in enumerate(zip(*points, strict=True)):
            body.append(ir.Store(words, (*self.rows, ex.as_index(n), *pairs.reduction_axes), word((low, high), 2)))
        return words, loops_of((*self.rows, *pairs.reduction_axes), tuple(body))

    def packed(self, points: np.ndarray, packed: dict[ex.Tensor, np.ndarray]) -> ex.Tensor:
        """The same of constant weights, as they are used: by tiles of rows."""
        count = extent_of(self.c.row)
        words = self.pairs.packed(points)
        starts = np.minimum(np.arange(-(-count // self.height)) * self.height, count - self.height)
        tiles = words[..., starts[:, None] + np.arange(self.height), :]  # points, around, tile, row, step
        tiles = np.moveaxis(tiles, 0, len(self.rows)).swapaxes(-1, -2)
        tensor = ex.Tensor("weights", tiles.shape, I32, "constant")
        packed[tensor] = np.ascontiguousarray(tiles)
        return tensor

    # columns

    def image(self) -> tuple[ex.Tensor, ir.Block]:
        """Words of the array by where they are in tiles: a plane for each column of a tile, by rows of a tile."""
        w, pairs, size, side = self.windows, self.pairs, self.turning.size, self.turning.side
        h, t = ex.Index("h", self.lines * size + 2), ex.Index("t", self.wide)
        lines = (*self.beside, *pairs.reduction_axes)
        words = ex.Tensor("image", (*(i.extent for i in lines), side, size, self.lines + 1, self.wide), I32, "heap")
        sizes = [w.read.tensor.shape[axis] for axis in w.axes]
        height, width = sizes
        assert self.c.window is not None
        top, left = (affine(w.read.indices[axis]).constant for axis in w.axes)
        body: list[ir.Statement] = []
        above, below = max(0, -top), smaller(h.extent, height - top)
        covered = above == 0 and same_size(below, h.extent) and left >= 0
        if not covered or not certainly(lambda: size * self.wide + 2 + left <= width):
            plane = ex.Index("s", side)
            body += loops_of(
                (plane, h, t), (ir.Store(words, (*lines, plane, h % size, h // size, t), ex.constant(0, I32)),)
            )
        for s in range(side):
            place = (*lines, ex.as_index(s), h % size, h // size, t)
            moved: dict[ex.Expr, ex.Expr] = {
                self.c.window: h,
                w.rows: ex.as_index(0),
                self.c.column: t * size,
                w.columns: ex.as_index(s),
            }
            low, high = (self.moved(e, moved) for e in pairs.each(self.c.b))
            first = max(0, -((left + s) // size))
            stop = larger(smaller(self.wide, (width - 1 - left - s) // size + 1), first)
            inner = ir.For(t, (ir.Store(words, place, word((low, high), 2)),), ex.as_index(first), ex.as_index(stop))
            body.append(ir.For(h, (inner,), ex.as_index(above), ex.as_index(below)))
        return words, loops_of(lines, tuple(body))

    def moved(self, e: ex.Expr, values: dict[ex.Expr, ex.Expr]) -> ex.Expr:
        read = only_read(e)
        assert read is not None
        return read_at(e, read, [affine(substitute(i, values)).expression() for i in read.indices])

    def turned(self, image: ex.Tensor) -> ir.Block:
        """All panels of columns, turned beforehand."""
        panel = ex.Index("panel", self.panels)
        body = self.of_panel(panel, lambda first, v: self.turn(image, panel, first, v))
        return self.shared((*self.beside, panel, *self.pairs.reduction_axes), body)

    def turn(self, image: ex.Tensor, panel: ex.Index, first: ex.Expr, v: ex.Index) -> ir.Block:
        """Columns of a panel: every tile's elements turned, for a pair of channels."""
        size, side = self.turning.size, self.turning.side
        lines, place = (*self.beside, *self.pairs.reduction_axes), first + v * processor().lanes + self.lane
        body: list[ir.Statement] = []
        x = [[image[(*lines, s, r % size, place + r // size * self.wide)] for s in range(side)] for r in range(side)]
        across = [self.named(body, f"x{r}_", self.turning.input(x[r])) for r in range(side)]
        columns = [self.turning.input([across[r][s] for r in range(side)]) for s in range(side)]
        for r in range(side):
            for s, n in enumerate(self.named(body, f"n{r}_", [columns[s][r] for s in range(side)])):
                at = (ex.as_index(side * r + s), self.pairs.step, v * processor().lanes + self.lane)
                body.append(ir.Store(self.columns, (*self.whose(panel), *at), n))
        return (ir.For(v, (ir.For(self.lane, tuple(body), kind="vector", width=processor().lanes),)),)

    def whose(self, panel: ex.Index) -> tuple[ex.Expr, ...]:
        """The position of a panel's columns."""
        return (*self.beside, panel) if self.columns.space == "heap" else ()

    def of_panel(self, panel: ex.Index, block: Callable[[ex.Expr, ex.Index], ir.Block]) -> ir.Block:
        """The statements for a panel's tiles, given the first tile and the number of vectors."""
        first = ex.Var("first", I64)

        def by(begin: ex.Expr, width: int) -> ir.Block:
            return ir.Let(first, begin), *block(first, ex.Index("v", width // processor().lanes))

        if self.narrow == self.width:
            return by(ex.minimum(panel * self.width, self.room - self.width), self.width)
        assert isinstance(self.room, int) and isinstance(self.panels, int)
        last = by(ex.as_index(self.room - self.narrow), self.narrow)
        return (ir.If(panel < self.panels - 1, by(panel * self.width, self.width), last),)

    def shared(self, ways: Sequence[ex.Index], body: ir.Block) -> ir.Block:
        """A loop over some indices that threads share."""
        shape = tuple(i.extent for i in ways)
        flat, names = ex.Index("n", product(shape)), [ex.Var(i.name, I64) for i in ways]
        named = [ir.Let(v, e) for v, e in zip(names, ex.unflatten(flat, shape), strict=True)]
        body = ir.substitute_block(body, dict(zip(ways, names, strict=True)))
        return (ir.For(flat, (*named, *body), kind="parallel"),)

    # products

    def multiply(self, image: ex.Tensor, weights: ex.Tensor, tiled: bool) -> ir.Block:
        """The loop over panels: multiplied by those of all rows, and sums turned back."""
        panel, group = ex.Index("panel", self.panels), ex.Index("group", self.groups)
        per = -(-self.tiles // self.groups)
        tile, start = ex.Index("tile", self.tiles), ex.Var("row", I64)
        rows, height = extent_of(self.c.row), self.height
        at = ir.Let(start, ex.minimum(tile * height, rows - height) if rows % height else tile * height)

        def tiles(first: ex.Expr, v: ex.Index) -> ir.Block:
            loop = ir.For(tile, (at, *self.products(weights, tiled, tile, start, panel, first, v)))
            if self.groups > 1:
                return (replace(loop, start=group * per, stop=ex.minimum(group * per + per, self.tiles)),)
            return *loops_of(self.pairs.reduction_axes, self.turn(image, panel, first, v)), loop

        body = self.of_panel(panel, tiles)
        return self.shared((*self.c.outer, panel, group), (ir.Alloc(self.columns), *body) if self.groups == 1 else body)

    def products(
        self,
        weights: ex.Tensor,
        tiled: bool,
        tile: ex.Index,
        start: ex.Expr,
        panel: ex.Index,
        first: ex.Expr,
        v: ex.Index,
    ) -> ir.Block:
        """A tile of rows: the sums of all points, turned back."""
        steps, height, side, width = self.pairs.steps, self.height, self.turning.side, v.extent * processor().lanes
        r, n = ex.Index("r", height), ex.Index("n", self.turning.points)
        sums = ex.Tensor("sums", (height, width), I32, "register")
        points = ex.Tensor("points", (self.turning.points, height, width), I32, "stack")
        unrolled = self.micro.steps_together(steps)
        block, u = ex.Index("s", steps // unrolled), ex.Index("u", unrolled)
        step, column = block * unrolled + u, v * processor().lanes + self.lane
        w = weights[(*self.around, tile, n, step, r)] if tiled else weights[(*self.around, start + r, n, step)]
        added = sums[r, column] + ex.apply("pairdot", w, self.columns[(*self.whose(panel), n, step, column)])

        def each(store: ir.Store) -> ir.For:
            lanes = ir.For(self.lane, (store,), kind="vector", width=processor().lanes)
            return ir.For(r, (ir.For(v, (lanes,), kind="unrolled"),), kind="unrolled")

        point: ir.Block = (
            ir.Alloc(sums),
            each(ir.Store(sums, (r, column), ex.constant(0, I32))),
            ir.For(block, (ir.For(u, (each(ir.Store(sums, (r, column), added)),), kind="unrolled"),)),
            each(ir.Store(points, (n, r, column), sums[r, column])),
        )
        back: list[ir.Statement] = []
        m = [[points[side * a + b, r, column] for b in range(side)] for a in range(side)]
        down = [self.named(back, f"m{b}_", self.turning.sums([m[a][b] for a in range(side)])) for b in range(side)]
        for a in range(self.turning.size):
            for b, y in enumerate(self.turning.sums([down[k][a] for k in range(side)])):
                at = (*self.c.outer, start + r, ex.as_index(self.turning.size * a + b), first + column)
                back.append(ir.Store(self.results, at, self.turning.divided(y)))
        lanes = ir.For(self.lane, tuple(back), kind="vector", width=processor().lanes)
        return ir.Alloc(points), ir.For(n, point), *loops_of((r, v), (lanes,))

    # results

    def finish(self) -> ir.Block:
        """The epilogue, from the tiles of results to their places, by vectors of whole tiles of a row."""
        c, window, size, columns = self.c, self.c.window, self.turning.size, self.c.column.extent
        assert window is not None
        q = c.column
        at = (window % size * size + q % size, window // size * self.wide + q // size)
        result = self.results[(*c.outer, c.row, *at)]

        def of_sums(e: ex.Expr) -> ex.Expr | None:
            return result if isinstance(e, ex.Read) and e.tensor is c.accumulator else None

        block = ir.map_expressions(c.epilogue, lambda e: rewrite(e, of_sums))

        def vectors(width: int, start: ex.Expr | int, stop: ex.Expr | int) -> ir.For:
            return ir.For(q, block, ex.as_index(start), ex.as_index(stop), kind="vector", width=width)

        body: list[ir.Statement] = []
        if isinstance(columns, int):
            done = 0
            for width in (w for w in ENDINGS if w >= size):
                whole = done + (columns - done) // width * width
                if whole > done:
                    body.append(vectors(width, done, whole))
                    done = whole
                    if done < columns and (columns - width) % size == 0:
                        body.append(vectors(width, columns - width, columns))
                        done = columns
            if done < columns:
                body.append(ir.For(q, block, ex.as_index(done)))
        else:
            whole, width = ex.as_index(columns // size * size), size * processor().lanes
            body += [vectors(width, 0, whole // width * width), vectors(width, whole - width, whole)]
            body.append(ir.For(q, block, whole))
        return self.shared((*c.outer, c.row), loops_of((window,), tuple(body)))
