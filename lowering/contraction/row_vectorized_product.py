"""Contractions of bytes with known rows, whose vectors go along the rows, and whose columns are a
number each:

    for panel in rows by 24 parallel {
      for tile in columns by 7 {
        sums[7, 24] = 0 in registers
        for k { sums[q, r] = sums[q, r] + quaddot_us(image[k, q], rows[panel, k, r]) }
        held[q, r] = sums[q, r]
      }
      y[r, q] = f(held[q, r])
    }

For columns that are no whole vectors, as those of 7 x 7 images, or would have to be gathered for
panels. The tiles and strips are those of direct convolutions, and a tile is read from the packed
image as it is. Threads share the rows, so that each reads its own weights, once. Zeros beyond the
edge of the image are not multiplied: the loops over windows leave them out.
"""

import numpy as np

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.affine import Affine, affine_conditions
from ...dialect.kernel_ir.traverse import substitute
from ...dialect.types.sizes import product
from ...dialect.types.tensor_types import I32
from ..processor import processor
from .contraction_problem import TOO_FEW, Constants, Problem, Strategy, why_not_bytes, worth_packing
from .convolution_blocking import Tile
from .direct_convolution import SINGLE_TAP, DirectConvolution, PackedWeights, Pixels
from .macro_kernel import PanelTiling
from .match_contraction import Contraction, LoweredContraction, kernel_from_body
from .micro_kernel import INT8_DOT_PRODUCT, MicroKernel
from .pack_panels import PanelPacking
from .packed_product import unproved
from .sign_offset import OFFSET, offset_bytes, where, with_sign_offset
from .vnni_packing import extent_of, image_of, known_terms

# cost model: steps of words that take as long as storing sums and transposing them; tuned by hand
# (Zen 4, Zen 5)
FINISH = 20


def _micro_kernel(c: Contraction) -> MicroKernel:
    """The micro-kernel of least cost, whose vectors lie along the rows."""
    return INT8_DOT_PRODUCT.best(c.column.extent, _blocks(c), more=_finish(c))


def _blocks(c: Contraction) -> int:
    return -(-extent_of(c.row) // processor().lanes)


def _finish(c: Contraction) -> float:
    """The instructions for each sum, held and transposed in the end, in each step."""
    terms = product(tuple(i.extent for i in c.reduction_axes))
    assert isinstance(terms, int)
    return FINISH * INT8_DOT_PRODUCT.terms / terms


class _RowLanes(DirectConvolution):
    """The kernels of one contraction, whose words `packing` packs; the rows have no sign where
    `swapped`.
    """

    def __init__(self, pixels: Pixels, constants: Constants, swapped: bool) -> None:
        micro = _micro_kernel(pixels.c)
        super().__init__(
            pixels, constants, Tile(min(micro.rows, extent_of(pixels.c.column)), micro.vectors)
        )
        self.packing, self.swapped = (
            PanelPacking(PanelTiling(pixels.kernel, pixels.c, micro), constants),
            swapped,
        )
        self.weights_stay = False  # threads share them
        self.leaves_out = True  # zeros beyond the edge
        self.sign: ex.Expr | bool = False
        self.more: ex.Tensor | None = None  # what is taken from the sums of each place

    def lower(self) -> LoweredContraction | None:
        image = image_of(self.c.b, self.c.guard, self.packing.words, bits=self.packing.column_bits)
        if image is None or self.packing.known_rows() is None:
            return None
        self.image = image
        return self.lowered()

    def weights(self) -> PackedWeights:
        """Pack the words of the rows, those of a tile's rows side by side."""
        lines = self.packing.known_rows()
        assert lines is not None
        packed = self.packing.constant(
            "rows", self.tiled_rows(lines, lines.ndim - 2).swapaxes(-1, -2)
        )
        image = kernel_from_body(self.pixels.kernel, "image", self.image.body, (self.image.words,))
        return packed, LoweredContraction(
            (*self.packing.kernels, image), self.packing.views, self.packing.constants
        )

    @property
    def weight(self) -> ex.Expr:
        return self.packed[(*self.around, self.at.panel, self.packing.words.step, self.at.row)]

    def updated(self, sum: ex.Expr, at: dict[ex.Expr, ex.Expr]) -> ex.Expr:
        words = self.image.words[tuple(substitute(e, at) for e in self.image.at)]
        return sum + ex.apply(
            "quaddot_us", *((self.weight, words) if self.swapped else (words, self.weight))
        )

    def by_place(self, add: ir.Store, at: dict[ex.Expr, ex.Expr]) -> ir.Block:
        """The loops over words, the innermost one unrolled where the columns of a tile differ in
        the taps that lie outside.
        """
        *around, last = axes = self.packing.words.reduction_axes
        turns = self.columns_of(last)
        steps: ir.Block = (
            ir.For(last, (*(() if around else self.prefetches(axes)), self.each(add))),
        )
        if turns is not None:
            each = [(k, self.each(add, some)) for k, some in enumerate(turns) if some]
            steps = tuple(
                s for k, step in each for s in ir.substitute_block((step,), {last: ex.as_index(k)})
            )
        for axis in reversed(around):
            start, stop = (substitute(e, at) for e in self.inside(axis))
            steps = (*self.prefetches(axes), *steps) if axis is around[0] else steps
            steps = (ir.For(axis, steps, start, stop),)
        return steps

    def epilogue(self, sum: ex.Expr, row: ex.Expr, column: ex.Expr) -> ir.For:
        if self.more is None:
            return super().epilogue(self.packing.tiling.rest(sum, row), row, column)
        return super().epilogue(
            sum - where(self.sign, self.more[(*self.around, row, column)]), row, column
        )

    # where windows reach beyond the edge, are zeros, which are left out

    def offset(self, sign: ex.Expr | bool) -> bool:
        """Offset bytes to change their sign; where there are few places, each has the correction of
        its sums, for the weights inside.
        """
        if not offset_bytes(self.packing, self.swapped, sign):
            return False
        steps = extent_of(self.pixels.last.column) * processor().tuning.place_steps
        self.leaves_out = (
            not self.swapped and self.c.window is not None and steps <= self.packing.words.steps
        )
        if self.leaves_out:
            sums = self.sums_of_places() * OFFSET
            self.more = ex.Tensor("places", sums.shape, I32, "constant")
            self.packing.constants = {self.more: sums}
            self.sign = sign
        return True

    def sums_of_places(self) -> np.ndarray:
        """The sums of the weights that are not left out, for each row and column."""
        c = self.c
        count = len(self.c.reduction_axes)
        weights = known_terms(c.a, self.packing.known, (*self.around, c.row, *c.reduction_axes))
        assert weights is not None and c.window is not None
        weights = weights.astype(np.int32)
        indices = (c.window, c.column, *c.reduction_axes)
        places = dict(
            zip(indices, np.ogrid[tuple(slice(extent_of(i)) for i in indices)], strict=True)
        )
        inside = np.ones(
            (extent_of(c.window), extent_of(c.column), *(1 for _ in c.reduction_axes)), bool
        )
        *around, last = self.packing.words.reduction_axes
        whole = [(last, c.column)] if self.columns_of(last) is not None else []
        for axis, along in (*((i, c.window) for i in around), *whole):
            for sum in self.sums_of(axis, along):
                terms = [places[i] * sum.factor(i) for i in (axis, along)]
                inside = inside & (terms[0] + terms[1] + sum.constant >= 0)
        for n, size in enumerate(inside.shape[2:], weights.ndim - count):
            if size == 1:
                weights = weights.sum(n, keepdims=True, dtype=np.int32)
        weights = weights.reshape(*weights.shape[:-count], 1, 1, *weights.shape[-count:])
        sums = (weights * inside).sum(tuple(range(-count, 0)), dtype=np.int32)
        return np.ascontiguousarray(sums.reshape(*sums.shape[:-2], -1))

    def inside(self, axis: ex.Index) -> tuple[ex.Expr, ex.Expr]:
        """The condition that a line's window is inside of the array."""
        start = ex.as_index(0)
        stop = ex.as_index(axis.extent)
        if self.c.window is not None:
            for sum in self.sums_of(axis, self.c.window):
                rest = sum.without(axis)
                if sum.factor(axis) == 1:
                    start = ex.maximum(start, (rest * -1).expression())
                else:
                    stop = ex.minimum(stop, rest.plus(1).expression())
        return start, stop if start is ex.ZERO else ex.maximum(start, stop)

    def columns_of(self, axis: ex.Index) -> list[range] | None:
        """The columns of a tile inside of the array, by innermost turns; None unless registers hold
        a line.
        """
        pixels = self.sizes.tile.pixels
        read = (pixels + 1) * self.sizes.tile.vectors + pixels + extent_of(axis)
        is_part = self.c.window is None or pixels < self.sizes.line
        if is_part or read >= processor().vector_registers:
            return None
        sums = self.sums_of(axis, self.c.column)
        ranges = []
        for k in range(extent_of(axis)):
            starts = [(s.constant + s.factor(axis) * k, s.factor(self.c.column)) for s in sums]
            some = [r for r in range(pixels) if all(n + m * r >= 0 for n, m in starts)]
            ranges.append(range(some[0], some[-1] + 1) if some else range(0))
        return ranges

    def sums_of(self, axis: ex.Index, along: ex.Index) -> list[Affine]:
        """The affine forms of the guard over these indices only, without repetition."""
        if not self.leaves_out:
            return []
        sums = [s for g in self.c.guard for s in affine_conditions(g) or []]
        return [
            s for s in sums if abs(s.factor(axis)) == 1 and not s.without(axis).without(along).terms
        ]


# the strategy


def _why_not_row_lanes(problem: Problem) -> str:
    if why := why_not_bytes(problem):
        return why
    if not processor().has_int8_dot_product:
        return "the processor has no dot product of four bytes"
    joined = problem.joined
    lanes = processor().lanes
    if (
        joined is None
        or worth_packing(joined.contraction) is not True
        or joined.contraction.window is not None
    ):
        return TOO_FEW
    short = (
        extent_of(joined.contraction.row) < lanes or extent_of(joined.contraction.column) < lanes
    )
    return "fewer rows or columns than a vector has lanes" if short else ""


def _cost(problem: Problem) -> float:
    c = problem.contraction
    step = extent_of(c.window) * _micro_kernel(c).cost(c.column.extent, _blocks(c), _finish(c))
    is_far = (
        len(c.reduction_axes) == 1 and problem.terms * extent_of(c.column) > processor().l1_bytes
    )
    return (
        step
        * problem.terms
        / INT8_DOT_PRODUCT.terms
        * unproved(problem)
        * (SINGLE_TAP if is_far else 1)
    )


def lower_row_lanes(problem: Problem) -> LoweredContraction | None:
    """The kernels that multiply so; None where they never compute what they should."""
    joined = problem.joined
    assert joined is not None
    pixels = Pixels(problem.kernel, problem.contraction, joined.kernel, joined.contraction)
    return with_sign_offset(
        problem.sizes, lambda swapped: _RowLanes(pixels, problem.constants, swapped)
    )


ROW_LANES = Strategy("int8_dot_product_row_lanes", _why_not_row_lanes, _cost, lower_row_lanes)
