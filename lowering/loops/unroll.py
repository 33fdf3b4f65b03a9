"""Unroll short loops of reductions.

    for k in 0..3 { acc = acc + f(k) }  =>  for k in 0..3 unrolled { acc = acc + f(k) }

Legal for constant bounds; emission repeats the body with a constant index. Pays up to MAX_TRIPS iterations and
MAX_NODES nodes. The index of a loop of one iteration is replaced at once, so that the bounds of inner loops become
constants too.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.notation.expressions import Const
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

MAX_TRIPS = 8  # iterations of an unrolled loop
MAX_NODES = 400  # nodes of expressions of all iterations together
MAX_NODES_AROUND_VECTORS = 240  # the same for loops around vector loops, whose nodes emit more instructions


def unroll(kernel: Kernel, factor: int = MAX_TRIPS) -> Kernel:
    """The kernel with loops of at most `factor` iterations unrolled."""
    return kernel.with_body(rewrite_block(kernel.body, lambda s: _unrolled(s, factor)))


def _unrolled(s: Statement, factor: int) -> Block | None:
    if isinstance(s, For) and s.kind == "serial" and iterations(s) == 1:
        s = replace(s, body=substitute_block(s.body, {s.index: s.start}))
    made = rewrite_within(s, lambda inner: _unrolled(inner, factor))
    if isinstance(made, For) and made.kind == "serial":
        largest = (
            MAX_NODES_AROUND_VECTORS
            if any(isinstance(b, For) and b.kind == "vector" for b in statements(made.body))
            else MAX_NODES
        )
        if 0 < cost(made, factor) <= largest:
            made = replace(made, kind="unrolled")
    return (made,)


def cost(s: For, factor: int = MAX_TRIPS) -> int:
    """The nodes of the loop when unrolled; 0 if it cannot or should not be unrolled."""
    count = iterations(s)
    if not 0 < count <= factor:
        return 0
    total = 0
    for inner in statements(s.body):
        nodes = sum(1 for e in expressions(inner) for _ in walk(e))
        if isinstance(inner, For):
            if inner.kind == "vector" and iterations(inner) == inner.width:
                continue
            if inner.kind != "unrolled":
                return 0
            total += cost(inner, factor)
        else:
            total += nodes
    return count * max(total, 1)


def iterations(s: For) -> int:
    """The trip count of a loop; 0 if unknown."""
    return s.end.value - s.start.value if isinstance(s.start, Const) and isinstance(s.end, Const) else 0
