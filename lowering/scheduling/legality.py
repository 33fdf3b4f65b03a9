"""Check that a change of order keeps what a kernel computes: no two accesses of one element change
their order, if one is a store.

A float accumulator is read and stored by every update, so its terms keep their order too. Updates
of integers commute exactly; those of floats do only where a step is told to `reassociate`.
"""

from collections.abc import Iterator, Sequence

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import Affine, affine, key
from ...dialect.kernel_ir.expressions import Apply, Expr, Read
from ...dialect.kernel_ir.kernel_printer import statement_text
from ...dialect.kernel_ir.traverse import walk
from ..analysis.accesses import allocated
from ..analysis.instances import Access, Instance, Nest, apart
from .steps import Refused

# functions whose updates commute and associate exactly on integers and booleans
EXACT = ("add", "mul", "min", "max", "and", "or", "xor")


def check_order(
    kernel: ir.Kernel, old: Sequence[ir.For], new: Sequence[ir.For], reassociate: bool
) -> None:
    """Raise Refused unless the loops of a perfect nest may run in another order.

    A pair of accesses changes its order where, of the loops that differ between them, the outermost
    in the old order runs forward and the outermost in the new order backward.
    """
    nest = Nest(kernel.body, kernel.condition)
    for earlier, later in _conflicts(nest, [*_inside(nest, old[-1].body)], reassociate):
        here, there = _instances(nest, earlier, later, old[0])
        distance = {s: affine(there.at(s.index)) - affine(s.index) for s in old}
        for n, first in enumerate(old):
            for m, second in enumerate(new):
                if first is second or new.index(first) < m:
                    continue
                same = [distance[s] for s in (*old[:n], *new[:m])]
                if distance[second] in same:
                    continue
                facts = [distance[first].plus(-1), (distance[second] * -1).plus(-1)]
                facts += [d * sign for d in same for sign in (1, -1)]
                if not _apart(nest, here, there, facts):
                    raise refused("would change the order of", earlier, later)


def check_separate(
    kernel: ir.Kernel, first: ir.For, second: ir.For, before: ir.Block, after: ir.Block
) -> None:
    """Raise Refused unless statements `before`, in the first loop, are independent of statements
    `after`, in the second (which may be the first), in all earlier iterations.

    That is what it takes to give statements of one loop loops of their own, and to fuse two loops.
    """
    nest = Nest(kernel.body, kernel.condition)
    mine, others = [*_inside(nest, before)], [*_inside(nest, after)]
    shared = [s for s in mine[0].loops[: mine[0].loops.index(first)]] if mine else []
    for a, b in _conflicts(nest, mine, False, others):
        here = Instance(nest, a, {})
        renamed: dict[Expr, Expr] = {
            s.index: nest.fresh(s.index) for s in b.loops if s not in shared
        }
        there = Instance(nest, b, renamed)
        gap = affine(first.index) - affine(there.at(second.index))
        if first is not second:
            gap = gap - affine(first.start) + affine(there.at(second.start))
        if not _apart(nest, here, there, [gap.plus(-1)]):
            raise refused("would change the order of", a, b)


def refused(what: str, a: Access, b: Access) -> Refused:
    """The error of a step that two accesses do not permit."""
    return Refused(f"the step {what} two accesses of %{a.tensor.name}: {_said(a)} and {_said(b)}")


def _said(a: Access) -> str:
    how = "the store of" if a.writes else "the read in"
    return f"{how} `{statement_text(a.statement).strip().partition(chr(10))[0]}`"


def _inside(nest: Nest, block: ir.Block) -> Iterator[Access]:
    """The accesses of a block's statements to arrays from outside of it."""
    statements = set(map(id, ir.statements(block)))
    own = allocated(block)
    for access in (*nest.stores, *nest.reads):
        if id(access.statement) in statements and access.tensor not in own:
            yield access


def _conflicts(
    nest: Nest,
    accesses: Sequence[Access],
    reassociate: bool,
    others: Sequence[Access] | None = None,
) -> Iterator[tuple[Access, Access]]:
    """The ordered pairs of accesses to one array of which one is a store, without those of updates
    that commute.
    """
    updates = {id(a): update_of(a.statement, reassociate) for a in (*accesses, *(others or ()))}
    for a in accesses:
        for b in accesses if others is None else others:
            if a.tensor is not b.tensor or not (a.writes or b.writes):
                continue
            if updates[id(a)] is None or updates[id(a)] != updates[id(b)]:
                yield a, b


def update_of(s: ir.Statement, reassociate: bool) -> str | None:
    """The function of an update `t[i] = f(t[i], x)` that commutes with others; None if it does
    not.
    """
    match s:
        case ir.Store(tensor, at, Apply(function, (Read(again, where), value))) if (
            function in EXACT and again is tensor
        ):
            exact = tensor.element.is_discrete
            others = (n for e in (*at, value) for n in walk(e) if isinstance(n, Read))
            same = [*map(key, at)] == [*map(key, where)]
            if (exact or reassociate) and same and all(n.tensor is not tensor for n in others):
                return function
            return None
        case _:
            return None


def _instances(nest: Nest, a: Access, b: Access, outermost: ir.For) -> tuple[Instance, Instance]:
    """An access, and another at other values of the loops from the outermost one in."""
    inner = b.loops[b.loops.index(outermost) :]
    return Instance(nest, a, {}), Instance(nest, b, {s.index: nest.fresh(s.index) for s in inner})


def _apart(nest: Nest, a: Instance, b: Instance, facts: list[Affine]) -> bool:
    places: tuple[tuple[Expr, ...], tuple[Expr, ...]] = (a.indices(), b.indices())
    return apart(nest, *places, [*a.facts(), *b.facts(), *facts])
