"""Contractions of i32 over packed panels, in tiles of registers:

    for r { for q { acc = 0; for k { acc = acc + a[r, k] * b[k, q] }; y[r, q] = f(acc) } }
    =>  rows[r, k] = i16(a[r, k]); bad[r] = whether some a[r, k] does not fit
        for panel in columns by 16 parallel {
          panel[k / 2, q] = pairs of b[k, q], b[k + 1, q], in 16 bits each
          if everything fits {
            for tile in rows by 6 {
              tile[6, 16] = 0 in registers
              for k / 2 { tile[r, q] = tile[r, q] + pairdot(rows[r, k / 2], panel[k / 2, q]) }
              y[r, q] = f(tile[r, q])
            }
          } else { the same in 32 bits }
        }

A sum of two products of 16-bit factors is one instruction, exact modulo 2^32. Whether factors fit is found while packing;
the result does not depend on it. A block of 8 columns is a vector, two blocks a panel. Blocks and tiles that would reach
beyond the end move back and compute elements again, so that nothing is masked; guards become zeros of the panel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from types import MappingProxyType

import numpy as np

from ..dialect.index import (
    TRUE,
    Const,
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
from ..dialect.types import F32, F64, I16, I32, I64, Shape
from .accesses import depends, reads, stores, stride
from .collapse import flatten
from .contraction import Contraction, recognise
from .narrow import narrowed
from .nests import sorted_tensors

LANES = 8
BLOCKS = 2  # vectors of a panel
ROWS = 6  # of a tile: 12 sums, 2 vectors of the panel and a factor fill 16 registers
LEAST = 1 << 15  # products: for fewer, packing does not pay
WORTH_SHARING = 1 << 18  # products: for more, panels are handed to all threads
FLAT = 1.25  # rows of columns that waste more of their vectors are joined
LARGEST = 1 << 14  # terms of a sum: panels are on the stack


@dataclass(frozen=True, eq=False)
class Contracted:
    """Kernels in place of one, tensors that are others' storage seen differently, and constants packed beforehand."""

    kernels: tuple[Kernel, ...]
    views: dict[Tensor, Tensor]
    constants: dict[Tensor, np.ndarray] = field(default_factory=dict)


Constants = Mapping[Tensor, np.ndarray]


def contract(kernel: Kernel, constants: Constants = MappingProxyType({})) -> Contracted | None:
    """The kernels that compute a contraction by panels and tiles; None where the kernel is not one, or too small.

    Rows of `constants` are packed here, once.
    """
    found = recognise(kernel)
    if found is not None and found.window is not None and _waste(_extent(found.column)) > FLAT:
        flat = flatten(kernel)
        again = recognise(flat)
        if flat is not kernel and again is not None:
            made = _made(flat, again, constants)
            return None if made is None else replace(made, views={**made.views, **reshaped(kernel, flat)})
    return None if found is None else _made(kernel, found, constants)


def _made(kernel: Kernel, c: Contraction, constants: Constants) -> Contracted | None:
    if not _worth_packing(c):
        return None
    if c.accumulator.element is I32:
        return _Panels(kernel, c).in_halves(constants)
    if c.accumulator.element in (F32, F64) and not c.guard:  # a zero for what is left out could make a NaN
        return _Panels(kernel, c).in_floats()
    return None


def _waste(columns: int) -> float:
    """How many lanes are computed for each that is needed; without end where a vector does not fit."""
    return inf if columns < LANES else -(-columns // LANES) * LANES / columns


def reshaped(old: Kernel, new: Kernel) -> dict[Tensor, Tensor]:
    """Parameters that a pass gave another shape, and what they were."""
    return {n: o for o, n in zip(old.parameters, new.parameters, strict=True) if n is not o}


def _extent(index: Index | None) -> int:
    if index is None:
        return 1
    assert isinstance(index.extent, int)
    return index.extent


def _worth_packing(c: Contraction) -> bool:
    rows, columns, terms = _extent(c.row), _extent(c.column), prod(map(_extent, c.folds))
    work = rows * columns * _extent(c.window) * terms
    return rows >= 4 and columns >= LANES and 8 <= terms <= LARGEST and work >= LEAST


class _Panels:
    """The parts of one contraction being built."""

    def __init__(self, kernel: Kernel, c: Contraction) -> None:
        self.kernel, self.c = kernel, c
        self.terms = prod(map(_extent, c.folds))
        self.steps = (self.terms + 1) // 2
        self.k: Expr = flat_index(c.folds, tuple(i.extent for i in c.folds))
        self.around = tuple(i for i in c.outer if depends(c.a, {i}))
        shape = tuple(i.extent for i in (*self.around, c.row))
        inner: Shape = tuple(i.extent for i in c.folds) if self.terms % 2 == 0 else (self.terms + 1,)
        self.rows = Tensor("rows", (*shape, *inner), I16, "heap")
        self.pairs = Tensor("pairs", (*shape, self.steps), I32, "heap")
        self.bad: Tensor | None = Tensor("bad", shape, I32, "heap")
        columns = -(-_extent(c.column) // LANES)
        self.across = columns
        self.blocks = columns * _extent(c.window)
        self.together = min(BLOCKS, self.blocks)
        self.width = self.together * LANES
        self.element = c.accumulator.element
        self.height = min(ROWS if self.element.bytes <= 4 else ROWS // 2, _extent(c.row))
        self.p, self.q = Var("p", I64), Var("q", I64)
        self.v, self.lane = Index("v", self.together), Index("l", LANES)
        self.panel_index = Index("panel", -(-self.blocks // self.together))

    def in_halves(self, constants: Constants) -> Contracted:
        """The kernels for i32."""
        known = self.known_rows(constants)
        if known is not None:
            halves = known.astype(np.int16)
            if not np.array_equal(halves, known):
                return Contracted((self.tiles_of(self.in_full()),), {})
            packed = np.zeros((*known.shape[:-1], 2 * self.steps), np.int16)
            packed[..., : self.terms] = halves
            self.pairs, self.bad = replace(self.pairs, space="constant"), None
            tiles = self.tiles_of(self.in_pairs_or_full())
            return Contracted((tiles,), {}, {self.pairs: packed.view(np.int32)})
        kernels = (self.copy_rows(), self.check_rows(), self.tiles_of(self.in_pairs_or_full()))
        return Contracted(kernels, {self.pairs: self.rows})

    def known_rows(self, constants: Constants) -> np.ndarray | None:
        """The rows' factors, where they are a constant read along plain indices."""
        order = (*self.around, self.c.row, *self.c.folds)
        match self.c.a:
            case Read(tensor, at) if tensor in constants and all(isinstance(i, (Index, Const)) for i in at):
                array = constants[tensor].reshape([d for d in tensor.shape if isinstance(d, int)])
                array = array[tuple(i.value if isinstance(i, Const) else slice(None) for i in at)]
                plain = [i for i in at if isinstance(i, Index)]
                if len(plain) == len(order) == len(set(plain)) and set(plain) == set(order):
                    moved = array.transpose([plain.index(i) for i in order])
                    return moved.reshape((*moved.shape[: len(self.around) + 1], self.terms))
        return None

    def in_floats(self) -> Contracted:
        """The kernel for floats, whose sums go in the order of the terms, each product rounded with its sum."""
        return Contracted((self.tiles_of(self.in_full()),), {})

    def made(self, name: str, body: Block, result: Sequence[Tensor]) -> Kernel:
        own = {s.tensor for s in stores(body)}
        given = {r.tensor for r in reads(body)} - own
        inputs = sorted_tensors({t for t in given if t.space in ("argument", "constant", "heap")})
        return Kernel(f"{self.kernel.name}.{name}", (*inputs, *result), body, len(result), self.kernel.span)

    # rows

    def copy_rows(self) -> Kernel:
        c = self.c
        rows = (*self.around, c.row)
        at = c.folds if self.terms % 2 == 0 else (self.k,)
        nests = [_loops((*rows, *c.folds), (Store(self.rows, (*rows, *at), cast(c.a, I16)),))]
        if self.terms % 2:
            nests.append(_loops(rows, (Store(self.rows, (*rows, as_index(self.terms)), constant(0, I16)),)))
        return self.made("rows", tuple(nests), (self.rows,))

    def check_rows(self) -> Kernel:
        c = self.c
        bad = accumulator("acc", I32)
        fold = _loops(c.folds, (update("or", bad, _excess(c.a)),))
        rows = (*self.around, c.row)
        assert self.bad is not None
        body = (Alloc(bad), assign(bad, 0), fold, Store(self.bad, rows, bad[()]))
        return self.made("check", (_loops(rows, body),), (self.bad,))

    # columns

    def tiles_of(self, body: Block) -> Kernel:
        """The loop over panels."""
        alone = not self.c.outer and self.terms * self.blocks * LANES * _extent(self.c.row) >= WORTH_SHARING
        loop = For(self.panel_index, body, kind="parallel" if alone else "serial")
        results = self.kernel.parameters[len(self.kernel.parameters) - self.kernel.results :]
        return self.made("tiles", (_loops(self.c.outer, (loop,)),), results)

    def in_pairs_or_full(self) -> Block:
        """A panel in 16 bits, and its tiles if it fits; else in 32."""
        halves = Tensor("halves", (2 * self.steps, self.width), I16, "stack")
        panel = Tensor("panel", (self.steps, self.width), I32, "stack")
        bad, beyond = Tensor("excess", (LANES,), I32, "register"), accumulator("beyond", I32)
        n, r = Index("n", LANES), Index("r", _extent(self.c.row))
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
            *self.packed(halves, lambda value: cast(value, I16), bad, beyond),
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
        spill: Block = () if beyond is None else (update("or", beyond, _excess(value)),)
        one: Block = element(spill)
        if tests:
            zero = Store(to, (self.k, column), constant(0, to.element))
            one = (If(_all(tests), one, (zero,)),)
        alone = For(self.lane, one)
        near = [stride(n.tensor, n.indices, c.column) for n in _reads(c.b)]
        if not all(n is not None and 0 <= n <= 4 for n in near):
            return (*self.cleared(to, bool(tests)), self.alone(to, element(spill), tests), *self.padding(to))
        note: Block = () if bad is None else (Store(bad, (self.lane,), bad[self.lane] | _excess(value)),)
        wide = For(self.lane, element(note), kind="vector", width=LANES)
        inner: Block = (If(_all(ends), (wide,), (alone,)),) if ends else (wide,)
        return (_loops(c.folds, (self.placed(inner),)), *self.padding(to))

    def alone(self, to: Tensor, one: Block, tests: list[Expr]) -> For:
        """Column by column, where neighbouring ones are not neighbours in memory."""
        inner = (If(_all(tests), one),) if tests else one
        (fold,) = narrowed((_loops(self.c.folds, inner),))
        return self.placed((For(self.lane, (fold,)),))

    def cleared(self, to: Tensor, guarded: bool) -> Block:
        """Zeros where the guard does not hold."""
        if not guarded:
            return ()
        step, column = Index("s", self.terms), Index("c", self.width)
        zero = Store(to, (step, column), constant(0, to.element))
        return (For(step, (For(column, (zero,), kind="vector", width=self.width),)),)

    def placed(self, body: Block) -> For:
        """A body for each block of the panel, with names for where the block begins."""
        block: Expr = self.panel_index * self.together + self.v
        if self.blocks % self.together:
            block = minimum(block, self.blocks - 1)
        column = block % self.across * LANES
        if _extent(self.c.column) % LANES:
            column = minimum(column, _extent(self.c.column) - LANES)
        named = (Let(self.p, block // self.across), Let(self.q, column))
        return For(self.v, (*named, *body), kind="unrolled")

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
        return (Alloc(panel), packing, self.tiles((step,), lambda sum: sum + product))

    def in_full(self) -> Block:
        """The same with 32-bit factors."""
        panel = Tensor("full", (self.terms, self.width), self.element, "stack")
        factor = panel[self.k, self.v * LANES + self.lane]
        packed = self.packed(panel, lambda value: value, None, None)

        def add(sum: Expr) -> Expr:
            return sum + self.c.a * factor if self.element is I32 else apply("fma", self.c.a, factor, sum)

        return (Alloc(panel), *packed, self.tiles(self.c.folds, add))

    def tiles(self, folds: Sequence[Index], add: Callable[[Expr], Expr]) -> Statement:
        """For every tile of rows: sums in registers over all terms, and what is made of them."""
        rows, height = _extent(self.c.row), self.height
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
            _loops(folds, (self.each(r, (Store(tile, place, added),)),)),
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
        return self.placed((lanes,))


def _reads(e: Expr) -> list[Read]:
    return list(reads((Let(Var("e", e.type), e),)))


def _excess(value: Expr) -> Expr:
    """Not zero where a value does not fit in 16 bits."""
    return value ^ cast(cast(value, I16), I32)


def _all(conditions: Sequence[Expr]) -> Expr:
    joined = both(*conditions)
    return joined if isinstance(joined, Expr) else TRUE


def _loops(indices: Sequence[Index], body: Block) -> Statement:
    for index in reversed(indices):
        body = (For(index, body),)
    return body[0]
