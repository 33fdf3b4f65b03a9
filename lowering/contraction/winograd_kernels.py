"""The kernels of a Winograd convolution: packing of the input, transformed columns, products with
transformed weights, inverse transforms.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.traverse import substitute
from ...dialect.types.sizes import certainly, larger, product, same_size, smaller
from ...dialect.types.tensor_types import I32, I64
from ..analysis.accesses import depends
from ..processor import processor
from .match_contraction import Contraction, parallel_loop
from .micro_kernel import GUESS, pairdot
from .vnni_packing import (
    Words,
    divided,
    extent_of,
    only_read,
    read_at,
    size_of,
    tile_elements,
    tile_start,
    word,
)
from .winograd_transforms import WinogradTransform

# vectors of tiles in a panel: all points of its columns stay in the L2 cache; counted for 512 KB
VECTORS = 2
# cost model: instructions per vector of a point of inputs or results; counted, not timed
TRANSFORM = 15
# cost model: transformed weights, of two terms each, that are read from memory in the time of a
# vector instruction; tuned by hand (Zen 4, Zen 5)
WEIGHTS_READ = 3
# iterations, at least, for threads to share, or as many panels, which are enough: seven, by the
# time of 3 x 3 windows of 64 channels of 56 x 56 on Zen 5
GROUPS, FEW = 16, 7
# columns of results that are finished together; tuned by hand (Zen 4, Zen 5)
ENDINGS = (32, 16, 8, 4, 2)

Target = tuple[ex.Tensor, tuple[ex.Expr, ...]]  # of a store


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
        pairs = self.pairs
        return (
            9
            * extent_of(pairs.index)
            * prod(map(extent_of, pairs.reduction_axes))
            // extent_of(pairs.part)
        )


class WinogradKernels:
    """The kernels of one contraction over windows."""

    def __init__(self, c: Contraction, windows: Windows, transform: WinogradTransform) -> None:
        self.c = c
        self.windows = windows
        self.pairs = windows.pairs
        self.transform = transform
        self.high, self.wide = (divided(size_of(i), transform.size) for i in (c.window, c.column))
        self.count = self.high * self.wide
        self.lanes = lanes = processor().lanes
        self.blocks = -(-self.count // lanes) if isinstance(self.count, int) else None
        self.around = tuple(i for i in c.outer if depends(c.a, {i}))
        self.beside = tuple(i for i in c.outer if depends(c.b, {i}))
        self.rows, taps = (*self.around, c.row), (windows.rows, windows.columns)
        self.reduction_axes = (*(i for i in c.reduction_axes if i not in taps), *taps)
        vectors = VECTORS if self.blocks is None else min(VECTORS, self.blocks)
        self.micro = pairdot().best(c.row.extent, self.blocks, fixed=vectors)
        self.height = self.micro.rows
        self.tiles = -(-extent_of(c.row) // self.height)
        self.lane = ex.Index("l", lanes)
        self.outer = tuple(i.extent for i in c.outer)
        self.by_panels()
        self.results = ex.Tensor(
            "turned", (*self.outer, extent_of(c.row), transform.size**2, self.room), I32, "heap"
        )

    @property
    def cost(self) -> float:
        """The vector instructions of the products, where the last panel may be narrower, and what
        takes as long beside them.
        """
        rows = extent_of(self.c.row)
        steps = self.pairs.steps
        blocks = self.blocks if self.blocks is not None else GUESS // self.transform.size**2
        assert isinstance(steps, int)
        left = blocks % self.micro.vectors
        last = replace(self.micro, vectors=left).cost(rows, left) if left else 0
        transforms = (
            TRANSFORM * (rows + 2 * steps) * blocks * processor().fma_cycles
        )  # of inputs and of results
        products = steps * (self.micro.cost(rows, blocks - left) + last)
        return self.transform.points * (products + transforms + rows * steps / WEIGHTS_READ)

    def by_panels(self) -> None:
        """Compute by panels of tiles of results. A panel that would go beyond the end moves back,
        and the last one is narrower where that is enough. A panel holds whole vectors, whose lanes
        beyond a known number are undefined. Where panels are few, threads share the rows as well,
        and columns are transformed before.
        """
        self.narrow = self.width = width = VECTORS * self.lanes
        self.panels, left = divided(self.count, width), self.count % width
        if isinstance(left, int) and left:
            self.narrow = -(-left // self.lanes) * self.lanes
        self.room, self.lines = (
            self.count,
            self.high,
        )  # tiles, and rows of them, that there are places for
        if isinstance(self.count, int):
            self.room = -(-self.count // self.lanes) * self.lanes
            self.lines = max(int(self.high), -(-self.room // int(self.wide)))
        sure = prod(n for n in (*self.outer, self.panels) if isinstance(n, int))
        self.groups = (
            min(self.tiles, -(-GROUPS // sure))
            if isinstance(self.panels, int) and sure < FEW
            else 1
        )
        steps = (
            self.pairs.steps + 1
        )  # one more, so that points do not all want the same places of a near cache
        shape = (self.transform.points, steps, self.width)
        space = "stack"
        if self.groups > 1:
            shape = (*(i.extent for i in self.beside), self.panels, *shape)
            space = "heap"
        self.columns = ex.Tensor("columns", shape, I32, space)

    def named(
        self, body: list[ir.Statement], name: str, values: Sequence[ex.Expr]
    ) -> list[ex.Expr]:
        names = [ex.Var(f"{name}{n}", I32) for n in range(len(values))]
        body += [ir.Let(v, value) for v, value in zip(names, values, strict=True)]
        return list(names)

    # weights

    def weights(self) -> tuple[ex.Tensor, ir.Block]:
        """The words of the weights, by rows and points."""
        w = self.windows
        pairs = self.pairs
        taps = range(3)
        words = ex.Tensor(
            "weights",
            (*(i.extent for i in self.rows), self.transform.points, *pairs.shape),
            I32,
            "heap",
        )
        body: list[ir.Statement] = []
        points: list[list[ex.Expr]] = []
        for half, e in zip(("low", "high"), pairs.each(self.c.a), strict=True):
            g = [
                [substitute(e, {w.rows: ex.as_index(r), w.columns: ex.as_index(s)}) for r in taps]
                for s in taps
            ]
            rows = [self.named(body, half, self.transform.weights(column)) for column in g]
            points.append(
                [n for row in zip(*rows, strict=True) for n in self.transform.weights(row)]
            )
        for n, halves in enumerate(zip(*points, strict=True)):
            body.append(
                ir.Store(
                    words, (*self.rows, ex.as_index(n), *pairs.reduction_axes), word(halves, 2)
                )
            )
        return words, ir.nested((*self.rows, *pairs.reduction_axes), tuple(body))

    def packed(self, points: np.ndarray) -> tuple[ex.Tensor, dict[ex.Tensor, np.ndarray]]:
        """Pack constant weights in the order of use: by tiles of rows."""
        rows = tile_elements(extent_of(self.c.row), self.tiles, self.height)
        tiles = self.pairs.packed(points)[..., rows, :]  # points, around, tile, row, step
        tiles = np.moveaxis(tiles, 0, len(self.rows)).swapaxes(-1, -2)
        tensor = ex.Tensor("weights", tiles.shape, I32, "constant")
        return tensor, {tensor: np.ascontiguousarray(tiles)}

    # columns

    def image(self) -> tuple[ex.Tensor, ir.Block]:
        """Words of the array by where they are in tiles: a plane for each column of a tile, by rows
        of a tile. An image of known size is first words side by side, with its border.
        """
        w = self.windows
        pairs = self.pairs
        size = self.transform.size
        side = self.transform.side
        h, t = ex.Index("h", self.high * size + 2), ex.Index("t", self.wide)
        lines = (*self.beside, *pairs.reduction_axes)
        image = ex.Tensor(
            "image",
            (*(i.extent for i in lines), side, size, self.lines + 1, self.wide),
            I32,
            "heap",
        )
        height, width = (w.read.tensor.shape[axis] for axis in w.axes)
        window = self.c.window
        assert window is not None
        top, left = (affine(w.read.indices[axis]).constant for axis in w.axes)
        above, below = max(0, -top), smaller(h.extent, height - top)
        covered = above == 0 and same_size(below, h.extent) and left >= 0
        border = not covered or not certainly(lambda: size * self.wide + 2 + left <= width)

        def inside(target: Target, i: ex.Index, step: int, n: int) -> ir.For:
            """The stores of columns i * step + n that are inside of the array."""
            at: dict[ex.Expr, ex.Expr] = {
                window: h,
                w.rows: ex.ZERO,
                self.c.column: i * step,
                w.columns: ex.as_index(n),
            }
            value = word([self.moved(e, at) for e in pairs.each(self.c.b)], 2)
            first = max(0, -((left + n) // step))
            stop = larger(smaller(i.extent, (width - 1 - left - n) // step + 1), first)
            inner = ir.For(i, (ir.Store(*target, value),), ex.as_index(first), ex.as_index(stop))
            return ir.For(h, (inner,), ex.as_index(above), ex.as_index(below))

        def zeros(target: Target, indices: Sequence[ex.Index]) -> ir.Block:
            return ir.nested(indices, (ir.Store(*target, ex.constant(0, I32)),)) if border else ()

        places = [(*lines, ex.as_index(n), h % size, h // size, t) for n in range(side)]
        plane = ex.Index("s", side)
        q = ex.Index("q", self.wide * size + 2)
        words = ex.Tensor("words", (h.extent, q.extent), I32, "stack")
        here = words, (h, q)
        if (
            isinstance(n := product(words.shape), int)
            and n * I32.bytes <= processor().l2_bytes // 4
        ):
            body: ir.Block = (ir.Alloc(words), *zeros(here, (h, q)), inside(here, q, 1, 0))
            moves = (
                ir.Store(image, place, words[h, t * size + n]) for n, place in enumerate(places)
            )
            body += tuple(s for move in moves for s in ir.nested((h, t), (move,)))
        else:
            body = zeros((image, (*lines, plane, *places[0][-3:])), (plane, h, t))
            body += tuple(inside((image, place), t, size, n) for n, place in enumerate(places))
        return image, ir.nested(lines, body)

    def moved(self, e: ex.Expr, values: dict[ex.Expr, ex.Expr]) -> ex.Expr:
        read = only_read(e)
        assert read is not None
        return read_at(e, read, [affine(substitute(i, values)).expression() for i in read.indices])

    def transformed(self, image: ex.Tensor) -> ir.Block:
        """All panels of columns, transformed beforehand."""
        panel = ex.Index("panel", self.panels)
        body = self.of_panel(panel, lambda first, v: self.transform_columns(image, panel, first, v))
        return self.shared((*self.beside, panel, *self.pairs.reduction_axes), body)

    def transform_columns(
        self, image: ex.Tensor, panel: ex.Index, first: ex.Expr, v: ex.Index
    ) -> ir.Block:
        """Columns of a panel: every tile's elements transformed, for a pair of channels."""
        size = self.transform.size
        side = range(self.transform.side)
        column = v * self.lanes + self.lane
        lines = (*self.beside, *self.pairs.reduction_axes)
        place = first + v * self.lanes + self.lane
        body: list[ir.Statement] = []
        x = [
            [image[(*lines, s, r % size, place + r // size * self.wide)] for s in side]
            for r in side
        ]
        across = [self.named(body, f"x{r}_", self.transform.input(x[r])) for r in side]
        columns = [self.transform.input([across[r][s] for r in side]) for s in side]
        for r in side:
            for s, n in enumerate(self.named(body, f"n{r}_", [columns[s][r] for s in side])):
                at = (ex.as_index(len(side) * r + s), self.pairs.step, column)
                body.append(ir.Store(self.columns, (*self.whose(panel), *at), n))
        return (ir.For(v, (ir.vector_loop(self.lane, *body),)),)

    def whose(self, panel: ex.Index) -> tuple[ex.Expr, ...]:
        """The position of a panel's columns."""
        return (*self.beside, panel) if self.columns.space == "heap" else ()

    def of_panel(self, panel: ex.Index, block: Callable[[ex.Expr, ex.Index], ir.Block]) -> ir.Block:
        """The statements for a panel's tiles, given the first tile and the number of vectors."""
        first = ex.Var("first", I64)

        def by(begin: ex.Expr, width: int) -> ir.Block:
            return ir.Let(first, begin), *block(first, ex.Index("v", width // self.lanes))

        if self.narrow == self.width:
            return by(ex.minimum(panel * self.width, self.room - self.width), self.width)
        assert isinstance(self.room, int) and isinstance(self.panels, int)
        last = by(ex.as_index(self.room - self.narrow), self.narrow)
        return (ir.If(panel < self.panels - 1, by(panel * self.width, self.width), last),)

    def shared(self, indices: Sequence[ex.Index], body: ir.Block) -> ir.Block:
        """A loop over some indices that threads share."""
        names = [ex.Var(i.name, I64) for i in indices]
        places = [(name, i.extent) for name, i in zip(names, indices, strict=True)]
        return (
            parallel_loop(
                "n", places, ir.substitute_block(body, dict(zip(indices, names, strict=True)))
            ),
        )

    # products

    def multiply(self, image: ex.Tensor, weights: ex.Tensor, tiled: bool) -> ir.Block:
        """The loop over panels: multiplied by those of all rows, and sums transformed back."""
        panel, group = ex.Index("panel", self.panels), ex.Index("group", self.groups)
        tile, per = ex.Index("tile", self.tiles), -(-self.tiles // self.groups)
        row = ir.Let(ex.Var("row", I64), tile_start(tile, extent_of(self.c.row), self.height))

        def weight(n: ex.Index, step: ex.Expr, r: ex.Index) -> ex.Expr:
            return weights[
                (*self.around, tile, n, step, r) if tiled else (*self.around, row.var + r, n, step)
            ]

        def tiles(first: ex.Expr, v: ex.Index) -> ir.Block:
            loop = ir.For(tile, (row, *self.products(weight, row.var, panel, first, v)))
            if self.groups > 1:
                return (
                    replace(
                        loop, start=group * per, stop=ex.minimum(group * per + per, self.tiles)
                    ),
                )
            return *ir.nested(
                self.pairs.reduction_axes, self.transform_columns(image, panel, first, v)
            ), loop

        body = self.of_panel(panel, tiles)
        return self.shared(
            (*self.c.outer, panel, group),
            (ir.Alloc(self.columns), *body) if self.groups == 1 else body,
        )

    def products(
        self,
        weight: Callable[[ex.Index, ex.Expr, ex.Index], ex.Expr],
        row: ex.Expr,
        panel: ex.Index,
        first: ex.Expr,
        v: ex.Index,
    ) -> ir.Block:
        """A tile of rows: the sums of all points, transformed back."""
        steps = self.pairs.steps
        height = self.height
        width = v.extent * self.lanes
        side = range(self.transform.side)
        r, n = ex.Index("r", height), ex.Index("n", self.transform.points)
        sums = ex.Tensor("sums", (height, width), I32, "register")
        points = ex.Tensor("points", (self.transform.points, height, width), I32, "stack")
        unrolled = self.micro.steps_together(steps)
        block = ex.Index("s", steps // unrolled)
        u = ex.Index("u", unrolled)
        step = block * unrolled + u
        column = v * self.lanes + self.lane
        columns = self.columns[(*self.whose(panel), n, step, column)]
        added = sums[r, column] + ex.apply("pairdot", weight(n, step, r), columns)

        def each(store: ir.Store) -> ir.Block:
            return ir.nested((r, v), (ir.vector_loop(self.lane, store),), "unrolled")

        point: ir.Block = (
            ir.Alloc(sums),
            *each(ir.Store(sums, (r, column), ex.constant(0, I32))),
            ir.For(block, (ir.For(u, each(ir.Store(sums, (r, column), added)), kind="unrolled"),)),
            *each(ir.Store(points, (n, r, column), sums[r, column])),
        )
        back: list[ir.Statement] = []
        m = [[points[len(side) * a + b, r, column] for a in side] for b in side]
        down = [self.named(back, f"m{b}_", self.transform.sums(m[b])) for b in side]
        for a in range(self.transform.size):
            for b, y in enumerate(self.transform.sums([down[k][a] for k in side])):
                at = (
                    *self.c.outer,
                    row + r,
                    ex.as_index(self.transform.size * a + b),
                    first + column,
                )
                back.append(ir.Store(self.results, at, self.transform.divided(y)))
        return (
            ir.Alloc(points),
            ir.For(n, point),
            *ir.nested((r, v), (ir.vector_loop(self.lane, *back),)),
        )

    # results

    def finish(self) -> ir.Block:
        """The epilogue, from the tiles of results to their places, by vectors of whole tiles of a
        row.
        """
        c = self.c
        window = self.c.window
        size = self.transform.size
        q = self.c.column
        columns = self.c.column.extent
        assert window is not None
        at = (window % size * size + q % size, window // size * self.wide + q // size)
        block = c.finish(self.results[(*c.outer, c.row, *at)], {})

        def vectors(width: int, start: ex.Expr | int, stop: ex.Expr | int) -> ir.For:
            return ir.For(
                q, block, ex.as_index(start), ex.as_index(stop), kind="vector", width=width
            )

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
            whole = ex.as_index(columns // size * size)
            width = size * self.lanes
            body += [
                vectors(width, 0, whole // width * width),
                vectors(width, whole - width, whole),
            ]
            body.append(ir.For(q, block, whole))
        return self.shared((*c.outer, c.row), ir.nested((window,), tuple(body)))
