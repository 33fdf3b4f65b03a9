"""Block long reductions, in one fixed order.

    for k in 0..n { acc = acc + x[k] }
    =>  for b in 0..ceil(n / 4096) {
          part = 0
          for k of n in b * 4096..min(b * 4096 + 4096, n) { part = part + x[k] }
          acc = acc + part
        }

Required for MIN_TERMS (2^18) terms or more; for an unknown number the kernel tests it at run time.
This is the documented order of long float reductions: it depends on the number of terms alone, so
it is the same on every target, for every number of threads, and for known and unknown sizes. In
nested loops the outermost loop of several iterations is blocked, so that a block has about 4096
terms. Within a block the order is that of `lane_reduction`. A sum of products from which a guard
leaves out terms, as beyond the edge of an array, keeps the order of its terms, however many.
"""

from collections.abc import Callable

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import ZERO, Apply, Expr, Index, Read, Tensor, as_index
from ...dialect.kernel_ir.reduce_in_order import MIN_TERMS
from ...dialect.kernel_ir.traverse import walk
from ..analysis.accesses import allocated, stores
from ..analysis.reduction_order import ORDERED, length, reduction_update, terms
from ..loops.parallelize import block_bounds
from ..passes import kernel_pass

ASSOCIATIVE = ("add", "mul", "max", "min", "maximum", "minimum", "and", "or", "xor")


@kernel_pass
def blocked_sums(kernel: ir.Kernel) -> ir.Kernel:
    return (
        kernel
        if kernel.sum_order == "terms"
        else kernel.with_body(ir.rewrite_block(kernel.body, _in_order))
    )


def _in_order(s: ir.Statement) -> ir.Block | None:
    if not isinstance(s, ir.For) or (accumulators := reduction_accumulators(s)) is None:
        return None
    if not has_order(accumulators):
        return (s,)
    return in_branches(
        s, in_blocks(s, accumulators, lambda reduction: (blocked(reduction, accumulators),)), (s,)
    )


def in_blocks(
    reduction: ir.For, functions: dict[Tensor, str], by_blocks: Callable[[ir.For], ir.Block]
) -> ir.Block:
    """The blocks of a long reduction; if the outermost loop turns out to have one iteration, those
    of the loop inside.
    """
    extent = reduction.index.extent
    inner = [s for s in reduction.body if isinstance(s, ir.For)]
    if isinstance(extent, int) or not inner:
        return by_blocks(reduction)
    once = ir.substitute_block(reduction.body, {reduction.index: ZERO})
    if len(inner) == len(once) == 1 and isinstance(within := once[0], ir.For):
        once = in_blocks(within, functions, by_blocks)
    else:
        once = ir.rewrite_block(once, _in_order)
    return (ir.If(as_index(extent).eq(1), once, by_blocks(reduction)),)


def in_branches(reduction: ir.For, long: ir.Block, short: ir.Block) -> ir.Block:
    """The long or the short form of a reduction if the number of terms is known, otherwise a branch
    with both.
    """
    if isinstance(count := terms(reduction), int):
        return long if count >= MIN_TERMS else short
    return (ir.If(as_index(count) >= MIN_TERMS, long, short),)


def reduction_accumulators(s: ir.Statement) -> dict[Tensor, str] | None:
    """The functions that a loop nest reduces into, each with its function; None if the nest does
    anything else.
    """
    if not isinstance(s, ir.For) or not s.is_whole:
        return None
    inner = ir.statements(s.body)
    own = allocated(s.body)
    if any(
        (isinstance(i, ir.For) and not i.is_whole) or (isinstance(i, ir.If) and not ir.is_rare(i))
        for i in inner
    ):
        return None
    accumulators: dict[Tensor, str] = {}
    values: list[Expr] = [
        e for i in inner if not isinstance(i, ir.Store) for e in ir.expressions(i)
    ]
    for store in stores(s.body):
        if store.tensor in own:
            values.append(store.value)
            continue
        if (reduction := reduction_of(store)) is None or store.tensor in accumulators:
            return None
        accumulators[store.tensor] = reduction[0]
        values += reduction[1]
    if not accumulators or any(
        isinstance(e, Read) and e.tensor in accumulators for value in values for e in walk(value)
    ):
        return None
    return accumulators


def reduction_of(store: ir.Store) -> tuple[str, tuple[Expr, ...]] | None:
    """The function that updates an accumulator, and its other operands."""
    match store:
        case ir.Store(
            Tensor(space="register", shape=()) as acc, (), Apply("fma", (a, b, Read(again, ())))
        ):
            if again is acc:
                return "add", (a, b)
    update = reduction_update(store)
    return (update[0], (update[1],)) if update is not None and update[0] in ASSOCIATIVE else None


def has_order(functions: dict[Tensor, str]) -> bool:
    """Test whether the order of a reduction decides its bits."""
    return any(
        t.element.kind == "float" and function in ORDERED for t, function in functions.items()
    )


def blocked(reduction: ir.For, functions: dict[Tensor, str]) -> ir.For:
    """The loop over a reduction's blocks."""
    each = length(reduction)
    extent = reduction.index.extent
    block = Index("b", (extent + (each - 1)) // each)
    parts = {t: ir.accumulator("part", t.element) for t in functions}
    start, end = block_bounds(extent, each, block)
    initial = ((part, ir.identity(functions[t], t.element)) for t, part in parts.items())
    clear = [s for part, value in initial for s in (ir.Alloc(part), ir.assign(part, value))]
    within = ir.replace(
        reduction, body=ir.replace_arrays(reduction.body, parts), start=start, stop=end
    )
    return ir.For(
        block, (*clear, within, *(ir.update(f, t, parts[t][()]) for t, f in functions.items()))
    )
