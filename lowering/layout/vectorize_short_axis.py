"""Vectorize across a short innermost axis, such as the colors of an image, by joining it with the
loop around.

    for i in 0..1000 { for c in 0..3 { y[i, c] = x[i, c] * g[c] } }
    =>  alloc register held: tensor<24xf32>
        for p in 0..3 unrolled { for l in 0..8 vector 8 { held[p * 8 + l] = g[(p * 8 + l) mod 3] } }
        for b in 0..125 { for p in 0..3 unrolled { for l in 0..8 vector 8 {
          let k = b * 24 + p * 8 + l
          y[k] = x[k] * held[p * 8 + l]
        } } }
        and a remainder loop over the last iterations of i

Legal if iterations are independent. Pays for an axis of at most MAX_SHORT_AXIS elements inside
`short_axis_trips` iterations. Reads that depend on the short axis alone are hoisted. Loops over
many elements run in parallel, by blocks, each with its own hoisted reads. With an unknown trip
count the last vectors overlap others. Loops that read plane by plane are left to
`interleave_planes`.
"""

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import ZERO, Expr, Index, Read, Tensor, Var, as_index, minimum
from ...dialect.kernel_ir.traverse import rewrite, walk
from ...dialect.types.sizes import Dim, Size
from ...dialect.types.tensor_types import I1
from ..analysis.accesses import depends, reads, stores, stride
from ..analysis.vector_alignment import overlaps
from ..loops.collapse import Joined, join
from ..loops.vectorize import independent, lanes
from ..passes import kernel_pass
from ..processor import processor
from .interleave_planes import Planes, reads_planes

MAX_SHORT_AXIS = 7  # elements of the short axis, at most; tuned by hand (Zen 4, Zen 5)
ITERATIONS_PER_TASK = 256  # blocks of iterations per task of a thread; tuned by hand (Zen 4, Zen 5)


@kernel_pass
def vectorize_short_axis(kernel: ir.Kernel) -> ir.Kernel:
    if (joined := join(kernel)) is None or len(kernel.body) != 1:
        return kernel
    loop, *more = (
        s
        for s in ir.statements(joined.kernel.body)
        if isinstance(s, ir.For) and s.index is joined.index
    )
    count, period = joined.outer.extent, joined.inner.extent
    if (
        not isinstance(period, int)
        or not 2 <= period <= MAX_SHORT_AXIS
        or (isinstance(count, int) and count < processor().tuning.short_axis_trips)
    ):
        return kernel
    if more or any(isinstance(s, (ir.For, ir.If, ir.Alloc)) for s in ir.statements(loop.body)):
        return kernel
    if _suits(loop, joined.index):
        form = _Periods
    elif reads_planes(loop, joined):
        form = Planes
    else:
        form = None
    if form is None or not (isinstance(count, int) or overlaps(loop)):
        return kernel
    vectors = form(joined, loop, period)
    scalars: dict[Expr, Expr] = {
        joined.outer: joined.index // period,
        joined.inner: joined.index % period,
    }
    rest = ir.replace(loop, body=ir.substitute_block(loop.body, scalars))
    alone = joined.kernel.body == (loop,)
    if isinstance(count, int):
        whole = _counted(vectors, rest, count, period, alone)
    else:
        whole = _uncounted(vectors, rest, count, alone)
    return joined.kernel.with_body(
        ir.rewrite_block(joined.kernel.body, lambda s: whole if s is loop else None)
    )


def _counted(
    vectors: "_Periods | Planes", rest: ir.For, count: int, period: int, alone: bool
) -> ir.Block:
    """All blocks of iterations, and the remainder."""
    n, over = divmod(count, vectors.width)
    block = Index("b", n)
    loop = ir.For(block, vectors.at(block * vectors.width))
    if over:
        return *vectors.before, loop, ir.replace(rest, start=as_index((count - over) * period))
    if not alone or count * period < 2 * processor().wake_operations:
        return *vectors.before, loop
    if not vectors.before:
        return (ir.replace(loop, kind="parallel"),)
    task, loop = _task(loop, -(-n // ITERATIONS_PER_TASK))
    return (ir.For(task, (*vectors.before, loop), kind="parallel"),)


def _uncounted(vectors: "_Periods | Planes", rest: ir.For, count: Size, alone: bool) -> ir.Block:
    """All blocks of iterations for an unknown trip count: the last one overlaps the one before, if
    at least one fits.
    """
    n = count // vectors.width
    block = Index("b", n)
    task, loop = _task(
        ir.For(block, vectors.at(block * vectors.width)), n // ITERATIONS_PER_TASK + 1
    )
    last = task.eq(as_index(n // ITERATIONS_PER_TASK)) & (as_index(count % vectors.width) > 0)
    tail = ir.If(last, vectors.at(as_index(count - vectors.width)))
    body = ir.If(as_index(count) >= vectors.width, (*vectors.before, loop, tail), (rest,))
    return (ir.For(task, (body,), kind="parallel" if alone else "serial"),)


def _task(loop: ir.For, tasks: Dim) -> tuple[Index, ir.For]:
    """The index of tasks of a thread, and the iterations of one."""
    task = Index("s", tasks)
    first = task * ITERATIONS_PER_TASK
    return task, ir.replace(
        loop, start=first, stop=minimum(first + ITERATIONS_PER_TASK, as_index(loop.index.extent))
    )


class _Periods:
    """The vectors of one period, and the hoisted reads that all periods share."""

    def __init__(self, joined: Joined, loop: ir.For, period: int) -> None:
        self.joined, self.period, self.width = joined, period, lanes(loop)
        self.part, self.lane = Index("p", period), Index("l", self.width)
        self.place = self.part * self.width + self.lane
        buffers, self.inside = _hoisted(joined, loop.body, self.width * period, self.place)
        before: list[ir.Statement] = []
        for buffer, value in buffers.items():
            before += [
                ir.Alloc(buffer),
                self.vectors((ir.Store(buffer, (self.place,), value),), ZERO),
            ]
        self.before = tuple(before)

    def at(self, row: Expr) -> ir.Block:
        return (self.vectors(self.inside, row),)

    def vectors(self, body: ir.Block, row: Expr) -> ir.For:
        places: dict[Expr, Expr] = {
            self.joined.outer: row + self.place // self.period,
            self.joined.inner: self.place % self.period,
            self.joined.index: (affine(row) * self.period).expression() + self.place,
        }
        return ir.For(
            self.part,
            (ir.vector_loop(self.lane, *ir.substitute_block(body, places)),),
            kind="unrolled",
        )


def _hoisted(
    joined: Joined, block: ir.Block, size: int, at: Expr
) -> tuple[dict[Tensor, Expr], ir.Block]:
    """The reads of a block that depend on the short axis alone, and the block with buffers in their
    place.
    """
    changing: set[Expr] = {
        joined.outer,
        joined.index,
        *(s.var for s in ir.statements(block) if isinstance(s, ir.Let)),
    }
    written = {s.tensor for s in stores(block)}
    buffers: dict[Tensor, Expr] = {}
    found: dict[Expr, Expr] = {}

    def hoisted(e: Expr) -> Expr | None:
        if e in found:
            return found[e]
        arrays = [n.tensor for n in walk(e) if isinstance(n, Read)]
        along = depends(e, {joined.inner}) and not depends(e, changing)
        if (
            arrays
            and along
            and written.isdisjoint(arrays)
            and e.type is not I1
            and not isinstance(e, Var)
        ):
            buffer = Tensor(f"held{len(buffers)}", (size,), e.type, "register")
            buffers[buffer] = e
            found[e] = buffer[at]
            return found[e]
        return e if isinstance(e, Read) else None

    def change(s: ir.Statement) -> ir.Block | None:
        return (
            (ir.replace(s, value=rewrite(s.value, hoisted)),)
            if isinstance(s, (ir.Let, ir.Store))
            else None
        )

    return buffers, ir.rewrite_block(block, change)


def _suits(loop: ir.For, index: Index) -> bool:
    """Test whether stores move with the joined index, and some read does too."""
    contiguous = all(stride(s.tensor, s.indices, index) == 1 for s in stores(loop.body))
    return (
        contiguous
        and independent(loop)
        and any(stride(r.tensor, r.indices, index) == 1 for r in reads(loop.body))
    )
