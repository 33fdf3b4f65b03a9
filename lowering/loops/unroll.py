"""Unroll short loops of reductions.

    for k in 0..3 { acc = acc + f(k) }  =>  for k in 0..3 unrolled { acc = acc + f(k) }

Legal for constant bounds; emission repeats the body with a constant index. Pays up to MAX_TRIPS
iterations and MAX_NODES nodes. The index of a loop of one iteration is replaced at once, so that
inner bounds become constants too.
"""

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import Const
from ...dialect.kernel_ir.traverse import walk
from ..passes import scheduled_kernel_pass

MAX_TRIPS = 8  # iterations of an unrolled loop, at most; bounds compile time (by hand)
# nodes of the expressions of all iterations together, at most; bounds compile time (by hand)
MAX_NODES = 400
# the same for loops around vector loops, whose nodes emit more instructions; bounds compile time
# (by hand)
MAX_NODES_AROUND_VECTORS = 240


@scheduled_kernel_pass
def unroll(kernel: ir.Kernel, factor: int = MAX_TRIPS) -> ir.Kernel:
    """The kernel with loops of at most `factor` iterations unrolled."""
    return kernel.with_body(ir.rewrite_block(kernel.body, lambda s: _unrolled(s, factor)))


def _unrolled(s: ir.Statement, factor: int) -> ir.Block | None:
    if isinstance(s, ir.For) and s.kind == "serial" and iterations(s) == 1:
        s = ir.replace(s, body=ir.substitute_block(s.body, {s.index: s.start}))
    loop = ir.rewrite_within(s, lambda inner: _unrolled(inner, factor))
    if isinstance(loop, ir.For) and loop.kind == "serial" and not ir.may_jump(loop.body):
        around_vectors = any(
            isinstance(b, ir.For) and b.kind == "vector" for b in ir.statements(loop.body)
        )
        if 0 < cost(loop, factor) <= (MAX_NODES_AROUND_VECTORS if around_vectors else MAX_NODES):
            loop = ir.replace(loop, kind="unrolled")
    return (loop,)


def cost(s: ir.For, factor: int = MAX_TRIPS) -> int:
    """The nodes of the loop when unrolled; 0 if it cannot or should not be unrolled."""
    count = iterations(s)
    if not 0 < count <= factor:
        return 0
    total = 0
    for inner in ir.statements(s.body):
        if isinstance(inner, ir.For):
            if inner.kind == "vector" and iterations(inner) == inner.width:
                continue
            if inner.kind != "unrolled":
                return 0
            total += cost(inner, factor)
        else:
            total += sum(len(walk(e)) for e in ir.expressions(inner))
    return count * max(total, 1)


def iterations(s: ir.For) -> int:
    """The trip count of a loop; 0 if unknown."""
    return (
        s.end.value - s.start.value
        if isinstance(s.start, Const) and isinstance(s.end, Const)
        else 0
    )
