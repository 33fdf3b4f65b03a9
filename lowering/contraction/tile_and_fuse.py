"""Tile the rows of a chain of kernels between two products, and fuse the tiles (MLIR's
tile-and-fuse, Halide's compute_at).

    for i { for j { s[i, j] = sum over k of q[i, k] * u[j, k] } }
    for i { for j { w[i, j] = exp(s[i, j]) } }
    for i { for d { y[i, d] = sum over j of w[i, j] * v[j, d] } }
    =>  for task parallel {
          panels of u, panels of v
          for tile { 32 rows of s, in a buffer;  32 rows of w, in a buffer;  32 rows of y }
        }

Legal if all kernels go over the same rows, and access what the chain writes in their own row alone.
A row is computed as before, so that sums keep their order. Pays between two float products, if the
arrays between them exceed the L2 cache and the columns of either product fit half of it: tiles stay
there. Attention is such a chain; FlashAttention tiles its columns, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.execution_plan import Plan, scratch_buffers, viewed
from ...dialect.kernel_ir.expressions import Expr, Index, Tensor, Var
from ...dialect.types.tensor_types import I64
from ..analysis.accesses import every_access, reads
from ..loops.clone import clone
from ..loops.collapse import nonunit_loops, squeezed
from ..loops.parallelize import block_bounds
from ..pass_context import Context
from ..passes import Pass, placed, plan_pass, run_passes
from ..processor import Processor, compiling_for, processor
from .match_contraction import Contraction, kernel_from_body, match_contraction, parallel_loop
from .vnni_packing import extent_of, tile_start

ROWS = 32  # rows of a tile; tuned by hand (Zen 4, Zen 5)
# tiles of a task, at least, which packs the panels for them, and tasks for threads to share;
# tuned by hand (Zen 4, Zen 5)
TASK_TILES, TASKS = 4, 16
STACK = 3 << 19  # bytes of the buffers of a task, at most: they stand on the stack of a thread
ALONE = 1 << 60  # operations: no thread is woken for a tile


@plan_pass
def tile_and_fuse(plan: Plan, body: Sequence[Pass[..., Any]] = ()) -> Plan:
    """The plan with its chains fused; `body` are the passes over the kernels of a tile."""
    return Tiling().fused_chains(plan, body)


Prepared = tuple[Sequence[ir.Kernel], Processor]
Places = tuple[
    Sequence[Index], Index, Var
]  # the outer indices, that of rows, and the first row of a tile


class Tiling:
    """The tiling of chains: on a CPU by tasks, whose tiles stay in its caches."""

    rows = ROWS
    space = "stack"

    def suits(self, c: Contraction) -> bool:
        """Test whether the columns of a product fit half of the L2 cache."""
        size = (
            extent_of(c.column)
            * prod(map(extent_of, c.reduction_axes))
            * c.accumulator.element.bytes
        )
        return size <= processor().l2_bytes // 2

    def prepared(
        self, kernels: list[ir.Kernel], arrays: Iterable[Tensor], tiles: set[Tensor]
    ) -> Prepared | None:
        """The kernels of a tile, and what they are compiled for; None if it does not pay to have
        arrays by tiles.
        """
        tuning = replace(processor().tuning, panels_together=0)
        alone = replace(processor(), wake_operations=ALONE, tuning=tuning)
        return None if _bytes(arrays) < processor().l2_bytes else (kernels, alone)

    def joined(
        self, kernels: Sequence[ir.Kernel], tiles: Mapping[Tensor, Tensor], at: Places
    ) -> ir.Block | None:
        """The loop over all tiles; None if what they hold does not fit."""
        return None if _bytes(tiles.values()) > STACK else _tasks(kernels, tiles, *at)

    def fused_chains(self, plan: Plan, body: Sequence[Pass[..., object]]) -> Plan:
        """The plan with its chains fused."""
        for n in range(len(plan.kernels)):
            if n < len(plan.kernels) and (start := self._product(plan.kernels[n])) is not None:
                rows = start.loops[: start.loops.index(start.row) + 1]
                if count := self._end(plan.kernels[n:], rows):
                    plan = self._fused(plan, n, count, rows, body) or plan
        return plan

    def _product(self, kernel: ir.Kernel) -> Contraction | None:
        """The product of floats that a kernel is, if a chain may begin or end with it."""
        c = match_contraction(kernel.with_body(ir.nested(*nonunit_loops(kernel.body))))
        if (
            c is None
            or c.unknown
            or c.window is not None
            or c.guard
            or c.accumulator.element.kind != "float"
        ):
            return None
        return c if self.suits(c) and extent_of(c.row) >= self.rows else None

    def _end(self, kernels: Sequence[ir.Kernel], rows: Sequence[Index]) -> int:
        """The number of kernels to the next product, all of which go over the same rows; 0 if
        others come before.
        """
        seen, written = set[Tensor](), set[Tensor]()
        for n, kernel in enumerate(kernels, 1):
            indices, block = nonunit_loops(kernel.body)
            own = indices[: len(rows)]
            known = all(isinstance(d, int) for p in kernel.parameters for d in p.shape)
            if kernel.condition is not None or not known or seen & {*kernel.outputs}:
                return 0
            seen, written = seen | {*kernel.parameters}, written | {*kernel.outputs}
            here = (squeezed(at, t)[: len(rows)] for t, at in every_access(block) if t in written)
            apart = any([*map(id, at)] != [*map(id, own)] for at in here)
            if apart or [i.extent for i in own] != [i.extent for i in rows]:
                return 0
            if n > 1 and (end := self._product(kernel)) is not None and end.row is own[-1]:
                return n
        return 0

    def _fused(
        self,
        plan: Plan,
        first: int,
        count: int,
        rows: Sequence[Index],
        body: Sequence[Pass[..., object]],
    ) -> Plan | None:
        """Fuse `count` kernels of the plan; None if that does not pay, or other kernels access an
        array between them.
        """
        chain = plan.kernels[first : first + count]
        others = (*plan.kernels[:first], *plan.kernels[first + count :])
        kept = {
            *plan.results,
            *plan.views,
            *plan.views.values(),
            *(p for k in others for p in k.parameters),
        }
        shapes = {
            t: (self.rows, *squeezed(t.shape, t)[len(rows) :])
            for k in chain
            for t in k.outputs
            if t not in kept
        }
        shared = {t for k in chain for t in k.inputs} & {
            t for k in chain for t in k.outputs if t in kept
        }
        if shared:
            return None
        line = (
            processor().line_bytes
        )  # more for each row: rows a power of two apart would share sets of the L1 cache
        buffers = {
            t: replace(t, shape=(*s[:-1], s[-1] + line // t.element.bytes))
            for t, s in shapes.items()
        }
        outer, start = [Index(i.name, i.extent) for i in rows[:-1]], Var("first", I64)

        def tile(kernel: ir.Kernel) -> ir.Kernel:
            indices, block = nonunit_loops(kernel.body)
            i, nest = Index(rows[-1].name, self.rows), ir.nested(indices[len(rows) :], block)

            def own(t: Tensor, at: tuple[Expr, ...]) -> tuple[Tensor, tuple[Expr, ...]] | None:
                if t not in buffers:
                    return None
                return buffers[t], (i, *squeezed(at, t)[len(rows) :])

            nest = ir.substitute_block(
                ir.redirect(nest, own), dict(zip(indices, (*outer, start + i), strict=False))
            )
            return kernel_from_body(
                kernel, "rows", ir.nested((i,), nest), [buffers.get(t, t) for t in kernel.outputs]
            )

        if (prepared := self.prepared([*map(tile, chain)], shapes, {*buffers.values()})) is None:
            return None
        with compiling_for(prepared[1]):
            done: Plan = run_passes(
                placed(body), replace(plan, kernels=tuple(prepared[0])), Context()
            )
        written = dict.fromkeys(t for k in done.kernels for t in k.outputs)
        homes = {t: viewed(t, done.views) for k in done.kernels for t in k.parameters}
        mine = {t: f"{t.name}.{n}" for n, t in enumerate(written) if homes[t] not in kept}
        stack = {t: replace(t, name=name, space=self.space) for t, name in mine.items()}
        reshaped = {homes[t] for t in written} & {homes[t] for t in homes if t not in written}
        several = any(k.condition is not None or scratch_buffers(k) for k in done.kernels)
        if (
            reshaped
            or several
            or (nest := self.joined(done.kernels, stack, (outer, rows[-1], start))) is None
        ):
            return None
        kernel = kernel_from_body(chain[0], "fused", nest, [t for t in written if t not in stack])
        kernel = replace(
            kernel, scheduled=True, spans=tuple(dict.fromkeys(s for k in chain for s in k.spans))
        )
        kernels = (*others[:first], kernel, *others[first:])
        return replace(
            plan, kernels=kernels, views=done.views, constants={**plan.constants, **done.constants}
        )


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(size for t in tensors if isinstance(size := t.bytes, int))


def _tasks(
    kernels: Sequence[ir.Kernel],
    stack: Mapping[Tensor, Tensor],
    outer: Sequence[Index],
    row: Index,
    start: Var,
) -> ir.Block:
    """The parallel loop over tasks of some tiles each; values that are equal for all tiles are
    computed before it.
    """
    tile = Index("tile", tiles := -(-extent_of(row) // ROWS))
    share = Var("share", I64)
    before: ir.Block = ()
    inside: ir.Block = (ir.Let(start, tile_start(tile, row.extent, ROWS)),)
    for n, kernel in enumerate(kernels):
        own = [ir.Alloc(stack[t]) for t in kernel.outputs if t in stack]
        block = (*own, *clone(ir.replace_arrays(kernel.body, stack), {}, str(n)))
        again = {s.tensor for s in inside if isinstance(s, ir.Alloc)}
        if any(e is start for e in ir.nodes(block)) or any(r.tensor in again for r in reads(block)):
            inside += block
        else:
            before += block
    per = max(TASK_TILES, -(-tiles // -(-TASKS // prod(map(extent_of, outer)))))
    body = (*before, ir.For(tile, inside, *block_bounds(tiles, per, share)))
    names = {i: Var(i.name, I64) for i in outer}
    places = [(share, -(-tiles // per)), *((names[i], i.extent) for i in outer)]
    return (parallel_loop("task", places, ir.substitute_block(body, {**names})),)
