"""Interleave planes into an array with a short innermost axis, by shuffles of whole vectors (SoA to
AoS).

    for i in 0..1000 { for c in 0..3 { y[i, c] = f(x[c, i]) } }
    =>  for b in 0..125 {
          alloc stack planes: tensor<3x8xf32>
          for c in 0..3 unrolled { for l in 0..8 vector 8 { planes[c, l] = f(x[c, b * 8 + l]) } }
          for l in 0..24 vector 24 { y[b * 24 + l] = planes[l mod 3, l // 3] }
        }

Legal if iterations are independent. `vectorize_short_axis` applies it to loops that read plane by
plane.
"""

from dataclasses import replace

from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import Expr, Index, Tensor
from ...dialect.kernel_ir.loops import Alloc, Block, For, Store, substitute_block, vector_loop
from ..analysis.accesses import reads, stores, stride
from ..loops.collapse import Joined
from ..loops.vectorize import independent, lanes


def reads_planes(loop: For, joined: Joined) -> bool:
    """Test whether stores move with the joined index, and reads with the outer index."""
    steps = {stride(r.tensor, r.indices, joined.outer) for r in reads(loop.body)}
    rows = tuple(s for s in stores(loop.body) if stride(s.tensor, s.indices, joined.index) == 1)
    return independent(loop) and loop.body[-1:] == rows and steps <= {0, 1} and 1 in steps


class Planes:
    """One block of iterations: a vector of every plane, then the shuffled result."""

    before: Block = ()

    def __init__(self, joined: Joined, loop: For, period: int) -> None:
        self.joined, self.period, self.width = joined, period, lanes(loop)
        *self.names, store = loop.body
        assert isinstance(store, Store)
        self.store = store
        self.planes = Tensor("planes", (period, self.width), store.tensor.element, "stack")

    def at(self, row: Expr) -> Block:
        joined = self.joined
        period = self.period
        width = self.width
        store = self.store
        plane = Index("c", period)
        one = Index("l", width)
        lane = Index("l", width * period)
        element = row + one
        begin = (affine(row) * period).expression()
        of_one: dict[Expr, Expr] = {
            joined.outer: element,
            joined.inner: plane,
            joined.index: element * period + plane,
        }
        part = substitute_block(
            (*self.names, Store(self.planes, (plane, one), store.value)), of_one
        )
        value = self.planes[lane % period, lane // period]
        shuffled = substitute_block((replace(store, value=value),), {joined.index: begin + lane})
        planes = For(plane, (vector_loop(one, *part),), kind="unrolled")
        return Alloc(self.planes), planes, vector_loop(lane, *shuffled)
