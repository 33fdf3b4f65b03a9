"""Products of a few rows by weights, at the speed of reading these once:

    for m of 4 { for j { acc = 0; for k { acc = acc + x[m, k] * w[j, k] }; y[m, j] = f(acc) } }
    =>  for panel in j by 96 parallel {
          sums[4, 96] = 0 in registers
          for k { for m { for v { sums[m, v] = fma(x[m, k], weights[panel, k, v], sums[m, v]) } } }
          y[m, j] = f(sums[m, v])
        }

Constant weights are packed at compile time, so that a panel lies in one piece of memory, in the
order in which it is read. Others are read where they are if columns lie side by side, eight terms
of all columns of a wide panel at once; if terms do, some of them are transposed at once into a
buffer. Each sum goes in the order of its terms. The last vectors of columns move back.
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ...dialect.kernel_ir import expressions as ex
from ...dialect.kernel_ir.loops import (
    Alloc,
    Block,
    For,
    Let,
    Store,
    nested,
    substitute_block,
    vector_loop,
)
from ...dialect.kernel_ir.reduce_in_order import MIN_TERMS
from ...dialect.kernel_ir.traverse import substitute, walk
from ...dialect.types.sizes import product
from ...dialect.types.tensor_types import I64
from ..analysis.accesses import depends, stride
from ..processor import MIN_BLOCKS, ROWS_AT_ONCE, processor
from .contraction_problem import Problem, matched_strategy
from .convolution_blocking import Tile, lanes_of
from .direct_convolution import DirectConvolution, PackedWeights, Pixels
from .match_contraction import (
    Contraction,
    LoweredContraction,
    SumOfProducts,
    stores_columns,
    sum_of_products,
)
from .pack_panels import SQUARE
from .vnni_packing import extent_of, known_terms, only_read

# rows up to which constant weights are read once; from one more on, panels of columns and tiles
# of rows pay; tuned by hand (Zen 4, Zen 5)
MOST_ROWS = 5
# the same for weights that a call gives, whose panels it would pack; measured with f32 weights of
# 4096 x 4096 on one thread of a Zen 5
MOST_ROWS_OF_GIVEN = 16
# cost model: terms whose products take as long as clearing and storing the sums of such columns;
# tuned by hand (Zen 4, Zen 5)
TERMS_OF_SUMS = 16
MIN_WEIGHTS = 1 << 10  # weights from which this pays; tuned by hand (Zen 4, Zen 5)
WHOLE_LINE = 64  # bytes of a vector that is a line of the cache
MOST_VECTORS = 8  # vectors of columns of a row, at most; tuned by hand (Zen 4, Zen 5)


@dataclass(frozen=True, eq=False)
class FewRows:
    """A nest that multiplies some rows by the weights of each column: `a` has the rows, and `b` the
    weights.
    """

    nest: SumOfProducts
    weights: (
        np.ndarray | None
    )  # constant weights: an axis for the columns, and one for each reduction axis

    @property
    def batch(self) -> tuple[ex.Index, ...]:
        """The outer loops of products that each have weights of their own."""
        loops = self.nest.loops[:-1]
        own = [i for i in loops if isinstance(i.extent, int) and depends(self.nest.b, {i})]
        return tuple(own) if own == [*loops[: len(own)]] else ()

    @property
    def rows(self) -> tuple[ex.Index, ...]:
        return self.nest.loops[len(self.batch) : -1]

    @property
    def column(self) -> ex.Index:
        return self.nest.loops[-1]

    @property
    def count(self) -> int | None:
        """The number of rows; None where it is known only by a call."""
        product_of_rows = product(tuple(i.extent for i in self.rows))
        return product_of_rows if isinstance(product_of_rows, int) else None

    @property
    def size(self) -> int:
        return prod(map(extent_of, (self.column, *self.nest.reduction_axes)))

    @property
    def along(self) -> ex.Index | None:
        """The index along which weights shared by all rows are contiguous: columns or terms."""
        weights, axes = self.nest.b, self.nest.reduction_axes
        if (
            (read := only_read(weights)) is None
            or self.nest.guard
            or depends(weights, {*self.rows})
        ):
            return None
        beside = [i for i in (self.column, *axes) if stride(read.tensor, read.indices, i) == 1]
        terms = (
            len(axes) == 1 and extent_of(axes[0]) >= SQUARE // self.nest.accumulator.element.bytes
        )
        return beside[0] if beside and (beside[0] is self.column or terms) else None

    @property
    def in_place(self) -> bool:
        return self.weights is None and self.along is self.column


def match_few_rows(problem: Problem) -> FewRows | None:
    """The rows and weights of a kernel, of which only the number of rows may be unknown; None if it
    is another nest.
    """
    if (
        nest := sum_of_products(problem.kernel, 1)
    ) is None or nest.accumulator.element.kind != "float":
        return None
    column = nest.loops[-1]
    axes = nest.reduction_axes
    if any(
        isinstance(n, ex.Read) or (isinstance(n, ex.Index) and n not in axes)
        for g in nest.guard
        for n in walk(g)
    ):
        return None
    nest = nest.with_b_along({column})
    if not all(isinstance(i.extent, int) and i.extent > 0 for i in (column, *axes)):
        return None
    if depends(nest.a, {column}) or not stores_columns(nest.epilogue, column):
        return None
    return FewRows(nest, known_terms(nest.b, problem.constants, (column, *axes)))


def why_not_few_rows(few: FewRows | None) -> str:
    if few is None:
        return "no rows are multiplied by weights of floats"
    most = (
        MOST_ROWS
        if few.weights is not None
        else min(MOST_ROWS_OF_GIVEN, processor().vector_registers - 3)
    )
    if few.count is None or not 0 < few.count <= most:
        return "too many rows"
    if few.weights is None and few.along is None:
        return "weights that are not constant do not lie side by side, for columns or for terms"
    if few.in_place and few.count == 1:
        return "a row is added to the sums of all columns as it is read"
    return why_not_weights(few)


def why_not_weights(few: FewRows) -> str:
    """The reason that the weights alone rule the strategy out, if any."""
    if extent_of(few.column) < processor().tile_vector_bytes // few.nest.accumulator.element.bytes:
        return "too few columns for a vector"
    if prod(map(extent_of, few.nest.reduction_axes)) >= MIN_TERMS:
        return "so many terms that they are added in blocks"
    return "too few weights" if few.size < MIN_WEIGHTS else ""


def few_rows_cost(few: FewRows) -> float:
    """The estimated time, in vector products of 32-bit lanes."""
    size = few.size + (TERMS_OF_SUMS * extent_of(few.column) if few.in_place else 0)
    vectors = size / processor().lanes * few.nest.accumulator.element.bytes / 4
    return prod(map(extent_of, (*few.batch, *few.rows))) * vectors * processor().fma_cycles


def lower_few_rows(problem: Problem, few: FewRows) -> LoweredContraction:
    """The kernels of a direct convolution whose pixels are the rows, one by one where their number
    is unknown.
    """
    nest = few.nest
    count = few.count or 1
    together = few.rows if few.count else ()
    row = ex.Index("r", count)
    at: dict[ex.Expr, ex.Expr] = dict(
        zip(together, ex.unflatten(row, tuple(map(extent_of, together))), strict=True)
    )
    values = substitute(nest.a, at)
    epilogue = substitute_block(nest.epilogue, at)
    loops = (*few.batch, *few.rows[len(together) :], few.column, row)
    sums = replace(nest, loops=loops, a=nest.b, b=values, epilogue=epilogue)
    c = Contraction(**vars(sums), row=few.column, window=None, column=row)
    all_vectors = -(-extent_of(few.column) // lanes_of(c))
    vectors = max(
        1, min(all_vectors, MOST_VECTORS, (processor().vector_registers - 2) // count - 1)
    )
    if few.weights is not None:
        form = DirectConvolution
    elif few.in_place:
        form = _ByRows
    else:
        form = _ByBlocks
    if few.in_place:
        near = processor().l1_bytes // 2 // (count * processor().tile_vector_bytes)
        most = max(1, min(near, max(MOST_VECTORS, -(-all_vectors // MIN_BLOCKS))))
        vectors = (
            -(-all_vectors // -(-all_vectors // most)) | 1
        )  # odd: rows of sums fall into different sets of the cache
    tile = Tile(count, vectors)
    return form(Pixels(problem.kernel, c, problem.kernel, c), problem.constants, tile).lowered()


class _InPlace(DirectConvolution):
    """The products of rows by weights that are read where they are."""

    def weights(self) -> PackedWeights:
        return self.no_weights()

    @property
    def weight(self) -> ex.Expr:
        return substitute(self.c.a, {self.c.row: self.first_row + self.at.lane})


class _ByRows(_InPlace):
    """Weights whose columns lie side by side: some rows of them are read at once, and the sums of a
    panel stay in near cache.
    """

    def products(self, waiting: ex.Tensor) -> Block:
        *outer, axis = self.c.reduction_axes
        terms, pixels = extent_of(axis), self.sizes.tile.pixels
        v, lane, r, row = self.at.v, self.at.lane, self.at.r, self.at.row
        sums = ex.Tensor("sums", (pixels, self.sizes.lanes), self.element, "register")
        near = ex.Tensor("near", (ROWS_AT_ONCE, pixels), self.element, "stack")
        load = For(
            r, (vector_loop(lane, Store(sums, (r, lane), waiting[r, row])),), kind="unrolled"
        )
        save = For(
            r, (vector_loop(lane, Store(waiting, (r, row), sums[r, lane])),), kind="unrolled"
        )

        def some(first: ex.Expr, count: int) -> Block:
            u = ex.Index("u", count)
            value = self.value({axis: first + u, self.c.column: r})
            weight = substitute(self.weight, {axis: first + u})
            add = Store(sums, (r, lane), ex.apply("fma", near[u, r], weight, sums[r, lane]))
            steps = For(u, (For(r, (vector_loop(lane, add),), kind="unrolled"),), kind="unrolled")
            return For(u, (For(r, (Store(near, (u, r), value),)),)), For(
                v, (Alloc(sums), load, steps, save)
            )

        block = ex.Index("k", terms // ROWS_AT_ONCE)
        rest = terms % ROWS_AT_ONCE
        whole = (For(block, some(block * ROWS_AT_ONCE, ROWS_AT_ONCE)),) if block.extent else ()
        steps = (Alloc(near), *whole, *(some(ex.as_index(terms - rest), rest) if rest else ()))
        clear = For(v, (vector_loop(lane, Store(waiting, (r, row), self.start)),))
        return For(r, (clear,)), *nested(outer, steps)


class _ByBlocks(_InPlace):
    """Weights whose terms lie side by side: blocks of them are transposed into a buffer, the last
    moved back.
    """

    def side(self, terms: int) -> int:
        """The terms of a square that is transposed in registers: rows that are a power of two of
        bytes apart share a few lines of the cache, so a row is a line where vectors are.
        """
        read = only_read(self.c.a)
        assert read is not None
        lanes, bytes = self.sizes.lanes, read.tensor.element.bytes
        sides = (lanes if lanes * self.element.bytes == WHOLE_LINE else 0, SQUARE // bytes)
        fitting = [n for n in sides if n and lanes % n == 0 and n <= terms]
        return fitting[0] if fitting else SQUARE // self.element.bytes

    def by_place(self, add: Store, at: dict[ex.Expr, ex.Expr]) -> Block:
        (axis,) = self.c.reduction_axes
        terms = extent_of(axis)
        weight = super().weight
        side = self.side(terms)
        row_bytes = self.sizes.wide * side * self.element.bytes
        deep = max(1, processor().l1_bytes // 2 // row_bytes) * side
        block = ex.Tensor("block", (deep + side, self.sizes.wide), self.element, "stack")
        sizes = (("b", -(-terms // deep)), ("t", deep // side), ("u", side), ("k", deep))
        b, t, u, k = (ex.Index(name, size) for name, size in sizes)
        first, begin = ex.Var("first", I64), ex.Var("at", I64)
        count = ex.minimum(terms - first, deep)
        packed = Store(
            block, (begin + u - first + side, self.at.row), substitute(weight, {axis: begin + u})
        )
        moved = Let(begin, ex.minimum(first + t * side, terms - side))
        square = For(u, (vector_loop(self.at.lane, packed),), kind="unrolled")
        fill = For(t, (moved, square), stop=(count + (side - 1)) // side)
        sum = add.tensor[add.indices]
        product = ex.apply(
            "fma", substitute(self.value(at), {axis: first + k}), block[k + side, self.at.row], sum
        )
        steps = For(k, (self.each(Store(add.tensor, add.indices, product)),), stop=count)
        return (Alloc(block), For(b, (Let(first, b * deep), For(self.at.v, (fill,)), steps)))


FEW_ROWS = matched_strategy(
    "few_rows", match_few_rows, why_not_few_rows, few_rows_cost, lower_few_rows
)
