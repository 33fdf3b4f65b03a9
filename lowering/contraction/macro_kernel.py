"""Loops around a micro-kernel: over panels of columns, and the tiles of each.

A panel holds all terms of some columns, a block of columns being a vector; a tile is some rows of a panel's sums. What
the terms are, numbers or words, is the same to these loops. Where it is not known how many terms there are, panels
go by groups, each with a buffer of its own that is as deep as it turns out to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...dialect.ir.sizes import Dim, product
from ...dialect.ir.types import I64
from ...dialect.notation import expressions as ex
from ...dialect.notation import loops as ir
from ...dialect.notation.traverse import rewrite
from ..analysis.accesses import accumulators
from ..processor import processor
from .match import Contraction, kernel_from_body
from .micro_kernel import MicroKernel
from .vnni_packing import divided, is_multiple, loops_of, size_of

MAX_STACK_K = 1 << 14  # steps of a panel on the stack
GROUPS = 16  # of panels that may be deeper

Row = Callable[[ex.Expr, ex.Expr, ex.Expr], ex.Expr]  # a row's term, of the tile, the row, and its number in the tile
Sum = Callable[
    [ex.Expr, ex.Expr, ex.Expr, ex.Expr], ex.Expr
]  # a sum with a step's products, of the sum before and the same
Rest = Callable[[ex.Expr, ex.Expr], ex.Expr]  # what is left to add to a sum, which is given with its row


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
        self.together = min(micro.vectors, self.blocks) if isinstance(self.blocks, int) else micro.vectors
        self.width = self.together * self.lanes
        self.height = min(micro.rows, c.row.extent) if isinstance(c.row.extent, int) else micro.rows
        self.panels = divided(self.blocks, self.together)
        self.p, self.q = ex.Var("p", I64), ex.Var("q", I64)
        self.v, self.lane = ex.Index("v", self.together), ex.Index("l", self.lanes)
        self.place = self.v * self.lanes + self.lane
        self.outer = [ex.Var(i.name, I64) for i in c.outer]
        self.by_groups(1)
        self.lines = (c.column,) if c.window is None else (c.window, c.column)
        self.group = ex.Index("g", GROUPS)
        shallow = isinstance(self.terms, int) and self.terms <= MAX_STACK_K
        self.own: tuple[ex.Expr, ...] = () if shallow else (self.group,)  # where a panel's buffer begins
        self.rest: Rest = lambda sum, row: sum

    # panels

    def by_groups(self, several: int, shares: int = 1) -> None:
        """Panels go by so many, the groups in `turn`; `panel` is the one at hand. Each goes over so many shares of the rows,
        one after the other."""
        self.several, self.shares, self.share = several, shares, ex.Var("share", I64)
        self.shape = (
            *((shares,) if shares > 1 else ()),
            *(i.extent for i in self.c.outer),
            divided(self.panels, several),
        )
        self.flat = ex.Index("panel", product(self.shape))
        self.turn: ex.Expr = ex.Var("panel", I64) if len(self.shape) > 1 else self.flat
        self.panel: ex.Expr = self.turn if several == 1 else ex.Var("at", I64)

    def each_of_group(self, body: ir.Block) -> ir.Block:
        """The statements for every panel of a group."""
        if self.several == 1:
            return body
        m, first = ex.Index("m", self.several), self.turn * self.several
        assert isinstance(self.panel, ex.Var)
        stop = (
            None
            if is_multiple(self.panels, self.several)
            else ex.minimum(ex.as_index(self.panels) - first, self.several)
        )
        return (ir.For(m, (ir.Let(self.panel, first + m), *body), stop=stop),)

    def each_panel(self, body: ir.Block) -> ir.Kernel:
        """The loop over panels, of all that the outer loops go over."""
        c = self.c
        if len(self.shape) > 1:
            names = [*((self.share,) if self.shares > 1 else ()), *self.outer, self.turn]
            places = zip(names, ex.unflatten(self.flat, self.shape), strict=True)
            named = [ir.Let(v, e) for v, e in places if isinstance(v, ex.Var)]
            body = (*named, *ir.substitute_block(body, dict(zip(c.outer, self.outer, strict=True))))
        work = divided(self.flat.extent, self.shares) * self.several * self.width * c.row.extent * self.terms
        count, loop = self.flat.extent, ir.For(self.flat, body)
        if any(isinstance(s, ir.Alloc) and s.tensor.space == "heap" for s in ir.statements(body)):
            per = divided(count, GROUPS)
            loop = ir.For(
                self.group, (replace(loop, start=self.group * per, stop=ex.minimum(self.group * per + per, count)),)
            )
        loop = replace(
            loop, kind="serial" if isinstance(work, int) and work < processor().parallel_products else "parallel"
        )
        results = self.kernel.outputs
        return kernel_from_body(self.kernel, "tiles", (loop,), results)

    def placed(self, body: ir.Block, unrolled: bool = False) -> ir.For:
        """A body for each block of the panel, with names for where the block begins."""
        return ir.For(self.v, (*self.begins(), *body), kind="unrolled" if unrolled else "serial")

    def begins(self) -> tuple[ir.Let, ...]:
        """Names for where a block of the panel begins."""
        block: ex.Expr = self.panel * self.together + self.v
        if not is_multiple(self.blocks, self.together):
            block = ex.minimum(block, self.blocks - 1)
        columns, window = self.c.column.extent, self.c.window
        first: ex.Expr = (block if window is None else block % self.across) * self.lanes
        first = first if is_multiple(columns, self.lanes) else ex.minimum(first, columns - self.lanes)
        return *(() if window is None else (ir.Let(self.p, block // self.across),)), ir.Let(self.q, first)

    def column(self, lane: ex.Expr) -> dict[ex.Expr, ex.Expr]:
        """The contraction's column indices at a position in a block."""
        found: dict[ex.Expr, ex.Expr] = {self.c.column: self.q + lane}
        return found if self.c.window is None else {**found, self.c.window: self.p}

    # tiles

    def tiles(self, reduction_axes: Sequence[ex.Index], sum: Sum, parts: int = 1) -> ir.Block:
        """For every tile of rows: sums over all steps of the panel, and what is made of them.

        What `sum` gives has the reduction_axes' indices and those of the block and the lane. Steps are taken in so many parts.
        """
        rows, height = self.c.row.extent, self.height
        tile, r = ex.Index("tile", divided(rows, height)), ex.Index("r", height)
        whole = is_multiple(rows, height)
        first = tile * height if whole else ex.minimum(tile * height, rows - height)  # the last one overlaps
        start = ir.Let(ex.Var("row", I64), first)
        sums = ex.Tensor("sums", (height, self.width), self.element, "register")
        place = (r, self.v * self.lanes + self.lane)
        add = self.each(r, (ir.Store(sums, place, sum(sums[place], tile, start.var + r, r)),))
        zero = self.each(r, (ir.Store(sums, place, ex.constant(0, self.element)),))
        if len(reduction_axes) > 1:
            return self.each_tile(
                tile,
                (start, ir.Alloc(sums), zero, *loops_of(reduction_axes, (add,)), *self.finished(sums, start.var, r)),
            )
        (fold,) = reduction_axes
        steps = fold.extent
        unrolled = self.micro.steps_together(steps)
        block, u = ex.Index("s", steps // unrolled), ex.Index("u", unrolled)
        inner = ir.substitute_block((ir.For(u, (add,), kind="unrolled"),), {fold: block * unrolled + u})
        part = ex.Index("part", parts)
        each = divided(steps // unrolled, parts)
        ends = ex.minimum(part * each + each, steps // unrolled)
        loop = ir.For(block, inner, part * each, None if parts == 1 else ends)
        if parts == 1:
            (loop,) = ir.substitute_block((loop,), {part: ex.as_index(0)})
            return self.each_tile(tile, (start, ir.Alloc(sums), zero, loop, *self.finished(sums, start.var, r)))
        assert self.shares == 1, "sums of all rows wait"
        held = ex.Tensor("held", (tile.extent * height, self.width), self.element, "stack")
        line = tile * height + r
        load, save = ir.Store(sums, place, held[line, place[1]]), ir.Store(held, (line, place[1]), sums[place])
        n, c = ex.Index("n", tile.extent * height), ex.Index("c", self.width)
        clear = ir.For(c, (ir.Store(held, (n, c), ex.constant(0, self.element)),), kind="vector", width=self.width)
        add_part = (start, ir.Alloc(sums), self.each(r, (load,)), loop, self.each(r, (save,)))
        return (
            ir.Alloc(held),
            ir.For(n, (clear,)),
            ir.For(part, (ir.For(tile, add_part),)),
            ir.For(tile, (start, self.finish(held, line, start.var, r))),
        )

    def each_tile(self, tile: ex.Index, body: ir.Block) -> ir.Block:
        """The loop over tiles, those of a share of the rows."""
        if self.shares == 1:
            return (ir.For(tile, body),)
        per = divided(tile.extent, self.shares)
        return (ir.For(tile, body, self.share * per, ex.minimum(self.share * per + per, tile.extent)),)

    def parts(self, steps: Dim) -> int:
        """The number of parts of a panel's steps such that a part stays in a near cache, while the sums of all rows wait in
        memory.
        """
        if not isinstance(steps, int) or not isinstance(self.c.row.extent, int):
            return 1
        return -(-steps * self.width * self.element.bytes // max(1, processor().l2_bytes // 4))

    def each(self, r: ex.Index, body: ir.Block) -> ir.For:
        """A body for every element of the tile, by vectors, a row's together: its factor is then in a register briefly."""
        lanes = ir.For(self.lane, body, kind="vector", width=self.lanes)
        return ir.For(r, (ir.For(self.v, (lanes,), kind="unrolled"),), kind="unrolled")

    def finished(self, sums: ex.Tensor, start: ex.Expr, r: ex.Index) -> ir.Block:
        """The same for sums in registers. Where it is long they wait in memory: it is not repeated for each of them."""
        long = (
            accumulators(self.c.epilogue)
            or sum(isinstance(e, ex.Apply) for e in ir.nodes(self.c.epilogue)) >= processor().tuning.long_epilogue
        )
        if not long:
            return (self.finish(sums, r, start, r),)
        waiting = ex.Tensor("waiting", sums.shape, sums.element, "stack")
        place = (r, self.v * self.lanes + self.lane)
        save = self.each(r, (ir.Store(waiting, place, sums[place]),))
        return ir.Alloc(waiting), save, self.finish(waiting, r, start, r)

    def finish(self, sums: ex.Tensor, line: ex.Expr, start: ex.Expr, r: ex.Index) -> ir.Statement:
        """The epilogue, for every element of the tile."""
        place = (line, self.v * self.lanes + self.lane)
        values = {**self.column(self.lane), self.c.row: start + r}

        def of_sums(e: ex.Expr) -> ex.Expr | None:
            return (
                self.rest(sums[place], start + r) if isinstance(e, ex.Read) and e.tensor is self.c.accumulator else None
            )

        block = ir.substitute_block(ir.map_expressions(self.c.epilogue, lambda e: rewrite(e, of_sums)), values)
        if sums.space == "register":
            lanes = ir.For(self.lane, (ir.For(r, block, kind="unrolled"),), kind="vector", width=self.lanes)
            return self.placed((lanes,), unrolled=True)
        return ir.For(r, (self.placed((ir.For(self.lane, block, kind="vector", width=self.lanes),), unrolled=True),))
