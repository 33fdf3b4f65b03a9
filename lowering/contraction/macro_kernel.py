"""Loops around a micro-kernel: over panels of columns, and the tiles of each.

A panel holds all terms of some columns, a block of columns being a vector; a tile is some rows of a
panel's sums. What the terms are, numbers or words, is the same to these loops. Where it is not
known how many terms there are, panels go by groups, each with a buffer of its own that is as deep
as it turns out to be.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

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


class PanelTiling:
    """The kernel that computes a contraction from panels of columns, one after the other."""

    def __init__(self, kernel: ir.Kernel, c: Contraction, micro: MicroKernel) -> None:
        self.kernel, self.c, self.micro = kernel, c, micro
        self.element = c.accumulator.element
        self.lanes = processor().tile_vector_bytes // self.element.bytes
        self.terms = product(tuple(i.extent for i in c.reduction_axes))
        self.k: ex.Expr = ex.flat_index(c.reduction_axes, tuple(i.extent for i in c.reduction_axes))
        self.across = divided(c.column.extent, self.lanes)
        self.blocks = self.across * size_of(c.window)
        self.together = (
            min(micro.vectors, self.blocks) if isinstance(self.blocks, int) else micro.vectors
        )
        self.width = self.together * self.lanes
        self.height = min(micro.rows, c.row.extent) if isinstance(c.row.extent, int) else micro.rows
        self.panels = divided(self.blocks, self.together)
        self.p, self.q = ex.Var("p", I64), ex.Var("q", I64)
        self.v, self.lane = ex.Index("v", self.together), ex.Index("l", self.lanes)
        self.place = self.v * self.lanes + self.lane
        self.outer = [ex.Var(i.name, I64) for i in c.outer]
        self.by_groups(1)
        self.group = ex.Index("g", GROUPS)
        shallow = isinstance(self.terms, int) and self.terms <= MAX_STACK_K
        self.own: tuple[ex.Expr, ...] = (
            () if shallow else (self.group,)
        )  # where a panel's buffer begins
        self.rest: Rest = lambda sum, row: sum

    # panels

    def by_groups(self, several: int, shares: int = 1) -> None:
        """Group the panels: `turn` counts groups, `panel` is the current one; each takes `shares`
        shares of rows.
        """
        self.several, self.shares, self.share = several, shares, ex.Var("share", I64)
        outer = (*([shares] if shares > 1 else []), *(i.extent for i in self.c.outer))
        self.shape = (*outer, divided(self.panels, several))
        self.flat = ex.Index("panel", product(self.shape))
        self.turn: ex.Expr = ex.Var("panel", I64) if len(self.shape) > 1 else self.flat
        self.panel: ex.Expr = self.turn if several == 1 else ex.Var("at", I64)

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

    def each_panel(self, body: ir.Block) -> ir.Kernel:
        """The loop over panels, of all that the outer loops go over."""
        c = self.c
        if len(self.shape) > 1:
            names = [*((self.share,) if self.shares > 1 else ()), *self.outer, self.turn]
            places = zip(names, ex.unflatten(self.flat, self.shape), strict=True)
            named = [ir.Let(v, e) for v, e in places if isinstance(v, ex.Var)]
            body = (*named, *ir.substitute_block(body, dict(zip(c.outer, self.outer, strict=True))))
        work = (
            divided(self.flat.extent, self.shares)
            * self.several
            * self.width
            * c.row.extent
            * self.terms
        )
        count = self.flat.extent
        loop = ir.For(self.flat, body)
        if any(isinstance(s, ir.Alloc) and s.tensor.space == "heap" for s in ir.statements(body)):
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
        return ir.For(self.v, (*self.begins(), *body), kind="unrolled" if unrolled else "serial")

    def begins(self) -> tuple[ir.Let, ...]:
        """Names for where a block of the panel begins."""
        block: ex.Expr = self.panel * self.together + self.v
        if not is_multiple(self.blocks, self.together):
            block = ex.minimum(block, self.blocks - 1)
        if self.c.window is None:
            return (ir.Let(self.q, tile_start(block, self.c.column.extent, self.lanes)),)
        first = tile_start(block % self.across, self.c.column.extent, self.lanes)
        return ir.Let(self.p, block // self.across), ir.Let(self.q, first)

    def column(self, lane: ex.Expr) -> dict[ex.Expr, ex.Expr]:
        """The contraction's column indices at a position in a block."""
        place: dict[ex.Expr, ex.Expr] = {self.c.column: self.q + lane}
        return place if self.c.window is None else {**place, self.c.window: self.p}

    # tiles

    def tiles(self, reduction_axes: Sequence[ex.Index], sum: Sum, parts: int = 1) -> ir.Block:
        """For every tile of rows: sums over all steps of the panel, and what is made of them.

        `sum` gives an expression of the reduction, block and lane indices. Steps are taken in so
        many parts.
        """
        tile, r, start, sums, loop = self._steps(reduction_axes, sum)
        if len(reduction_axes) > 1 or parts == 1:
            zero = self._clear(r, sums)
            return self.each_tile(
                tile, (start, ir.Alloc(sums), zero, loop, *self.finished(sums, start.var, r))
            )
        each = divided(loop.index.extent, parts)
        place = (r, self.place)

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
        place = (r, self.place)

        def add(part: ir.For, totals: ex.Tensor, at: tuple[ex.Expr, ...]) -> ir.Block:
            more = self.each(r, ir.Store(totals, at, totals[at] + sums[place]))
            return start, ir.Alloc(sums), self._clear(r, sums), part, more

        if self.shares == 1 and isinstance(tile.extent, int):
            return self._waiting(tile, r, start, block, add)
        totals = ex.Tensor("totals", sums.shape, sums.element, "stack")
        _, *add_block = add(block[1], totals, place)
        blocks = ir.For(block[0], tuple(add_block))
        finish = self.finish(totals, r, start.var, r)
        body = (start, ir.Alloc(totals), self._clear(r, totals), blocks, finish)
        return self.each_tile(tile, body)

    def _steps(
        self, reduction_axes: Sequence[ex.Index], sum: Sum
    ) -> tuple[ex.Index, ex.Index, ir.Let, ex.Tensor, ir.For]:
        """The index of a tile and of its rows, where it starts, its sums, and the loop that adds
        all steps to them.
        """
        rows = self.c.row.extent
        height = self.height
        tile = ex.Index("tile", divided(rows, height))
        r = ex.Index("r", height)
        start = ir.Let(ex.Var("row", I64), tile_start(tile, rows, height))
        sums = ex.Tensor("sums", (height, self.width), self.element, "register")
        place = (r, self.place)
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
        return self.each(r, ir.Store(sums, (r, self.place), ex.constant(0, self.element)))

    def _waiting(
        self,
        tile: ex.Index,
        r: ex.Index,
        start: ir.Let,
        part: tuple[ex.Index, ir.For],
        add: Callable[[ir.For, ex.Tensor, tuple[ex.Expr, ...]], ir.Block],
    ) -> ir.Block:
        """All tiles, part by part of their steps, while the sums of all rows wait in memory."""
        assert self.shares == 1, "sums of all rows wait"
        lines = tile.extent * self.height
        waiting = ex.Tensor("held", (lines, self.width), self.element, "stack")
        line = tile * self.height + r
        n = ex.Index("n", lines)
        c = ex.Index("c", self.width)
        clear = ir.vector_loop(c, ir.Store(waiting, (n, c), ex.constant(0, self.element)))
        return (
            ir.Alloc(waiting),
            ir.For(n, (clear,)),
            ir.For(part[0], (ir.For(tile, add(part[1], waiting, (line, self.place))),)),
            ir.For(tile, (start, self.finish(waiting, line, start.var, r))),
        )

    def each_tile(self, tile: ex.Index, body: ir.Block) -> ir.Block:
        """The loop over tiles, those of a share of the rows."""
        if self.shares == 1:
            return (ir.For(tile, body),)
        per = divided(tile.extent, self.shares)
        return (
            ir.For(tile, body, self.share * per, ex.minimum(self.share * per + per, tile.extent)),
        )

    def parts(self, steps: Dim) -> int:
        """The parts of a panel's steps, such that one stays in near cache while the sums of all
        rows wait in memory.
        """
        if not isinstance(steps, int) or not isinstance(self.c.row.extent, int):
            return 1
        return -(-steps * self.width * self.element.bytes // max(1, processor().l2_bytes // 4))

    def each(self, r: ex.Index, store: ir.Store) -> ir.Statement:
        """A store for every element of the tile, by vectors, a row's together: its factor is then
        in a register briefly.
        """
        (loop,) = ir.nested((r, self.v), (ir.vector_loop(self.lane, store),), "unrolled")
        return loop

    def finished(self, sums: ex.Tensor, start: ex.Expr, r: ex.Index) -> ir.Block:
        """Finish sums that are held in registers. A long epilogue is emitted once: the sums wait
        for it in memory.
        """
        operations = sum(isinstance(e, ex.Apply) for e in ir.nodes(self.c.epilogue))
        if not accumulators(self.c.epilogue) and operations < processor().tuning.long_epilogue:
            return (self.finish(sums, r, start, r),)
        waiting = ex.Tensor("waiting", sums.shape, sums.element, "stack")
        save = self.each(r, ir.Store(waiting, (r, self.place), sums[r, self.place]))
        return ir.Alloc(waiting), save, self.finish(waiting, r, start, r)

    def finish(self, sums: ex.Tensor, line: ex.Expr, start: ex.Expr, r: ex.Index) -> ir.Statement:
        """The epilogue, for every element of the tile."""
        sum = self.rest(sums[line, self.place], start + r)
        block = self.c.finish(sum, {**self.column(self.lane), self.c.row: start + r})
        if sums.space == "register":
            return self.placed(
                (ir.vector_loop(self.lane, ir.For(r, block, kind="unrolled")),), unrolled=True
            )
        return ir.For(r, (self.placed((ir.vector_loop(self.lane, *block),), unrolled=True),))


def _parts(loop: ir.For, each: Dim, count: Dim) -> tuple[ex.Index, ir.For]:
    """The index of a loop's parts, of `each` iterations, and the loop over one part."""
    part = ex.Index("part", count)
    extent = loop.index.extent
    first = part * each
    return part, replace(loop, start=first, stop=ex.minimum(first + each, extent))
