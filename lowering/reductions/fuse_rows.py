"""Fuse consecutive kernels row by row, so that a row stays in cache (row-granular fusion; Halide's
compute_at).

    for i { acc = max over k of x[i, k]; m[i] = acc };  for i { for j { y[i, j] = x[i, j] - m[i] } }
    =>  for i { acc = max over k of x[i, k]; let m = acc; for j { y[i, j] = x[i, j] - m } }

Legal if the kernels access shared arrays in the same rows only. Pays for at least `fused_rows`
short rows on a CPU; a GPU has no cache per thread. A value per row that only the fused kernel reads
becomes a variable.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.execution_plan import Plan
from ...dialect.kernel_ir.expressions import Index, Tensor, Var
from ...dialect.types.sizes import product, same_size
from ..analysis.accesses import every_access, stores
from ..loops.clone import clone
from ..loops.collapse import nonunit_loops, squeezed
from ..passes import plan_pass
from ..processor import processor


@plan_pass
def fuse_rows(plan: Plan) -> Plan:
    """The plan with kernels fused."""
    kernels: list[ir.Kernel] = []
    for kernel in plan.kernels:
        if (joined := _joined(kernels[-1], kernel, plan.home) if kernels else None) is None:
            kernels.append(kernel)
        else:
            kernels[-1] = joined
    if len(kernels) == len(plan.kernels):
        return plan
    return replace(plan, kernels=tuple(_without_arrays(k, kernels, plan) for k in kernels))


def _joined(first: ir.Kernel, second: ir.Kernel, home: Mapping[Tensor, Tensor]) -> ir.Kernel | None:
    """Both kernels as one, if they share rows only."""
    loops = [nonunit_loops(k.body) for k in (first, second)]
    reductions = [any(isinstance(s, ir.For) for s in block) for _, block in loops]
    innermost = [ir.outer_loops(k.body)[0][-1:] for k in (first, second)]
    counts = [(len(found), found[-1:]) for found, _ in loops]
    depth = min(
        n - (not r and last == i)
        for (n, last), r, i in zip(counts, reductions, innermost, strict=True)
    )
    if depth < 1 or not any(reductions):
        return None
    outer, inner = (found[:depth] for found, _ in loops)
    rows = product(tuple(i.extent for i in outer))
    alike = all(same_size(a.extent, b.extent) for a, b in zip(outer, inner, strict=True))
    if not alike or (isinstance(rows, int) and rows < processor().tuning.fused_rows):
        return None
    written = set(first.outputs)
    parameters = {*first.parameters, *second.parameters}
    homes = {home.get(t, t) for t in parameters}
    meet = written & set(second.parameters)
    if not meet or len(homes) < len(parameters) or set(second.outputs) & set(first.parameters):
        return None
    before, after = (ir.nested(found[depth:], block) for found, block in loops)
    kept = written | set(second.outputs)
    if not (_in_rows(before, outer, kept) and _in_rows(after, inner, kept)):
        return None
    mark = str(sum(1 for s in ir.statements(before) if isinstance(s, (ir.For, ir.Let, ir.Alloc))))
    body: ir.Block = (*before, *clone(after, dict(zip(inner, outer, strict=True)), mark))
    results = (*first.outputs, *second.outputs)
    given = dict.fromkeys(p for k in (first, second) for p in k.parameters if p not in results)
    spans = tuple(dict.fromkeys([*first.spans, *second.spans]))
    return replace(
        first,
        parameters=(*given, *results),
        body=ir.nested(outer, body),
        results=len(results),
        spans=spans,
    )


def _in_rows(block: ir.Block, indices: list[Index], written: set[Tensor]) -> bool:
    """Test whether statements access only their own, short row, without nested loops."""
    if any(isinstance(s, ir.For) and ir.has_loops(s.body) for s in ir.statements(block)):
        return False
    if any(isinstance(s, ir.Alloc) and s.tensor.rank for s in ir.statements(block)):
        return False
    for tensor, at in every_access(block):
        shape = squeezed(tensor.shape, tensor)
        if len(shape) > 1 or tensor in written:
            mine = squeezed(at, tensor)[: len(indices)]
            row = product(shape[len(indices) :])
            if len(mine) < len(indices) or any(
                a is not i for a, i in zip(mine, indices, strict=True)
            ):
                return False
            # half of the cache is for what the other kernels touch
            if isinstance(row, int) and row * tensor.element.bytes > processor().l2_bytes // 2:
                return False
    return True


def _without_arrays(kernel: ir.Kernel, kernels: list[ir.Kernel], plan: Plan) -> ir.Kernel:
    """The kernel with variables for the values per row that no other kernel reads."""
    indices, block = ir.outer_loops(kernel.body)
    elsewhere = {p for k in kernels if k is not kernel for p in k.parameters}
    aliased = {t for pair in plan.home.items() if pair[0] is not pair[1] for t in pair}
    kept = {*elsewhere, *aliased, *(plan.home.get(r, r) for r in plan.results)}
    uses = Counter(s.tensor for s in stores(block))
    stored = [s.tensor for s in block if isinstance(s, ir.Store)]
    per_row = [t for t in stored if len(squeezed(t.shape, t)) == len(indices)]
    values = {
        t: Var(t.name, t.element) for t in per_row if t in {*kernel.outputs} - kept and uses[t] == 1
    }
    if not values or len(values) == kernel.results:
        return kernel
    body = tuple(
        ir.Let(values[s.tensor], s.value) if isinstance(s, ir.Store) and s.tensor in values else s
        for s in ir.replace_reads(block, values)
    )
    parameters = tuple(p for p in kernel.parameters if p not in values)
    return replace(
        kernel,
        parameters=parameters,
        body=ir.nested(indices, body),
        results=kernel.results - len(values),
    )
