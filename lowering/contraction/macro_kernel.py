"""Loops around a micro-kernel: over panels of columns, and the tiles of each.

A panel holds all terms of some columns, a block of columns being a vector; a tile is some rows of a
panel's sums. What the terms are, numbers or words, is the same to these loops. Where it is not
known how many terms there are, panels go by groups, each with a buffer of its own that is as deep
as it turns out to be.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.types.sizes import Dim, product
from ...dialect.types.tensor_types import I64
from ..analysis.accesses import accumulators
from ..processor import processor
from .match_contraction import Contraction, kernel_from_body
from .micro_kernel import MicroKernel
from .vnni_packing import divided, is_multiple, size_of, tile_start

MAX_STACK_K = 1 << 14  # steps of a panel on the stack, at most: bounds the stack of a thread
GROUPS = 16  # groups of panels that may be deeper; tuned by hand (Zen 4, Zen 5)

Row = Callable[
    [ex.Expr, ex.Expr, ex.Expr], ex.Expr
]  # a row's term, of the tile, the row, and its number in the tile
# a sum with a step's products, of the sum before and the same
Sum = Callable[[ex.Expr, ex.Expr, ex.Expr, ex.Expr], ex.Expr]
Rest = Callable[
    [ex.Expr, ex.Expr], ex.Expr
]  # what is left to add to a sum, which is given with its row


@dataclass(frozen=True)
class PanelSizes:
    """The sizes of panels and tiles: a panel is `together` blocks, `pitch` places apart, each a
    vector of `lanes` columns, and a tile `height` rows of a panel's sums.
    """

    lanes: int
    height: int
    together: int
    across: Dim  # blocks of the columns, `blocks` those of all columns of a window
    blocks: Dim
    terms: Dim  # of each sum
    pitch: int

    @property
    def width(self) -> int:
        return self.together * self.pitch

    @property
    def panels(self) -> Dim:
        return divided(self.blocks, self.together)


def sizes_of(c: Contraction, micro: MicroKernel, lanes: int = 0, pitch: int = 0) -> PanelSizes:
    """The sizes of the panels of a contraction, whose tiles a micro-kernel computes; `lanes` are
    those of a vector, and `pitch` as many, where they are not given.
    """
    lanes = lanes or processor().tile_vector_bytes // c.accumulator.element.bytes
    rows, across = c.row.extent, divided(c.column.extent, lanes)
    blocks = across * size_of(c.window)
    height = min(micro.rows, rows) if isinstance(rows, int) else micro.rows
    together = min(micro.vectors, blocks) if isinstance(blocks, int) else micro.vectors
    terms = product(tuple(i.extent for i in c.reduction_axes))
    return PanelSizes(lanes, height, together, across, blocks, terms, pitch or lanes)


class PanelIndices:
    """The indices of a panel's blocks and lanes, and the names of the first column of a block: p
    along the window's axis, and q.
    """

    def __init__(self, sizes: PanelSizes) -> None:
        self.p, self.q = ex.Var("p", I64), ex.Var("q", I64)
        self.v, self.lane = ex.Index("v", sizes.together), ex.Index("l", sizes.lanes)
        self.place = self.v * sizes.pitch + self.lane


class PanelOrder:
    """The loop over groups of `several` panels, of all that the outer loops go over, in `shares`
    shares of the rows: `turn` counts the groups, and `panel` is the current panel.
    """

    def __init__(
        self, outer: Sequence[ex.Index], panels: Dim, several: int = 1, shares: int = 1
    ) -> None:
        self.outer, self.panels = outer, panels
        self.several, self.shares, self.share = several, shares, ex.Var("share", I64)
        shared = (shares,) if shares > 1 else ()
        self.shape = (*shared, *(i.extent for i in outer), divided(panels, several))
        self.flat = ex.Index("panel", product(self.shape))
        self.turn: ex.Expr = ex.Var("panel", I64) if len(self.shape) > 1 else self.flat
        self.panel: ex.Expr = self.turn if several == 1 else ex.Var("at", I64)

    def each(self, body: ir.Block) -> ir.For:
        """The loop over groups and shares."""
        if len(self.shape) > 1:
            outer = [ex.Var(i.name, I64) for i in self.outer]
            names = [*((self.share,) if self.shares > 1 else ()), *outer, self.turn]
            places = zip(names, ex.unflatten(self.flat, self.shape), strict=True)
            named = [ir.Let(v, e) for v, e in places if isinstance(v, ex.Var)]
            body = (*named, *ir.substitute_block(body, dict(zip(self.outer, outer, strict=True))))
        return ir.For(self.flat, body)

    def each_of_group(self, body: ir.Block) -> ir.Block:
        """The statements for every panel of a group."""
        if self.several == 1:
            return body
        m = ex.Index("m", self.several)
        first = self.turn * self.several
        assert isinstance(self.panel, ex.Var)
        whole = is_multiple(self.panels, self.several)
        stop = None if whole else ex.minimum(ex.as_index(self.panels) - first, self.several)
        return (ir.For(m, (ir.Let(self.panel, first + m), *body), stop=stop),)

    def each_tile(self, tile: ex.Index, body: ir.Block) -> ir.Block:
        """The loop over tiles, those of a share of the rows."""
        if self.shares == 1:
            return (ir.For(tile, body),)
        per = divided(tile.extent, self.shares)
        return (
            ir.For(tile, body, self.share * per, ex.minimum(self.share * per + per, tile.extent)),
        )


class PanelTiling:
    """The kernel that computes a contraction from panels of columns, one after the other."""

    def __init__(
        self,
        kernel: ir.Kernel,
        c: Contraction,
        micro: MicroKernel,
        sizes: PanelSizes | None = None,
    ) -> None:
        self.kernel, self.c, self.micro = kernel, c, micro
        self.element = c.accumulator.element
        self.sizes = sizes or sizes_of(c, micro)
        self.at = PanelIndices(self.sizes)
        self.order = PanelOrder(c.outer, self.sizes.panels)
        self.k: ex.Expr = ex.flat_index(c.reduction_axes, tuple(i.extent for i in c.reduction_axes))
        self.group = ex.Index("g", GROUPS)
        self.rest: Rest = lambda sum, row: sum

    @property
    def own(self) -> tuple[ex.Expr, ...]:
        """The index at which a panel's buffer begins."""
        terms = self.sizes.terms
        return () if isinstance(terms, int) and terms <= MAX_STACK_K else (self.group,)

    # panels

    def by_groups(self, several: int, shares: int = 1) -> None:
        """Compute `several` panels together, in `shares` shares of the rows."""
        self.order = PanelOrder(self.c.outer, self.sizes.panels, several, shares)

    def each_panel(self, body: ir.Block) -> ir.Kernel:
        """The loop over panels, of all that the outer loops go over."""
        order, sizes = self.order, self.sizes
        loop = order.each(body)
        count = loop.index.extent
        groups = divided(count, order.shares) * order.several
        work = groups * sizes.width * self.c.row.extent * sizes.terms
        if any(
            isinstance(s, ir.Alloc) and s.tensor.space == "heap" for s in ir.statements(loop.body)
        ):
            per = divided(count, GROUPS)
            loop = replace(
                loop, start=self.group * per, stop=ex.minimum(self.group * per + per, count)
            )
            loop = ir.For(self.group, (loop,))
        serial = isinstance(work, int) and work < processor().parallel_products
        loop = replace(loop, kind="serial" if serial else "parallel")
        return kernel_from_body(self.kernel, "tiles", (loop,), self.kernel.outputs)

    def placed(self, body: ir.Block, unrolled: bool = False) -> ir.For:
        """A body for each block of the panel, with names for where the block begins."""
        return ir.For(self.at.v, (*self.begins(), *body), kind="unrolled" if unrolled else "serial")

    def begins(self) -> tuple[ir.Let, ...]:
        """Names for where a block of the panel begins."""
        block: ex.Expr = self.order.panel * self.sizes.together + self.at.v
        if not is_multiple(self.sizes.blocks, self.sizes.together):
            block = ex.minimum(block, self.sizes.blocks - 1)
        if self.c.window is None:
            return (ir.Let(self.at.q, tile_start(block, self.c.column.extent, self.sizes.lanes)),)
        first = tile_start(block % self.sizes.across, self.c.column.extent, self.sizes.lanes)
        return ir.Let(self.at.p, block // self.sizes.across), ir.Let(self.at.q, first)

    def column(self, lane: ex.Expr) -> dict[ex.Expr, ex.Expr]:
        """The contraction's column indices at a position in a block."""
        place: dict[ex.Expr, ex.Expr] = {self.c.column: self.at.q + lane}
        return place if self.c.window is None else {**place, self.c.window: self.at.p}

    # tiles

    def tiles(self, reduction_axes: Sequence[ex.Index], sum: Sum, parts: int = 1) -> ir.Block:
        """For every tile of rows: sums over all steps of the panel, in `parts` parts, and the
        epilogue. `sum` gives an expression of the reduction, block and lane indices.
        """
        tile, r, start, sums, loop = self._steps(reduction_axes, sum)
        if len(reduction_axes) > 1 or parts == 1:
            zero = self._clear(r, sums)
            return self.order.each_tile(
                tile, (start, ir.Alloc(sums), zero, loop, *self.finished(sums, start.var, r))
            )
        each = divided(loop.index.extent, parts)
        place = (r, self.at.place)

        def add(part: ir.For, waiting: ex.Tensor, at: tuple[ex.Expr, ...]) -> ir.Block:
            load = ir.Store(sums, place, waiting[at])
            save = ir.Store(waiting, at, sums[place])
            return start, ir.Alloc(sums), self.each(r, load), part, self.each(r, save)

        return self._waiting(tile, r, start, _parts(loop, each, parts), add)

    def tiles_of_blocks(self, reduction_axes: Sequence[ex.Index], sum: Sum, each: Dim) -> ir.Block:
        """Tile sums that are accumulated by blocks of `each` iterations of the outermost reduction
        axis.
        """
        tile, r, start, sums, loop = self._steps(reduction_axes, sum)
        if loop.index is not reduction_axes[0]:  # of unrolled steps
            each = each // self.micro.steps_together(reduction_axes[0].extent)
        count = (loop.index.extent + (each - 1)) // each
        block = _parts(loop, each, count)
        place = (r, self.at.place)

        def add(part: ir.For, totals: ex.Tensor, at: tuple[ex.Expr, ...]) -> ir.Block:
            more = self.each(r, ir.Store(totals, at, totals[at] + sums[place]))
            return start, ir.Alloc(sums), self._clear(r, sums), part, more

        if self.order.shares == 1 and isinstance(tile.extent, int):
            return self._waiting(tile, r, start, block, add)
        totals = ex.Tensor("totals", sums.shape, sums.element, "stack")
        _, *add_block = add(block[1], totals, place)
        blocks = ir.For(block[0], tuple(add_block))
        finish = self.finish(totals, r, start.var, r)
        body = (start, ir.Alloc(totals), self._clear(r, totals), blocks, finish)
        return self.order.each_tile(tile, body)

    def _steps(
        self, reduction_axes: Sequence[ex.Index], sum: Sum
    ) -> tuple[ex.Index, ex.Index, ir.Let, ex.Tensor, ir.For]:
        """The index of a tile and of its rows, where it starts, its sums, and the loop that adds
        all steps to them.
        """
        rows = self.c.row.extent
        height = self.sizes.height
        tile = ex.Index("tile", divided(rows, height))
        r = ex.Index("r", height)
        start = ir.Let(ex.Var("row", I64), tile_start(tile, rows, height))
        sums = ex.Tensor("sums", (height, self.sizes.width), self.element, "register")
        place = (r, self.at.place)
        add = self.each(r, ir.Store(sums, place, sum(sums[place], tile, start.var + r, r)))
        axis, *inner = reduction_axes
        loop = ir.For(axis, ir.nested(inner, (add,)))
        if not inner:
            unrolled = self.micro.steps_together(axis.extent)
            block = ex.Index("s", axis.extent // unrolled)
            u = ex.Index("u", unrolled)
            steps = ir.substitute_block(loop.body, {axis: block * unrolled + u})
            loop = ir.For(block, (ir.For(u, steps, kind="unrolled"),))
        return tile, r, start, sums, loop

    def _clear(self, r: ex.Index, sums: ex.Tensor) -> ir.Statement:
        return self.each(r, ir.Store(sums, (r, self.at.place), ex.constant(0, self.element)))

    def _waiting(
        self,
        tile: ex.Index,
        r: ex.Index,
        start: ir.Let,
        part: tuple[ex.Index, ir.For],
        add: Callable[[ir.For, ex.Tensor, tuple[ex.Expr, ...]], ir.Block],
    ) -> ir.Block:
        """All tiles, part by part of their steps, while the sums of all rows wait in memory."""
        assert self.order.shares == 1, "sums of all rows wait"
        lines = tile.extent * self.sizes.height
        waiting = ex.Tensor("held", (lines, self.sizes.width), self.element, "stack")
        line = tile * self.sizes.height + r
        n = ex.Index("n", lines)
        c = ex.Index("c", self.sizes.width)
        clear = ir.vector_loop(c, ir.Store(waiting, (n, c), ex.constant(0, self.element)))
        return (
            ir.Alloc(waiting),
            ir.For(n, (clear,)),
            ir.For(part[0], (ir.For(tile, add(part[1], waiting, (line, self.at.place))),)),
            ir.For(tile, (start, self.finish(waiting, line, start.var, r))),
        )

    def parts(self, steps: Dim) -> int:
        """The parts of a panel's steps, such that one stays in near cache while the sums of all
        rows wait in memory.
        """
        if not isinstance(steps, int) or not isinstance(self.c.row.extent, int):
            return 1
        return -(
            -steps * self.sizes.width * self.element.bytes // max(1, processor().l2_bytes // 4)
        )

    def each(self, r: ex.Index, store: ir.Store) -> ir.Statement:
        """A store for every element of the tile, by vectors, a row's together: its factor is then
        in a register briefly.
        """
        (loop,) = ir.nested((r, self.at.v), (ir.vector_loop(self.at.lane, store),), "unrolled")
        return loop

    def finished(self, sums: ex.Tensor, start: ex.Expr, r: ex.Index) -> ir.Block:
        """Finish sums that are held in registers. A long epilogue is emitted once: the sums wait
        for it in memory.
        """
        operations = sum(isinstance(e, ex.Apply) for e in ir.nodes(self.c.epilogue))
        if not accumulators(self.c.epilogue) and operations < processor().tuning.long_epilogue:
            return (self.finish(sums, r, start, r),)
        waiting = ex.Tensor("waiting", sums.shape, sums.element, "stack")
        save = self.each(r, ir.Store(waiting, (r, self.at.place), sums[r, self.at.place]))
        return ir.Alloc(waiting), save, self.finish(waiting, r, start, r)

    def finish(self, sums: ex.Tensor, line: ex.Expr, start: ex.Expr, r: ex.Index) -> ir.Statement:
        """The epilogue, for every element of the tile."""
        sum = self.rest(sums[line, self.at.place], start + r)
        block = self.c.finish(sum, {**self.column(self.at.lane), self.c.row: start + r})
        if sums.space == "register":
            return self.placed(
                (ir.vector_loop(self.at.lane, ir.For(r, block, kind="unrolled")),), unrolled=True
            )
        return ir.For(r, (self.placed((ir.vector_loop(self.at.lane, *block),), unrolled=True),))


def _parts(loop: ir.For, each: Dim, count: Dim) -> tuple[ex.Index, ir.For]:
    """The index of a loop's parts, of `each` iterations, and the loop over one part."""
    part = ex.Index("part", count)
    extent = loop.index.extent
    first = part * each
    return part, replace(loop, start=first, stop=ex.minimum(first + each, extent))
