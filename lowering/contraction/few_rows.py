"""Products of a few rows by constant weights, at the speed of reading these once:

    for m of 4 { for j { acc = 0; for k { acc = acc + x[m, k] * w[j, k] }; y[m, j] = f(acc) } }
    =>  for panel in j by 96 parallel {
          sums[4, 96] = 0 in registers
          for k { for m { for v { sums[m, v] = fma(x[m, k], weights[panel, k, v], sums[m, v]) } } }
          y[m, j] = f(sums[m, v])
        }

Weights are packed at compile time, so that a panel lies in one piece of memory, in the order in which it is read. Each sum goes in the order
of its terms. The last vectors of columns move back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...dialect.ir.sizes import product
from ...dialect.ir.types import I64
from ...dialect.notation import expressions as ex
from ...dialect.notation.loops import Alloc, Block, For, If, Kernel, Let, Store, map_expressions, substitute_block
from ...dialect.notation.traverse import rewrite, substitute, walk
from ..analysis.accesses import depends
from ..loops.tighten_bounds import narrowed
from ..processor import processor
from .k_packing import extent_of, known_terms, loops_of
from .match import LoweredContraction, kernel_from_body, stores_columns, sum_of_products

MOST_ROWS = 5  # from one more on, panels of columns and tiles of rows pay
MIN_WEIGHTS = 1 << 10
MOST_VECTORS = 8  # of columns, of a row


@dataclass(frozen=True, eq=False)
class FewRows:
    """A nest that multiplies some rows by the weights of each column."""

    rows: tuple[ex.Index, ...]
    column: ex.Index
    folds: tuple[ex.Index, ...]
    guard: ex.Expr | bool
    values: ex.Expr
    weights: np.ndarray  # an axis for the columns, and one for each fold
    accumulator: ex.Tensor
    epilogue: Block

    @property
    def count(self) -> int | None:
        """The number of rows; None where it is known only by a call."""
        found = product(tuple(i.extent for i in self.rows))
        return found if isinstance(found, int) else None


def match_few_rows(kernel: Kernel, constants: Mapping[ex.Tensor, np.ndarray]) -> FewRows | None:
    """The rows and weights of a kernel, of which only the number of rows may be unknown; None if it is another nest."""
    parts = sum_of_products(kernel, 1)
    if parts is None or parts[4].element.kind != "float":
        return None
    (*rows, column), folds, guard, (a, b), acc, epilogue = parts
    if any(isinstance(n, ex.Read) or (isinstance(n, ex.Index) and n not in folds) for g in guard for n in walk(g)):
        return None
    values, weights = (a, b) if depends(b, {column}) else (b, a)
    if not all(isinstance(i.extent, int) and i.extent > 0 for i in (column, *folds)):
        return None
    known = known_terms(weights, constants, (column, *folds))
    if known is None or depends(values, {column}) or not stores_columns(epilogue, column):
        return None
    return FewRows(tuple(rows), column, tuple(folds), ex.both(*guard), values, known, acc, epilogue)


def why_not_few_rows(found: FewRows | None) -> str:
    """The reason why a nest is not computed so, if there is one."""
    if found is None:
        return "no rows are multiplied by constant weights of floats"
    if found.count is None or not 0 < found.count <= MOST_ROWS:
        return "too many rows"
    return why_not_panels(found)


def why_not_panels(found: FewRows) -> str:
    """The same of its weights alone."""
    if extent_of(found.column) < processor().tile_vector_bytes // found.accumulator.element.bytes:
        return "too few columns for a vector"
    return "too few weights" if found.weights.size < MIN_WEIGHTS else ""


def lower_few_rows(kernel: Kernel, found: FewRows) -> LoweredContraction:
    """The kernel that multiplies so, and its weights. Rows of unknown number go one after the other over a panel."""
    element, together = found.accumulator.element, found.rows if found.count else ()
    shape = tuple(map(extent_of, together))
    lanes, count, columns = processor().tile_vector_bytes // element.bytes, found.count or 1, extent_of(found.column)
    vectors = min(MOST_VECTORS, (processor().vector_registers - 2) // count - 1, -(-columns // lanes))
    wide = vectors * lanes
    panels = -(-columns // wide)
    first = np.minimum(np.arange(panels * vectors) * lanes, columns - lanes)
    places = (first[:, None] + np.arange(lanes)).reshape(panels, wide)
    array = np.ascontiguousarray(np.moveaxis(found.weights[places], 1, -1))
    weights = ex.Tensor("weights", array.shape, element, "constant")
    sums = ex.Tensor("sums", (count, wide), element, "register")
    panel, r, v, lane = ex.Index("panel", panels), ex.Index("r", count), ex.Index("v", vectors), ex.Index("l", lanes)
    place, start = (r, v * lanes + lane), ex.Var("j", I64)
    at: dict[ex.Expr, ex.Expr] = dict(zip(together, ex.unflatten(r, shape), strict=True))

    def each(body: Block) -> For:
        around = For(v, (For(lane, body, kind="vector", width=lanes),), kind="unrolled")
        return For(r, (around,), kind="unrolled")

    def of_sums(e: ex.Expr) -> ex.Expr | None:
        return sums[place] if isinstance(e, ex.Read) and e.tensor is found.accumulator else None

    weight = weights[(panel, *found.folds, place[1])]
    add = Store(sums, place, ex.apply("fma", substitute(found.values, at), weight, sums[place]))
    step: Block = (each((add,)),)
    if isinstance(found.guard, ex.Expr):
        step = (If(found.guard, step),)
    ends = substitute_block(
        map_expressions(found.epilogue, lambda e: rewrite(e, of_sums)), {**at, found.column: start + lane}
    )
    begin = Let(start, ex.minimum(panel * wide + v * lanes, ex.as_index(columns - lanes)))
    of_row = For(r, (For(lane, ends, kind="vector", width=lanes),), kind="unrolled")
    body: Block = (
        Alloc(sums),
        each((Store(sums, place, ex.constant(0, element)),)),
        *narrowed(loops_of(found.folds, step)),
        For(v, (begin, of_row), kind="unrolled"),
    )
    tiles = kernel_from_body(
        kernel,
        "tiles",
        (For(panel, body if found.count else loops_of(found.rows, body), kind="parallel"),),
        kernel.outputs,
    )
    return LoweredContraction((tiles,), {}, {weights: array}, frozenset({tiles}))
