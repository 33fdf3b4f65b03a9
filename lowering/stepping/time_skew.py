"""Time-skew stencil updates: several ticks in one pass over the state (time skewing, temporal
blocking).

    for i parallel { y[i] = f(x[i - 1], x[i], x[i + 1]) }
    =>  for b parallel {
          ring: 4 rows on the stack
          for s {
            ring[s mod 4] = f(x[s - 1], x[s], x[s + 1])                    the first tick's row s
            if s >= 2 { y[s - 1] = f(ring[...], ring[...], ring[...]) }    the second's row s - 1
          }
        }

Legal for one loop over rows that reads rows at constant distances, across the field's edge too.
Pays from MIN_STATE_BYTES, state larger than the caches: a row of a later tick follows as soon as
its neighbors of the earlier tick are done, so rows between ticks never leave the cache. Blocks
recompute the rows of their neighbors, to the same bits, and so run independently.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import (
    Apply,
    Const,
    Expr,
    Index,
    Read,
    Tensor,
    as_index,
    minimum,
)
from ...dialect.kernel_ir.loops import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Statement,
    Store,
    map_expressions,
    rewrite_block,
)
from ...dialect.kernel_ir.traverse import rewrite
from ..analysis.accesses import reads, stores
from ..clocked_plan import StepPlan
from ..loops.clone import clone
from ..passes import step_pass
from ..processor import processor

BLOCKS = 32  # blocks of rows, at most, for threads to share; tuned by hand (Zen 4, Zen 5)
# padding between the rows of a ring in bytes, against cache-set conflicts; tuned by hand (Zen 4,
# Zen 5)
APART = 832


@step_pass
def time_skew(step: StepPlan) -> StepPlan | None:
    plan, kernel = step.plan, step.only_kernel
    states = {plan.arguments[n]: result for n, result in zip(step.turns, plan.results, strict=True)}
    found = None if kernel is None else skew(kernel, states)
    return None if found is None else step.with_several(*found)


def skew(kernel: Kernel, states: Mapping[Tensor, Tensor]) -> tuple[Kernel, int] | None:
    """The kernel of one tick as one of several, and their number; None unless it is one loop over
    rows and gains.
    """
    loop = kernel.body[0] if len(kernel.body) == 1 else None
    results = kernel.outputs
    if not isinstance(loop, For) or loop.kind != "parallel" or loop.stop is not None:
        return None
    height = loop.index.extent
    if (
        not isinstance(height, int)
        or {*results} != {*states.values()}
        or any(t.shape[:1] != (height,) for t in states)
    ):
        return None
    if not all(s.indices[0] is loop.index for s in stores(loop.body) if s.tensor in results):
        return None
    found = [
        _offset(r.indices[0], loop.index, height) for r in reads(loop.body) if r.tensor in states
    ]
    reach = max((abs(d) for d in found if d is not None), default=0)
    if None in found or not reach:
        return None
    rows = 1 << (2 * reach).bit_length()
    row = sum(size // height for t in states if isinstance(size := t.bytes, int))
    tuning = processor().tuning
    ticks = min(tuning.skewed_ticks, 1 + processor().l2_bytes // 2 // (rows * row))
    if (
        row * height <= processor().l3_bytes // 4
        or ticks < 2
        or height < 2 * tuning.skewed_rows * reach * ticks
    ):
        return None
    return kernel.with_body(
        (_Skewing(loop, dict(states), height, reach, rows, ticks).blocks(),)
    ), ticks


def _padded(t: Tensor) -> tuple[int, ...]:
    """The shape of a row, padded so that equal columns of rows do not share a cache set."""
    first, *rest = (n for n in t.shape[1:] if isinstance(n, int))
    return (first - -APART // (t.element.bytes * prod(rest)), *rest)


def _offset(e: Expr, row: Index, height: int) -> int | None:
    """The d of row + d, or of (row + d) mod height, in the shorter direction; None for any other
    index.
    """
    match e:
        case Apply("floormod", (inside, Const(n)), _) if n == height:
            d = _offset(inside, row, height)
            return None if d is None else (d + height // 2) % height - height // 2
    sum = affine(e)
    return sum.constant if sum.factor(row) == 1 and len(sum.terms) == 1 else None


class _Skewing:
    """The parameters that the levels of a pass share: level n is tick n after the first, `reach`
    rows behind the one before.
    """

    def __init__(
        self,
        loop: For,
        states: dict[Tensor, Tensor],
        height: int,
        reach: int,
        rows: int,
        ticks: int,
    ) -> None:
        self.loop = loop
        self.states = states
        self.height = height
        self.reach = reach
        self.ticks = ticks
        self.rows = rows
        self.over = 2 * reach * (ticks - 1)  # rows recomputed per block
        count = 1
        while 2 * count <= min(
            BLOCKS, height // (processor().tuning.skewed_rows * reach * (ticks - 1))
        ):
            count *= 2
        self.size = -(-height // count)
        self.block = Index("b", -(-height // self.size))
        self.step = Index("s", self.size + self.over)
        shapes = {t: (rows, *_padded(t)) for t in states}
        each = range(1, ticks)
        self.rings = [
            {t: Tensor(f"{t.name}.{n}", shapes[t], t.element, "stack") for t in states}
            for n in each
        ]

    def blocks(self) -> For:
        first = self.block * self.size
        last = as_index(self.size + self.over)
        if self.height % self.size:
            last = minimum(last, as_index(self.height + self.over) - first)
        later = [If(self.step >= 2 * self.reach * n, self.level(n)) for n in range(1, self.ticks)]
        rings = [Alloc(r) for level in self.rings for r in level.values()]
        return For(
            self.block,
            (*rings, For(self.step, (*self.level(0), *later), stop=last)),
            kind="parallel",
        )

    def level(self, n: int) -> Block:
        """A tick's row: read from the rows of the tick before, stored for the tick after."""
        last = n == self.ticks - 1
        start = self.block * self.size + self.step
        row = (
            start - self.over
            if last
            else (start + (self.height - (self.ticks - 1 + n) * self.reach)) % self.height
        )
        body = self.loop.body
        if n:
            body = map_expressions(body, lambda e: rewrite(e, lambda x: self.earlier(x, n)))
        if not last:
            body = rewrite_block(body, lambda s: self.kept(s, n))
        return clone(body, {self.loop.index: row}, str(n))

    def earlier(self, e: Expr, n: int) -> Expr | None:
        """A read of the state as a read of the ring of the tick before."""
        if not isinstance(e, Read) or e.tensor not in self.states:
            return None
        d = _offset(e.indices[0], self.loop.index, self.height)
        assert d is not None
        return Read(self.rings[n - 1][e.tensor], (self.slot(d - self.reach), *e.indices[1:]))

    def kept(self, s: Statement, n: int) -> Block | None:
        """A store of the next state as a store to the ring that the tick after reads."""
        if not isinstance(s, Store) or s.tensor not in self.states.values():
            return None
        state = next(t for t, following in self.states.items() if following is s.tensor)
        return (
            replace(
                s,
                tensor=self.rings[n][state],
                indices=(self.slot(0), *s.indices[1:]),
                streaming=False,
            ),
        )

    def slot(self, d: int) -> Expr:
        """The slot of a ring for the row `d` steps ago."""
        return (self.step + d % self.rows) % self.rows
