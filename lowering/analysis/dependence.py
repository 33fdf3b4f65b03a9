"""A dependence test: iterations of a loop that run at once write different elements, and read none
that another writes.

The subscripts of two accesses, at iterations i < j and at any values of the loops inside, are
compared axis by axis by linear reasoning from loop bounds and guards, as the Omega test does it
exactly.
"""

from collections.abc import Collection

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.affine import affine, key
from ...dialect.kernel_ir.traverse import rewrite, walk
from ...dialect.types.sizes import same_size
from .accesses import allocated
from .instances import Access, Instance, Nest, apart
from .value_by_place import value_by_place


def dependence(
    nest: Nest, loop: ir.For, known: Collection[str] = ()
) -> tuple[Access, Access] | None:
    """Two accesses of different iterations that may be to one element, the first a store, which is
    to none of the `known` arrays; None if there are none.
    """
    own = allocated(loop.body)
    stores, reads = (
        [a for a in side if loop in a.loops and a.tensor not in own]
        for side in (nest.stores, nest.reads)
    )
    seen: set[object] = set()
    for n, store in enumerate(stores):
        for other in (*reads, *stores[n:]):
            mine, its = store.tensor, other.tensor
            if mine.name in known or nest.home.get(mine, mine) is not nest.home.get(its, its):
                continue
            if len(store.indices) != len(other.indices) or not all(
                map(same_size, mine.shape, its.shape)
            ):
                if mine is its:
                    continue  # an access with too few indices, which is reported as such
                return store, other  # views of one array whose subscripts do not compare
            pair = _form(store), _form(other)
            if pair in seen or (store.writes and other is store and _is_uniform(nest, store, loop)):
                continue
            seen.add(pair)
            if not _independent(nest, loop, store, other) and not _repeats(
                nest, loop, store, other
            ):
                return store, other
    return None


def _form(a: Access) -> object:
    around = (*map(id, a.loops), *((id(b), side) for b, side in a.branches))
    return (*map(key, a.indices), *around)


def _is_uniform(nest: Nest, store: Access, loop: ir.For) -> bool:
    """Test whether all lanes of a vector store to one element; `check_kernel` checks that they
    store one value.
    """
    parts = (e for i in store.indices for e in walk(rewrite(i, nest.values.get)))
    return loop.kind == "vector" and not any(
        e is loop.index
        or (isinstance(e, ex.Var) and loop in nest.loops_of.get(e, ()))
        or (isinstance(e, ex.Read) and e.tensor in nest.mutable)
        for e in parts
    )


def _independent(nest: Nest, loop: ir.For, a: Access, b: Access) -> bool:
    first = Instance(nest, a, {})
    inner = b.loops[b.loops.index(loop) :]
    second = Instance(nest, b, {s.index: nest.fresh(s.index) for s in inner})
    here, there = first.indices(), second.indices()
    if any(_moves_alike(nest, loop, x, y) for x, y in zip(a.indices, b.indices, strict=True)):
        return True
    facts = [*first.facts(), *second.facts()]
    order = affine(second.at(loop.index)) - affine(loop.index)
    for sign in (1, -1):
        later = (order * sign).plus(-1)
        if not apart(nest, here, there, [*facts, later]):
            return False
    return True


def _repeats(nest: Nest, loop: ir.For, a: Access, b: Access) -> bool:
    """Test whether two stores write one value to one place, as those of overlapping tiles do."""
    if not (a.writes and b.writes):
        return False
    value = value_by_place(nest, loop, a)
    return value is not None and value == value_by_place(nest, loop, b)


def _moves_alike(nest: Nest, loop: ir.For, x: ex.Expr, y: ex.Expr) -> bool:
    """Test whether two subscripts are one multiple of the index plus one value that is the same in
    all iterations.
    """
    form = affine(x)
    factor, rest = form.factor(loop.index), form.without(loop.index)
    difference = form - affine(y)
    fixed = {s.index for s in ir.statements(loop.body) if isinstance(s, ir.For)} | {loop.index}
    varies = any(
        n in fixed or isinstance(n, (ex.Var, ex.Read))
        for atom, _ in rest.terms.values()
        for n in walk(atom)
    )
    return bool(factor) and not difference.terms and not difference.constant and not varies
