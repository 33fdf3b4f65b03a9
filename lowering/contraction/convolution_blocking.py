"""Blocking of a convolution: the register tiles of pixels by vectors of output channels, the panels
of channels and the strips of pixels that these belong to, and the pixels whose windows reach beyond
the edge.
"""

from dataclasses import dataclass
from itertools import groupby, product as combinations
from math import inf

from ...dialect.kernel_ir import expressions as ex
from ...dialect.kernel_ir.affine import Affine, affine_conditions
from ...dialect.types.tensor_types import I64
from ..analysis.accesses import depends
from ..processor import processor
from .match_contraction import Contraction
from .vnni_packing import extent_of

LOADS = 3  # cost model: products that take as long as a load; tuned by hand (Zen 4, Zen 5)
# cost model: products begun until the first is done: 4 to 5 cycles of two units, by the manuals;
# not measured
LATENCY = 10
MOST_PIXELS = 15  # pixels of a tile, at most; tuned by hand (Zen 4, Zen 5)


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


def lanes_of(c: Contraction) -> int:
    return processor().tile_vector_bytes // c.accumulator.element.bytes


def choose_tile(c: Contraction) -> tuple[float, Tile]:
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
class Blocking:
    """The sizes of a convolution's tiles, panels and strips: rows are output channels, and a strip
    is `high` lines of `line` pixels, or a part of one line.
    """

    tile: Tile
    lanes: int
    rows: int
    lines: int  # of the image
    length: int  # of a line
    high: int
    line: int

    @property
    def wide(self) -> int:
        """The rows of a panel."""
        return self.tile.vectors * self.lanes

    @property
    def panels(self) -> int:
        return -(-self.rows // self.wide)

    @property
    def strips(self) -> int:
        return -(-self.length // self.line) * -(-self.lines // self.high)

    @property
    def tiles(self) -> int:
        """The tiles of a line of a strip."""
        return -(-self.line // self.tile.pixels)


def plan_blocking(c: Contraction, tile: Tile | None = None, most: int = 0) -> Blocking:
    """The blocking whose strips have `most` pixels, or sums that fill half of the L1 cache."""
    tile, lanes = tile or choose_tile(c)[1], lanes_of(c)
    sum_bytes = c.accumulator.element.bytes * tile.vectors * lanes
    most = most or max(1, processor().l1_bytes // 2 // sum_bytes)
    length, lines = extent_of(c.column), extent_of(c.window)
    if c.window is None:
        tiles = -(-length // tile.pixels)
        most = max(-(-lanes // tile.pixels), most // tile.pixels)
        each = -(
            -tiles // -(-tiles // most)
        )  # so that the last strip moves back by less than a tile
        high, line = 1, min(length, each * tile.pixels)
    else:
        few = -(-lanes // length)  # lines that fill a vector
        high = -(-lines // -(-lines // max(few, most // length)))
        high, line = min(lines, max(high, few)), length
    return Blocking(tile, lanes, extent_of(c.row), lines, length, high, line)


class TileIndices:
    """The indices of the loops of a blocking, and the variables that name where its parts are."""

    def __init__(self, blocking: Blocking) -> None:
        self.lane, self.v = ex.Index("l", blocking.lanes), ex.Index("v", blocking.tile.vectors)
        self.r = ex.Index("r", blocking.tile.pixels)
        self.row = self.v * blocking.lanes + self.lane  # of a panel
        self.line, self.tile = ex.Index("line", blocking.high), ex.Index("tile", blocking.tiles)
        self.panel, self.strip, self.first, self.q = (
            ex.Var(name, I64) for name in ("panel", "strip", "first", "q")
        )


@dataclass(frozen=True)
class Edge:
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


def edge_of(c: Contraction) -> Edge | None:
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
    return Edge(
        axes[0],
        factors[axes[0]],
        stride,
        {(sign, s.constant) for s, sign in zip(sums, signs, strict=True)},
    )


def tiles_at_edges(
    blocking: Blocking, edge: Edge | None
) -> tuple[list[int], list[tuple[int, range]]]:
    """The pixels where tiles begin all of whose windows are inside; for the others, the places of a
    column from which on it is inside for these pixels.
    """
    if edge is None:
        return [], []
    line, pixels = blocking.line, blocking.tile.pixels
    strips = range(-(-blocking.length // line))
    first = [min(n * line, blocking.length - line) for n in strips]
    begins = {f + min(n, line - pixels) for f in first for n in range(0, line, pixels)}
    places = {
        q: [edge.step * k + edge.stride * q for k in range(extent_of(edge.axis))] for q in begins
    }
    some = {p: edge.inside(p, pixels) for row in places.values() for p in row}
    between = [q for q in sorted(begins) if all(len(some[p]) == pixels for p in places[q])]
    others = sorted({p for q in begins.difference(between) for p in places[q]})
    return between, [(next(run), inside) for inside, run in groupby(others, key=some.__getitem__)]
