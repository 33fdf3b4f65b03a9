"""Fuse consecutive kernels row by row, so that a row stays in cache (loop fusion at row granularity; Halide:
compute_at).

    for i { acc = max over k of x[i, k]; m[i] = acc };  for i { for j { y[i, j] = x[i, j] - m[i] } }
    =>  for i { acc = max over k of x[i, k]; let m = acc; for j { y[i, j] = x[i, j] - m } }

Legal if the kernels access shared arrays in the same rows only. Pays for at least `fused_rows` short rows on a CPU; a GPU
has no cache per thread. A value per row that only the fused kernel reads becomes a variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...dialect.ir.sizes import product, same_size
from ...dialect.notation.expressions import Expr, Index, Read, Tensor, Var
from ...dialect.notation.loops import Alloc, Block, For, Kernel, Let, Statement, Store, map_expressions, statements
from ...dialect.notation.plan import Plan
from ...dialect.notation.traverse import rewrite
from ..analysis.accesses import reads, stores
from ..loops.clone import clone
from ..loops.collapse import is_whole
from ..passes import plan_pass
from ..processor import processor


@plan_pass
def fuse_rows(plan: Plan) -> Plan:
    """The plan with kernels fused."""
    kernels: list[Kernel] = []
    for kernel in plan.kernels:
        joined = _joined(kernels[-1], kernel, plan.home) if kernels else None
        if joined is None:
            kernels.append(kernel)
        else:
            kernels[-1] = joined
    if len(kernels) == len(plan.kernels):
        return plan
    return replace(plan, kernels=tuple(_without_arrays(k, kernels, plan) for k in kernels))


def _loops(kernel: Kernel) -> tuple[list[Index], Block]:
    """The indices of the loops around a kernel's whole body, and that body."""
    indices: list[Index] = []
    block = kernel.body
    while len(block) == 1 and isinstance(loop := block[0], For) and is_whole(loop):
        indices.append(loop.index)
        block = loop.body
    return indices, block


def _joined(first: Kernel, second: Kernel, home: Mapping[Tensor, Tensor]) -> Kernel | None:
    """Both kernels as one, if they share rows only."""
    loops = [_loops(k) for k in (first, second)]
    reductions = [any(isinstance(s, For) for s in block) for _, block in loops]
    depth = min(len(found) - (not reduction) for (found, _), reduction in zip(loops, reductions, strict=True))
    if depth < 1 or not any(reductions):
        return None
    outer, inner = (found[:depth] for found, _ in loops)
    rows = product(tuple(i.extent for i in outer))
    alike = all(same_size(a.extent, b.extent) for a, b in zip(outer, inner, strict=True))
    if not alike or (isinstance(rows, int) and rows < processor().tuning.fused_rows):
        return None
    written, places = set(first.outputs), {home.get(t, t) for t in {*first.parameters, *second.parameters}}
    meet = written & set(second.parameters)
    if (
        not meet
        or len(places) < len({*first.parameters, *second.parameters})
        or set(second.outputs) & set(first.parameters)
    ):
        return None
    before, after = (_inside(k, depth) for k in (first, second))
    kept = written | set(second.outputs)
    if not (_in_rows(before, outer, kept) and _in_rows(after, inner, kept)):
        return None
    mark = str(sum(1 for s in statements(before) if isinstance(s, (For, Let, Alloc))))
    body: Block = (*before, *clone(after, dict(zip(inner, outer, strict=True)), mark))
    results = (*first.outputs, *second.outputs)
    given = dict.fromkeys(p for k in (first, second) for p in k.parameters if p not in results)
    spans = tuple(dict.fromkeys([*first.spans, *second.spans]))
    return replace(first, parameters=(*given, *results), body=_around(body, outer), results=len(results), spans=spans)


def _inside(kernel: Kernel, depth: int) -> Block:
    """The body inside of a kernel's outermost loops."""
    block = kernel.body
    for _ in range(depth):
        (loop,) = block
        assert isinstance(loop, For)
        block = loop.body
    return block


def _around(block: Block, indices: list[Index]) -> Block:
    for index in reversed(indices):
        block = (For(index, block),)
    return block


def _in_rows(block: Block, indices: list[Index], written: set[Tensor]) -> bool:
    """Test whether statements access only their own, short row, without nested loops."""
    if any(isinstance(s, For) and any(isinstance(b, For) for b in statements(s.body)) for s in statements(block)):
        return False
    if any(isinstance(s, Alloc) and s.tensor.rank for s in statements(block)):
        return False
    for tensor, at in [(a.tensor, a.indices) for a in (*reads(block), *stores(block))]:
        if tensor.rank > 1 or tensor in written:
            mine, row = at[: len(indices)], product(tensor.shape[len(indices) :])
            if len(mine) < len(indices) or any(a is not i for a, i in zip(mine, indices, strict=True)):
                return False
            if (
                isinstance(row, int) and row * tensor.element.bytes > processor().l2_bytes // 2
            ):  # half for what the other kernels touch
                return False
    return True


def _without_arrays(kernel: Kernel, kernels: list[Kernel], plan: Plan) -> Kernel:
    """The kernel with variables for the values per row that no other kernel reads."""
    indices, block = _loops(kernel)
    others = {p for k in kernels if k is not kernel for p in k.parameters}
    aliased = {t for pair in plan.home.items() if pair[0] is not pair[1] for t in pair}
    kept = {*others, *aliased, *(plan.home.get(r, r) for r in plan.results)}
    values: dict[Tensor, Var] = {}
    for s in block:
        if isinstance(s, Store) and len(s.indices) == len(indices) and s.tensor in {*kernel.outputs} - kept:
            values[s.tensor] = Var(s.tensor.name, s.tensor.element)
    values = {t: v for t, v in values.items() if sum(1 for s in stores(block) if s.tensor is t) == 1}
    if not values or len(values) == kernel.results:
        return kernel

    def put(e: Expr) -> Expr | None:
        return values.get(e.tensor) if isinstance(e, Read) else None

    made: list[Statement] = []
    for s in map_expressions(block, lambda e: rewrite(e, put)):
        made.append(Let(values[s.tensor], s.value) if isinstance(s, Store) and s.tensor in values else s)
    parameters = tuple(p for p in kernel.parameters if p not in values)
    body = _around(tuple(made), indices)
    return replace(kernel, parameters=parameters, body=body, results=kernel.results - len(values))
