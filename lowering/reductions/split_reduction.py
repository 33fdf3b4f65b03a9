"""Split long reductions into few elements, so that their blocks run in parallel (split-K; Halide's rfactor).

    acc = 0; for k in 0..16777216 { acc = acc + x[k] }; y[] = f(acc)
    =>  for b in 0..4096 { acc = 0; for k of 16777216 in b * 4096..b * 4096 + 4096 { acc = acc + x[k] }; parts[b] = acc }
    and acc = 0; for b in 0..4096 { acc = acc + parts[b] }; y[] = f(acc)

Legal since the order is that of `blocked_sums`. Pays for at most FEW elements; for more, threads compute different
elements. For an unknown number of terms the original kernel computes short reductions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...dialect.ir.sizes import Dim, product, smaller
from ...dialect.notation import loops as ir
from ...dialect.notation.expressions import Expr, Index, Tensor, Var, as_index
from ...dialect.notation.plan import Kernels
from ..analysis.accesses import allocated, reads
from ..loops.collapse import collapsed, is_whole
from ..passes import kernel_pass
from .blocked_sums import MIN_TERMS, bounds, has_order, length, reduction_accumulators, terms
from .lane_reduction import lane_reduction

FEW = 16  # elements: beyond, threads compute different elements


@dataclass(frozen=True, eq=False)
class SplitReduction:
    """The kernel that reduces each block, and the one that reduces the partial results, in order if it matters, where
    `long` holds.
    """

    parts: ir.Kernel
    joined: ir.Kernel
    long: Expr | None
    ordered: bool


@kernel_pass
def split_reduction(kernel: ir.Kernel, grid: bool = False) -> Kernels | None:
    """The kernel split in two, if its reductions may be long; None if they are short or depend on each other. For the
    `grid` of a GPU only if they are known to be long, and without lanes, since its threads are the lanes.
    """
    plain = collapsed(kernel)
    found = None if kernel.sum_order == "terms" else _split(plain)
    if found is None or (grid and found.long is not None):
        return None
    joined = found.joined if grid or found.ordered else lane_reduction(found.joined)
    made = [replace(found.parts, sum_order="terms"), replace(joined, scheduled=True).only(found.long)]
    if found.long is not None:
        made.append(replace(kernel, name=f"{kernel.name}.short", sum_order="terms").only(~found.long))
    return Kernels(tuple(made), ir.reshaped_parameters(kernel, plain))


def _split(kernel: ir.Kernel) -> SplitReduction | None:
    indices, block = _around(kernel.body)
    shape = tuple(i.extent for i in indices)
    points = product(shape)
    reductions = [s for s in block if isinstance(s, ir.For)]
    if not reductions or not isinstance(points, int) or points > FEW or not all(map(_is_alone, reductions)):
        return None
    if any(isinstance(s, (ir.If, ir.Assert)) for s in block) or len({_written(s) for s in reductions}) > 1:
        return None
    count = terms(first := reductions[0])
    each = length(first)
    if isinstance(each, Expr) or (isinstance(count, int) and count < MIN_TERMS):
        return None
    number: Dim = (first.index.extent + (each - 1)) // each
    if isinstance(number, int) and number < 2:
        return None
    if not isinstance(count, int):
        number = smaller(count // MIN_TERMS, 1) * number  # a short reduction has no blocks
    return _Two(kernel, indices, Index("b", number)).made(
        block, None if isinstance(count, int) else as_index(count) >= MIN_TERMS
    )


def _around(body: ir.Block) -> tuple[list[Index], ir.Block]:
    """The indices of the loops around the reductions, and the block inside of them."""
    indices: list[Index] = []
    while (
        len(body) == 1
        and isinstance(loop := body[0], ir.For)
        and is_whole(loop)
        and reduction_accumulators(loop) is None
    ):
        indices.append(loop.index)
        body = loop.body
    return indices, body


def _is_alone(reduction: ir.For) -> bool:
    """Test whether a reduction uses no value computed before it."""
    found = reduction_accumulators(reduction)
    if found is None:
        return False
    own = {*allocated(reduction.body), *found}
    named = {s.var for s in ir.statements(reduction.body) if isinstance(s, ir.Let)}
    used = {e for e in ir.nodes((reduction,)) if isinstance(e, Var)}
    return used <= named and all(r.tensor in own for r in reads((reduction,)) if r.tensor.space == "register")


def _written(reduction: ir.For) -> tuple[object, ...]:
    """A comparable description of the extents of a reduction's loops."""
    extents = [s.index.extent for s in ir.statements((reduction,)) if isinstance(s, ir.For)]
    return tuple(n if isinstance(n, int) else n.key for n in extents)


def _block_of(reduction: ir.For, block: Index) -> ir.For:
    """A reduction over one of its blocks, from 0 on if blocks are equal, so that a block's threads take the same steps."""
    start, stop = bounds(reduction, block)
    each, extent = length(reduction), reduction.index.extent
    if not (isinstance(each, int) and isinstance(extent, int) and extent % each == 0):
        return replace(reduction, start=start, stop=stop)
    within = Index(reduction.index.name, each)
    return replace(reduction, index=within, body=ir.substitute_block(reduction.body, {reduction.index: start + within}))


class _Two:
    """The construction of two kernels from one."""

    def __init__(self, kernel: ir.Kernel, indices: Sequence[Index], block: Index) -> None:
        self.kernel, self.indices, self.block = kernel, indices, block
        self.shape = (block.extent, *(i.extent for i in indices))

    def made(self, block: ir.Block, long: Expr | None) -> SplitReduction:
        within: list[ir.Statement] = []
        after: list[ir.Statement] = []
        arrays: list[Tensor] = []
        for s in block:
            if not isinstance(s, ir.For):
                after.append(s)
                continue
            found = reduction_accumulators(s)
            assert found is not None
            for acc, function in found.items():
                array = Tensor(f"{acc.name}.parts", self.shape, acc.element, "heap")
                arrays.append(array)
                within += [ir.Alloc(acc), ir.assign(acc, ir.identity(function, acc.element))]
                every = Index("b", self.block.extent)
                after.append(ir.For(every, (ir.update(function, acc, array[(every, *self.indices)]),)))
            within.append(_block_of(s, self.block))
            within += [
                ir.Store(array, (self.block, *self.indices), acc[()])
                for acc, array in zip(found, arrays[-len(found) :], strict=True)
            ]
        parts = (ir.For(self.block, self.around(tuple(within))),)
        joined = self.around(tuple(after))
        kernel = self.kernel
        first, last = (*self.inputs(parts), *arrays), (*self.inputs(joined), *arrays, *kernel.outputs)
        return SplitReduction(
            replace(kernel, name=f"{kernel.name}.parts", parameters=first, body=parts, results=len(arrays)),
            replace(kernel, parameters=last, body=joined),
            long,
            any(has_order(found) for s in block if isinstance(s, ir.For) and (found := reduction_accumulators(s))),
        )

    def around(self, body: ir.Block) -> ir.Block:
        for index in reversed(self.indices):
            body = (ir.For(index, body),)
        return body

    def inputs(self, body: ir.Block) -> list[Tensor]:
        read = {r.tensor for r in reads(body)}
        return [p for p in self.kernel.inputs if p in read]
