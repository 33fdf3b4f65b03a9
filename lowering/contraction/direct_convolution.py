"""Direct convolutions of floats, whose vectors go along output channels, and whose borders are left
out:

    for r { for p { for q { acc = 0; for i, k, l { if inside { acc = acc + w[r, i, k, l] * x[i, p +
    k, q + l] } }; y[r, p, q] = f(acc) } } }
    =>  for panel in rows by 16 parallel {
          for p { for tile in q by 14 {
            sums[14, 16] = 0 in registers
            for i { for k inside { for l inside { sums[q, r] = fma(x[i, p + k, q + l],
            weights[panel, i, k, l, r], sums[q, r]) } } } held[q, r] = sums[q, r]
          } }
          y[r, q] = f(held[q, r])
        }

Each sum goes in the order of its terms, and where a window reaches beyond the edge nothing is
added: a product with zero would be no substitute, since zero times an infinite weight is NaN. The
rows of a window are bounds of a loop. Tiles at the left and the right edge have a loop of their
own, which adds each column of a window to the pixels that it is inside of. Constant weights are
packed at compile time, others by a kernel. The last blocks and tiles move back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import groupby, product as combinations
from math import inf, prod
from operator import and_

import numpy as np

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.affine import Affine, affine_conditions
from ...dialect.kernel_ir.traverse import substitute
from ...dialect.types.tensor_types import F32, F64, I64
from ..analysis.accesses import depends
from ..loops.tighten_bounds import narrowed
from ..processor import processor
from .contraction_problem import Constants, Problem, Strategy, why_not_of
from .match_contraction import Contraction, LoweredContraction, kernel_from_body, parallel_loop
from .pack_panels import SQUARE
from .vnni_packing import extent_of, known_terms, only_read, tile_elements

LOADS = 3  # cost model: products that take as long as a load; tuned by hand (Zen 4, Zen 5)
# cost model: time of a tile's products and loads to that which micro-kernels of panels are taken
# to need; tuned by hand (Zen 4, Zen 5)
USUAL_LOADS = 1.12
# cost model: factor of windows of one pixel, each line of whose input is used once; set by the
# time of ResNet-50 on one thread
SINGLE_TAP = 1.15
# cost model: products begun until the first is done: 4 to 5 cycles of two units, by the manuals;
# not measured
LATENCY = 10
MOST_PIXELS = 15  # pixels of a tile, at most; tuned by hand (Zen 4, Zen 5)
MIN_K = 8  # terms from which a tile pays; tuned by hand (Zen 4, Zen 5)

PackedWeights = tuple[ex.Tensor, LoweredContraction]  # the weights, and the kernels that pack them


@dataclass(frozen=True)
class Tile:
    """Pixels by vectors of output channels: the sums that are in registers together."""

    pixels: int
    vectors: int

    @property
    def time(self) -> float:
        """The estimated cycles of a step; a pixel's value is a load whatever the width of
        vectors.
        """
        cycles = processor().fma_cycles
        return (
            max(self.pixels * self.vectors * cycles, LATENCY)
            + (self.pixels + self.vectors * cycles) / LOADS
        )


@dataclass(frozen=True, eq=False)
class Pixels:
    """A contraction of two pixel axes, and the same seen with one; where they do not join, one is
    an outer loop.
    """

    kernel: ir.Kernel
    c: Contraction
    flat: ir.Kernel
    last: Contraction


def pixels_of(problem: Problem) -> Pixels:
    c, joined = problem.contraction, problem.joined
    if joined is not None and joined.kernel is not problem.kernel:
        return Pixels(problem.kernel, c, joined.kernel, joined.contraction)
    if c.window is not None:
        c = replace(c, loops=(*c.outer, c.window, c.row, c.column), window=None)
    return Pixels(problem.kernel, c, problem.kernel, c)


def direct_cost(problem: Problem) -> float:
    """The estimated cycles of vectors of 32-bit lanes, those of other strategies having their loads
    in them.
    """
    c = pixels_of(problem).c
    terms = prod(map(extent_of, c.reduction_axes)) * (
        1 if len(c.reduction_axes) > 1 else SINGLE_TAP
    )
    return _choose(c)[0] / USUAL_LOADS * terms * c.accumulator.element.bytes / 4


def why_not_direct(problem: Problem) -> str:
    if why := why_not_of(problem, F32, F64):
        return why
    pixels = pixels_of(problem)
    c = pixels.c
    if c.unknown:
        return "sizes are known only by a call"
    if only_read(c.b) is None:
        return "columns are read from more than one array"
    if extent_of(c.row) < lanes_of(c):
        return "too few rows for a vector"
    terms = prod(map(extent_of, c.reduction_axes))
    if (
        terms < MIN_K
        or terms * extent_of(c.row) * extent_of(pixels.last.column) < processor().packing_products
    ):
        return "too few terms or products for packing to pay"
    return (
        "edges are no loop's"
        if _edge(c) is None and any(depends(g, {c.column}) for g in c.guard)
        else ""
    )


def lanes_of(c: Contraction) -> int:
    return processor().tile_vector_bytes // c.accumulator.element.bytes


def _choose(c: Contraction) -> tuple[float, Tile]:
    """The tile with the least estimated time of a step of all tiles, and that time."""
    registers = processor().vector_registers
    length = extent_of(c.column)
    blocks = -(-extent_of(c.row) // lanes_of(c))
    best = (inf, Tile(1, 1))
    for pixels, vectors in combinations(range(min(MOST_PIXELS, length), 0, -1), range(1, 7)):
        if pixels * vectors + vectors + 1 < registers and vectors <= blocks:
            tile = Tile(pixels, vectors)
            time = -(-blocks // vectors) * -(-length // pixels) * extent_of(c.window) * tile.time
            best = min(best, (time, tile), key=lambda candidate: candidate[0])
    return best


@dataclass(frozen=True)
class _Edge:
    """The columns that are inside: those of which sums of a constant and a column's place, times a
    sign, are not negative.
    """

    axis: ex.Index  # of a window
    step: int  # with which columns go along it
    stride: int  # from pixel to pixel
    sums: set[tuple[int, int]]  # signs and constants

    def inside(self, place: int, count: int) -> range:
        """The pixels of `count` whose column is inside the image, if the first pixel's column is at
        `place`.
        """
        places = enumerate(range(place, place + self.stride * count, self.stride))
        some = [
            r for r, at in places if all(sign * at + constant >= 0 for sign, constant in self.sums)
        ]
        return range(some[0], some[-1] + 1) if some else range(0)


def _edge(c: Contraction) -> _Edge | None:
    """The edges that the guard of columns states; None if there are none, or they are others."""
    sums = [
        s for g in c.guard if depends(g, {c.column}) for s in affine_conditions(g) or [Affine({})]
    ]
    signs = [1 if s.factor(c.column) > 0 else -1 for s in sums]
    forms = {frozenset((s * sign).terms.values()) for s, sign in zip(sums, signs, strict=True)}
    factors = dict(forms.pop()) if len(forms) == 1 else {}
    stride = factors.pop(c.column, 0)
    axes = [i for i in c.reduction_axes if i in factors]
    if not stride or len(axes) != 1 or len(factors) != 1:
        return None
    return _Edge(
        axes[0],
        factors[axes[0]],
        stride,
        {(sign, s.constant) for s, sign in zip(sums, signs, strict=True)},
    )


def _by_runs(place: ex.Expr, parts: Sequence[tuple[int, ir.Block]]) -> ir.Block:
    """The part that begins at a place or before it, found by halving."""
    if len(parts) <= 1:
        return parts[0][1] if parts else ()
    half = len(parts) // 2
    return (
        ir.If(
            place < parts[half][0],
            *(_by_runs(place, some) for some in (parts[:half], parts[half:])),
        ),
    )


class DirectConvolution:
    """The kernels of one convolution, by register tiles and strips of pixels."""

    def __init__(
        self, pixels: Pixels, constants: Constants, tile: Tile | None = None, most: int = 0
    ) -> None:
        self.pixels, self.known = pixels, constants
        self.c, self.last = c, _ = pixels.c, pixels.last
        tile = tile or _choose(c)[1]
        self.element, self.edge = c.accumulator.element, _edge(c)
        self.start: ex.Expr = ex.constant(0, self.element)
        self.lanes = lanes_of(c)
        self.tall, self.vectors, self.wide = tile.pixels, tile.vectors, tile.vectors * self.lanes
        self.rows, self.length, self.count = (
            extent_of(c.row),
            extent_of(c.column),
            extent_of(c.window),
        )
        self.panels = -(-self.rows // self.wide)
        most = most or max(1, processor().l1_bytes // 2 // (self.element.bytes * self.wide))
        if c.window is None:
            tiles = -(-self.length // self.tall)
            most = max(-(-self.lanes // self.tall), most // self.tall)
            each = -(
                -tiles // -(-tiles // most)
            )  # of a strip, so that the last one moves back by less than a tile
            self.line, self.high = min(self.length, each * self.tall), 1
            self.strips = -(-self.length // self.line)
        else:
            few = -(-self.lanes // self.length)  # lines that fill a vector
            self.line = self.length
            self.high = -(-self.count // -(-self.count // max(few, most // self.length)))
            self.high = min(self.count, max(self.high, few))
            self.strips = -(-self.count // self.high)
        self.around = tuple(i for i in c.outer if depends(c.a, {i}))
        weight_bytes = self.rows * prod(map(extent_of, c.reduction_axes)) * self.element.bytes
        self.weights_stay = weight_bytes <= processor().l2_bytes // 2  # near
        self.lane, self.v, self.r = (
            ex.Index("l", self.lanes),
            ex.Index("v", tile.vectors),
            ex.Index("r", self.tall),
        )
        self.place = self.v * self.lanes + self.lane
        self.line_index, self.tile = (
            ex.Index("line", self.high),
            ex.Index("tile", -(-self.line // self.tall)),
        )
        self.panel, self.strip, self.first, self.q = (
            ex.Var(name, I64) for name in ("panel", "strip", "first", "q")
        )

    def lowered(self) -> LoweredContraction:
        self.packed, packing = self.weights()
        pixels = self.pixels
        tiles = kernel_from_body(pixels.flat, "tiles", self.of_strips(), pixels.flat.outputs)
        views = ir.reshaped_parameters(pixels.kernel, pixels.flat)
        return packing.beside(LoweredContraction((tiles,), views, {}, frozenset({tiles})))

    # weights

    def tiled_rows(self, rows: np.ndarray, axis: int) -> np.ndarray:
        """Pack the rows along an axis of constant weights, a tile's rows side by side. Blocks that
        would go beyond the end move back.
        """
        elements = tile_elements(self.rows, self.panels * self.vectors, self.lanes).reshape(
            self.panels, self.wide
        )
        return rows.take(elements, axis)

    def weights(self) -> PackedWeights:
        """The weights, those of a tile's rows side by side."""
        c = self.c
        shape = (
            *(i.extent for i in self.around),
            self.panels,
            *(i.extent for i in c.reduction_axes),
            self.wide,
        )
        if (
            constants := known_terms(c.a, self.known, (*self.around, c.row, *c.reduction_axes))
        ) is not None:
            count = len(self.around)
            panels = np.moveaxis(self.tiled_rows(constants, count), count + 1, -1)
            packed = ex.Tensor("weights", shape, self.element, "constant")
            return packed, LoweredContraction((), {}, {packed: np.ascontiguousarray(panels)})
        packed = ex.Tensor("weights", shape, self.element, "heap")
        row = ex.Var("row", I64)
        panel = ex.Index("panel", self.panels)
        begin = ir.Let(
            row, ex.minimum((panel * self.vectors + self.v) * self.lanes, self.rows - self.lanes)
        )
        value = substitute(c.a, {c.row: row + self.lane})
        store = ir.Store(packed, (*self.around, panel, *c.reduction_axes, self.place), value)
        block = (begin, *ir.nested((*c.reduction_axes, self.lane), (store,)))
        body = ir.nested((*self.around, panel, self.v), block)
        return packed, LoweredContraction(
            (kernel_from_body(self.pixels.kernel, "weights", body, (packed,)),)
        )

    def no_weights(self) -> PackedWeights:
        return ex.Tensor("weights", (), self.element, "constant"), LoweredContraction(())

    # pixels

    def of_strips(self) -> ir.Block:
        """The loop over panels of rows, and over strips of pixels, whose sums wait until all of
        them are there.
        """
        c = self.c
        outer = [(ex.Var(i.name, I64), i.extent) for i in c.outer]
        panel, strip = (self.panel, self.panels), (self.strip, self.strips)
        places = (
            [*outer, strip, panel] if self.weights_stay else [panel, *outer, strip]
        )  # the other passes once
        sums = ex.Tensor("held", (self.high * self.line, self.wide), self.element, "stack")
        if c.window is None:
            begin = ir.Let(self.first, ex.minimum(self.strip * self.line, self.length - self.line))
            start: ex.Expr = self.first
        else:
            begin = ir.Let(self.first, ex.minimum(self.strip * self.high, self.count - self.high))
            start = self.first * self.length
        body: ir.Block = (
            begin,
            ir.Alloc(sums),
            *self.before(),
            *self.products(sums),
            self.ended(sums, start),
        )
        names: dict[ex.Expr, ex.Expr] = dict(zip(c.outer, (var for var, _ in outer), strict=True))
        return (parallel_loop("n", places, ir.substitute_block(body, names)),)

    def before(self) -> ir.Block:
        return ()

    def updated(self, sum: ex.Expr, at: dict[ex.Expr, ex.Expr]) -> ex.Expr:
        """A sum with the product of a step."""
        return ex.apply("fma", self.value(at), self.weight, sum)

    def value(self, at: dict[ex.Expr, ex.Expr]) -> ex.Expr:
        """The value of a step at a pixel."""
        return substitute(self.c.b, at)

    def prefetches(self, axes: Sequence[ex.Index]) -> ir.Block:
        """A tile's share of the next panel of weights, in a step of the first of their axes: while
        sums are computed, these come from memory.
        """
        tiles = self.strips * self.high * self.tile.extent
        size = prod(self.packed.shape) * self.element.bytes
        if tiles == 1 or self.packed.space != "constant" or size <= processor().l2_bytes // 2:
            return ()
        lines = -(
            -self.wide
            * self.element.bytes
            * prod(map(extent_of, axes[1:]))
            // processor().line_bytes
        )
        share = ex.Index("u", -(-lines // tiles))
        number = (self.strip * self.high + self.line_index) * self.tile.extent + self.tile
        line = ex.minimum(number * share.extent + share, lines) * (
            processor().line_bytes // self.element.bytes
        )
        begin = dict.fromkeys((*axes[1:], self.v, self.lane), ex.ZERO)
        first = substitute(self.weight, {self.panel: self.panel + 1, **begin})
        assert isinstance(first, ex.Read), "an element of the packed weights"
        return (
            ir.For(
                share, (ir.Prefetch(self.packed, (*first.indices[:-1], line)),), kind="unrolled"
            ),
        )

    @property
    def weight(self) -> ex.Expr:
        return self.packed[(*self.around, self.panel, *self.c.reduction_axes, self.place)]

    def result(self, sum: ex.Expr) -> ex.Expr:
        """A result, of what tiles leave of it."""
        return sum

    def products(self, waiting: ex.Tensor) -> ir.Block:
        """The sums of a strip, tile by tile."""
        c, r, q = self.c, self.r, self.q
        line, tile = self.line_index, self.tile
        sums = ex.Tensor("sums", (self.tall, self.wide), self.element, "register")
        at: dict[ex.Expr, ex.Expr] = {c.column: q + r}
        begin: ex.Expr = self.first
        if c.window is not None:
            at = {**at, c.window: self.first + line}
            begin = ex.as_index(0)
        body: ir.Block = (
            ir.Let(q, ex.minimum(tile * self.tall, self.line - self.tall) + begin),
            ir.Alloc(sums),
            self.each(ir.Store(sums, (r, self.place), self.start)),
            *self.by_place(
                ir.Store(sums, (r, self.place), self.updated(sums[r, self.place], at)), at
            ),
            self.each(
                ir.Store(
                    waiting, (line * self.line + q - begin + r, self.place), sums[r, self.place]
                )
            ),
        )
        return (ir.For(line, (ir.For(tile, body),)),)

    def each(self, store: ir.Store, some: range | None = None) -> ir.For:
        """A store of vectors of all pixels of a tile, or of some."""
        some = range(self.tall) if some is None else some
        vectors = ir.For(self.v, (ir.vector_loop(self.lane, store),), kind="unrolled")
        return ir.For(
            self.r, (vectors,), ex.as_index(some.start), ex.as_index(some.stop), kind="unrolled"
        )

    def by_place(self, add: ir.Store, at: dict[ex.Expr, ex.Expr]) -> ir.Block:
        """The steps of a tile, by its place: at the left or right edge, or between."""
        edges = [substitute(g, at) for g in self.c.guard if not depends(g, {self.c.column})]
        between, runs = self.places
        inside, at_edge = (
            narrowed(self.steps(self.c.reduction_axes, add, edges, some)) for some in ([], runs)
        )
        if not runs or not between:
            return at_edge if runs else inside
        return (ir.If((self.q >= between[0]) & (self.q <= between[-1]), inside, at_edge),)

    def steps(
        self,
        reduction_axes: Sequence[ex.Index],
        add: ir.Store,
        edges: Sequence[ex.Expr],
        runs: Sequence[tuple[int, range]],
        some: range | None = None,
    ) -> ir.Block:
        """The loops over a window, with bounds where its rows may be outside; its columns are added
        to pixels by runs.
        """
        if not reduction_axes:
            return (self.each(add, some),)
        axis, *inner = reduction_axes
        if runs and self.edge is not None and axis is self.edge.axis:
            place = axis * self.edge.step + self.q * self.edge.stride
            parts = [
                (first, self.steps(inner, add, edges, (), some)) for first, some in runs if some
            ]
            inside = (
                *(place >= first for first, _ in parts[:1]),
                *(place < end for end, some in runs[-1:] if not some),
            )
            return (
                (ir.For(axis, (ir.If(reduce(and_, inside), _by_runs(place, parts)),)),)
                if parts
                else ()
            )
        of_axis = [e for e in edges if depends(e, {axis})]
        body = self.steps(inner, add, [e for e in edges if e not in of_axis], runs, some)
        guard = ex.both(*of_axis)
        body = (
            (*self.prefetches(reduction_axes), *body) if axis is self.c.reduction_axes[0] else body
        )
        return (ir.For(axis, (ir.If(guard, body),) if isinstance(guard, ex.Expr) else body),)

    @cached_property
    def places(self) -> tuple[list[int], list[tuple[int, range]]]:
        """The pixels where tiles begin all of whose windows are inside; for the others, the places
        of a column from which on it is inside for these pixels.
        """
        strips = range(self.strips if self.c.window is None else 1)
        first = [min(n * self.line, self.length - self.line) for n in strips]
        begins = {
            f + min(n, self.line - self.tall) for f in first for n in range(0, self.line, self.tall)
        }
        if (edge := self.edge) is None:
            return [], []
        places = {
            q: [edge.step * k + edge.stride * q for k in range(extent_of(edge.axis))]
            for q in begins
        }
        some = {p: edge.inside(p, self.tall) for row in places.values() for p in row}
        between = [q for q in sorted(begins) if all(len(some[p]) == self.tall for p in places[q])]
        others = sorted({p for q in begins.difference(between) for p in places[q]})
        return between, [
            (next(run), pixels) for pixels, run in groupby(others, key=some.__getitem__)
        ]

    # results

    def ended(self, sums: ex.Tensor, start: ex.Expr) -> ir.For:
        """The epilogue by vectors of pixels, transposed from the sums; of few pixels, by vectors of
        rows.
        """
        count = self.high * self.line
        block = self.v
        row = ex.Var("row", I64)
        begin = ir.Let(
            row, ex.minimum(self.panel * self.wide + block * self.lanes, self.rows - self.lanes)
        )
        if count < self.lanes:
            pixel = ex.Index("at", count)
            lanes = self.epilogue(sums[pixel, self.place], row + self.lane, start + pixel)
            return ir.For(block, (begin, ir.For(pixel, (lanes,))))
        side = min(SQUARE // self.element.bytes, self.lanes)
        part = ex.Index("t", self.lanes // side)
        u = ex.Index("u", side)
        v = ex.Index("at", -(-count // self.lanes))
        q = ex.Var("at", I64)
        sum = sums[q + self.lane, block * self.lanes + part * side + u]
        square = ir.For(
            u, (self.epilogue(sum, row + part * side + u, start + q + self.lane),), kind="unrolled"
        )
        at = ir.Let(q, ex.minimum(v * self.lanes, count - self.lanes))
        return ir.For(block, (begin, ir.For(v, (at, ir.For(part, (square,))))))

    def epilogue(self, sum: ex.Expr, row: ex.Expr, column: ex.Expr) -> ir.For:
        """The epilogue of a sum, for the lanes of a vector."""
        body = self.last.finish(self.result(sum), {self.last.row: row, self.last.column: column})
        return ir.vector_loop(self.lane, *body)


DIRECT = Strategy(
    "direct",
    why_not_direct,
    direct_cost,
    lambda p: DirectConvolution(pixels_of(p), p.constants).lowered(),
)
