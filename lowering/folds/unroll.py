"""Short folds without loops:  for k in 0..3 { acc = acc + f(k) }  =>  for k in 0..3 unrolled { acc = acc + f(k) }

An unrolled loop is one statement after the other where it is emitted, its index a number each time.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.index import Const
from ...dialect.loops import Block, For, Kernel, Statement, expressions, rewrite_block, rewrite_within, statements
from ...dialect.traverse import walk

LONGEST = 8  # iterations
LARGEST = 400  # nodes of expressions, all iterations together


def unroll(kernel: Kernel) -> Kernel:
    return kernel.with_body(rewrite_block(kernel.body, _unrolled))


def _unrolled(s: Statement) -> Block | None:
    made = rewrite_within(s, _unrolled)
    if isinstance(made, For) and made.kind == "serial" and 0 < cost(made) <= LARGEST:
        made = replace(made, kind="unrolled")
    return (made,)


def cost(s: For) -> int:
    """How many nodes the loop is without a loop; 0 where it cannot or should not be unrolled."""
    if not (isinstance(s.start, Const) and isinstance(s.end, Const)):
        return 0
    count = s.end.value - s.start.value
    if not 0 < count <= LONGEST:
        return 0
    total = 0
    for inner in statements(s.body):
        nodes = sum(1 for e in expressions(inner) for _ in walk(e))
        if isinstance(inner, For):
            if inner.kind != "unrolled":
                return 0
            total += cost(inner)
        else:
            total += nodes
    return count * max(total, 1)
