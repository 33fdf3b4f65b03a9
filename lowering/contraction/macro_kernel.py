"""Contractions over panels of columns and tiles of registers: the loops that `contract` puts in a nest's place.

A panel holds all terms of some columns, a block of 8 columns being a vector; a tile is some rows of a panel's sums. What
the terms are, numbers or words of two, is the same to these loops. Where it is not known how many terms there are, panels
go by groups, each with a buffer of its own that is as deep as it turns out to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...dialect.ir.sizes import Dim, product
from ...dialect.ir.types import I64
from ...dialect.notation.expressions import (
    TRUE,
    Apply,
    Expr,
    Index,
    Read,
    Tensor,
    Var,
    as_index,
    both,
    constant,
    flat_index,
    minimum,
    unflatten,
)
from ...dialect.notation.loops import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Let,
    Statement,
    Store,
    map_expressions,
    nodes,
    statements,
    substitute_block,
)
from ...dialect.notation.traverse import rewrite, substitute, walk
from ..analysis.accesses import accumulators, depends, stride
from ..loops.tighten_bounds import narrowed
from ..processor import processor
from .k_packing import PackedInput, Words, divided, is_multiple, loops_of, size_of, turned
from .match import Contraction, kernel_from_body

BLOCKS = 2  # vectors of a panel, of 4 bytes an element
ROWS = 6  # of a tile: 12 sums, 2 vectors of the panel and a factor fill 16 registers
SUMS = 12  # vectors of sums of a tile
MAX_COLUMN_STRIDE = 4  # columns so far apart are loaded as whole vectors and shuffled
MAX_CACHED_K = 2048  # steps of a panel that stay in a near cache, 128 KB; sums of deeper ones wait in memory
UNROLLED = 2  # steps, one after the other
MAX_STACK_K = 1 << 14  # steps of a panel on the stack
GROUPS = 16  # of panels that may be deeper
LONG_EPILOGUE = 24  # operations on a sum
MIN_PARALLEL_PRODUCTS = 1 << 18  # products: for more, panels are handed to all threads

Row = Callable[[Expr, Expr, Expr], Expr]  # a row's term, of the tile, the row, and its number in the tile
Sum = Callable[[Expr, Expr, Expr, Expr], Expr]  # a sum with a step's products, of the sum before and the same
Rest = Callable[[Expr, Expr], Expr]  # what is left to add to a sum, which is given with its row


class PanelTiling:
    """The kernel that computes a contraction from panels of columns, one after the other."""

    def __init__(self, kernel: Kernel, c: Contraction, blocks: int = BLOCKS, sums: int = SUMS) -> None:
        self.kernel, self.c = kernel, c
        self.element = c.accumulator.element
        self.terms = product(tuple(i.extent for i in c.folds))
        self.k: Expr = flat_index(c.folds, tuple(i.extent for i in c.folds))
        self.across = divided(c.column.extent, processor().lanes)
        self.blocks = self.across * size_of(c.window)
        most = blocks * 4 // self.element.bytes
        self.together = min(most, self.blocks) if isinstance(self.blocks, int) else most
        self.width = self.together * processor().lanes
        self.highest = min(ROWS, sums // (self.width * self.element.bytes // processor().tile_vector_bytes))
        self.panels = divided(self.blocks, self.together)
        self.p, self.q = Var("p", I64), Var("q", I64)
        self.v, self.lane = Index("v", self.together), Index("l", processor().lanes)
        self.place = self.v * processor().lanes + self.lane
        self.outer = [Var(i.name, I64) for i in c.outer]
        self.by_groups(1)
        self.lines = (c.column,) if c.window is None else (c.window, c.column)
        self.group = Index("g", GROUPS)
        shallow = isinstance(self.terms, int) and self.terms <= MAX_STACK_K
        self.own: tuple[Expr, ...] = () if shallow else (self.group,)  # where a panel's buffer begins
        self.column_bits: Expr | None = None  # the bits of their words that are turned
        self.rest: Rest = lambda sum, row: sum

    # panels

    def by_groups(self, several: int, shares: int = 1) -> None:
        """Panels go by so many, the groups in `turn`; `panel` is the one at hand. Each goes over so many shares of the rows,
        one after the other."""
        self.several, self.shares, self.share = several, shares, Var("share", I64)
        self.shape = (
            *((shares,) if shares > 1 else ()),
            *(i.extent for i in self.c.outer),
            divided(self.panels, several),
        )
        self.flat = Index("panel", product(self.shape))
        self.turn: Expr = Var("panel", I64) if len(self.shape) > 1 else self.flat
        self.panel: Expr = self.turn if several == 1 else Var("at", I64)

    def each_of_group(self, body: Block) -> Block:
        """The statements for every panel of a group."""
        if self.several == 1:
            return body
        m, first = Index("m", self.several), self.turn * self.several
        assert isinstance(self.panel, Var)
        stop = None if is_multiple(self.panels, self.several) else minimum(as_index(self.panels) - first, self.several)
        return (For(m, (Let(self.panel, first + m), *body), stop=stop),)

    def each_panel(self, body: Block) -> Kernel:
        """The loop over panels, of all that the outer loops go over."""
        c = self.c
        if len(self.shape) > 1:
            names = [*((self.share,) if self.shares > 1 else ()), *self.outer, self.turn]
            places = zip(names, unflatten(self.flat, self.shape), strict=True)
            named = [Let(v, e) for v, e in places if isinstance(v, Var)]
            body = (*named, *substitute_block(body, dict(zip(c.outer, self.outer, strict=True))))
        work = divided(self.flat.extent, self.shares) * self.several * self.width * c.row.extent * self.terms
        count, loop = self.flat.extent, For(self.flat, body)
        if any(isinstance(s, Alloc) and s.tensor.space == "heap" for s in statements(body)):
            per = divided(count, GROUPS)
            loop = For(
                self.group, (replace(loop, start=self.group * per, stop=minimum(self.group * per + per, count)),)
            )
        loop = replace(loop, kind="serial" if isinstance(work, int) and work < MIN_PARALLEL_PRODUCTS else "parallel")
        results = self.kernel.outputs
        return kernel_from_body(self.kernel, "tiles", (loop,), results)

    def buffer(self, name: str, steps: Dim) -> Tensor:
        """One panel."""
        shape = (steps, self.width)
        return Tensor(name, (GROUPS, *shape) if self.own else shape, self.element, "heap" if self.own else "stack")

    def placed(self, body: Block, unrolled: bool = False) -> For:
        """A body for each block of the panel, with names for where the block begins."""
        return For(self.v, (*self.begins(), *body), kind="unrolled" if unrolled else "serial")

    def begins(self) -> tuple[Let, ...]:
        """Names for where a block of the panel begins."""
        block: Expr = self.panel * self.together + self.v
        if not is_multiple(self.blocks, self.together):
            block = minimum(block, self.blocks - 1)
        columns, window = self.c.column.extent, self.c.window
        first: Expr = (block if window is None else block % self.across) * processor().lanes
        first = first if is_multiple(columns, processor().lanes) else minimum(first, columns - processor().lanes)
        return *(() if window is None else (Let(self.p, block // self.across),)), Let(self.q, first)

    def column(self, lane: Expr) -> dict[Expr, Expr]:
        """The contraction's column indices at a position in a block."""
        found: dict[Expr, Expr] = {self.c.column: self.q + lane}
        return found if self.c.window is None else {**found, self.c.window: self.p}

    def of_image(self, image: PackedInput, words: Words, to: Tensor) -> Block:
        """Fills a panel with words of an image."""
        at = tuple(substitute(e, self.column(self.lane)) for e in image.at)
        store = Store(
            to,
            (*self.own, words.step, self.v * processor().lanes + self.lane),
            turned(image.words[at], self.column_bits),
        )
        apart = stride(image.words, at, self.lane)
        if apart is not None and 0 <= apart <= MAX_COLUMN_STRIDE:
            lanes = For(self.lane, (store,), kind="vector", width=processor().lanes)
            return (self.placed(loops_of(words.folds, (lanes,))),)
        return (self.placed((For(self.lane, loops_of(words.folds, (store,))),)),)

    def of_factors(self, to: Tensor) -> Block:
        """Fills a panel with the columns' factors, and zeros where the guard does not hold."""
        c, column = self.c, self.v * processor().lanes + self.lane

        one = Store(to, (*self.own, self.k, column), substitute(c.b, self.column(self.lane)))
        tests = [substitute(g, self.column(self.lane)) for g in c.guard]
        zero = Store(to, (*self.own, self.k, column), constant(0, to.element))
        near = [stride(n.tensor, n.indices, c.column) for n in walk(c.b) if isinstance(n, Read)]
        if not all(n is not None and 0 <= n <= MAX_COLUMN_STRIDE for n in near):
            inner: Block = (If(_all(tests), (one,)),) if tests else (one,)
            alone = self.placed((For(self.lane, narrowed(loops_of(c.folds, inner))),))
            return (*self._cleared(to), alone) if tests else (alone,)
        wide = For(self.lane, (one,), kind="vector", width=processor().lanes)
        if not tests:
            return (self.placed(loops_of(c.folds, (wide,))),)
        ends = [
            substitute(g, self.column(as_index(end)))
            for g in c.guard
            for end in ((0, processor().lanes - 1) if depends(g, {c.column}) else (0,))
        ]
        alone = For(self.lane, (If(_all(tests), (one,), (zero,)),))
        return (self.placed(loops_of(c.folds, (If(_all(ends), (wide,), (alone,)),))),)

    def _cleared(self, to: Tensor) -> Block:
        step, column = Index("s", self.terms), Index("c", self.width)
        zero = Store(to, (*self.own, step, column), constant(0, to.element))
        return (For(step, (For(column, (zero,), kind="vector", width=self.width),)),)

    # tiles

    def height(self, most: int) -> int:
        """The rows of a tile: as many as registers hold, or a few less if the remainder is then much smaller."""
        rows = self.c.row.extent
        if not isinstance(rows, int):
            return most
        return min(range(1, min(most, rows) + 1), key=lambda h: -(-rows // h) * (h + 2))

    def tiles(self, folds: Sequence[Index], height: int, sum: Sum, parts: int = 1) -> Block:
        """For every tile of rows: sums over all steps of the panel, and what is made of them.

        What `sum` gives has the folds' indices and those of the block and the lane. Steps are taken in so many parts.
        """
        rows = self.c.row.extent
        tile, r = Index("tile", divided(rows, height)), Index("r", height)
        whole = is_multiple(rows, height)
        first = tile * height if whole else minimum(tile * height, rows - height)  # the last one overlaps
        start = Let(Var("row", I64), first)
        sums = Tensor("sums", (height, self.width), self.element, "register")
        place = (r, self.v * processor().lanes + self.lane)
        add = self.each(r, (Store(sums, place, sum(sums[place], tile, start.var + r, r)),))
        zero = self.each(r, (Store(sums, place, constant(0, self.element)),))
        if len(folds) > 1:
            return self.each_tile(
                tile, (start, Alloc(sums), zero, *loops_of(folds, (add,)), *self.finished(sums, start.var, r))
            )
        (fold,) = folds
        steps = fold.extent
        unrolled = next(n for n in range(UNROLLED, 0, -1) if n == 1 or is_multiple(steps, n))
        block, u = Index("s", steps // unrolled), Index("u", unrolled)
        inner = substitute_block((For(u, (add,), kind="unrolled"),), {fold: block * unrolled + u})
        part = Index("part", parts)
        each = divided(steps // unrolled, parts)
        ends = minimum(part * each + each, steps // unrolled)
        loop = For(block, inner, part * each, None if parts == 1 else ends)
        if parts == 1:
            (loop,) = substitute_block((loop,), {part: as_index(0)})
            return self.each_tile(tile, (start, Alloc(sums), zero, loop, *self.finished(sums, start.var, r)))
        assert self.shares == 1, "sums of all rows wait"
        held = Tensor("held", (tile.extent * height, self.width), self.element, "stack")
        line = tile * height + r
        load, save = Store(sums, place, held[line, place[1]]), Store(held, (line, place[1]), sums[place])
        n, c = Index("n", tile.extent * height), Index("c", self.width)
        clear = For(c, (Store(held, (n, c), constant(0, self.element)),), kind="vector", width=self.width)
        add_part = (start, Alloc(sums), self.each(r, (load,)), loop, self.each(r, (save,)))
        return (
            Alloc(held),
            For(n, (clear,)),
            For(part, (For(tile, add_part),)),
            For(tile, (start, self.finish(held, line, start.var, r))),
        )

    def each_tile(self, tile: Index, body: Block) -> Block:
        """The loop over tiles, those of a share of the rows."""
        if self.shares == 1:
            return (For(tile, body),)
        per = divided(tile.extent, self.shares)
        return (For(tile, body, self.share * per, minimum(self.share * per + per, tile.extent)),)

    def parts(self, steps: Dim) -> int:
        """The number of parts of a panel's steps such that a part stays in the L1 cache, while the sums of all rows are
        kept.
        """
        return -(-steps // MAX_CACHED_K) if isinstance(steps, int) and isinstance(self.c.row.extent, int) else 1

    def each(self, r: Index, body: Block) -> For:
        """A body for every element of the tile, by vectors, a row's together: its factor is then in a register briefly."""
        lanes = For(self.lane, body, kind="vector", width=processor().lanes)
        return For(r, (For(self.v, (lanes,), kind="unrolled"),), kind="unrolled")

    def finished(self, sums: Tensor, start: Expr, r: Index) -> Block:
        """The same for sums in registers. Where it is long they wait in memory: it is not repeated for each of them."""
        long = (
            accumulators(self.c.epilogue) or sum(isinstance(e, Apply) for e in nodes(self.c.epilogue)) >= LONG_EPILOGUE
        )
        if not long:
            return (self.finish(sums, r, start, r),)
        waiting = Tensor("waiting", sums.shape, sums.element, "stack")
        place = (r, self.v * processor().lanes + self.lane)
        save = self.each(r, (Store(waiting, place, sums[place]),))
        return Alloc(waiting), save, self.finish(waiting, r, start, r)

    def finish(self, sums: Tensor, line: Expr, start: Expr, r: Index) -> Statement:
        """The epilogue, for every element of the tile."""
        place = (line, self.v * processor().lanes + self.lane)
        values = {**self.column(self.lane), self.c.row: start + r}

        def of_sums(e: Expr) -> Expr | None:
            return self.rest(sums[place], start + r) if isinstance(e, Read) and e.tensor is self.c.accumulator else None

        block = substitute_block(map_expressions(self.c.epilogue, lambda e: rewrite(e, of_sums)), values)
        if sums.space == "register":
            lanes = For(self.lane, (For(r, block, kind="unrolled"),), kind="vector", width=processor().lanes)
            return self.placed((lanes,), unrolled=True)
        return For(r, (self.placed((For(self.lane, block, kind="vector", width=processor().lanes),), unrolled=True),))


def _all(conditions: Sequence[Expr]) -> Expr:
    joined = both(*conditions)
    return joined if isinstance(joined, Expr) else TRUE
