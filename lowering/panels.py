"""Contractions over panels of columns and register tiles: the loops that `contract` puts in a nest's place.

A panel holds all terms of some columns, a block of 8 columns being a vector; a tile is some rows of a panel's sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from types import MappingProxyType

from ..dialect.index import (
    TRUE,
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
    flat_index,
    minimum,
    rewrite,
    substitute,
)
from ..dialect.loops import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Let,
    Statement,
    Store,
    accumulator,
    assign,
    map_expressions,
    substitute_block,
    update,
)
from ..dialect.types import I16, I32, I64, ElementType, Shape
from .accesses import depends, reads, stores, stride
from .contraction import Contraction
from .intervals import Interval
from .narrow import narrowed
from .nests import sorted_tensors
from .ranges import Ranges, interval

LANES = 8
BLOCKS = 2  # vectors of a panel
ROWS = 6  # of a tile: 12 sums, 2 vectors of the panel and a factor fill 16 registers
WORTH_SHARING = 1 << 18  # products: for more, panels are handed to all threads


class Panels:
    """The kernel that computes a contraction from panels of columns, one after the other."""

    def __init__(self, kernel: Kernel, c: Contraction, ranges: Ranges = MappingProxyType({})) -> None:
        self.kernel, self.c = kernel, c
        known = c.accumulator.element.is_integer
        self.row_range = interval(c.a, ranges) if known else None
        self.column_range = interval(c.b, ranges) if known else None
        self.terms = prod(map(extent_of, c.folds))
        self.steps = (self.terms + 1) // 2
        self.k: Expr = flat_index(c.folds, tuple(i.extent for i in c.folds))
        self.around = tuple(i for i in c.outer if depends(c.a, {i}))
        shape = tuple(i.extent for i in (*self.around, c.row))
        inner: Shape = tuple(i.extent for i in c.folds) if self.terms % 2 == 0 else (self.terms + 1,)
        self.rows = Tensor("rows", (*shape, *inner), I16, "heap")
        self.pairs = Tensor("pairs", (*shape, self.steps), I32, "heap")
        self.bad = None if fits(self.row_range, I16) else Tensor("bad", shape, I32, "heap")
        columns = -(-extent_of(c.column) // LANES)
        self.across = columns
        self.blocks = columns * extent_of(c.window)
        self.together = min(BLOCKS, self.blocks)
        self.width = self.together * LANES
        self.element = c.accumulator.element
        self.height = min(ROWS if self.element.bytes <= 4 else ROWS // 2, extent_of(c.row))
        self.p, self.q = Var("p", I64), Var("q", I64)
        self.v, self.lane = Index("v", self.together), Index("l", LANES)
        self.panel_index = Index("panel", -(-self.blocks // self.together))

    def made(self, name: str, body: Block, result: Sequence[Tensor]) -> Kernel:
        own = {s.tensor for s in stores(body)}
        given = {r.tensor for r in reads(body)} - own
        inputs = sorted_tensors({t for t in given if t.space in ("argument", "constant", "heap")})
        return Kernel(f"{self.kernel.name}.{name}", (*inputs, *result), body, len(result), self.kernel.span)

    # rows

    def tiles_of(self, body: Block) -> Kernel:
        """The loop over panels."""
        alone = not self.c.outer and self.terms * self.blocks * LANES * extent_of(self.c.row) >= WORTH_SHARING
        loop = For(self.panel_index, body, kind="parallel" if alone else "serial")
        results = self.kernel.parameters[len(self.kernel.parameters) - self.kernel.results :]
        return self.made("tiles", (loops_of(self.c.outer, (loop,)),), results)

    def in_pairs_or_full(self) -> Block:
        """A panel in 16 bits, and its tiles if it fits; else in 32. What is known to fit is not looked at."""
        halves = Tensor("halves", (2 * self.steps, self.width), I16, "stack")
        panel = Tensor("panel", (self.steps, self.width), I32, "stack")
        narrow = fits(self.column_range, I16)
        if narrow and self.bad is None:
            packed = self.packed(halves, lambda value: cast(value, I16), None, None)
            return Alloc(halves), *packed, *self.in_pairs(halves, panel)
        bad, beyond = Tensor("excess", (LANES,), I32, "register"), accumulator("beyond", I32)
        n, r = Index("n", LANES), Index("r", extent_of(self.c.row))
        clear: list[Statement] = [
            Alloc(beyond),
            assign(beyond, 0),
            Alloc(bad),
            For(self.lane, (Store(bad, (self.lane,), constant(0, I32)),), kind="vector", width=LANES),
        ]
        sum_up: list[Statement] = [
            For(n, (update("or", beyond, bad[n]),), kind="unrolled"),
        ]
        if self.bad is not None:
            sum_up.append(For(r, (update("or", beyond, self.bad[(*self.around, r)]),)))
        return (
            *clear,
            Alloc(halves),
            *self.packed(halves, lambda value: cast(value, I16), *((None, None) if narrow else (bad, beyond))),
            *sum_up,
            If(beyond[()].eq(0), self.in_pairs(halves, panel), self.in_full()),
        )

    def packed(self, to: Tensor, form: Callable[[Expr], Expr], bad: Tensor | None, beyond: Tensor | None) -> Block:
        """Fills a panel with b, and zeros where the guard does not hold; notes what does not fit in 16 bits."""
        c = self.c
        value, column = Var("value", self.element), self.v * LANES + self.lane

        def at(column_index: Expr) -> dict[Expr, Expr]:
            return {c.column: column_index, **({c.window: self.p} if c.window is not None else {})}

        def element(kept: Block) -> Block:
            b = substitute(c.b, at(self.q + self.lane))
            return (Let(value, b), Store(to, (self.k, column), form(value)), *kept)

        each = at(self.q + self.lane)
        tests = [substitute(g, each) for g in c.guard]
        ends = [
            substitute(g, at(self.q + end))
            for g in c.guard
            for end in ((0, LANES - 1) if depends(g, {c.column}) else (0,))
        ]
        spill: Block = () if beyond is None else (update("or", beyond, excess(value)),)
        one: Block = element(spill)
        if tests:
            zero = Store(to, (self.k, column), constant(0, to.element))
            one = (If(_all(tests), one, (zero,)),)
        alone = For(self.lane, one)
        near = [stride(n.tensor, n.indices, c.column) for n in _reads(c.b)]
        if not all(n is not None and 0 <= n <= 4 for n in near):
            return (*self.cleared(to, bool(tests)), self.alone(to, element(spill), tests), *self.padding(to))
        note: Block = () if bad is None else (Store(bad, (self.lane,), bad[self.lane] | excess(value)),)
        wide = For(self.lane, element(note), kind="vector", width=LANES)
        inner: Block = (If(_all(ends), (wide,), (alone,)),) if ends else (wide,)
        return (self.placed((loops_of(c.folds, inner),), unrolled=True), *self.padding(to))

    def alone(self, to: Tensor, one: Block, tests: list[Expr]) -> For:
        """Column by column, where neighbouring ones are not neighbours in memory."""
        inner = (If(_all(tests), one),) if tests else one
        (fold,) = narrowed((loops_of(self.c.folds, inner),))
        return self.placed((For(self.lane, (fold,)),))

    def cleared(self, to: Tensor, guarded: bool) -> Block:
        """Zeros where the guard does not hold."""
        if not guarded:
            return ()
        step, column = Index("s", self.terms), Index("c", self.width)
        zero = Store(to, (step, column), constant(0, to.element))
        return (For(step, (For(column, (zero,), kind="vector", width=self.width),)),)

    def placed(self, body: Block, unrolled: bool = False) -> For:
        """A body for each block of the panel, with names for where the block begins."""
        block: Expr = self.panel_index * self.together + self.v
        if self.blocks % self.together:
            block = minimum(block, self.blocks - 1)
        column = block % self.across * LANES
        if extent_of(self.c.column) % LANES:
            column = minimum(column, extent_of(self.c.column) - LANES)
        named = (Let(self.p, block // self.across), Let(self.q, column))
        return For(self.v, (*named, *body), kind="unrolled" if unrolled else "serial")

    def padding(self, to: Tensor) -> Block:
        """The row that makes the number of terms even."""
        if to.shape[0] == self.terms:
            return ()
        column = Index("c", self.width)
        store = Store(to, (as_index(self.terms), column), constant(0, to.element))
        return (For(column, (store,), kind="vector", width=self.width),)

    # tiles

    def in_pairs(self, halves: Tensor, panel: Tensor) -> Block:
        """The panel's terms in pairs, then the tiles by sums of two products."""
        step, column = Index("s", self.steps), Index("c", self.width)
        low, high = halves[step * 2, column], halves[step * 2 + 1, column]
        pair = (cast(low, I32) & 0xFFFF) | (cast(high, I32) << 16)
        packing = For(step, (For(column, (Store(panel, (step, column), pair),), kind="vector", width=self.width),))
        product = apply(
            "pairdot", self.pairs[(*self.around, self.c.row, step)], panel[step, self.v * LANES + self.lane]
        )
        return (Alloc(panel), packing, self.tiles((step,), lambda sum: sum + product, self.height))

    def in_full(self) -> Block:
        """The same with 32-bit factors."""
        panel = Tensor("full", (self.terms, self.width), self.element, "stack")
        factor = panel[self.k, self.v * LANES + self.lane]
        packed = self.packed(panel, lambda value: value, None, None)

        def add(sum: Expr) -> Expr:
            return sum + self.c.a * factor if self.element is I32 else apply("fma", self.c.a, factor, sum)

        return (
            Alloc(panel),
            *packed,
            self.tiles(self.c.folds, add, self.height if self.element is not I32 else -(-self.height // 2)),
        )

    def tiles(self, folds: Sequence[Index], add: Callable[[Expr], Expr], height: int) -> Statement:
        """For every tile of rows: sums in registers over all terms, and what is made of them."""
        rows = extent_of(self.c.row)
        tile_index, r = Index("tile", -(-rows // height)), Index("r", height)
        tile = Tensor("tile", (height, self.width), self.element, "register")
        first: Expr = tile_index * height
        start = Var("row", I64)
        first = minimum(first, rows - height) if rows % height else first
        place = (r, self.v * LANES + self.lane)
        added = substitute(add(tile[place]), {self.c.row: start + r})
        body: Block = (
            Let(start, first),
            Alloc(tile),
            self.each(r, (Store(tile, place, constant(0, self.element)),)),
            loops_of(folds, (self.each(r, (Store(tile, place, added),)),)),
            self.finish(tile, start, r),
        )
        return For(tile_index, body)

    def each(self, r: Index, body: Block) -> For:
        """A body for every element of the tile, by vectors, a row's together: its factor is then in a register briefly."""
        lanes = For(self.lane, body, kind="vector", width=LANES)
        return For(r, (For(self.v, (lanes,), kind="unrolled"),), kind="unrolled")

    def finish(self, tile: Tensor, start: Expr, r: Index) -> Statement:
        """What follows the fold, for every element of the tile."""
        c = self.c
        place = (r, self.v * LANES + self.lane)
        values: dict[Expr, Expr] = {c.row: start + r, c.column: self.q + self.lane}
        if c.window is not None:
            values[c.window] = self.p

        def sums(e: Expr) -> Expr | None:
            return tile[place] if isinstance(e, Read) and e.tensor is c.accumulator else None

        block = substitute_block(map_expressions(c.epilogue, lambda e: rewrite(e, sums)), values)
        lanes = For(self.lane, (For(r, block, kind="unrolled"),), kind="vector", width=LANES)
        return self.placed((lanes,), unrolled=True)


def fits(values: Interval | None, element: ElementType) -> bool:
    """Whether values are known to lie in what a type holds."""
    return values is not None and values.within(element)


def extent_of(index: Index | None) -> int:
    if index is None:
        return 1
    assert isinstance(index.extent, int)
    return index.extent


def _reads(e: Expr) -> list[Read]:
    return list(reads((Let(Var("e", e.type), e),)))


def excess(value: Expr) -> Expr:
    """Not zero where a value does not fit in 16 bits."""
    return value ^ cast(cast(value, I16), I32)


def _all(conditions: Sequence[Expr]) -> Expr:
    joined = both(*conditions)
    return joined if isinstance(joined, Expr) else TRUE


def loops_of(indices: Sequence[Index], body: Block) -> Statement:
    for index in reversed(indices):
        body = (For(index, body),)
    return body[0]
