"""Rows that come in groups, each with columns of its own, as two loops:

    for r in 0..8 { ... x[r // 4, k] ... w[r, k] }  =>  for g in 0..2 { for r in 0..4 { ... x[g, k] ... w[g, r, k] } }

Arrays that have an axis for such an index have two axes then: the same elements in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..dialect.index import Apply, Const, Expr, Index, Read, Tensor
from ..dialect.loops import (
    Block,
    For,
    Kernel,
    Statement,
    Store,
    expressions,
    map_expressions,
    rewrite_block,
    statements,
)
from ..dialect.traverse import children, rewrite, walk


def grouped(kernel: Kernel) -> Kernel:
    """The kernel with the first loop cut that goes over groups; itself where there is none."""
    for s in statements(kernel.body):
        if isinstance(s, For) and s.kind == "serial" and s.stop is None and isinstance(s.index.extent, int):
            sizes = {n for e in _expressions(kernel.body) if (n := _group(e, s.index)) is not None}
            if len(sizes) == 1 and 1 < (size := sizes.pop()) < s.index.extent and s.index.extent % size == 0:
                return _cut(kernel, s, s.index.extent // size, size) or kernel
    return kernel


def _expressions(block: Block) -> Iterator[Expr]:
    for s in statements(block):
        for e in expressions(s):
            yield from walk(e)


def _group(e: Expr, index: Index) -> int | None:
    match e:
        case Apply("floordiv", (Index() as i, Const(n)), _) if i is index:
            return n
    return None


def _cut(kernel: Kernel, loop: For, count: int, size: int) -> Kernel | None:
    """The loop as one over groups and one inside of each; None where its index is also used otherwise."""
    old = loop.index
    group, index = Index("g", count), Index(old.name, size)
    axes: dict[Tensor, int] = {}
    found: dict[Tensor, set[tuple[int, ...]]] = {}
    for tensor, at in _accesses(kernel.body):
        found.setdefault(tensor, set()).add(tuple(n for n, i in enumerate(at) if i is old))
        if any(i is not old and _otherwise(i, old) for i in at):
            return None
    for tensor, places in found.items():
        where = sorted(n for place in places for n in place)
        if where:
            if len(places) > 1 or len(where) > 1 or tensor.shape[where[0]] != old.extent:
                return None
            axes[tensor] = where[0]
    tensors = {t: replace(t, shape=(*t.shape[:n], count, size, *t.shape[n + 1 :])) for t, n in axes.items()}

    def placed(tensor: Tensor, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        n = axes[tensor]
        return (*at[:n], group, index, *at[n + 1 :])

    def change(e: Expr) -> Expr | None:
        if _group(e, old) == size:
            return group
        if isinstance(e, Read) and e.tensor in axes:
            return Read(tensors[e.tensor], tuple(rewrite(i, change) for i in placed(e.tensor, e.indices)))
        return None

    def cut(s: Statement) -> Block | None:
        if s is loop:
            return (For(group, (For(index, rewrite_block(loop.body, cut)),)),)
        if isinstance(s, Store) and s.tensor in axes:
            return (replace(s, tensor=tensors[s.tensor], indices=placed(s.tensor, s.indices)),)
        return None

    body = map_expressions(rewrite_block(kernel.body, cut), lambda e: rewrite(e, change))
    if any(e is old for e in _expressions(body)):
        return None
    return replace(kernel, body=body, parameters=tuple(tensors.get(p, p) for p in kernel.parameters))


def _accesses(block: Block) -> Iterator[tuple[Tensor, tuple[Expr, ...]]]:
    for s in statements(block):
        if isinstance(s, Store):
            yield s.tensor, s.indices
    for e in _expressions(block):
        if isinstance(e, Read):
            yield e.tensor, e.indices


def _otherwise(e: Expr, index: Index) -> bool:
    """Whether an index takes part in an expression other than by its group."""
    return e is index or (_group(e, index) is None and any(_otherwise(c, index) for c in children(e)))
