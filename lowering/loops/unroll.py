"""Short folds without loops:  for k in 0..3 { acc = acc + f(k) }  =>  for k in 0..3 unrolled { acc = acc + f(k) }

An unrolled loop is one statement after the other where it is emitted, its index a number each time. Where a loop has one
iteration its index is that number at once, so that the bounds of loops inside are numbers, too.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.notation.index import Const
from ...dialect.notation.loops import (
    Block,
    For,
    Kernel,
    Statement,
    expressions,
    rewrite_block,
    rewrite_within,
    statements,
    substitute_block,
)
from ...dialect.notation.traverse import walk

MAX_TRIPS = 8  # iterations
MAX_NODES = 400  # nodes of expressions, all iterations together
MAX_NODES_AROUND_VECTORS = 240  # the same of loops around vectors, which have more to do


def unroll(kernel: Kernel) -> Kernel:
    return kernel.with_body(rewrite_block(kernel.body, _unrolled))


def _unrolled(s: Statement) -> Block | None:
    if isinstance(s, For) and s.kind == "serial" and iterations(s) == 1:
        s = replace(s, body=substitute_block(s.body, {s.index: s.start}))
    made = rewrite_within(s, _unrolled)
    if isinstance(made, For) and made.kind == "serial":
        largest = (
            MAX_NODES_AROUND_VECTORS
            if any(isinstance(b, For) and b.kind == "vector" for b in statements(made.body))
            else MAX_NODES
        )
        if 0 < cost(made) <= largest:
            made = replace(made, kind="unrolled")
    return (made,)


def cost(s: For) -> int:
    """How many nodes the loop is without a loop; 0 where it cannot or should not be unrolled."""
    count = iterations(s)
    if not 0 < count <= MAX_TRIPS:
        return 0
    total = 0
    for inner in statements(s.body):
        nodes = sum(1 for e in expressions(inner) for _ in walk(e))
        if isinstance(inner, For):
            if inner.kind == "vector" and iterations(inner) == inner.width:
                continue
            if inner.kind != "unrolled":
                return 0
            total += cost(inner)
        else:
            total += nodes
    return count * max(total, 1)


def iterations(s: For) -> int:
    """How many iterations a loop has, where that is known; else 0."""
    return s.end.value - s.start.value if isinstance(s.start, Const) and isinstance(s.end, Const) else 0
