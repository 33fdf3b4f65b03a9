"""Vectorize reductions along contiguous memory by partial sums per lane, in one fixed order.

    for k in 0..100 { acc = acc + x[k] }
    =>  alloc register sums: tensor<32xi32>
        for l in 0..32 vector 32 { sums[l] = 0 }
        for b in 0..3 { for l in 0..32 vector 32 { sums[l] = sums[l] + x[b * 32 + l] } }
        for h in 0..16 vector 16 { sums[h] = sums[h] + sums[h + 16] }   and so on by halves
        acc = acc + sums[0]
        for k of 100 in 96..100 { acc = acc + x[k] }

Legal for integers, whose sums have no order. For floats it is the documented order of a reduction
along a contiguous axis: lane l of 16 takes the elements l, l + 16, ... of whole blocks of 16; lanes
are added pairwise by halves (l with l + 8, then l + 4, ...); the remaining elements follow one by
one. The order is the same for every vector width, target and number of threads. Other float
reductions keep the order of their indices; long ones of either kind are blocked by `blocked_sums`.
The maximum of floats has no order: it takes more lanes first, and 16 for the remainder.
"""

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import Const, Index, Tensor, apply, as_index, maximum
from ...dialect.kernel_ir.reduce_in_order import LANES
from ...dialect.types.tensor_types import F32, F64, ElementType
from ..analysis.reduction_order import ORDERED, along_memory
from ..passes import statement_pass
from ..processor import processor

# cost model: vectors of integer sums, each of which waits for the one before; tuned by hand
# (Zen 4, Zen 5)
VECTORS = 4
# cost model: vectors of float maxima, each a chain of several dependent instructions; tuned by
# hand (Zen 4, Zen 5)
FLOAT_VECTORS = 8


@statement_pass
def lane_reduction(s: ir.Statement) -> ir.Block | None:
    return by_lanes(s)


def by_lanes(s: ir.Statement, most: int | None = None) -> ir.Block | None:
    """Reduce a loop along memory by lanes, if it may be long enough; `most` limits the lanes."""
    if not isinstance(s, ir.For) or s.kind == "vector" or (found := along_memory(s)) is None:
        return (s,) if isinstance(s, ir.For) and s.kind == "vector" else None
    store, function, value = found
    acc = store.tensor
    extent = s.index.extent
    widths = _widths(acc.element, function)
    widths = widths if most is None else (min(widths[-1], most),)
    if not (widths := [w for w in widths if not isinstance(extent, int) or w <= extent]):
        return None
    sums = Tensor("sums", (widths[0],), acc.element, "register")
    lane = Index("l", widths[0])
    start = ir.Store(sums, (lane,), ir.identity(function, acc.element))
    statements: list[ir.Statement] = [ir.Alloc(sums), ir.vector_loop(lane, start)]
    names = tuple(n for n in s.body if n is not store)
    left = s.start
    before = widths[0]
    for width in widths:
        statements += _halves(function, sums, before, width)
        lane = Index("l", width)
        block = Index("b", extent)
        whole = maximum(s.end - left, 0) // width
        step = (*names, ir.Store(sums, (lane,), apply(function, sums[lane], value)))
        step = ir.substitute_block(step, {s.index: left + block * width + lane})
        if not (isinstance(whole, Const) and not whole.value):
            statements.append(ir.For(block, (ir.vector_loop(lane, *step),), stop=whole))
        left = left + whole * width
        before = width
    statements += _halves(function, sums, before, 1)
    statements.append(ir.Store(acc, (), apply(function, acc[()], sums[as_index(0)])))
    if not (isinstance(left, Const) and isinstance(s.end, Const) and left.value == s.end.value):
        statements.append(ir.replace(s, start=left))
    return tuple(statements)


def _widths(element: ElementType, function: str) -> tuple[int, ...]:
    """The lanes of a reduction, and those of its remainder."""
    if element not in (F32, F64):
        return (max(VECTORS * processor().vector_bytes // element.bytes, 8),)
    return (
        (LANES,)
        if function in ORDERED
        else (FLOAT_VECTORS * processor().vector_bytes // element.bytes, LANES)
    )


def _halves(function: str, sums: Tensor, width: int, least: int) -> list[ir.Statement]:
    steps: list[ir.Statement] = []
    while width > least:
        width //= 2
        lane = Index("h", width)
        step = ir.Store(sums, (lane,), apply(function, sums[lane], sums[lane + width]))
        steps.append(
            ir.vector_loop(lane, step) if width > 1 else ir.For(lane, (step,), kind="unrolled")
        )
    return steps
