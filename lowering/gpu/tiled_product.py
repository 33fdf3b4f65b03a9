"""Tile contractions in shared memory: up to 128 x 128 elements per block, 8 x 8 per thread (CUTLASS's SIMT GEMM).

    for r { for q { acc = 0; for k { acc = acc + a(r, k) * b(k, q) }; y[r, q] = f(acc) } }
    =>  for tile block {
          alloc shared left: tensor<2x16x68xi32>; alloc shared right: tensor<2x16x68xi32>
          for t thread { acc[t, 4, 4] = 0 }
          for t thread { left[0, k, r] = a(r, k); right[0, k, q] = b(k, q) }     0 where a guard does not hold
          for k by 16 {
            for t thread {
              l = a(r, k + 16), r = b(k + 16, q)
              for k in 0..16 { acc[t, u, v] = acc[t, u, v] + left[half, k, r] * right[half, k, q] }
              left[1 - half, k, r] = l, right[1 - half, k, q] = r
            }
          }
          for t thread { the same products of the last step }
          for t thread { y[r, q] = f(acc[t, u, v]) }
        }

Legal for integers in any order, and for floats since a sum's terms are added in the documented order, each by a fused
multiply-add. Float terms beyond the end or outside a guard are skipped, by a mask in shared memory: adding zero would
make NaN of infinity, and 0.0 of -0.0. Pays from SMALLEST elements along each axis.
"""

from __future__ import annotations

from ...dialect.ir.sizes import product
from ...dialect.ir.types import F32, F64, I1
from ...dialect.notation.expressions import Expr, Index, Read, Tensor, apply, as_index, both, constant, select
from ...dialect.notation.loops import Alloc, Block, For, If, Kernel, Statement, Store
from ...dialect.notation.traverse import walk
from ..analysis.accesses import stride
from ..analysis.parallel_loops import THREADS
from ..contraction.match import Contraction, match_contraction
from ..passes import scheduled_gpu_pass
from .contraction_tiles import Tiles, allocated, at_least, digits, within

DEPTH = 16  # terms of a step along the reduced axis
ROW = 16  # threads side by side along a tile's columns
TOGETHER = 4  # adjacent rows of a thread, loaded at once
SMALLEST = 16  # elements along an axis that are worth tiles
NEAR = 4  # largest stride, in elements, between reads of neighbouring threads
SECTOR = 32  # bytes of terms that neighbouring threads read; four rows then use different banks


@scheduled_gpu_pass
def tiled_product(kernel: Kernel) -> Kernel | None:
    """The kernel by tiles, if it is a contraction of sufficient size."""
    c = match_contraction(kernel)
    if c is None or c.unknown & {*c.reduction_axes[1:]}:
        return None
    if not (c.accumulator.element.is_integer or c.accumulator.element in (F32, F64)):
        return None
    made = _Scalars(c)
    if not all(at_least(n, SMALLEST) for n in (made.rows, made.columns, made.depth)):
        return None
    return kernel.with_body((made.block(),))


class _Scalars(Tiles):
    """Products of single elements, in the contraction's own type."""

    def __init__(self, c: Contraction) -> None:
        self.depth = product(tuple(i.extent for i in c.reduction_axes))
        super().__init__(c, (self.depth + (DEPTH - 1)) // DEPTH)
        element = c.accumulator.element
        down, along = self.high // ROW, self.wide // ROW
        self.each = Index("u", down), Index("v", along)
        self.left = Tensor("left", (2, DEPTH, self.high + TOGETHER), element, "shared")
        self.right = Tensor("right", (2, DEPTH, self.wide + TOGETHER), element, "shared")
        self.acc = Tensor("acc", (THREADS, down, along), element, "register")
        self.kept: Tensor | None = None  # the mask of the right buffer's columns inside guards
        if c.guard and not element.is_integer:
            self.kept = Tensor("kept", (2, DEPTH, ROW, along), I1, "shared")

    def buffers(self) -> Block:
        return (*allocated(self.left, self.right, self.acc), *(allocated(self.kept) if self.kept else ()))

    def clear(self) -> Block:
        return self.unrolled(self.each, (Store(self.acc, (self.thread, *self.each), self.zero()),))

    def zero(self) -> Expr:
        return constant(0, self.c.accumulator.element)

    def fetch(self, step: Expr, half: Expr) -> tuple[Block, Block]:
        (a, left), (b, right) = (self.part(tile, step, half) for tile in (self.left, self.right))
        return (*a, *b), (*left, *right)

    def part(self, tile: Tensor, step: Expr, half: Expr) -> tuple[Block, Block]:
        """The elements of one factor that a thread loads; neighbouring threads load neighbouring elements where
        possible.
        """
        rows = tile is self.left
        value = self.c.a if rows else self.c.b
        side = self.high if rows else self.wide
        s = Index("s", side * DEPTH // THREADS)
        held = Tensor("l" if rows else "r", (s.extent,), tile.element, "register")
        beside = self.c.row if rows else self.c.column
        apart = [stride(r.tensor, r.indices, beside) for r in walk(value) if isinstance(r, Read)]
        if any(n is not None and 1 <= n <= NEAR for n in apart):
            deep, wide = s * (THREADS // side) + self.thread // side, self.thread % side
        else:
            near, rest = SECTOR // tile.element.bytes, self.thread // (SECTOR // tile.element.bytes)
            deep = self.thread % near + rest // TOGETHER % (DEPTH // near) * near
            wide = s * (THREADS // DEPTH) + rest // (TOGETHER * DEPTH // near) * TOGETHER + rest % TOGETHER
        extents = [i.extent for i in self.c.reduction_axes]
        reduction_axes: dict[Expr, Expr] = dict(
            zip(self.c.reduction_axes, digits(step * DEPTH + deep, extents), strict=True)
        )
        there = self.row_at(wide) if rows else self.column_at(wide)
        body: Block = (Store(held, (s,), self.placed(value, reduction_axes, there)),)
        zero: Block = (Store(held, (s,), self.zero()),)
        kept: Block = (Store(tile, (half, deep, wide), held[s]),)
        buffers = allocated(held)
        if not rows and self.kept is not None:
            counts = Tensor("counts", (s.extent,), I1, "register")
            buffers = (*buffers, *allocated(counts))
            body = (*body, Store(counts, (s,), constant(True, I1)))
            zero = (*zero, Store(counts, (s,), constant(False, I1)))
            kept = (*kept, Store(self.kept, (half, deep, wide % ROW, wide // ROW), counts[s]))
        guards = () if rows else tuple(self.placed(g, reduction_axes, there) for g in self.c.guard)
        for guard in (both(*guards), both(within(reduction_axes), within(there))):
            if isinstance(guard, Expr):
                body = (If(guard, body, zero),)
        return (*buffers, *self.unrolled((s,), body)), self.unrolled((s,), kept)

    def products(self, half: Expr, last: bool) -> Block:
        terms = self.depth - (self.steps - 1) * DEPTH if last else DEPTH
        k = Index("j", terms if isinstance(terms, int) else DEPTH)
        found, row, column = self.sum()
        a, b = self.left[half, k, row], self.right[half, k, column]
        if self.c.accumulator.element.is_integer:
            value = apply("add", found, apply("mul", a, b))
        else:
            value = apply("fma", a, b, found)
        flags: Block = ()
        if self.kept is not None:
            along = self.wide // ROW
            held, v = Tensor("flags", (along,), I1, "pack"), Index("v", along)
            copy = Store(held, (v,), self.kept[half, k, self.thread % ROW, v])
            flags = (Alloc(held), For(v, (copy,), kind="vector", width=along))
            value = select(held[self.each[1]], value, found)
        step: Statement = Store(self.acc, found.indices, value)
        body = (*flags, *self.unrolled(self.each, (step,)))
        if isinstance(terms, int):
            return (For(k, body, kind="unrolled"),)
        return (For(k, body, stop=as_index(terms)),)

    def sum(self) -> tuple[Read, Expr, Expr]:
        u, v = self.each
        row = u // TOGETHER * (ROW * TOGETHER) + self.thread // ROW * TOGETHER + u % TOGETHER
        return self.acc[self.thread, u, v], row, v * ROW + self.thread % ROW
