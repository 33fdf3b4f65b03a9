"""The kernels of a Winograd convolution: transformed columns, products with transformed weights,
inverse transforms.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.types.tensor_types import I32, I64
from .match_contraction import parallel_loop
from .vnni_packing import extent_of, tile_start
from .winograd_packing import named
from .winograd_sizes import Windows, WinogradSizes
from .winograd_transforms import WinogradTransform

# columns of results that are finished together; tuned by hand (Zen 4, Zen 5)
ENDINGS = (32, 16, 8, 4, 2)


class WinogradKernels:
    """The kernels of one contraction over windows, by panels of tiles of results."""

    def __init__(
        self, windows: Windows, transform: WinogradTransform, sizes: WinogradSizes
    ) -> None:
        self.windows, self.transform, self.sizes = windows, transform, sizes
        self.c, self.pairs = windows.c, windows.pairs
        self.lane = ex.Index("l", sizes.lanes)
        # one step more, so that points do not all want the same places of a near cache
        shape = (transform.points, self.pairs.steps + 1, sizes.width)
        space = "stack"
        if sizes.groups > 1:
            shape = (*(i.extent for i in windows.beside), sizes.panels, *shape)
            space = "heap"
        self.columns = ex.Tensor("columns", shape, I32, space)
        outer = (*(i.extent for i in self.c.outer), extent_of(self.c.row))
        self.results = ex.Tensor("turned", (*outer, transform.size**2, sizes.room), I32, "heap")

    # columns

    def transformed(self, image: ex.Tensor) -> ir.Block:
        """All panels of columns, transformed beforehand."""
        panel = ex.Index("panel", self.sizes.panels)
        body = self.of_panel(panel, lambda first, v: self.transform_columns(image, panel, first, v))
        return self.shared((*self.windows.beside, panel, *self.pairs.reduction_axes), body)

    def transform_columns(
        self, image: ex.Tensor, panel: ex.Index, first: ex.Expr, v: ex.Index
    ) -> ir.Block:
        """Columns of a panel: every tile's elements transformed, for a pair of channels."""
        size = self.transform.size
        side = range(self.transform.side)
        column = v * self.sizes.lanes + self.lane
        lines = (*self.windows.beside, *self.pairs.reduction_axes)
        place = first + v * self.sizes.lanes + self.lane
        body: list[ir.Statement] = []
        x = [
            [image[(*lines, s, r % size, place + r // size * self.sizes.wide)] for s in side]
            for r in side
        ]
        across = [named(body, f"x{r}_", self.transform.input(x[r])) for r in side]
        columns = [self.transform.input([across[r][s] for r in side]) for s in side]
        for r in side:
            for s, n in enumerate(named(body, f"n{r}_", [columns[s][r] for s in side])):
                at = (ex.as_index(len(side) * r + s), self.pairs.step, column)
                body.append(ir.Store(self.columns, (*self.whose(panel), *at), n))
        return (ir.For(v, (ir.vector_loop(self.lane, *body),)),)

    def whose(self, panel: ex.Index) -> tuple[ex.Expr, ...]:
        """The position of a panel's columns."""
        return (*self.windows.beside, panel) if self.columns.space == "heap" else ()

    def of_panel(self, panel: ex.Index, block: Callable[[ex.Expr, ex.Index], ir.Block]) -> ir.Block:
        """The statements for a panel's tiles, given the first tile and the number of vectors."""
        first = ex.Var("first", I64)

        def by(begin: ex.Expr, width: int) -> ir.Block:
            return ir.Let(first, begin), *block(first, ex.Index("v", width // self.sizes.lanes))

        if self.sizes.last_width == self.sizes.width:
            return by(
                ex.minimum(panel * self.sizes.width, self.sizes.room - self.sizes.width),
                self.sizes.width,
            )
        assert isinstance(self.sizes.room, int) and isinstance(self.sizes.panels, int)
        last = by(ex.as_index(self.sizes.room - self.sizes.last_width), self.sizes.last_width)
        return (
            ir.If(
                panel < self.sizes.panels - 1, by(panel * self.sizes.width, self.sizes.width), last
            ),
        )

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
        panel, group = ex.Index("panel", self.sizes.panels), ex.Index("group", self.sizes.groups)
        tile, per = (
            ex.Index("tile", self.sizes.row_tiles),
            -(-self.sizes.row_tiles // self.sizes.groups),
        )
        row = ir.Let(
            ex.Var("row", I64), tile_start(tile, extent_of(self.c.row), self.sizes.micro.rows)
        )

        def weight(n: ex.Index, step: ex.Expr, r: ex.Index) -> ex.Expr:
            return weights[
                (*self.windows.around, tile, n, step, r)
                if tiled
                else (*self.windows.around, row.var + r, n, step)
            ]

        def tiles(first: ex.Expr, v: ex.Index) -> ir.Block:
            loop = ir.For(tile, (row, *self.products(weight, row.var, panel, first, v)))
            if self.sizes.groups > 1:
                return (
                    replace(
                        loop,
                        start=group * per,
                        stop=ex.minimum(group * per + per, self.sizes.row_tiles),
                    ),
                )
            return *ir.nested(
                self.pairs.reduction_axes, self.transform_columns(image, panel, first, v)
            ), loop

        body = self.of_panel(panel, tiles)
        return self.shared(
            (*self.c.outer, panel, group),
            (ir.Alloc(self.columns), *body) if self.sizes.groups == 1 else body,
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
        height = self.sizes.micro.rows
        width = v.extent * self.sizes.lanes
        side = range(self.transform.side)
        r, n = ex.Index("r", height), ex.Index("n", self.transform.points)
        sums = ex.Tensor("sums", (height, width), I32, "register")
        points = ex.Tensor("points", (self.transform.points, height, width), I32, "stack")
        unrolled = self.sizes.micro.steps_together(steps)
        block = ex.Index("s", steps // unrolled)
        u = ex.Index("u", unrolled)
        step = block * unrolled + u
        column = v * self.sizes.lanes + self.lane
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
        down = [named(back, f"m{b}_", self.transform.sums(m[b])) for b in side]
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
        at = (window % size * size + q % size, window // size * self.sizes.wide + q // size)
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
            width = size * self.sizes.lanes
            body += [
                vectors(width, 0, whole // width * width),
                vectors(width, whole - width, whole),
            ]
            body.append(ir.For(q, block, whole))
        return self.shared((*c.outer, c.row), ir.nested((window,), tuple(body)))
