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
from math import prod
from operator import and_

import numpy as np

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.traverse import substitute
from ...dialect.types.tensor_types import F32, F64, I64
from ..analysis.accesses import depends
from ..loops.tighten_bounds import narrowed
from ..processor import processor
from .contraction_problem import Constants, Problem, Strategy, why_not_of
from .convolution_blocking import (
    Edge,
    Tile,
    TileIndices,
    choose_tile,
    edge_of,
    lanes_of,
    plan_blocking,
    tiles_at_edges,
)
from .match_contraction import Contraction, LoweredContraction, kernel_from_body, parallel_loop
from .pack_panels import SQUARE
from .vnni_packing import extent_of, known_terms, only_read, tile_elements

# cost model: time of a tile's products and loads to that which micro-kernels of panels are taken
# to need; tuned by hand (Zen 4, Zen 5)
USUAL_LOADS = 1.12
# cost model: factor of windows of one pixel, each line of whose input is used once; set by the
# time of ResNet-50 on one thread
SINGLE_TAP = 1.15
MIN_K = 8  # terms from which a tile pays; tuned by hand (Zen 4, Zen 5)

PackedWeights = tuple[ex.Tensor, LoweredContraction]  # the weights, and the kernels that pack them


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
    return choose_tile(c)[0] / USUAL_LOADS * terms * c.accumulator.element.bytes / 4


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
        if edge_of(c) is None and any(depends(g, {c.column}) for g in c.guard)
        else ""
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
        self.c = c = pixels.c
        self.sizes = plan_blocking(c, tile, most)
        self.at = TileIndices(self.sizes)
        self.element = c.accumulator.element
        self.start: ex.Expr = ex.constant(0, self.element)
        self.around = tuple(i for i in c.outer if depends(c.a, {i}))
        weight_bytes = self.sizes.rows * prod(map(extent_of, c.reduction_axes)) * self.element.bytes
        self.weights_stay = weight_bytes <= processor().l2_bytes // 2  # near

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
        sizes = self.sizes
        elements = tile_elements(sizes.rows, sizes.panels * sizes.tile.vectors, sizes.lanes)
        return rows.take(elements.reshape(sizes.panels, sizes.wide), axis)

    def weights(self) -> PackedWeights:
        """The weights, those of a tile's rows side by side."""
        c, sizes, at = self.c, self.sizes, self.at
        shape = (
            *(i.extent for i in self.around),
            sizes.panels,
            *(i.extent for i in c.reduction_axes),
            sizes.wide,
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
        panel = ex.Index("panel", sizes.panels)
        begin = ir.Let(
            row,
            ex.minimum((panel * sizes.tile.vectors + at.v) * sizes.lanes, sizes.rows - sizes.lanes),
        )
        value = substitute(c.a, {c.row: row + at.lane})
        store = ir.Store(packed, (*self.around, panel, *c.reduction_axes, at.row), value)
        step = (begin, *ir.nested((*c.reduction_axes, at.lane), (store,)))
        body = ir.nested((*self.around, panel, at.v), step)
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
        c, sizes, at = self.c, self.sizes, self.at
        outer = [(ex.Var(i.name, I64), i.extent) for i in c.outer]
        panel, strip = (at.panel, sizes.panels), (at.strip, sizes.strips)
        places = (
            [*outer, strip, panel] if self.weights_stay else [panel, *outer, strip]
        )  # the other passes once
        sums = ex.Tensor("held", (sizes.high * sizes.line, sizes.wide), self.element, "stack")
        if c.window is None:
            begin = ir.Let(at.first, ex.minimum(at.strip * sizes.line, sizes.length - sizes.line))
            start: ex.Expr = at.first
        else:
            begin = ir.Let(at.first, ex.minimum(at.strip * sizes.high, sizes.lines - sizes.high))
            start = at.first * sizes.length
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
        sizes, at = self.sizes, self.at
        tiles = sizes.strips * sizes.high * at.tile.extent
        size = prod(self.packed.shape) * self.element.bytes
        if tiles == 1 or self.packed.space != "constant" or size <= processor().l2_bytes // 2:
            return ()
        lines = -(
            -sizes.wide
            * self.element.bytes
            * prod(map(extent_of, axes[1:]))
            // processor().line_bytes
        )
        share = ex.Index("u", -(-lines // tiles))
        number = (at.strip * sizes.high + at.line) * at.tile.extent + at.tile
        line = ex.minimum(number * share.extent + share, lines) * (
            processor().line_bytes // self.element.bytes
        )
        begin = dict.fromkeys((*axes[1:], at.v, at.lane), ex.ZERO)
        first = substitute(self.weight, {at.panel: at.panel + 1, **begin})
        assert isinstance(first, ex.Read), "an element of the packed weights"
        return (
            ir.For(
                share, (ir.Prefetch(self.packed, (*first.indices[:-1], line)),), kind="unrolled"
            ),
        )

    @property
    def weight(self) -> ex.Expr:
        return self.packed[(*self.around, self.at.panel, *self.c.reduction_axes, self.at.row)]

    @property
    def first_row(self) -> ex.Expr:
        """The first row of a vector; the last vector moves back."""
        sizes, at = self.sizes, self.at
        return ex.minimum(at.panel * sizes.wide + at.v * sizes.lanes, sizes.rows - sizes.lanes)

    def result(self, sum: ex.Expr) -> ex.Expr:
        """A result, of what tiles leave of it."""
        return sum

    def products(self, waiting: ex.Tensor) -> ir.Block:
        """The sums of a strip, tile by tile."""
        c, sizes, pixels = self.c, self.sizes, self.sizes.tile.pixels
        r, q, line, tile, row = self.at.r, self.at.q, self.at.line, self.at.tile, self.at.row
        sums = ex.Tensor("sums", (pixels, sizes.wide), self.element, "register")
        at: dict[ex.Expr, ex.Expr] = {c.column: q + r}
        begin: ex.Expr = self.at.first
        if c.window is not None:
            at = {**at, c.window: self.at.first + line}
            begin = ex.as_index(0)
        body: ir.Block = (
            ir.Let(q, ex.minimum(tile * pixels, sizes.line - pixels) + begin),
            ir.Alloc(sums),
            self.each(ir.Store(sums, (r, row), self.start)),
            *self.by_place(ir.Store(sums, (r, row), self.updated(sums[r, row], at)), at),
            self.each(ir.Store(waiting, (line * sizes.line + q - begin + r, row), sums[r, row])),
        )
        return (ir.For(line, (ir.For(tile, body),)),)

    def each(self, store: ir.Store, some: range | None = None) -> ir.For:
        """A store of vectors of all pixels of a tile, or of some."""
        some = range(self.sizes.tile.pixels) if some is None else some
        vectors = ir.For(self.at.v, (ir.vector_loop(self.at.lane, store),), kind="unrolled")
        return ir.For(
            self.at.r, (vectors,), ex.as_index(some.start), ex.as_index(some.stop), kind="unrolled"
        )

    def by_place(self, add: ir.Store, at: dict[ex.Expr, ex.Expr]) -> ir.Block:
        """The steps of a tile, by its place: at the left or right edge, or between."""
        edges = [substitute(g, at) for g in self.c.guard if not depends(g, {self.c.column})]
        between, runs = self.edge_tiles
        inside, at_edge = (
            narrowed(self.steps(self.c.reduction_axes, add, edges, some)) for some in ([], runs)
        )
        if not runs or not between:
            return at_edge if runs else inside
        return (ir.If((self.at.q >= between[0]) & (self.at.q <= between[-1]), inside, at_edge),)

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
        if runs and (edge := self.edge) is not None and axis is edge.axis:
            place = axis * edge.step + self.at.q * edge.stride
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
    def edge(self) -> Edge | None:
        return edge_of(self.c)

    @cached_property
    def edge_tiles(self) -> tuple[list[int], list[tuple[int, range]]]:
        return tiles_at_edges(self.sizes, self.edge)

    # results

    def ended(self, sums: ex.Tensor, start: ex.Expr) -> ir.For:
        """The epilogue by vectors of pixels, transposed from the sums; of few pixels, by vectors of
        rows.
        """
        sizes, at = self.sizes, self.at
        count = sizes.high * sizes.line
        block = at.v
        row = ex.Var("row", I64)
        begin = ir.Let(row, self.first_row)
        if count < sizes.lanes:
            pixel = ex.Index("at", count)
            lanes = self.epilogue(sums[pixel, at.row], row + at.lane, start + pixel)
            return ir.For(block, (begin, ir.For(pixel, (lanes,))))
        side = min(SQUARE // self.element.bytes, sizes.lanes)
        part = ex.Index("t", sizes.lanes // side)
        u = ex.Index("u", side)
        v = ex.Index("at", -(-count // sizes.lanes))
        q = ex.Var("at", I64)
        sum = sums[q + at.lane, block * sizes.lanes + part * side + u]
        square = ir.For(
            u, (self.epilogue(sum, row + part * side + u, start + q + at.lane),), kind="unrolled"
        )
        place = ir.Let(q, ex.minimum(v * sizes.lanes, count - sizes.lanes))
        return ir.For(block, (begin, ir.For(v, (place, ir.For(part, (square,))))))

    def epilogue(self, sum: ex.Expr, row: ex.Expr, column: ex.Expr) -> ir.For:
        """The epilogue of a sum, for the lanes of a vector."""
        last = self.pixels.last
        body = last.finish(self.result(sum), {last.row: row, last.column: column})
        return ir.vector_loop(self.at.lane, *body)


DIRECT = Strategy(
    "direct",
    why_not_direct,
    direct_cost,
    lambda p: DirectConvolution(pixels_of(p), p.constants).lowered(),
)
