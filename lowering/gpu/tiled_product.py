"""Tile contractions in shared memory: up to 128 x 128 elements per block, 8 x 8 per thread
(CUTLASS's SIMT GEMM).

    for r { for q { acc = 0; for k { acc = acc + a(r, k) * b(k, q) }; y[r, q] = f(acc) } }
    =>  for tile block {
          alloc shared left: tensor<2x16x68xi32>; alloc shared right: tensor<2x16x68xi32>
          for t thread { acc[t, 4, 4] = 0 }
          for t thread { left[0, k, r] = a(r, k); right[0, k, q] = b(k, q) }     0 outside a guard
          for k by 16 {
            for t thread {
              l = a(r, k + 16), r = b(k + 16, q)
              for k in 0..16 {
                acc[t, u, v] = acc[t, u, v] + left[stage, k, r] * right[stage, k, q]
              }
              left[1 - stage, k, r] = l, right[1 - stage, k, q] = r
            }
          }
          for t thread { the same products of the last step }
          for t thread { y[r, q] = f(acc[t, u, v]) }
        }

Rows and columns lie in shared memory in the order in which threads read them, by packs, so that
neighboring threads store neighboring elements of y. Legal for integers in any order, and for
floats since a sum's terms are added in the documented order, each by a fused multiply-add. Float
terms beyond the end or outside a guard are skipped, by a mask in shared memory: adding zero would
make NaN of infinity, and 0.0 of -0.0. Pays from SMALLEST elements along each axis.
"""

from ...dialect.kernel_ir.expressions import (
    Expr,
    Index,
    Read,
    Tensor,
    apply,
    as_index,
    both,
    constant,
    select,
)
from ...dialect.kernel_ir.loops import Alloc, Block, For, Kernel, Store, nested, vector_loop
from ...dialect.kernel_ir.traverse import walk
from ...dialect.types.sizes import larger, product
from ...dialect.types.tensor_types import F32, F64, I1
from ..analysis.accesses import stride
from ..analysis.parallel_loops import THREADS
from ..contraction.match_contraction import Contraction, match_contraction
from ..passes import scheduled_gpu_pass
from ..processor import processor
from .thread_block_tile import ROW, SIDES, Tiles, allocated, digits, guarded, may_reach, within

DEPTH = 16  # terms of a step along the reduced axis; counted, not timed on a GPU
# rows or columns of a thread that lie side by side in shared memory, and are loaded at once: 16
# bytes of f32
TOGETHER = 4
SMALLEST = 16  # elements along an axis that are worth tiles; counted, not timed on a GPU
# largest stride, in elements, between reads of neighboring threads; counted, not timed on a GPU
NEAR = 4
# bytes of terms that neighboring threads read: a sector; four rows then use different banks
SECTOR = 32


@scheduled_gpu_pass
def tiled_product(kernel: Kernel) -> Kernel | None:
    """The kernel by tiles, if it is a contraction of sufficient size."""
    if (c := match_contraction(kernel)) is None:
        return None
    if not (c.accumulator.element.is_integer or c.accumulator.element in (F32, F64)):
        return None
    tiles = _Scalars(c)
    if not all(may_reach(n, SMALLEST) for n in (tiles.rows, tiles.columns, tiles.depth)):
        return None
    return kernel.with_body((tiles.block(),))


class _Scalars(Tiles):
    """Products of single elements, in the contraction's own type."""

    def __init__(self, c: Contraction) -> None:
        self.depth = product(tuple(i.extent for i in c.reduction_axes))
        element = c.accumulator.element
        most = processor().gpu.shared_bytes // (2 * DEPTH * element.bytes) - 2 * TOGETHER
        sides = [(h, w) for h in SIDES for w in SIDES if h + w <= most]
        super().__init__(c, sides)
        self.steps, self.ahead = larger((self.depth + (DEPTH - 1)) // DEPTH, 1), 1
        down, along = self.high // ROW, self.wide // ROW
        self.each = Index("u", down), Index("v", along)
        self.left = Tensor("left", (2, DEPTH, self.high + TOGETHER), element, "shared")
        self.right = Tensor("right", (2, DEPTH, self.wide + TOGETHER), element, "shared")
        self.acc = Tensor("acc", (THREADS, down, along), element, "register")
        self.inside: Tensor | None = None  # the mask of the right buffer's columns inside guards
        if c.guard and not element.is_integer:
            self.inside = Tensor("kept", (2, DEPTH, ROW, along), I1, "shared")

    def buffers(self) -> Block:
        return (*super().buffers(), *(allocated(self.inside) if self.inside else ()))

    def fetch(self, step: Expr, stage: Expr) -> tuple[Block, Block]:
        """Loads of a step's factors into a thread's registers, and their stores."""
        (a, left), (b, right) = (self.part(tile, step, stage) for tile in (self.left, self.right))
        return (*a, *b), (*left, *right)

    def part(self, tile: Tensor, step: Expr, stage: Expr) -> tuple[Block, Block]:
        """The elements of one factor that a thread loads; adjacent threads load adjacent ones where
        possible.
        """
        rows = tile is self.left
        axes = self.c.reduction_axes
        value, along, side = (
            (self.c.a, self.c.row, self.high) if rows else (self.c.b, self.c.column, self.wide)
        )
        s = Index("s", side * DEPTH // THREADS)
        loaded = Tensor("l" if rows else "r", (s.extent,), tile.element, "register")
        apart = [stride(r.tensor, r.indices, along) for r in walk(value) if isinstance(r, Read)]
        if any(n is not None and 1 <= n <= NEAR for n in apart):
            deep = self.thread // ROW
            wide = s * ROW + self.thread % ROW
            slot = self.slot(s, self.thread % ROW)
        else:
            sector = min(SECTOR // tile.element.bytes, DEPTH)
            rest = self.thread // sector
            deep = self.thread % sector + rest // TOGETHER % (DEPTH // sector) * sector
            beside = rest // (TOGETHER * DEPTH // sector) * TOGETHER + rest % TOGETHER
            each = self.together(s)
            wide = (
                s // each * (ROW * each)
                + beside % each * ROW
                + s % each * (ROW // each)
                + beside // each
            )
            slot = s * ROW + beside
        term, there = digits(step * DEPTH + deep, [i.extent for i in axes])
        terms: dict[Expr, Expr] = dict(zip(axes, term, strict=True))
        element = self.row_at(wide) if rows else self.column_at(wide)
        load: Block = (Store(loaded, (s,), self.placed(value, terms, element)),)
        zero: Block = (Store(loaded, (s,), self.zero()),)
        keep: Block = (Store(tile, (stage, deep, slot), loaded[s]),)
        buffers = allocated(loaded)
        if not rows and self.inside is not None:
            flags = Tensor("counts", (s.extent,), I1, "register")
            buffers = (*buffers, *allocated(flags))
            load = (*load, Store(flags, (s,), constant(True, I1)))
            zero = (*zero, Store(flags, (s,), constant(False, I1)))
            keep = (*keep, Store(self.inside, (stage, deep, wide % ROW, wide // ROW), flags[s]))
        guards = () if rows else tuple(self.placed(g, terms, element) for g in self.c.guard)
        load = guarded(load, both(*guards), both(there, within(element)), otherwise=zero)
        return (*buffers, *nested((s,), load, "unrolled")), nested((s,), keep, "unrolled")

    def products(self, stage: Expr, last: bool) -> Block:
        terms = self.depth - (self.steps - 1) * DEPTH if last else DEPTH
        k = Index("j", terms if isinstance(terms, int) else DEPTH)
        sum, (u, v) = self.sum()[0], self.each
        a = self.left[stage, k, self.slot(u, self.thread // ROW)]
        b = self.right[stage, k, self.slot(v, self.thread % ROW)]
        integer = self.c.accumulator.element.is_integer
        value = apply("add", sum, apply("mul", a, b)) if integer else apply("fma", a, b, sum)
        load: Block = ()
        if self.inside is not None:
            v = Index("v", self.wide // ROW)
            flags = Tensor("flags", (v.extent,), I1, "pack")
            load = (
                Alloc(flags),
                vector_loop(v, Store(flags, (v,), self.inside[stage, k, self.thread % ROW, v])),
            )
            value = select(flags[self.each[1]], value, sum)
        body = (*load, *nested(self.each, (Store(self.acc, sum.indices, value),), "unrolled"))
        if isinstance(terms, int):
            return (For(k, body, kind="unrolled"),)
        return (For(k, body, stop=as_index(terms)),)

    def sum(self) -> tuple[Read, Expr, Expr]:
        u, v = self.each
        return (
            self.acc[self.thread, u, v],
            u * ROW + self.thread // ROW,
            v * ROW + self.thread % ROW,
        )

    def together(self, n: Index) -> int:
        """The number of a thread's rows or columns, numbered by this index, that lie side by
        side.
        """
        assert isinstance(n.extent, int)
        return min(
            TOGETHER, processor().gpu.access_bytes // self.c.accumulator.element.bytes, n.extent
        )

    def slot(self, n: Index, at: Expr) -> Expr:
        """The place in shared memory of row or column n * ROW + at of a tile."""
        each = self.together(n)
        return n // each * (ROW * each) + at * each + n % each
