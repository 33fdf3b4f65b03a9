"""Direct convolutions of floats, whose vectors go along output channels, and whose borders are left out:

    for r { for p { for q { acc = 0; for i, k, l { if inside { acc = acc + w[r, i, k, l] * x[i, p + k, q + l] } }; y[r, p, q] = f(acc) } } }
    =>  for panel in rows by 16 parallel {
          for p { for tile in q by 14 {
            sums[14, 16] = 0 in registers
            for i { for k inside { for l inside { sums[q, r] = fma(x[i, p + k, q + l], weights[panel, i, k, l, r], sums[q, r]) } } }
            held[q, r] = sums[q, r]
          } }
          y[r, q] = f(held[q, r])
        }

Each sum goes in the order of its terms, and where a window reaches beyond the edge nothing is added: a product with zero would
be no substitute, since zero times an infinite weight is NaN. The rows of a window are bounds of a loop. Tiles at the left and
the right edge have loops of their own, in which the columns of a window are unrolled, each for the pixels that it is inside of.
Constant weights are packed at compile time, others by a kernel. The last blocks and tiles move back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from itertools import product as combinations
from math import inf, prod

import numpy as np

from ...dialect.ir.sizes import Dim, product
from ...dialect.ir.types import I64
from ...dialect.notation import expressions as ex
from ...dialect.notation import loops as ir
from ...dialect.notation.affine import affine_conditions
from ...dialect.notation.traverse import rewrite, substitute
from ..analysis.accesses import depends
from ..loops.tighten_bounds import narrowed
from ..processor import processor
from .match import Contraction, LoweredContraction, kernel_from_body
from .pack_panels import SQUARE
from .vnni_packing import extent_of, known_terms, loops_of, only_read

LOADS = 3  # products that take as long as a load
USUAL_LOADS = 1.12  # time of a tile's products and loads to what micro-kernels of panels are taken to need for them
SINGLE_TAP = 1.1  # cost factor of windows of one pixel, each line of whose input is used once
LATENCY = 10  # products that are begun until the first is done
MOST_PIXELS = 15  # of a tile
MIN_K = 8  # terms for which a tile pays
MOST_PLACES = 5  # of tiles, from edge to edge
MOST_UNROLLED = 16  # columns of a window that are unrolled

# the weights, the kernels that pack them, the views that those have, and constants
PackedWeights = tuple[ex.Tensor, tuple[ir.Kernel, ...], dict[ex.Tensor, ex.Tensor], dict[ex.Tensor, np.ndarray]]


@dataclass(frozen=True)
class Tile:
    """Pixels by vectors of output channels: the sums that are in registers together."""

    pixels: int
    vectors: int

    @property
    def time(self) -> float:
        """The estimated time of a step, in vector products."""
        return max(self.pixels * self.vectors, LATENCY) + (self.pixels + self.vectors) / LOADS


@dataclass(frozen=True, eq=False)
class Pixels:
    """A contraction whose window and column are two axes of pixels, and the same seen with one axis, for its results. What
    cannot be joined is one axis, and the other an outer loop."""

    c: Contraction
    kernel: ir.Kernel
    last: Contraction


def pixels_of(kernel: ir.Kernel, c: Contraction, joined: tuple[ir.Kernel, Contraction] | None) -> Pixels:
    """The pixels of a contraction, `joined` being the same with all that a window goes over as one."""
    if joined is not None and joined[0] is not kernel:
        return Pixels(c, *joined)
    if c.window is not None:
        c = replace(c, outer=(*c.outer, c.window), window=None)
    return Pixels(c, kernel, c)


def direct_cost(pixels: Pixels) -> float:
    """The estimated time, in vector products of 32-bit lanes, those of other strategies having their loads in them."""
    c = pixels.c
    terms = prod(map(extent_of, c.reduction_axes)) * (1 if len(c.reduction_axes) > 1 else SINGLE_TAP)
    return _choose(c)[0] / USUAL_LOADS * terms * c.accumulator.element.bytes / 4


def why_not_direct(pixels: Pixels) -> str:
    """The reason why a contraction is not computed so, if there is one."""
    c = pixels.c
    if c.unknown:
        return "sizes are known only by a call"
    if only_read(c.b) is None:
        return "columns are read from more than one array"
    if extent_of(c.row) < lanes_of(c):
        return "too few rows for a vector"
    terms = prod(map(extent_of, c.reduction_axes))
    if terms < MIN_K or terms * extent_of(c.row) * extent_of(pixels.last.column) < processor().packing_products:
        return "too few terms or products for packing to pay"
    across = _across(c)
    if across is not None and extent_of(across) > MOST_UNROLLED:
        return "windows are too wide"
    if across is None and any(depends(g, {c.column}) for g in c.guard):
        return "edges are no loop's"
    places = DirectConvolution(pixels.kernel, pixels, {}).places
    return "tiles have too many edges" if len(places) > MOST_PLACES else ""


def lower_direct(kernel: ir.Kernel, pixels: Pixels, constants: Mapping[ex.Tensor, np.ndarray]) -> LoweredContraction:
    """The kernels that convolve so."""
    return DirectConvolution(kernel, pixels, constants).made()


def lanes_of(c: Contraction) -> int:
    return processor().tile_vector_bytes // c.accumulator.element.bytes


def _choose(c: Contraction) -> tuple[float, Tile]:
    """The tile with the least estimated time of a step of all tiles, and that time."""
    registers, length = processor().vector_registers, extent_of(c.column)
    blocks, best = -(-extent_of(c.row) // lanes_of(c)), (inf, Tile(1, 1))
    for pixels, vectors in combinations(range(min(MOST_PIXELS, length), 0, -1), range(1, 7)):
        if pixels * vectors + vectors + 1 < registers and vectors <= blocks:
            tile = Tile(pixels, vectors)
            time = -(-blocks // vectors) * -(-length // pixels) * extent_of(c.window) * tile.time
            best = min(best, (time, tile), key=lambda found: found[0])
    return best


def _across(c: Contraction) -> ex.Index | None:
    """The index of windows that the guard of columns depends on."""
    found = {i for g in c.guard if depends(g, {c.column}) for i in c.reduction_axes if depends(g, {i})}
    return found.pop() if len(found) == 1 else None


def _changes(taps: Sequence[range]) -> list[tuple[int, range]]:
    """The columns of a window from which other pixels are inside; at the end none."""
    runs = [(some, [k for k, _ in found]) for some, found in groupby(enumerate(taps), key=lambda tap: tap[1]) if some]
    return [*((columns[0], some) for some, columns in runs), (runs[-1][1][-1] + 1, range(0))] if runs else []


class DirectConvolution:
    """The kernels of one convolution, by tiles of this shape and strips of so many pixels."""

    def __init__(
        self,
        kernel: ir.Kernel,
        pixels: Pixels,
        constants: Mapping[ex.Tensor, np.ndarray],
        tile: Tile | None = None,
        most: int = 0,
    ) -> None:
        self.kernel, self.known = kernel, constants
        self.c, self.flat, self.last = c, _, _ = pixels.c, pixels.kernel, pixels.last
        tile = tile or _choose(c)[1]
        self.element = c.accumulator.element
        self.start: ex.Expr = ex.constant(0, self.element)
        self.lanes = lanes_of(c)
        self.tall, self.wide = tile.pixels, tile.vectors * self.lanes
        self.rows, self.length, self.count = extent_of(c.row), extent_of(c.column), extent_of(c.window)
        self.panels = -(-self.rows // self.wide)
        most = most or max(1, processor().l1_bytes // 2 // (self.element.bytes * self.wide))
        if c.window is None:
            tiles = max(-(-self.lanes // self.tall), most // self.tall)
            self.line, self.high = min(self.length, tiles * self.tall), 1
            self.strips = -(-self.length // self.line)
        else:
            few = -(-self.lanes // self.length)  # lines that fill a vector
            self.line = self.length
            self.high = -(-self.count // -(-self.count // max(few, most // self.length)))
            self.high = min(self.count, max(self.high, few))
            self.strips = -(-self.count // self.high)
        self.outer = [ex.Var(i.name, I64) for i in c.outer]
        self.around = tuple(i for i in c.outer if depends(c.a, {i}))
        self.vectors = tile.vectors
        weight_bytes = self.rows * prod(map(extent_of, c.reduction_axes)) * self.element.bytes
        self.weights_stay = weight_bytes <= processor().l2_bytes // 2  # near
        self.lane, self.v, self.r = ex.Index("l", self.lanes), ex.Index("v", tile.vectors), ex.Index("r", self.tall)
        self.panel, self.strip, self.first, self.q = (ex.Var(name, I64) for name in ("panel", "strip", "first", "q"))

    def made(self) -> LoweredContraction:
        self.packed, packing, views, packed = self.weights()
        tiles = kernel_from_body(self.flat, "tiles", self.of_strips(), self.flat.outputs)
        views = {**views, **ir.reshaped_parameters(self.kernel, self.flat)}
        return LoweredContraction((*packing, tiles), views, packed, frozenset({tiles}))

    # weights

    def weights(self) -> PackedWeights:
        """The weights, so many rows' side by side, the kernels that pack them, the views those have, and constants. Blocks that
        would go beyond the end move back."""
        c = self.c
        shape = (*(i.extent for i in self.around), self.panels, *(i.extent for i in c.reduction_axes), self.wide)
        known = known_terms(c.a, self.known, (*self.around, c.row, *c.reduction_axes))
        if known is not None:
            rows = np.moveaxis(known, len(self.around), -1)
            blocks = np.arange(self.panels * self.vectors) * self.lanes
            first = np.minimum(blocks, self.rows - self.lanes)
            panels = rows[..., (first[:, None] + np.arange(self.lanes)).reshape(self.panels, self.wide)]
            packed = ex.Tensor("weights", shape, self.element, "constant")
            array = np.ascontiguousarray(np.moveaxis(panels, -2, len(self.around)))
            return packed, (), {}, {packed: array}
        packed = ex.Tensor("weights", shape, self.element, "heap")
        row = ex.Var("row", I64)
        panel = ex.Index("panel", self.panels)
        begin = ir.Let(row, ex.minimum((panel * self.vectors + self.v) * self.lanes, self.rows - self.lanes))
        value = substitute(c.a, {c.row: row + self.lane})
        store = ir.Store(packed, (*self.around, panel, *c.reduction_axes, self.v * self.lanes + self.lane), value)
        body = loops_of((*self.around, panel, self.v), (begin, *loops_of((*c.reduction_axes, self.lane), (store,))))
        return packed, (kernel_from_body(self.kernel, "weights", body, (packed,)),), {}, {}

    # pixels

    def of_strips(self) -> ir.Block:
        """The loop over panels of rows, and over strips of pixels, whose sums wait until all of them are there."""
        c = self.c
        loops: list[tuple[ex.Var, Dim]] = [*zip(self.outer, (i.extent for i in c.outer), strict=True)]
        if self.weights_stay:  # while the input passes once
            loops += (self.strip, self.strips), (self.panel, self.panels)
        else:
            loops = [(self.panel, self.panels), *loops, (self.strip, self.strips)]
        shape = tuple(n for _, n in loops)
        flat = ex.Index("n", product(shape))
        places = zip((v for v, _ in loops), ex.unflatten(flat, shape), strict=True)
        held = ex.Tensor("held", (self.high * self.line, self.wide), self.element, "stack")
        if c.window is None:
            begin = ir.Let(self.first, ex.minimum(self.strip * self.line, self.length - self.line))
            start: ex.Expr = self.first
        else:
            begin = ir.Let(self.first, ex.minimum(self.strip * self.high, self.count - self.high))
            start = self.first * self.length
        body: ir.Block = (begin, ir.Alloc(held), *self.before(), self.products(held), self.ended(held, start))
        names: dict[ex.Expr, ex.Expr] = dict(zip(c.outer, self.outer, strict=True))
        return (ir.For(flat, (*(ir.Let(v, e) for v, e in places), *ir.substitute_block(body, names)), kind="parallel"),)

    def before(self) -> ir.Block:
        """The statements before the products of a strip."""
        return ()

    def updated(self, sum: ex.Expr, at: dict[ex.Expr, ex.Expr]) -> ex.Expr:
        """A sum with the product of a step."""
        return ex.apply("fma", self.value(at), self.weight, sum)

    def value(self, at: dict[ex.Expr, ex.Expr]) -> ex.Expr:
        """The value of a step at a pixel."""
        return substitute(self.c.b, at)

    @property
    def weight(self) -> ex.Expr:
        return self.packed[(*self.around, self.panel, *self.c.reduction_axes, self.v * self.lanes + self.lane)]

    def result(self, sum: ex.Expr) -> ex.Expr:
        """A result, of what tiles leave of it."""
        return sum

    def products(self, held: ex.Tensor) -> ir.For:
        """The sums of a strip, tile by tile."""
        c, r, q = self.c, self.r, self.q
        line, tile = ex.Index("line", self.high), ex.Index("tile", -(-self.line // self.tall))
        sums = ex.Tensor("sums", (self.tall, self.wide), self.element, "register")
        place = (r, self.v * self.lanes + self.lane)
        at = self.at_pixel(q + r, self.first + line)
        add = ir.Store(sums, place, self.updated(sums[place], at))
        begin: ex.Expr = self.first if c.window is None else ex.as_index(0)
        waiting = line * self.line + q - begin + r
        body: ir.Block = (
            ir.Let(q, ex.minimum(tile * self.tall, self.line - self.tall) + begin),
            ir.Alloc(sums),
            self.each(ir.Store(sums, place, self.start)),
            *self.by_place(add, at),
            self.each(ir.Store(held, (waiting, place[1]), sums[place])),
        )
        return ir.For(line, (ir.For(tile, body),))

    def at_pixel(self, column: ex.Expr, line: ex.Expr) -> dict[ex.Expr, ex.Expr]:
        """The contraction's column indices at a pixel."""
        return {self.c.column: column} if self.c.window is None else {self.c.column: column, self.c.window: line}

    def each(self, store: ir.Store, some: range | None = None) -> ir.For:
        """A store of vectors of all pixels of a tile, or of some."""
        some = range(self.tall) if some is None else some
        lanes = ir.For(self.lane, (store,), kind="vector", width=self.lanes)
        ends = ex.as_index(some.start), ex.as_index(some.stop)
        return ir.For(self.r, (ir.For(self.v, (lanes,), kind="unrolled"),), *ends, kind="unrolled")

    def by_place(self, add: ir.Store, at: dict[ex.Expr, ex.Expr]) -> ir.Block:
        """The steps of a tile, by its place: at the left or right edge, or between."""
        edges = [substitute(g, at) for g in self.c.guard if not depends(g, {self.c.column})]
        made: ir.Block = ()
        for n, (taps, last) in enumerate(reversed(self.places)):
            steps = narrowed(self.steps(self.c.reduction_axes, add, edges, taps))
            made = (ir.If(self.q <= last, steps, made),) if n else steps
        return made

    def steps(
        self,
        reduction_axes: Sequence[ex.Index],
        add: ir.Store,
        edges: Sequence[ex.Expr],
        taps: Sequence[range] | None,
        some: range | None = None,
    ) -> ir.Block:
        """The loops over a window, with bounds where its rows may be outside, and unrolled where its columns may."""
        if not reduction_axes:
            return (self.each(add, some),)
        fold, *inner = reduction_axes
        if fold is self.across and taps is not None:
            changes = [(k, self.steps(inner, add, edges, None, some)) for k, some in _changes(taps)]
            return self.columns(fold, changes) if changes else ()
        mine = [e for e in edges if depends(e, {fold})]
        body = self.steps(inner, add, [e for e in edges if e not in mine], taps, some)
        guard = ex.both(*mine)
        return (ir.For(fold, (ir.If(guard, body),) if isinstance(guard, ex.Expr) else body),)

    def columns(self, fold: ex.Index, changes: Sequence[tuple[int, ir.Block]]) -> ir.Block:
        """The loop over the columns of a window, with branches where its body changes. Without the loop LLVM would keep what
        several columns read in registers, which are for sums."""
        *starts, (end, _) = changes
        *before, (_, body) = starts
        for (_, some), (k, _) in reversed([*zip(before, starts[1:], strict=True)]):
            body = (ir.If(fold < k, some, body),)
        return (ir.For(fold, body, ex.as_index(starts[0][0]), ex.as_index(end)),)

    @cached_property
    def across(self) -> ex.Index | None:
        return _across(self.c)

    @cached_property
    def places(self) -> list[tuple[tuple[range, ...] | None, int]]:
        """The pixels of a tile that are inside for each column of a window, by where tiles begin, and the last of these."""
        strips = range(self.strips if self.c.window is None else 1)
        first = [min(n * self.line, self.length - self.line) for n in strips]
        begins = {f + min(n, self.line - self.tall) for f in first for n in range(0, self.line, self.tall)}
        return [(taps, max(some)) for taps, some in groupby(sorted(begins), key=self.taps)]

    def taps(self, q: int) -> tuple[range, ...] | None:
        """The pixels of a tile there that are inside, for each column of a window; nothing where all of them are."""
        c, across = self.c, self.across
        if across is None:
            return None
        sums = [s for g in c.guard if depends(g, {c.column}) for s in affine_conditions(g) or []]
        found: list[range] = []
        for k in range(extent_of(across)):
            held = [
                r
                for r in range(self.tall)
                if all(s.constant + s.factor(across) * k + s.factor(c.column) * (q + r) >= 0 for s in sums)
            ]
            found.append(range(held[0], held[-1] + 1) if held else range(0))
        return None if all(len(some) == self.tall for some in found) else tuple(found)

    # results

    def ended(self, held: ex.Tensor, start: ex.Expr) -> ir.For:
        """The epilogue, by vectors of a strip's pixels: sums are transposed, some rows at once. Of fewer pixels than a vector has
        lanes, by vectors of rows."""
        count, block = self.high * self.line, self.v
        row, begins = (
            ex.Var("row", I64),
            ex.minimum(self.panel * self.wide + block * self.lanes, self.rows - self.lanes),
        )
        if count < self.lanes:
            pixel = ex.Index("at", count)
            lanes = self.epilogue(held[pixel, block * self.lanes + self.lane], row + self.lane, start + pixel)
            return ir.For(block, (ir.Let(row, begins), ir.For(pixel, (lanes,))))
        side = min(SQUARE // self.element.bytes, self.lanes)
        part, u = ex.Index("t", self.lanes // side), ex.Index("u", side)
        v, q = ex.Index("at", -(-count // self.lanes)), ex.Var("at", I64)
        sum = held[q + self.lane, block * self.lanes + part * side + u]
        square = ir.For(u, (self.epilogue(sum, row + part * side + u, start + q + self.lane),), kind="unrolled")
        at = ir.Let(q, ex.minimum(v * self.lanes, count - self.lanes))
        return ir.For(block, (ir.Let(row, begins), ir.For(v, (at, ir.For(part, (square,))))))

    def epilogue(self, sum: ex.Expr, row: ex.Expr, column: ex.Expr) -> ir.For:
        """The epilogue of a sum, for the lanes of a vector."""
        c, result = self.last, self.result(sum)

        def of_sums(e: ex.Expr) -> ex.Expr | None:
            return result if isinstance(e, ex.Read) and e.tensor is c.accumulator else None

        body = ir.map_expressions(c.epilogue, lambda e: rewrite(e, of_sums))
        body = ir.substitute_block(body, {c.row: row, c.column: column})
        return ir.For(self.lane, body, kind="vector", width=self.lanes)
