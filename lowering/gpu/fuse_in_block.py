"""Tile the rows of a chain of kernels between two products, a tile by a thread block
(FlashAttention, without its rescaling).

    kernel { for i { for j { s[i, j] = sum over k of q[i, k] * u[j, k] } } }
    kernel { for i { for j { w[i, j] = exp(s[i, j]) } } }
    kernel { for i { for d { y[i, d] = sum over j of w[i, j] * v[j, d] } } }
    =>  kernel { for tile block {
          alloc shared rows
          for t thread { rows of s };  for t thread { rows of w };  for t thread { rows of y }
        } }

Each kernel of a tile is scheduled as one for a grid, of which the block does all: its blocks one
after the other, its threads by as many as the block has. Between kernels the block meets at a
barrier. Legal where `tile_and_fuse` is, with the same bits. Pays where the rows of a tile fit
shared memory, and half the multiprocessors get one: nothing of the square matrix moves to global
memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.execution_plan import Plan
from ...dialect.kernel_ir.expressions import Index, Tensor, unflatten
from ...dialect.kernel_ir.index_bounds import inside
from ...dialect.types.sizes import product
from ..analysis.parallel_loops import THREADS
from ..contraction.match_contraction import Contraction
from ..contraction.tile_and_fuse import Places, Prepared, Tiling
from ..contraction.vnni_packing import divided, tile_start
from ..loops.clone import clone
from ..passes import Pass, declare
from ..processor import processor
from ..storage.in_place import overwriting
from .thread_block_tile import allocated, guarded, may_reach

MAPPED = ("block", "parallel")  # loops over a grid
# bytes of shared memory for the smallest steps of a product; counted, not timed on a GPU
LEAST = 20 << 10


@declare("gpu", Plan)
def fuse_in_block(plan: Plan, body: Sequence[Pass[..., object]] = ()) -> Plan:
    """The plan with its chains fused; `body` are the passes over the kernels of a tile."""
    return _BlockTiling().fused_chains(plan, body)


class _BlockTiling(Tiling):
    rows = 64  # four of a thread: with fewer, products wait for shared memory
    space = "shared"

    def suits(self, c: Contraction) -> bool:
        return True

    def prepared(
        self, kernels: list[ir.Kernel], arrays: Iterable[Tensor], tiles: set[Tensor]
    ) -> Prepared | None:
        """The kernels, for a GPU of one multiprocessor with the shared memory that the tiles
        leave.
        """
        kernels = overwriting(kernels, tiles)
        gpu = processor().gpu
        held = [
            replace(t, space="shared")
            for t in dict.fromkeys(t for k in kernels for t in k.outputs)
            if t in tiles
        ]
        free = min(gpu.dynamic_bytes - ir.shared_bytes(allocated(*held)), gpu.shared_bytes)
        one = replace(processor(), gpu=replace(gpu, multiprocessors=1, shared_bytes=free))
        return (kernels, one) if free >= LEAST else None

    def joined(
        self, kernels: Sequence[ir.Kernel], tiles: Mapping[Tensor, Tensor], at: Places
    ) -> ir.Block | None:
        outer, row, start = at
        shape = (*(i.extent for i in outer), divided(row.extent, self.rows))
        index = Index("b", product(shape))
        mapped = all(isinstance(s, ir.For) and s.kind in MAPPED for k in kernels for s in k.body)
        if not (mapped and may_reach(index.extent, processor().gpu.multiprocessors // 2)):
            return None
        *around, tile = unflatten(index, shape)
        body = allocated(*tiles.values())
        for n, kernel in enumerate(kernels):
            body += clone(
                ir.replace_arrays(tuple(map(_on_one_block, kernel.body)), tiles), {}, str(n)
            )
        threads = {
            s.index.extent
            for s in ir.statements(body)
            if isinstance(s, ir.For) and s.kind == "thread"
        }
        if threads != {THREADS} or ir.shared_bytes(body) > processor().gpu.dynamic_bytes:
            return None
        first = tile_start(tile, row.extent, self.rows)
        body = ir.substitute_block(body, {start: first, **dict(zip(outer, around, strict=True))})
        return (ir.For(index, body, kind="block"),)


def _on_one_block(s: ir.Statement) -> ir.Statement:
    """The work of a grid, by one block."""
    if not isinstance(s, ir.For) or s.kind != "parallel":
        return replace(s, kind="serial") if isinstance(s, ir.For) and s.kind == "block" else s
    thread = Index("t", THREADS)
    turn = Index("s", divided(s.index.extent, THREADS))
    own = turn * THREADS + thread
    body = guarded(ir.substitute_block(s.body, {s.index: own}), inside(own, s.index.extent))
    return ir.For(thread, (ir.For(turn, body),), kind="thread")
