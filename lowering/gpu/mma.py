"""Contract 8-bit numbers on tensor cores (MMA): factors packed to words of four bytes, sums
distributed over a warp.

    for r { for q { acc = 0; for c { acc = acc + a[r, c] * b[c, q] }; y[r, q] = f(acc) } }
    =>  rows[r, c] = i8(a[r, c]); columns[q, c] = i8(b[c, q])     c padded to packs of 16 bytes
        for tile block {
          alloc shared left: tensor<3x64x16xi32>; alloc shared right: tensor<3x64x16xi32>
          for t thread {                                          stage 0, and stage 1 likewise
            left[0, row, 16] = rows[r, 16]; right[0, column, 16] = columns[q, 16]
          }
          for k by 64 {
            for t thread {
              left[stage + 2, row, 16] = rows[r, 16 words of k + 128]
              right[stage + 2, column, 16] = columns[q, 16 words of k + 128]
              for k in 0..16 matrix { for u, v, e unrolled {
                acc[t, u, v, e] = acc[t, u, v, e]
                                  + quaddot(left[stage, row, k], right[stage, column, k])
              } }
            }
          }
        }

Vector loops from arrays to shared memory are copies that a GPU makes by itself (cp.async): those of
a thread loop are a group, and all groups but the last `stages` - 2 have arrived at the loop's end.
Words of a row are rotated by packs, so that eight rows of a pack lie in different banks (`word`).

Legal if interval analysis bounds both factors by 8 bits, signed or unsigned; sums are exact modulo
2^32. Pays from LEAST products. The index c is a reduced axis of both factors; packed factors have
it last. Other reduced indices, such as the taps of a convolution, are a loop around it. Constants
are packed at compile time; an array of bytes in this layout is used as it is.

A matrix loop has the instruction's distribution of sums, in pieces of 16 x 8: a thread has rows
lane // 4 and lane // 4 + 8, columns 2 * (lane % 4) and the next one. Other targets may execute it
as a plain loop.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...dialect.kernel_ir import expressions as ex
from ...dialect.kernel_ir.execution_plan import Kernels
from ...dialect.kernel_ir.loops import Block, For, Kernel, Statement, Store, nested, vector_loop
from ...dialect.types.sizes import larger, product, same_size
from ...dialect.types.tensor_types import I8, I32, UI8, ElementType
from ..analysis.accesses import accesses, depends
from ..analysis.integer_ranges import interval
from ..analysis.parallel_loops import THREADS
from ..contraction.match_contraction import Contraction, match_contraction
from ..contraction.vnni_packing import QUADS
from ..pass_context import Context
from ..passes import gpu_pass
from ..processor import processor
from .thread_block_tile import SIDES, Tiles, digits, guarded, may_reach, within

# bytes of the widest access, and the multiple of terms to which the channel axis is padded
PACK = 16
WORDS = 16  # words of a step: two instructions of 32 terms; counted, not timed on a GPU
# steps whose factors shared memory holds, at most: one is multiplied, the others arrive; counted,
# not timed on a GPU
MOST = 4
DOWN, ALONG = 2, 4  # warps of a block, down and along its tile; counted, not timed on a GPU
HEIGHT, WIDTH, SUMS = 16, 8, 4  # shape of the instruction's tile, and its sums per thread
TILES = [
    (h, w) for h in SIDES for w in SIDES if min(h, w) >= THREADS // 4
]  # four threads move a row
SMALLEST = 16  # rows, columns and terms, at least; counted, not timed on a GPU
LEAST = 1 << 15  # products that are worth packing; counted, not timed on a GPU


@gpu_pass
def mma(kernel: Kernel, context: Context) -> Kernels | None:
    """The kernels that pack the factors and multiply them, if the factors are known to fit 8
    bits.
    """
    c = match_contraction(kernel)
    if c is None or c.accumulator.element is not I32:
        return None
    values = [interval(e, context.ranges) for e in (c.a, c.b)]
    a, b = (next((t for t in (I8, UI8) if v.within(t)), None) for v in values)
    if a is None or b is None:
        return None
    largest_first = sorted(
        c.reduction_axes, key=lambda i: -i.extent if isinstance(i.extent, int) else -(1 << 62)
    )
    unguarded = (i for i in largest_first if not any(depends(g, {i}) for g in c.guard))
    channel = next((i for i in unguarded if all(_axis(e, i) is not None for e in (c.a, c.b))), None)
    sizes = (
        c.row.extent,
        *(product(tuple(i.extent for i in axes)) for axes in (c.columns, c.reduction_axes)),
    )
    if (
        channel is None
        or not all(may_reach(n, SMALLEST) for n in sizes)
        or not may_reach(product(sizes), LEAST)
    ):
        return None
    return _Words(kernel, c, channel, (a, b), context.constants).contracted()


def _read(e: ex.Expr) -> ex.Read | None:
    e = e.operand if isinstance(e, ex.Cast) else e
    return e if isinstance(e, ex.Read) else None


def _axis(factor: ex.Expr, i: ex.Index) -> int | None:
    """The axis that is exactly this index, if no other axis depends on the index."""
    if (read := _read(factor)) is None:
        return None
    axes = [n for n, at in enumerate(read.indices) if depends(at, {i})]
    return axes[0] if len(axes) == 1 and read.indices[axes[0]] is i else None


class _Words(Tiles):
    """Packing of 8-bit factors, four to a word."""

    def __init__(
        self,
        kernel: Kernel,
        c: Contraction,
        channel: ex.Index,
        types: tuple[ElementType, ElementType],
        constants: Mapping[ex.Tensor, np.ndarray],
    ) -> None:
        self.kernel = kernel
        self.constants = constants
        self.channel = channel
        self.function = QUADS[types]
        self.taps = tuple(i for i in c.reduction_axes if i is not channel)
        self.packs = (channel.extent + (PACK - 1)) // PACK  # packs per tap
        steps = (self.packs * product(tuple(i.extent for i in self.taps)) + 3) // 4
        super().__init__(c, TILES)
        held = min(MOST, processor().gpu.shared_bytes // ((self.high + self.wide) * 4 * WORDS))
        self.ahead = min(held - 1, steps) if isinstance(steps, int) else held - 1
        self.steps, stages = larger(steps, self.ahead), self.ahead + 1
        down, along = self.high // DOWN // HEIGHT, self.wide // ALONG // WIDTH
        self.each = ex.Index("u", down), ex.Index("v", along), ex.Index("e", SUMS)
        self.left = ex.Tensor("left", (stages, self.high, WORDS), I32, "shared")
        self.right = ex.Tensor("right", (stages, self.wide, WORDS), I32, "shared")
        self.acc = ex.Tensor("acc", (THREADS, down, along, SUMS), I32, "register")
        self.packing: list[Kernel] = []
        self.views: dict[ex.Tensor, ex.Tensor] = {}
        self.packed: dict[ex.Tensor, np.ndarray] = {}
        self.factors = self.words("rows", c.a, types[0]), self.words("columns", c.b, types[1])

    def contracted(self) -> Kernels:
        old = self.kernel.parameters
        results = old[len(old) - self.kernel.results :]
        block = self.block()
        used = accesses((block,))[0]
        inputs = [t for t in (*old, *self.factors) if t in used and t not in results]
        tiles = replace(
            self.kernel,
            name=f"{self.kernel.name}.tiles",
            parameters=(*inputs, *results),
            body=(block,),
        )
        return Kernels((*self.packing, tiles), self.views, self.packed)

    # packing

    def words(self, name: str, factor: ex.Expr, byte: ElementType) -> ex.Tensor:
        """The array of a factor as words, its channel axis last."""
        read = _read(factor)
        axis = _axis(factor, self.channel)
        assert read is not None and axis is not None
        of = read.tensor
        size = self.channel.extent
        around = tuple(d for n, d in enumerate(of.shape) if n != axis)
        whole = self.packs * PACK
        words = ex.Tensor(name, (*around, whole // 4), I32, "heap")
        packed = ex.Tensor(f"{name}.packed", (*around, whole), byte, "heap")
        if of in self.constants and isinstance(size, int):
            array = self.constants[of].reshape([d for d in of.shape if isinstance(d, int)])
            array = np.moveaxis(array, axis, -1)[..., :size].astype(byte.dtype)
            filled = np.pad(array, [(0, 0)] * len(around) + [(0, -array.shape[-1] % PACK)])
            words = replace(words, space="constant")
            self.packed[words] = filled.view(np.int32)
        elif of.element in (I8, UI8) and axis == of.rank - 1 and of.shape == packed.shape:
            self.views[words] = of
        else:
            self.packing.append(self.packer(packed, of, axis))
            self.views[words] = packed
        return words

    def packer(self, packed: ex.Tensor, of: ex.Tensor, axis: int) -> Kernel:
        at = ex.axes(packed.shape)
        *around, last = at
        size = self.channel.extent
        inside = same_size(packed.shape[-1], size) or last < ex.as_index(size)
        zero: Block = (Store(packed, at, ex.constant(0, packed.element)),)
        copy = Store(
            packed, at, ex.cast(of[(*around[:axis], last, *around[axis:])], packed.element)
        )
        body = nested(at, guarded((copy,), inside, otherwise=zero))
        name = f"{self.kernel.name}.{packed.name}"
        return replace(self.kernel, name=name, parameters=(of, packed), body=body, results=1)

    # tiles

    def fetch(self, step: ex.Expr, stage: ex.Expr) -> tuple[Block, Block]:
        """Copies of a step's factors, which nothing else waits for."""
        return (*self.part(self.left, step, stage), *self.part(self.right, step, stage)), ()

    def part(self, tile: ex.Tensor, step: ex.Expr, stage: ex.Expr) -> Block:
        """The packs of one factor that a thread copies: four threads per row."""
        rows = tile is self.left
        factor, words = (self.c.a, self.factors[0]) if rows else (self.c.b, self.factors[1])
        read = _read(factor)
        axis = _axis(factor, self.channel)
        assert read is not None and axis is not None
        around = [e for n, e in enumerate(read.indices) if n != axis]
        quarter = self.thread % 4
        extents = [i.extent for i in self.taps]
        extents.insert(
            len(extents) if isinstance(self.packs, int) else 0, self.packs
        )  # an unknown size comes first
        tap, inner = digits(step * 4 + quarter, extents)
        pack = tap.pop(-1 if isinstance(self.packs, int) else 0)
        taps: dict[ex.Expr, ex.Expr] = dict(zip(self.taps, tap, strict=True))
        copies: list[Statement] = []
        for first in range(0, self.high if rows else self.wide, THREADS // 4):
            place = self.thread // 4 + first
            w = ex.Index("w", 4)
            element = self.row_at(place) if rows else self.column_at(place)
            at = (*(self.placed(e, taps, element) for e in around), pack * 4 + w)
            to = (stage, place, word(place, quarter) + w)
            copy: Block = (vector_loop(w, Store(tile, to, words[at])),)
            zero: Block = (vector_loop(w, Store(tile, to, self.zero())),)
            guards = () if rows else tuple(self.placed(g, taps, element) for g in self.c.guard)
            copies += guarded(
                copy, ex.both(*guards), ex.both(inner, within(element)), otherwise=zero
            )
        return tuple(copies)

    def products(self, stage: ex.Expr, last: bool) -> Block:
        k = ex.Index("k", WORDS)
        sum, row, column = self.sum()
        a, b = (
            t[stage, n, word(n, k // 4) + k % 4]
            for t, n in ((self.left, row), (self.right, column))
        )
        value = sum + ex.apply(self.function, a, b)
        return (
            For(
                k,
                nested(self.each, (Store(self.acc, sum.indices, value),), "unrolled"),
                kind="matrix",
            ),
        )

    def sum(self) -> tuple[ex.Read, ex.Expr, ex.Expr]:
        u, v, e = self.each
        warp = self.thread // processor().gpu.warp
        lane = self.thread % processor().gpu.warp
        row = warp // ALONG * (self.high // DOWN) + u * HEIGHT + (lane // 4 + e // 2 * 8)
        column = warp % ALONG * (self.wide // ALONG) + v * WIDTH + (lane % 4 * 2 + e % 2)
        return self.acc[self.thread, u, v, e], row, column


def word(row: ex.Expr, pack: ex.Expr) -> ex.Expr:
    """The first word of a row's pack in shared memory."""
    return (pack + row // 2) % 4 * 4


@dataclass(frozen=True)
class Product:
    """A matched matrix loop: the tiles of sums, and where in the buffers the rows and columns of
    the first tile begin.
    """

    function: str
    sums: ex.Tensor
    pieces: tuple[ex.Index, ex.Index]
    left: tuple[ex.Tensor, ex.Expr, ex.Expr]  # a buffer, its stage, and the first row of a tile
    right: tuple[ex.Tensor, ex.Expr, ex.Expr]


def product_of(loop: For) -> Product:
    """The factors and sums of a matrix loop."""
    match loop.body:
        case (
            For(
                u,
                (
                    For(
                        v,
                        (
                            For(
                                _,
                                (
                                    Store(
                                        sums,
                                        _,
                                        ex.Apply("add", (_, ex.Apply(function, (a, b), _)), _),
                                    ),
                                ),
                            ),
                        ),
                    ),
                ),
            ),
        ):
            assert isinstance(a, ex.Read) and isinstance(b, ex.Read) and loop.end.value == WORDS  # type: ignore[attr-defined]
            parts = [(r.tensor, r.indices[0], _first(r.indices[1])) for r in (a, b)]
            return Product(function, sums, (u, v), parts[0], parts[1])
        case _:
            raise LookupError("a matrix loop of another form")


def _first(place: ex.Expr) -> ex.Expr:
    """The origin of a tile, from the position of a thread's sum in it."""
    assert isinstance(place, ex.Apply) and place.function == "add"
    return place.operands[0]
