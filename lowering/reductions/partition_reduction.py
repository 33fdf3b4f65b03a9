"""Partition reductions over many rows among threads (split-K; Halide's rfactor).

    for j in 0..n { acc = 0; for k in 0..4096 { acc = acc + x[k, j] }; y[j] = f(acc) }
    =>  for b in 0..8 {
          for j { acc = 0; for k of 4096 in b * 512..b * 512 + 512 { acc = acc + x[k, j] }; parts[b,
          j] = acc }
        }
    and for j { acc = 0; for b in 0..8 { acc = acc + parts[b, j] }; y[j] = f(acc) }

Legal for reductions without an order: not for float sums, whose columns threads share instead
(`column_reduction`). Pays from MIN_BYTES of rows, since threads then read whole rows. The number of
partitions depends only on extents.
"""

from ...dialect.kernel_ir.execution_plan import Kernels
from ...dialect.kernel_ir.expressions import Const
from ...dialect.kernel_ir.loops import Alloc, For, Kernel, Store, has_loops, reshaped_parameters
from ..analysis.accesses import reads
from ..analysis.reduction_order import reduction_update
from ..loops.collapse import collapsed
from ..passes import kernel_pass
from ..processor import processor
from .blocked_sums import ASSOCIATIVE
from .column_reduction import ROWS_AT_ONCE, is_plain, reads_rows
from .split_reduction import split_in_blocks

SHARES = 8  # shares of the rows, which threads reduce; tuned by hand (Zen 4, Zen 5)
IN_ANY_ORDER = {
    "int": ASSOCIATIVE,
    "uint": ASSOCIATIVE,
    "bool": ASSOCIATIVE,
    "float": ("maximum", "minimum"),
}


@kernel_pass
def partition_reduction(kernel: Kernel) -> Kernels | None:
    """The kernel that reduces each partition's rows, and the one that reduces the partial
    results.
    """
    plain = collapsed(kernel)
    found = _partitioned(plain)
    return None if found is None else Kernels(found, reshaped_parameters(kernel, plain))


def _partitioned(kernel: Kernel) -> tuple[Kernel, Kernel] | None:
    match kernel.body:
        case (
            For(
                column, (Alloc(acc), Store(own, (), Const()), For(row) as reduction, *after)
            ) as loop,
        ):
            whole = own is acc and loop.is_whole and reduction.is_whole and is_plain(reduction)
            if not whole or has_loops(tuple(after)):
                return None
        case _:
            return None
    store = reduction.body[-1]
    found = reduction_update(store) if isinstance(store, Store) and store.tensor is acc else None
    free = found is not None and found[0] in IN_ANY_ORDER.get(acc.element.kind, ())
    if found is None or not free or not reads_rows(reduction, column, set()):
        return None
    columns, rows = column.extent, row.extent
    if (
        not (isinstance(columns, int) and isinstance(rows, int))
        or columns * acc.element.bytes > processor().l1_bytes
    ):
        return None
    each = sum(r.tensor.element.bytes for r in reads(reduction.body) if r.tensor.rank)
    length = -(-rows // (SHARES * ROWS_AT_ONCE)) * ROWS_AT_ONCE
    count = -(-rows // length)
    if (
        count < 2 or each * rows * columns < 2 * processor().l2_bytes
    ):  # a core's own cache holds less
        return None
    return split_in_blocks(kernel, length, count, from_zero=False)
