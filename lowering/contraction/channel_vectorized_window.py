"""Windows of floats over each channel by itself, whose vectors go along channels:

    for c { for p { for q {
      acc = 0
      for k { for l { if inside { acc = acc + x[c, p + k, q + l] * w[c, k, l] } } }
      y[c, p, q] = f(acc)
    } } }
    =>  for panel in c by 16 parallel {
          image[h, w, c] = x[c, h, w]       lines of 16 channels, transposed in registers
          for p { for tile in q by 15 {
            sums[15, 16] = 0 in registers
            for k inside { for l inside {
              sums[q, c] = fma(image[p + k, q + l, c], weights[panel, k, l, c], sums[q, c])
            } }
            held[q, c] = sums[q, c]
          } }
          y[c, q] = f(held[q, c])
        }

Depthwise convolutions, and maxima, minima and sums over windows, which have no weights. Each goes
in the order of its terms, and beyond the edges nothing is added, as in direct convolutions, whose
tiles these are. Floats are compared as integers of the same order, in which a NaN is beyond all
numbers: one instruction in place of several.
"""

from dataclasses import dataclass, replace
from math import prod

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.reduce_in_order import LANES
from ...dialect.kernel_ir.traverse import substitute
from ...dialect.types.tensor_types import F32, F64, I64
from ..analysis.accesses import depends
from ..analysis.reduction_order import reduction_update
from ..loops.collapse import flatten
from ..math.primitives import SIGNED, as_float, bits
from ..processor import processor
from .contraction_problem import Constants, matched_strategy
from .convolution_blocking import MOST_PIXELS, Tile, lanes_of
from .direct_convolution import DirectConvolution, PackedWeights, Pixels
from .match_contraction import (
    Contraction,
    Reduction,
    factors_of_update,
    match_reduction,
    stores_columns,
)
from .pack_panels import SQUARE
from .vnni_packing import extent_of, is_edge, only_read, read_at

ORDERS = {"maximum": "max", "minimum": "min"}  # of floats, and of the integers that stand for them
# cost model: instructions per vector of 64 bytes of the input, and of the results, which are
# transposed; counted, not timed
TRANSPOSE_IN, TRANSPOSE_OUT = 8, 7
# cost model: time of a term, in that of a multiply-add unit; tuned by hand (Zen 4, Zen 5)
TERM = 0.55
# cost model: time of a term of a nest whose vectors go along lines, more where these move by
# several pixels, and more where floats are compared; tuned by hand (Zen 4, Zen 5)
ALONG_LINES, STRIDED, COMPARED = 2.2, 1.4, 3.5
# cost model: pixels that take as long as one at an edge, which is computed by itself; tuned by
# hand (Zen 4, Zen 5)
EDGE = 8


@dataclass(frozen=True, eq=False)
class ChannelLanes:
    """A nest that moves a window over each channel: the read, its channel, line and column axes,
    and the reduction.
    """

    pixels: Pixels
    read: ex.Read
    axes: tuple[int, int, int]
    start: ex.Expr
    function: str

    @property
    def lines(self) -> int:
        return self.size(1)

    @property
    def columns(self) -> int:
        return self.size(2)

    def size(self, n: int) -> int:
        size = self.read.tensor.shape[self.axes[n]]
        assert isinstance(size, int)
        return size

    def stride(self, n: int, index: ex.Index | None) -> int:
        """The pixels by which an axis moves with an index."""
        return 0 if index is None else affine(self.read.indices[self.axes[n]]).factor(index)


def match_channel_lanes(kernel: ir.Kernel) -> ChannelLanes | None:
    """The windows that a kernel moves over each channel of an array; None if it is another nest."""
    nest = match_reduction(kernel, 3)
    terms = None if nest is None or nest.accumulator.element not in (F32, F64) else _terms(nest)
    if nest is None or terms is None:
        return None
    function, weights, values = terms
    flat, read = flatten(kernel), only_read(values)
    last = match_reduction(flat, 1)
    if read is None or last is None or len(last.loops) == len(nest.loops):
        return None
    *outer, window, column = nest.loops
    rows = [i for i in outer if i in read.indices and (function != "fma" or depends(weights, {i}))]
    indices = (*rows[-1:], window, column)
    places = [[n for n, e in enumerate(read.indices) if depends(e, {i})] for i in indices]
    if [len(axes) for axes in places] != [1, 1, 1] or not all(is_edge(g, read) for g in nest.guard):
        return None
    row = rows[-1]
    line = last.loops[-1]
    axes = (places[0][0], places[1][0], places[2][0])
    sizes = [
        *(i.extent for i in (*indices, *nest.reduction_axes)),
        *(read.tensor.shape[n] for n in axes),
    ]
    forward = all(
        _moves(read.indices[n], i, nest) for n, i in zip(axes[1:], indices[1:], strict=True)
    )
    moving: set[ex.Expr] = {window, column, *nest.reduction_axes}
    elsewhere = any(depends(e, moving) for n, e in enumerate(read.indices) if n not in axes[1:])
    if (
        elsewhere
        or not forward
        or depends(weights, {window, column})
        or not all(isinstance(d, int) for d in sizes)
    ):
        return None
    if read.indices[axes[0]] is not row or not stores_columns(last.epilogue, line):
        return None
    around = nest.loops, nest.reduction_axes, nest.guard, nest.accumulator, nest.epilogue
    c = Contraction(*around, weights, values, row, window, column)
    joined = replace(c, loops=(*outer, line), window=None, column=line)
    joined = replace(joined, accumulator=last.accumulator, epilogue=last.epilogue)
    return ChannelLanes(Pixels(kernel, c, flat, joined), read, axes, nest.start, function)


def _terms(nest: Reduction) -> tuple[str, ex.Expr, ex.Expr] | None:
    """The function of a reduction whose order is that of its terms, its weights, and what these are
    multiplied by.
    """
    if (factors := factors_of_update(nest.update, nest.accumulator)) is not None:
        a, b = factors if depends(factors[1], {nest.loops[-1]}) else factors[::-1]
        return "fma", a, b
    match nest.update:
        case (ir.Store() as store,) if (updated := reduction_update(store)) is not None:
            length = nest.reduction_axes[-1].extent
            in_order = updated[0] == "add" and isinstance(length, int) and length < LANES
            return (updated[0], ex.ZERO, updated[1]) if updated[0] in ORDERS or in_order else None
    return None


def _moves(e: ex.Expr, index: ex.Index, nest: Reduction) -> bool:
    """Test whether an index expression moves forward with a place, and with nothing but a window
    beside it.
    """
    return all(
        atom in (index, *nest.reduction_axes) and factor > 0
        for atom, factor in affine(e).terms.values()
    )


def why_not_channel_lanes(windows: ChannelLanes | None) -> str:
    if windows is None:
        return "no window of floats moves over each channel by itself"
    c = windows.pixels.c
    if extent_of(c.row) < lanes_of(c) or extent_of(windows.pixels.last.column) < lanes_of(c):
        return "too few channels or pixels for a vector"
    if _cost_along_lines(windows) < channel_lanes_cost(windows):
        return "vectors along lines take less time"
    return (
        "lines are too long"
        if _ChannelLanes(windows, {}).image_bytes > processor().l2_bytes // 2
        else ""
    )


def _vectors(windows: ChannelLanes, pixels: int) -> float:
    c = windows.pixels.c
    return extent_of(c.row) * pixels * c.accumulator.element.bytes / 64


def channel_lanes_cost(windows: ChannelLanes) -> float:
    """The estimated time, in vector instructions."""
    c = windows.pixels.c
    results = extent_of(c.window) * extent_of(c.column)
    each = (
        TERM
        * processor().fma_cycles
        * 64
        / processor().tile_vector_bytes
        * prod(map(extent_of, c.reduction_axes))
    )
    moved = TRANSPOSE_IN * _vectors(windows, windows.lines * windows.columns)
    return moved + (TRANSPOSE_OUT + each) * _vectors(windows, results)


def _cost_along_lines(windows: ChannelLanes) -> float:
    """The cost of a nest that is vectorized along lines."""
    c = windows.pixels.c
    stride = windows.stride(2, windows.pixels.c.column)
    length = extent_of(c.column)
    lanes = processor().vector_bytes // c.accumulator.element.bytes
    edges = (2 if stride == 1 else 1) * bool(c.guard)
    each = ALONG_LINES + STRIDED * (stride > 1) + COMPARED * (windows.function in ORDERS)
    computed = -(-length // lanes) * lanes + EDGE * edges
    return (
        each
        * prod(map(extent_of, c.reduction_axes))
        * _vectors(windows, extent_of(c.window) * computed)
    )


class _ChannelLanes(DirectConvolution):
    """The kernels of one nest."""

    def __init__(self, windows: ChannelLanes, constants: Constants) -> None:
        c = windows.pixels.c
        self.windows = windows
        length = extent_of(c.column)
        element = c.accumulator.element
        tiles = -(-length // min(processor().vector_registers - 3, MOST_PIXELS))
        inputs = windows.lines * windows.columns / (length * extent_of(c.window))  # for each result
        most = int(processor().l2_bytes / 4 / (lanes_of(c) * element.bytes * (1 + inputs)))
        super().__init__(windows.pixels, constants, Tile(-(-length // tiles), 1), max(1, most))
        if windows.function in ORDERS:
            self.element = SIGNED[element]
        self.start, self.row = self.ordered(windows.start), ex.Var("row", I64)
        first = affine(windows.read.indices[windows.axes[1]])
        step = windows.stride(1, c.window)
        self.base = affine(
            self.at.first * step + first.constant
        )  # the line where the windows of a strip begin
        reach = sum((extent_of(i) - 1) * windows.stride(1, i) for i in c.reduction_axes)
        shape = ((self.sizes.high - 1) * step + reach + 1, windows.columns, self.sizes.lanes)
        self.image = ex.Tensor("image", shape, self.element, "stack")
        self.image_bytes = prod(shape) * element.bytes

    def weights(self) -> PackedWeights:
        return super().weights() if self.windows.function == "fma" else self.no_weights()

    def before(self) -> ir.Block:
        """The lines of a strip's channels, these side by side."""
        read, (channel, line, column) = self.windows.read, self.windows.axes
        sizes, lane = self.sizes, self.at.lane
        side = SQUARE // self.element.bytes
        side = side if side <= self.windows.columns else 1
        loops = (("h", self.image.shape[0]), ("w", -(-self.windows.columns // side)), ("u", side))
        h, block, u = (ex.Index(name, size) for name, size in loops)
        q = ex.Var("w", I64)
        base = self.base.expression()
        at = [*read.indices]
        at[channel], at[line], at[column] = self.row + lane, base + h, q + u
        store = ir.Store(self.image, (h, q + u, lane), self.ordered(read_at(self.c.b, read, at)))
        begin = ir.Let(q, ex.minimum(block * side, ex.as_index(self.windows.columns - side)))
        body = ir.For(block, (begin, ir.For(u, (ir.vector_loop(lane, store),), kind="unrolled")))
        start = ex.maximum(0 - base, 0)
        stop = ex.minimum(self.windows.lines - base, h.extent)
        return (
            ir.Let(self.row, ex.minimum(self.at.panel * sizes.wide, sizes.rows - sizes.lanes)),
            ir.Alloc(self.image),
            ir.For(h, (body,), start, stop),
        )

    def value(self, at: dict[ex.Expr, ex.Expr]) -> ex.Expr:
        line, column = (substitute(self.windows.read.indices[n], at) for n in self.windows.axes[1:])
        return self.image[(affine(line) - self.base).expression(), column, self.at.lane]

    def updated(self, sum: ex.Expr, at: dict[ex.Expr, ex.Expr]) -> ex.Expr:
        if (function := self.windows.function) == "fma":
            return super().updated(sum, at)
        return ex.apply(ORDERS.get(function, function), sum, self.value(at))

    def result(self, sum: ex.Expr) -> ex.Expr:
        return as_float(_flipped_below_zero(sum)) if self.windows.function in ORDERS else sum

    def ordered(self, value: ex.Expr) -> ex.Expr:
        """The integer that stands for a float where these are compared."""
        if self.windows.function not in ORDERS:
            return value
        least, most = self.element.limits
        beyond = ex.constant(most if self.windows.function == "maximum" else least, self.element)
        return ex.select(ex.apply("ne", value, value), beyond, _flipped_below_zero(bits(value)))


def _flipped_below_zero(number: ex.Expr) -> ex.Expr:
    """The bits of a float as an integer that is ordered like it, and such an integer as bits."""
    return number ^ (number >> (number.type.bits - 1) & number.type.limits[1])


CHANNEL_LANES = matched_strategy(
    "channel_lanes",
    lambda p: match_channel_lanes(p.kernel),
    why_not_channel_lanes,
    channel_lanes_cost,
    lambda p, windows: _ChannelLanes(windows, p.constants).lowered(),
)
