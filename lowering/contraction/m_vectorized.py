"""Contractions of bytes with known rows, whose vectors go along the rows, and whose columns are a number each:

    for panel in rows by 24 parallel {
      for tile in columns by 7 {
        sums[7, 24] = 0 in registers
        for k { sums[q, r] = sums[q, r] + quaddot_us(image[k, q], rows[panel, k, r]) }
        held[q, r] = sums[q, r]
      }
      y[r, q] = f(held[q, r])
    }

That is for columns that are no whole vectors, as those of 7 x 7 images, or would have to be gathered for `quads`. A tile has as
many columns as a line of the image, or some of it, and is read from the image as it is. Threads share the rows, so that each
reads its own weights, once. A strip is as many lines as there is room for their sums. Zeros beyond the edge of the image are not
multiplied: the loops over windows leave them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...dialect.ir.sizes import product
from ...dialect.ir.types import I32, I64
from ...dialect.notation import expressions as ex
from ...dialect.notation import loops as ir
from ...dialect.notation.affine import Affine, affine_conditions
from ...dialect.notation.traverse import rewrite, substitute
from ..processor import processor
from .k_packing import PackedInput, extent_of, image_of, known_terms, size_of
from .macro_kernel import PanelTiling
from .match import Contraction, LoweredContraction, kernel_from_body
from .micro_kernel import DOT4, MicroKernel
from .operand_bitwidths import OperandMagnitudes
from .pack_panels import SQUARE, PanelPacking
from .sign_offset import OFFSET, Version, offset_bytes, where, with_sign_offset

PLACES = 16  # steps of words for each place, for which sums are kept of each
FINISH = 20  # steps of words that take as long as to hold sums and to turn them


def lower_m_vectorized(
    kernel: ir.Kernel,
    c: Contraction,
    flat: tuple[ir.Kernel, Contraction],
    sizes: OperandMagnitudes,
    constants: Mapping[ex.Tensor, np.ndarray],
) -> Version | None:
    """The kernels that multiply so, and where they compute what they should; None where they never do. `flat` is
    the same with all that a window goes over as one."""

    def kernels(swapped: bool) -> _MVectorized:
        return _MVectorized(PanelPacking(PanelTiling(kernel, c, m_micro_kernel(c)), constants), swapped, flat)

    made = with_sign_offset(sizes, kernels)
    if made is None or c.window is None:
        return made
    return replace(made[0], views={**made[0].views, **ir.reshaped_parameters(kernel, flat[0])}), made[1]


def m_micro_kernel(c: Contraction) -> MicroKernel:
    """The micro-kernel of least cost, whose vectors lie along the rows."""
    return DOT4.best(c.column.extent, _blocks(c), "m", more=_finish(c))


def m_vectorized_cost(c: Contraction) -> float:
    """The vector instructions of a step of all tiles."""
    return extent_of(c.window) * m_micro_kernel(c).cost(c.column.extent, _blocks(c), _finish(c))


def _blocks(c: Contraction) -> int:
    return -(-extent_of(c.row) // processor().lanes)


def _finish(c: Contraction) -> float:
    """The instructions for each sum, held and transposed in the end, in each step."""
    terms = product(tuple(i.extent for i in c.folds))
    assert isinstance(terms, int)
    return FINISH * DOT4.terms / terms


class _MVectorized:
    """A contraction whose columns are `last`'s, all in one line."""

    def __init__(self, packing: PanelPacking, swapped: bool, last: tuple[ir.Kernel, Contraction]) -> None:
        self.packing, self.c, self.swapped = packing, packing.c, swapped
        self.lane, self.outer = packing.tiling.lane, packing.tiling.outer
        self.flat, self.last = last
        c, micro = self.c, packing.tiling.micro
        self.leaves_out = True  # zeros beyond the edge
        self.sign: ex.Expr | bool = False
        self.more: ex.Tensor | None = None  # what is taken from the sums of each place
        self.length = extent_of(c.column)  # of a line
        self.tall, self.wide = min(micro.rows, self.length), micro.vectors * processor().lanes
        most = max(1, processor().l1_bytes // 2 // (4 * self.wide))  # columns of a strip
        self.count = size_of(c.window)
        if c.window is None:
            count = -(-self.length // most)
            self.line = max(min(processor().lanes, self.length), -(-self.length // count))
            self.high, self.strips = 1, -(-self.length // self.line)
        else:
            assert isinstance(self.count, int)
            self.line = self.length
            self.high = -(
                -self.count // -(-self.count // max(-(-processor().lanes // self.length), most // self.length))
            )
            self.strips = -(-self.count // self.high)

    def lower(self) -> LoweredContraction | None:
        packing = self.packing
        lines = packing.known_rows()
        image = image_of(self.c.b, self.c.guard, packing.words, bits=packing.column_bits)
        if lines is None or image is None:
            return None
        packing.kernels.append(kernel_from_body(packing.kernel, "image", image.body, (image.words,)))
        tiles = kernel_from_body(self.flat, "tiles", self.of_strips(image, self.by_panels(lines)), self.flat.outputs)
        return LoweredContraction((*packing.kernels, tiles), packing.views, packing.constants, frozenset({tiles}))

    def by_panels(self, lines: np.ndarray) -> ex.Tensor:
        """Words of the rows, so many rows' side by side. Blocks that would go beyond the end move back."""
        rows = lines.shape[-2]
        blocks = np.arange(-(-rows // self.wide) * (self.wide // processor().lanes))
        first = np.minimum(blocks * processor().lanes, rows - processor().lanes)
        panels = lines[..., (first[:, None] + np.arange(processor().lanes)).reshape(-1, self.wide), :].swapaxes(-1, -2)
        packed = ex.Tensor("rows", panels.shape, I32, "constant")
        self.packing.constants[packed] = np.ascontiguousarray(panels)
        return packed

    def of_strips(self, image: PackedInput, rows: ex.Tensor) -> ir.Block:
        """The loop over panels of rows, and over strips of columns, whose sums wait until all of them are there."""
        c = self.c
        panels = -(-extent_of(c.row) // self.wide)
        shape = (*(i.extent for i in c.outer), panels, self.strips)
        flat, panel, strip = ex.Index("n", product(shape)), ex.Var("panel", I64), ex.Var("strip", I64)
        places = zip((*self.outer, panel, strip), ex.unflatten(flat, shape), strict=True)
        held = ex.Tensor("held", (self.high * self.line, self.wide), I32, "stack")
        first = ex.Var("first", I64)  # line of the strip, or column
        if c.window is None:
            begin = ir.Let(first, ex.minimum(strip * self.line, self.length - self.line))
            start: ex.Expr = first
        else:
            begin = ir.Let(first, ex.minimum(strip * self.high, self.count - self.high))
            start = first * self.length
        body: ir.Block = (
            begin,
            ir.Alloc(held),
            self.products(image, rows, held, panel, first),
            self.ended(held, panel, start),
        )
        names: dict[ex.Expr, ex.Expr] = dict(zip((*c.outer, *self.last.outer), (*self.outer, *self.outer), strict=True))
        return (ir.For(flat, (*(ir.Let(v, e) for v, e in places), *ir.substitute_block(body, names)), kind="parallel"),)

    def products(self, image: PackedInput, rows: ex.Tensor, held: ex.Tensor, panel: ex.Expr, first: ex.Expr) -> ir.For:
        """The sums of a strip, tile by tile."""
        c = self.c
        line, tile, r = (
            ex.Index("line", self.high),
            ex.Index("tile", -(-self.line // self.tall)),
            ex.Index("r", self.tall),
        )
        q = ex.Var("q", I64)  # in the strip's line
        v, lane = ex.Index("v", self.wide // processor().lanes), self.lane
        sums = ex.Tensor("sums", (self.tall, self.wide), I32, "register")
        place = (r, v * processor().lanes + lane)
        column: dict[ex.Expr, ex.Expr] = {c.column: (first if c.window is None else ex.as_index(0)) + q + r}
        if c.window is not None:
            column[c.window] = first + line
        words = image.words[tuple(substitute(e, column) for e in image.at)]
        row = rows[(*self.packing.around, panel, self.packing.words.step, place[1])]
        factors = (row, words) if self.swapped else (words, row)

        def each(store: ir.Store, some: range = range(self.tall)) -> ir.For:
            lanes = ir.For(lane, (store,), kind="vector", width=processor().lanes)
            columns = ex.as_index(some.start), ex.as_index(some.stop)
            return ir.For(r, (ir.For(v, (lanes,), kind="unrolled"),), *columns, kind="unrolled")

        add = ir.Store(sums, place, sums[place] + ex.apply("quaddot_us", *factors))
        *around, last = self.packing.words.folds
        turns = self.columns_of(last)
        steps: ir.Block = (ir.For(last, (each(add),)),)
        if turns is not None:
            steps = tuple(
                s
                for k, some in enumerate(turns)
                if some
                for s in ir.substitute_block((each(add, some),), {last: ex.as_index(k)})
            )
        for fold in reversed(around):
            start, stop = (substitute(e, column) for e in self.inside(fold))
            steps = (ir.For(fold, steps, start, stop),)
        body: ir.Block = (
            ir.Let(q, ex.minimum(tile * self.tall, self.line - self.tall)),
            ir.Alloc(sums),
            each(ir.Store(sums, place, ex.constant(0, I32))),
            *steps,
            each(ir.Store(held, (line * self.line + q + r, place[1]), sums[place])),
        )
        return ir.For(line, (ir.For(tile, body),))

    # where windows reach beyond the edge, are zeros, which are left out

    def offset(self, sign: ex.Expr | bool) -> bool:
        """Offsets bytes; where there are few places, each has what is taken from its sums, of the weights not left out."""
        if not offset_bytes(self.packing, self.swapped, sign):
            return False
        count = extent_of(self.last.column)
        self.leaves_out = not self.swapped and self.c.window is not None and count * PLACES <= self.packing.words.steps
        if self.leaves_out:
            sums = self.sums_of_places() * OFFSET
            self.more = ex.Tensor("places", sums.shape, I32, "constant")
            self.packing.constants = {self.more: sums}
            self.sign = sign
        return True

    def sums_of_places(self) -> np.ndarray:
        """The sums of the weights that are not left out, for each row and column."""
        c, count = self.c, len(self.c.folds)
        weights = known_terms(c.a, self.packing.known, (*self.packing.around, c.row, *c.folds))
        assert weights is not None and c.window is not None
        weights = weights.astype(np.int32)
        indices = (c.window, c.column, *c.folds)
        places = dict(zip(indices, np.ogrid[tuple(slice(extent_of(i)) for i in indices)], strict=True))
        inside = np.ones((extent_of(c.window), extent_of(c.column), *(1 for _ in c.folds)), bool)
        *around, last = self.packing.words.folds
        whole = [(last, c.column)] if self.columns_of(last) is not None else []
        for fold, along in (*((f, c.window) for f in around), *whole):
            for sum in self.sums_of(fold, along):
                terms = [places[i] * sum.factor(i) for i in (fold, along)]
                inside = inside & (terms[0] + terms[1] + sum.constant >= 0)
        for axis, size in enumerate(inside.shape[2:], weights.ndim - count):
            if size == 1:
                weights = weights.sum(axis, keepdims=True, dtype=np.int32)
        weights = weights.reshape(*weights.shape[:-count], 1, 1, *weights.shape[-count:])
        sums = (weights * inside).sum(tuple(range(-count, 0)), dtype=np.int32)
        return np.ascontiguousarray(sums.reshape(*sums.shape[:-2], -1))

    def inside(self, fold: ex.Index) -> tuple[ex.Expr, ex.Expr]:
        """The condition that a line's window is inside of the array."""
        start, stop = ex.as_index(0), ex.as_index(fold.extent)
        if self.c.window is not None:
            for sum in self.sums_of(fold, self.c.window):
                rest = sum.without(fold)
                if sum.factor(fold) == 1:
                    start = ex.maximum(start, (rest * -1).expression())
                else:
                    stop = ex.minimum(stop, rest.plus(1).expression())
        return start, stop if start is ex.ZERO else ex.maximum(start, stop)

    def columns_of(self, fold: ex.Index) -> list[range] | None:
        """The columns of a tile that are inside of the array, for each turn of the innermost loop; None where a tile is not a
        whole line, or what is read for all turns, which stays in registers, leaves none for sums."""
        c, count = self.c, extent_of(fold)
        read = self.tall * self.wide // processor().lanes + self.wide // processor().lanes + self.tall + count
        if c.window is None or self.tall < self.line or read >= processor().vector_registers:
            return None
        sums = self.sums_of(fold, c.column)
        found: list[range] = []
        for k in range(count):
            held = [
                r
                for r in range(self.tall)
                if all(s.constant + s.factor(fold) * k + s.factor(c.column) * r >= 0 for s in sums)
            ]
            found.append(range(held[0], held[-1] + 1) if held else range(0))
        return found

    def sums_of(self, fold: ex.Index, along: ex.Index) -> list[Affine]:
        """The affine forms of the guard over these indices only, without repetition."""
        if not self.leaves_out:
            return []
        sums = [s for g in self.c.guard for s in affine_conditions(g) or []]
        return [s for s in sums if abs(s.factor(fold)) == 1 and not s.without(fold).without(along).terms]

    def ended(self, held: ex.Tensor, panel: ex.Expr, start: ex.Expr) -> ir.For:
        """The epilogue, by vectors of a strip's columns: sums are transposed, four rows at once."""
        c, count = self.last, self.high * self.line
        side = SQUARE // I32.bytes
        block, part, u = (
            ex.Index("block", self.wide // processor().lanes),
            ex.Index("t", processor().lanes // side),
            ex.Index("u", side),
        )
        v, q, row = ex.Index("v", -(-count // processor().lanes)), ex.Var("at", I64), ex.Var("row", I64)
        result = held[q + self.lane, block * processor().lanes + part * side + u]
        values: dict[ex.Expr, ex.Expr] = {c.row: row + part * side + u, c.column: start + q + self.lane}

        def rest() -> ex.Expr:
            if self.more is None:
                return self.packing.tiling.rest(result, values[c.row])
            more = self.more[(*self.packing.around, values[c.row], values[c.column])]
            return result - where(self.sign, more)

        def of_sums(e: ex.Expr) -> ex.Expr | None:
            return rest() if isinstance(e, ex.Read) and e.tensor is c.accumulator else None

        body = ir.substitute_block(ir.map_expressions(c.epilogue, lambda e: rewrite(e, of_sums)), values)
        lanes = ir.For(self.lane, body, kind="vector", width=processor().lanes)
        square = ir.For(u, (lanes,), kind="unrolled")
        begin = ir.Let(
            row, ex.minimum(panel * self.wide + block * processor().lanes, extent_of(c.row) - processor().lanes)
        )
        at = ir.Let(q, ex.minimum(v * processor().lanes, count - processor().lanes))
        return ir.For(block, (begin, ir.For(v, (at, ir.For(part, (square,))))))
