"""Products of a few rows by weights, at the speed of reading these once:

    for m of 4 { for j { acc = 0; for k { acc = acc + x[m, k] * w[j, k] }; y[m, j] = f(acc) } }
    =>  for panel in j by 96 parallel {
          sums[4, 96] = 0 in registers
          for k { for m { for v { sums[m, v] = fma(x[m, k], weights[panel, k, v], sums[m, v]) } } }
          y[m, j] = f(sums[m, v])
        }

Constant weights are packed at compile time, so that a panel lies in one piece of memory, in the order in which it is read. Others are read
where they are if columns lie side by side; if terms do, some of them are transposed at once into a buffer. Each sum goes in the order of
its terms. The last vectors of columns move back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from ...dialect.ir.sizes import product
from ...dialect.ir.types import I64
from ...dialect.notation import expressions as ex
from ...dialect.notation.loops import Alloc, Block, For, If, Kernel, Let, Store, map_expressions, substitute_block
from ...dialect.notation.traverse import rewrite, substitute, walk
from ..analysis.accesses import depends, stride
from ..loops.tighten_bounds import narrowed
from ..processor import processor
from .match import LoweredContraction, kernel_from_body, stores_columns, sum_of_products
from .pack_panels import SQUARE
from .vnni_packing import extent_of, known_terms, loops_of, only_read

MOST_ROWS = 5  # from one more on, panels of columns and tiles of rows pay
MIN_WEIGHTS = 1 << 10
MOST_VECTORS = 8  # of columns, of a row


@dataclass(frozen=True, eq=False)
class FewRows:
    """A nest that multiplies some rows by the weights of each column."""

    rows: tuple[ex.Index, ...]
    column: ex.Index
    reduction_axes: tuple[ex.Index, ...]
    guard: ex.Expr | bool
    values: ex.Expr
    weights: ex.Expr
    known: np.ndarray | None  # constant weights: an axis for the columns, and one for each fold
    accumulator: ex.Tensor
    epilogue: Block

    @property
    def count(self) -> int | None:
        """The number of rows; None where it is known only by a call."""
        found = product(tuple(i.extent for i in self.rows))
        return found if isinstance(found, int) else None

    @property
    def size(self) -> int:
        """The number of weights."""
        return prod(map(extent_of, (self.column, *self.reduction_axes)))

    @property
    def along(self) -> ex.Index | None:
        """The index of neighbours in memory, of weights that are the same for all rows: columns or terms."""
        read = only_read(self.weights)
        if read is None or self.guard is not True or depends(self.weights, {*self.rows}):
            return None
        beside = [i for i in (self.column, *self.reduction_axes) if stride(read.tensor, read.indices, i) == 1]
        terms = (
            len(self.reduction_axes) == 1
            and extent_of(self.reduction_axes[0]) >= SQUARE // self.accumulator.element.bytes
        )
        return beside[0] if beside and (beside[0] is self.column or terms) else None


def match_few_rows(kernel: Kernel, constants: Mapping[ex.Tensor, np.ndarray]) -> FewRows | None:
    """The rows and weights of a kernel, of which only the number of rows may be unknown; None if it is another nest."""
    parts = sum_of_products(kernel, 1)
    if parts is None or parts[4].element.kind != "float":
        return None
    (*rows, column), reduction_axes, guard, (a, b), acc, epilogue = parts
    if any(
        isinstance(n, ex.Read) or (isinstance(n, ex.Index) and n not in reduction_axes) for g in guard for n in walk(g)
    ):
        return None
    values, weights = (a, b) if depends(b, {column}) else (b, a)
    if not all(isinstance(i.extent, int) and i.extent > 0 for i in (column, *reduction_axes)):
        return None
    if depends(values, {column}) or not stores_columns(epilogue, column):
        return None
    known = known_terms(weights, constants, (column, *reduction_axes))
    return FewRows(tuple(rows), column, tuple(reduction_axes), ex.both(*guard), values, weights, known, acc, epilogue)


def why_not_few_rows(found: FewRows | None) -> str:
    """The reason why a nest is not computed so, if there is one."""
    if found is None:
        return "no rows are multiplied by weights of floats"
    if found.count is None or not 0 < found.count <= MOST_ROWS:
        return "too many rows"
    if found.known is None and found.along is None:
        return "weights that are not constant do not lie side by side, for columns or for terms"
    if found.known is None and found.along is found.column and found.count == 1:
        return "a row is added to the sums of all columns as it is read"
    return why_not_panels(found)


def why_not_panels(found: FewRows) -> str:
    """The same of its weights alone."""
    if extent_of(found.column) < processor().tile_vector_bytes // found.accumulator.element.bytes:
        return "too few columns for a vector"
    return "too few weights" if found.size < MIN_WEIGHTS else ""


def few_rows_cost(found: FewRows) -> float:
    """The estimated time, in vector products of 32-bit lanes."""
    vectors = found.size / processor().lanes * found.accumulator.element.bytes / 4
    return (found.count or 1) * vectors * processor().fma_cycles


def lower_few_rows(kernel: Kernel, found: FewRows) -> LoweredContraction:
    """The kernel that multiplies so, and its weights. Rows of unknown number go one after the other over a panel."""
    element, together = found.accumulator.element, found.rows if found.count else ()
    shape = tuple(map(extent_of, together))
    lanes, count, columns = processor().tile_vector_bytes // element.bytes, found.count or 1, extent_of(found.column)
    vectors = min(MOST_VECTORS, (processor().vector_registers - 2) // count - 1, -(-columns // lanes))
    wide = vectors * lanes
    panels = -(-columns // wide)
    sums = ex.Tensor("sums", (count, wide), element, "register")
    panel, r, v, lane = ex.Index("panel", panels), ex.Index("r", count), ex.Index("v", vectors), ex.Index("l", lanes)
    place, start = (r, v * lanes + lane), ex.Var("j", I64)
    at: dict[ex.Expr, ex.Expr] = dict(zip(together, ex.unflatten(r, shape), strict=True))
    begin = ex.minimum(panel * wide + v * lanes, ex.as_index(columns - lanes))

    def vector(body: Block) -> For:
        return For(lane, body, kind="vector", width=lanes)

    def each(body: Block) -> For:
        return For(r, (For(v, (vector(body),), kind="unrolled"),), kind="unrolled")

    def of_sums(e: ex.Expr) -> ex.Expr | None:
        return sums[place] if isinstance(e, ex.Read) and e.tensor is found.accumulator else None

    def step(weight: ex.Expr, terms: dict[ex.Expr, ex.Expr] = {}) -> Block:  # noqa: B006
        value = substitute(found.values, {**at, **terms})
        return (each((Store(sums, place, ex.apply("fma", value, weight, sums[place])),)),)

    constants: dict[ex.Tensor, np.ndarray] = {}
    if found.known is not None:
        first = np.minimum(np.arange(panels * vectors) * lanes, columns - lanes)
        places = (first[:, None] + np.arange(lanes)).reshape(panels, wide)
        array = np.ascontiguousarray(np.moveaxis(found.known[places], 1, -1))
        weights = ex.Tensor("weights", array.shape, element, "constant")
        constants = {weights: array}
        one = step(weights[(panel, *found.reduction_axes, place[1])])
        steps = narrowed(
            loops_of(found.reduction_axes, (If(found.guard, one),) if isinstance(found.guard, ex.Expr) else one)
        )
    elif found.along is found.column:
        steps = loops_of(found.reduction_axes, step(substitute(found.weights, {found.column: begin + lane})))
    else:
        steps = _by_blocks(
            found, wide, substitute(found.weights, {found.column: begin + lane}), place[1], (v, lane), step
        )
    ends = substitute_block(
        map_expressions(found.epilogue, lambda e: rewrite(e, of_sums)), {**at, found.column: start + lane}
    )
    of_row = For(r, (vector(ends),), kind="unrolled")
    body: Block = (
        Alloc(sums),
        each((Store(sums, place, ex.constant(0, element)),)),
        *steps,
        For(v, (Let(start, begin), of_row), kind="unrolled"),
    )
    tiles = kernel_from_body(
        kernel,
        "tiles",
        (For(panel, body if found.count else loops_of(found.rows, body), kind="parallel"),),
        kernel.outputs,
    )
    return LoweredContraction((tiles,), {}, constants, frozenset({tiles}))


def _by_blocks(
    found: FewRows,
    wide: int,
    weight: ex.Expr,
    place: ex.Expr,
    inner: tuple[ex.Index, ex.Index],
    step: Callable[[ex.Expr, dict[ex.Expr, ex.Expr]], Block],
) -> Block:
    """The steps of a panel over weights whose terms lie side by side: some at once are transposed into a buffer. The last ones of
    these move back, before the buffer's first if need be."""
    (fold,), element, (v, lane) = found.reduction_axes, found.accumulator.element, inner
    terms, side = extent_of(fold), SQUARE // element.bytes
    deep = max(1, processor().l1_bytes // 2 // (wide * SQUARE)) * side
    block = ex.Tensor("block", (deep + side, wide), element, "stack")
    b, t, u, k = (ex.Index(n, d) for n, d in (("b", -(-terms // deep)), ("t", deep // side), ("u", side), ("k", deep)))
    first, at = ex.Var("first", I64), ex.Var("at", I64)
    count = ex.minimum(terms - first, deep)
    packed = Store(block, (at + u - first + side, place), substitute(weight, {fold: at + u}))
    square = For(u, (For(lane, (packed,), kind="vector", width=extent_of(lane)),), kind="unrolled")
    filled = For(t, (Let(at, ex.minimum(first + t * side, terms - side)), square), stop=(count + (side - 1)) // side)
    steps = For(k, step(block[k + side, place], {fold: first + k}), stop=count)
    return (Alloc(block), For(b, (Let(first, b * deep), For(v, (filled,)), steps)))
