"""Split long reductions into few elements, so that their blocks run in parallel (split-K; Halide's
rfactor).

    acc = 0; for k in 0..16777216 { acc = acc + x[k] }; y[] = f(acc)
    =>  for b in 0..4096 {
          acc = 0; for k of 16777216 in b * 4096..b * 4096 + 4096 { acc = acc + x[k] }
          parts[b] = acc
        }
        acc = 0; for b in 0..4096 { acc = acc + parts[b] }; y[] = f(acc)

Legal since the order is that of `blocked_sums`. Pays for at most FEW elements; for more, threads
compute different elements. For an unknown number of terms the original kernel computes short
reductions.
"""

from dataclasses import replace

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.execution_plan import Kernels
from ...dialect.kernel_ir.expressions import Index, Tensor, Var, as_index
from ...dialect.types.sizes import Dim, key_of, product, smaller
from ..analysis.accesses import allocated, reads
from ..loops.collapse import collapsed
from ..loops.parallelize import block_bounds
from ..passes import kernel_pass
from .blocked_sums import MIN_TERMS, has_order, length, reduction_accumulators, terms
from .lane_reduction import lane_reduction

# elements up to which threads share one: beyond, they compute different ones; tuned by hand
# (Zen 4, Zen 5)
FEW = 16


@kernel_pass
def split_reduction(kernel: ir.Kernel, grid: bool = False) -> Kernels | None:
    """The kernel split in two, if its reductions may be long; joined in one thread's order for the
    `grid` of a GPU.
    """
    plain = collapsed(kernel)
    indices, reductions = separate_reductions(plain)
    points = product(tuple(i.extent for i in indices))
    if not reductions or not isinstance(points, int) or points > FEW:
        return None
    each = length(first := reductions[0])
    count = terms(first)
    extent = first.index.extent
    number = (extent + (each - 1)) // each
    long = None
    several = None
    if kernel.sum_order == "terms" or (isinstance(count, int) and count < MIN_TERMS):
        return None
    if isinstance(number, int) and number < 2:
        return None
    if not isinstance(count, int):
        number = smaller(count // MIN_TERMS, 1) * number  # a short reduction has no blocks
        long = as_index(count) >= MIN_TERMS
    if long is not None and not isinstance(
        each, int
    ):  # the blocks are those of the loops inside if this has one iteration
        long = several = long & ~as_index(extent).eq(1)
    parts, joined = split_in_blocks(plain, each, number)
    if not (grid or any(has_order(reduction_accumulators(s) or {}) for s in reductions)):
        joined = lane_reduction(joined)
    versions = [
        replace(parts, sum_order="terms").only(several),
        replace(joined, scheduled=True).only(long),
    ]
    if long is not None:
        order = "terms" if several is None else kernel.sum_order
        versions.append(replace(kernel, name=f"{kernel.name}.short", sum_order=order).only(~long))
    return Kernels(tuple(versions), ir.reshaped_parameters(kernel, plain))


def separate_reductions(kernel: ir.Kernel) -> tuple[list[Index], list[ir.For]]:
    """The loops around the reductions of a kernel, and these; none if they depend on each other or
    differ in their extents.
    """
    indices, block = ir.outer_loops(
        kernel.body, lambda s: s.is_whole and reduction_accumulators(s) is None
    )
    found = [s for s in block if isinstance(s, ir.For)]
    if not all(map(_is_alone, found)) or any(isinstance(s, (ir.If, ir.Assert)) for s in block):
        return indices, []
    return indices, found if len({_extents(s) for s in found}) == 1 else []


def _is_alone(reduction: ir.For) -> bool:
    """Test whether a reduction uses no value computed before it."""
    if (found := reduction_accumulators(reduction)) is None:
        return False
    own = {*allocated(reduction.body), *found}
    named = {s.var for s in ir.statements(reduction.body) if isinstance(s, ir.Let)}
    used = {e for e in ir.nodes((reduction,)) if isinstance(e, Var)}
    return used <= named and all(
        r.tensor in own for r in reads((reduction,)) if r.tensor.space == "register"
    )


def _extents(reduction: ir.For) -> tuple[object, ...]:
    return key_of([s.index.extent for s in ir.statements((reduction,)) if isinstance(s, ir.For)])


def _block_of(reduction: ir.For, block: Index, each: Dim, from_zero: bool) -> ir.For:
    """A reduction over one of its blocks."""
    extent = reduction.index.extent
    start, stop = block_bounds(extent, each, block)
    if not (from_zero and isinstance(extent, int) and isinstance(each, int) and extent % each == 0):
        return replace(reduction, start=start, stop=stop)
    within = Index(reduction.index.name, each)
    return replace(
        reduction,
        index=within,
        body=ir.substitute_block(reduction.body, {reduction.index: start + within}),
    )


def split_in_blocks(
    kernel: ir.Kernel, each: Dim, count: Dim, from_zero: bool = True
) -> tuple[ir.Kernel, ir.Kernel]:
    """The kernels that reduce each block of `each` iterations, and the partial results.

    Equal blocks run `from_zero`, so that the threads of a GPU's block take the same steps.
    """
    indices, block = ir.outer_loops(
        kernel.body, lambda s: s.is_whole and reduction_accumulators(s) is None
    )
    number = Index("b", count)
    partial: list[ir.Statement] = []
    after: list[ir.Statement] = []
    arrays: dict[Tensor, Tensor] = {}
    for s in block:
        if not isinstance(s, ir.For):
            after.append(s)
            continue
        found = reduction_accumulators(s)
        assert found is not None
        for acc, function in found.items():
            shape = (number.extent, *(i.extent for i in indices))
            array = arrays[acc] = Tensor(f"{acc.name}.parts", shape, acc.element, "heap")
            partial += [ir.Alloc(acc), ir.assign(acc, ir.identity(function, acc.element))]
            every = Index("b", number.extent)
            after.append(ir.For(every, (ir.update(function, acc, array[(every, *indices)]),)))
        partial.append(_block_of(s, number, each, from_zero))
        partial += [ir.Store(arrays[acc], (number, *indices), acc[()]) for acc in found]
    bodies = (ir.For(number, ir.nested(indices, tuple(partial))),), ir.nested(indices, tuple(after))
    inputs = [
        [p for p in kernel.inputs if p in read]
        for read in ({r.tensor for r in reads(b)} for b in bodies)
    ]
    parts = (*inputs[0], *arrays.values())
    return (
        replace(
            kernel,
            name=f"{kernel.name}.parts",
            parameters=parts,
            body=bodies[0],
            results=len(arrays),
        ),
        replace(kernel, parameters=(*inputs[1], *arrays.values(), *kernel.outputs), body=bodies[1]),
    )
