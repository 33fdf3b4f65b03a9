"""Kernels over the same points as one:

    for i { t[i] = f(x[i]) };  for i { y[i] = g(t[i]) };  for i { z[i] = h(t[i]) }
    =>  for i { let a = f(x[i]); let b = g(a); let c = h(a); y[i] = b; z[i] = c }

What only the new kernel reads is no array any more. Kernels without loops always meet, others where they share an array
or one reads what another writes, at the same point. All stores come last, so that results may take operands' places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..dialect.index import ZERO, Expr, Index, Read, Tensor, Var, rewrite, walk
from ..dialect.loops import Block, For, Kernel, Let, Statement, Store, expressions, map_expressions, statements
from ..dialect.types import same_size
from .rename import renamed

LARGEST = 600  # expressions of a combined kernel with loops: registers and compile time are limited
ARRAYS = 16  # arrays it may touch: that none of them overlaps is said of every pair


@dataclass
class _Group:
    """Kernels that become one: the loops they share, and what stands inside them."""

    kernels: list[Kernel]
    indices: tuple[Index, ...]
    bodies: list[Block]
    simple: bool  # straight-line code, of one store
    reads: set[Tensor] = field(default_factory=set)
    writes: set[Tensor] = field(default_factory=set)
    size: int = 0


def combine(
    kernels: Sequence[Kernel], kept: Iterable[Tensor], views: Mapping[Tensor, Tensor], scalars: int = ARRAYS
) -> list[Kernel]:
    """The same work in fewer kernels. `kept` are the arrays that are wanted outside of them.

    A kernel without loops may touch as many arrays as `scalars` says.
    """
    groups: list[_Group] = []
    for kernel in kernels:
        new = _group(kernel, views)
        target = _meeting(groups, new, views, scalars)
        if target is None:
            groups.append(new)
        else:
            _join(target, new)
    wanted = {*kept, *views, *views.values()}
    return [_kernel(g, groups, wanted) for g in groups]


def _group(kernel: Kernel, views: Mapping[Tensor, Tensor]) -> _Group:
    indices: list[Index] = []
    block = kernel.body
    while len(block) == 1 and isinstance(loop := block[0], For) and _plain(loop):
        indices.append(loop.index)
        block = loop.body
    results = kernel.parameters[len(kernel.parameters) - kernel.results :]
    simple = len(results) == 1 and _straight(block, results[0], tuple(indices))
    reads = {_root(e.tensor, views) for e in _reads(block)}
    size = sum(1 for s in statements(block) for x in expressions(s) for _ in walk(x))
    return _Group(
        [kernel],
        tuple(indices),
        [block],
        simple and results[0] not in reads,
        reads,
        {_root(t, views) for t in results},
        size,
    )


def _reads(block: Block) -> Iterator[Read]:
    return (e for s in statements(block) for x in expressions(s) for e in walk(x) if isinstance(e, Read))


def _plain(loop: For) -> bool:
    return loop.kind == "serial" and loop.start is ZERO and loop.stop is None


def _straight(block: Block, result: Tensor, indices: tuple[Index, ...]) -> bool:
    """Whether the block has no loops, and stores the result last, at the indices of the loops around it."""
    if any(isinstance(s, For) or (isinstance(s, Store) and s.tensor is result) for s in statements(block[:-1])):
        return False
    last = block[-1]
    return isinstance(last, Store) and last.tensor is result and _at(last.indices, indices)


def _at(at: tuple[Expr, ...], indices: tuple[Index, ...]) -> bool:
    return len(at) == len(indices) and all(a is i for a, i in zip(at, indices, strict=True))


def _root(tensor: Tensor, views: Mapping[Tensor, Tensor]) -> Tensor:
    while tensor in views:
        tensor = views[tensor]
    return tensor


def _meeting(groups: list[_Group], new: _Group, views: Mapping[Tensor, Tensor], scalars: int) -> _Group | None:
    """The latest group that a kernel can join: nothing in between uses what it writes, or writes what it uses."""
    if not new.simple:
        return None
    for group in reversed(groups):
        if (
            group.simple
            and _same_loops(group, new)
            and _worthwhile(group, new, scalars)
            and _pointwise(group, new, views)
        ):
            return group
        if new.reads & group.writes or new.writes & (group.reads | group.writes):
            return None
    return None


def _same_loops(a: _Group, b: _Group) -> bool:
    same = len(a.indices) == len(b.indices)
    return same and all(same_size(i.extent, j.extent) for i, j in zip(a.indices, b.indices, strict=True))


def _worthwhile(group: _Group, new: _Group, scalars: int) -> bool:
    arrays = group.reads | new.reads | group.writes | new.writes
    if not new.indices:
        return len(arrays) <= scalars
    shared = {t for t in new.reads & (group.reads | group.writes) if t.rank}
    return bool(shared) and group.size + new.size <= LARGEST and len(arrays) <= ARRAYS


def _pointwise(group: _Group, new: _Group, views: Mapping[Tensor, Tensor]) -> bool:
    """Whether all that the kernel reads of what the group writes is at the very point, and it overwrites nothing."""
    if new.writes & (group.reads | group.writes):
        return False
    met = [e for e in _reads(new.bodies[0]) if _root(e.tensor, views) in group.writes]
    return all(e.tensor not in views and _at(e.indices, new.indices) for e in met)


def _join(group: _Group, new: _Group) -> None:
    n = len(group.bodies)
    names: dict[Expr, Expr] = dict(zip(new.indices, group.indices, strict=True))
    group.bodies.append(renamed(new.bodies[0], names, str(n)))
    group.kernels += new.kernels
    group.reads |= new.reads
    group.writes |= new.writes
    group.size += new.size


def _kernel(group: _Group, groups: list[_Group], wanted: set[Tensor]) -> Kernel:
    """The group's kernel: every value named, then stored where it is wanted outside."""
    first = group.kernels[0]
    if len(group.kernels) == 1:
        return first
    outside = wanted.union(*(g.reads for g in groups if g is not group))
    values: dict[Tensor, Var] = {}
    body: list[Statement] = []
    stores: list[Statement] = []

    def put(e: Expr) -> Expr | None:
        return values.get(e.tensor) if isinstance(e, Read) else None

    for block in group.bodies:
        *others, store = map_expressions(block, lambda e: rewrite(e, put))
        assert isinstance(store, Store)
        values[store.tensor] = var = Var(store.tensor.name, store.tensor.element)
        body += [*others, Let(var, store.value)]
        if store.tensor in outside:
            stores.append(replace(store, value=var))
    made: Block = (*body, *stores)
    for index in reversed(group.indices):
        made = (For(index, made),)
    results = [s.tensor for s in stores if isinstance(s, Store)]
    reads = {p for k in group.kernels for p in k.parameters} - {*values}
    return Kernel(first.name, (*sorted(reads, key=lambda t: t.name), *results), made, len(results), first.span)
