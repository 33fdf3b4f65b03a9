"""Contractions of integers by tiles of 64 x 64 elements a block, 4 x 4 a thread, their factors in shared memory:

    for r { for q { acc = 0; for k { acc = acc + a(r, k) * b(k, q) }; y[r, q] = f(acc) } }
    =>  for tile block {
          alloc shared left: tensor<16x65xi32>; alloc shared right: tensor<16x65xi32>
          for t thread { acc[t, 4, 4] = 0 }
          for k by 16 {
            for t thread { left[k, r] = a(r, k); right[k, q] = b(k, q) }     0 where a guard does not hold
            for t thread { for k in 0..16 { acc[t, u, v] = acc[t, u, v] + left[k, r] * right[k, q] } }
          }
          for t thread { y[r, q] = f(acc[t, u, v]) }
        }

Integers have no order of a sum to keep. A window and a column of a convolution are one axis here, and so are all indices
of the fold.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ..dialect.index import (
    Expr,
    Index,
    Read,
    Tensor,
    apply,
    both,
    constant,
    inside,
    rewrite,
    substitute,
    unflatten,
    walk,
)
from ..dialect.loops import Alloc, Block, For, If, Kernel, Statement, Store, map_expressions, substitute_block
from .accesses import stride
from .contraction import Contraction, recognise
from .grid import THREADS

TILE, DEPTH, EACH = 64, 16, 4
SIDE = TILE // EACH  # threads along each side of a tile
SMALLEST = 16  # along an axis, to be worth tiles


def multiply(kernel: Kernel) -> Kernel | None:
    """The kernel by tiles, if it is a contraction of integers of some size."""
    found = recognise(kernel)
    if found is None or not found.accumulator.element.is_integer:
        return None
    made = _Tiles(found)
    if min(made.rows, made.columns, made.depth) < SMALLEST:
        return None
    return kernel.with_body((made.block(),))


def _extent(i: Index) -> int:
    assert isinstance(i.extent, int)
    return i.extent


def _digits(position: Expr, extents: tuple[int, ...]) -> list[Expr]:
    """The indices at a row-major position, each by one division of the position itself."""
    found: list[Expr] = []
    for n, extent in enumerate(extents):
        digit = position // prod(extents[n + 1 :])
        found.append(digit % extent if n else digit)
    return found


def _within(digits: dict[Index, Expr]) -> Expr | bool:
    """Whether a position is one of the axis: it is if its first digit is."""
    first, value = next(iter(digits.items()))
    return inside(value, first.extent)


class _Tiles:
    def __init__(self, c: Contraction) -> None:
        self.c = c
        self.across = tuple(i for i in (c.window, c.column) if i is not None)
        self.rows = _extent(c.row)
        self.columns = prod(map(_extent, self.across))
        self.depth = prod(map(_extent, c.folds))
        self.thread = Index("t", THREADS)
        element = c.accumulator.element
        self.left = Tensor("left", (DEPTH, TILE + 1), element, "shared")
        self.right = Tensor("right", (DEPTH, TILE + 1), element, "shared")
        self.acc = Tensor("acc", (THREADS, EACH, EACH), element, "register")
        shape = (*map(_extent, c.outer), -(-self.rows // TILE), -(-self.columns // TILE))
        self.index = Index("b", prod(shape))
        *outer, self.row_tile, self.column_tile = unflatten(self.index, shape)
        self.outer: dict[Expr, Expr] = dict(zip(c.outer, outer, strict=True))

    def block(self) -> For:
        step = Index("k", -(-self.depth // DEPTH))
        loads = (*self.load(self.left, self.c.a, step), *self.load(self.right, self.c.b, step))
        body: Block = (
            Alloc(self.left),
            Alloc(self.right),
            Alloc(self.acc),
            self.threads(self.each(lambda u, v: (Store(self.acc, (self.thread, u, v), self.zero()),))),
            For(step, (self.threads(loads), self.threads((self.products(),)))),
            self.threads(self.each(self.finish)),
        )
        return For(self.index, body, kind="block")

    def threads(self, body: Block) -> For:
        return For(self.thread, body, kind="thread")

    def zero(self) -> Expr:
        return constant(0, self.c.accumulator.element)

    def each(self, body: Callable[[Index, Index], Block]) -> Block:
        """Statements for every element of the thread."""
        u, v = Index("u", EACH), Index("v", EACH)
        return (For(u, (For(v, body(u, v), kind="unrolled"),), kind="unrolled"),)

    def mine(self, u: Expr, v: Expr) -> tuple[Expr, Expr]:
        """Row and column, within the tile, of an element of the thread."""
        return u * SIDE + self.thread // SIDE, v * SIDE + self.thread % SIDE

    def at_column(self, column: Expr) -> dict[Index, Expr]:
        return dict(zip(self.across, unflatten(column, tuple(map(_extent, self.across))), strict=True))

    def load(self, tile: Tensor, value: Expr, step: Index) -> Block:
        """The tile's part of one factor, so that neighbouring threads read neighbours where they can."""
        rows = tile is self.left
        s = Index("s", TILE * DEPTH // THREADS)
        reads = [e for e in walk(value) if isinstance(e, Read)]
        beside = not rows and any(stride(r.tensor, r.indices, self.c.column) == 1 for r in reads)
        if beside:
            deep, wide = s * (THREADS // TILE) + self.thread // TILE, self.thread % TILE
        else:
            deep, wide = self.thread % DEPTH, s * (THREADS // DEPTH) + self.thread // DEPTH
        k = step * DEPTH + deep
        position = (self.row_tile if rows else self.column_tile) * TILE + wide
        folds = dict(zip(self.c.folds, _digits(k, tuple(map(_extent, self.c.folds))), strict=True))
        there = {self.c.row: position} if rows else self.at_column(position)
        places: dict[Expr, Expr] = {**self.outer, **folds, **there}
        body: Block = (Store(tile, (deep, wide), substitute(value, places)),)
        other: Block = (Store(tile, (deep, wide), self.zero()),)
        guards = () if rows else tuple(substitute(g, places) for g in self.c.guard)
        for guard in (both(*guards), both(_within(folds), _within(there))):
            if isinstance(guard, Expr):
                body = (If(guard, body, other),)
        return (For(s, body, kind="unrolled"),)

    def products(self) -> Statement:
        k = Index("j", DEPTH)

        def one(u: Expr, v: Expr) -> Block:
            row, column = self.mine(u, v)
            sum = self.acc[self.thread, u, v]
            product = apply("mul", self.left[k, row], self.right[k, column])
            return (Store(self.acc, (self.thread, u, v), apply("add", sum, product)),)

        return For(k, self.each(one), kind="unrolled")

    def finish(self, u: Expr, v: Expr) -> Block:
        row, column = self.mine(u, v)
        row, column = self.row_tile * TILE + row, self.column_tile * TILE + column

        def change(e: Expr) -> Expr | None:
            return self.acc[self.thread, u, v] if isinstance(e, Read) and e.tensor is self.c.accumulator else None

        body = map_expressions(self.c.epilogue, lambda e: rewrite(e, change))
        there = {self.c.row: row}, self.at_column(column)
        body = substitute_block(body, {**self.outer, **there[0], **there[1]})
        held = both(*map(_within, there))
        return (If(held, body),) if isinstance(held, Expr) else body
