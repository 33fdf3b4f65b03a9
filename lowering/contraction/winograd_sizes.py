"""The parts of a Winograd convolution and their sizes: tiles of results, panels of these, and tiles
of rows.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from ...dialect.kernel_ir import expressions as ex
from ...dialect.types.sizes import Dim
from ..analysis.accesses import depends
from ..processor import processor
from .match_contraction import Contraction
from .micro_kernel import GUESS, MicroKernel, pairdot
from .vnni_packing import Words, divided, extent_of, size_of
from .winograd_transforms import WinogradTransform

# vectors of tiles in a panel: all points of its columns stay in the L2 cache; counted for 512 KB
VECTORS = 2
# cost model: instructions per vector of a point of inputs or results; counted, not timed
TRANSFORM = 15
# cost model: transformed weights, of two terms each, that are read from memory in the time of a
# vector instruction; tuned by hand (Zen 4, Zen 5)
WEIGHTS_READ = 3
# iterations, at least, for threads to share, or as many panels, which are enough: seven, by the
# time of 3 x 3 windows of 64 channels of 56 x 56 on Zen 5
GROUPS, FEW = 16, 7


@dataclass(frozen=True, eq=False)
class Windows:
    """A contraction over 3 x 3 windows of stride 1, and its parts."""

    c: Contraction
    rows: ex.Index  # of the window
    columns: ex.Index
    axes: tuple[int, int]  # of the array, along which they go
    read: ex.Read
    pairs: Words  # of the other terms

    @property
    def terms(self) -> int:
        pairs = self.pairs
        return (
            9
            * extent_of(pairs.index)
            * prod(map(extent_of, pairs.reduction_axes))
            // extent_of(pairs.part)
        )

    @cached_property
    def around(self) -> tuple[ex.Index, ...]:
        """The outer loops that weights differ in."""
        return tuple(i for i in self.c.outer if depends(self.c.a, {i}))

    @cached_property
    def beside(self) -> tuple[ex.Index, ...]:
        """The outer loops that columns differ in."""
        return tuple(i for i in self.c.outer if depends(self.c.b, {i}))

    @property
    def weight_axes(self) -> tuple[ex.Index, ...]:
        """The axes of weights, the window's last."""
        taps = (self.rows, self.columns)
        others = (i for i in self.c.reduction_axes if i not in taps)
        return (*self.around, self.c.row, *others, *taps)


@dataclass(frozen=True)
class WinogradSizes:
    """The sizes of a Winograd convolution: `high` lines of `wide` tiles of results. A panel of
    these that would go beyond the end moves back, and the last one is narrower where that is
    enough. A panel holds whole vectors, whose lanes beyond a known number are undefined. Where
    panels are few, threads share the rows as well, in `groups`, and columns are transformed before.
    """

    high: Dim
    wide: Dim
    lanes: int
    micro: MicroKernel
    row_tiles: int  # each of the micro-kernel's rows
    groups: int

    @property
    def count(self) -> Dim:
        """The tiles of results."""
        return self.high * self.wide

    @property
    def width(self) -> int:
        """The tiles of a panel."""
        return VECTORS * self.lanes

    @property
    def last_width(self) -> int:
        """The tiles of the last panel."""
        left = self.count % self.width
        if isinstance(left, int) and left:
            return -(-left // self.lanes) * self.lanes
        return self.width

    @property
    def panels(self) -> Dim:
        return divided(self.count, self.width)

    @property
    def room(self) -> Dim:
        """The tiles that there are places for."""
        count = self.count
        return -(-count // self.lanes) * self.lanes if isinstance(count, int) else count

    @property
    def lines(self) -> Dim:
        """The lines of tiles that there are places for."""
        if not isinstance(self.count, int):
            return self.high
        return max(int(self.high), -(-self.room // int(self.wide)))


def sizes_of(windows: Windows, transform: WinogradTransform) -> WinogradSizes:
    """The sizes that a transform needs."""
    c, lanes = windows.c, processor().lanes
    high, wide = (divided(size_of(i), transform.size) for i in (c.window, c.column))
    blocks = _blocks(high * wide, lanes)
    vectors = VECTORS if blocks is None else min(VECTORS, blocks)
    micro = pairdot().best(c.row.extent, blocks, fixed=vectors)
    row_tiles = -(-extent_of(c.row) // micro.rows)
    sizes = WinogradSizes(high, wide, lanes, micro, row_tiles, 1)
    sure = prod(n for n in (*(i.extent for i in c.outer), sizes.panels) if isinstance(n, int))
    if not isinstance(sizes.panels, int) or sure >= FEW:
        return sizes
    return replace(sizes, groups=min(row_tiles, -(-GROUPS // sure)))


def _blocks(count: Dim, lanes: int) -> int | None:
    """The vectors of `count` tiles; None where that is known only by a call."""
    return -(-count // lanes) if isinstance(count, int) else None


def winograd_cost(windows: Windows, transform: WinogradTransform) -> float:
    """The vector instructions of the products, where the last panel may be narrower, and what takes
    as long beside them.
    """
    sizes = sizes_of(windows, transform)
    rows = extent_of(windows.c.row)
    steps = windows.pairs.steps
    blocks = _blocks(sizes.count, sizes.lanes)
    blocks = GUESS // transform.size**2 if blocks is None else blocks
    assert isinstance(steps, int)
    left = blocks % sizes.micro.vectors
    last = replace(sizes.micro, vectors=left).cost(rows, left) if left else 0
    # of inputs and of results
    transforms = TRANSFORM * (rows + 2 * steps) * blocks * processor().fma_cycles
    products = steps * (sizes.micro.cost(rows, blocks - left) + last)
    return transform.points * (products + transforms + rows * steps / WEIGHTS_READ)
