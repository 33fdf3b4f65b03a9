"""Version float reductions on which unknown sizes are 1, since that changes their order.

    for j in 0..n { acc = 0; for k in 0..m { acc = acc + x[k, j] }; y[j] = acc }
    =>  if n == 1 { acc = 0; for k in 0..m { acc = acc + x[k] }; y[0] = acc }
        if ~(n == 1) { the same as before }

Required for bits: the order of a reduction follows from its sizes, whether they are known at
compile time or not. In the example the first version goes by lanes, the second does not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from operator import and_
from typing import Any

from ...dialect.kernel_ir.execution_plan import Kernels, versions
from ...dialect.kernel_ir.expressions import Tensor, as_index
from ...dialect.kernel_ir.loops import (
    Alloc,
    Block,
    For,
    Kernel,
    Statement,
    Store,
    blocks,
    statements,
)
from ...dialect.kernel_ir.reduce_in_order import LANES
from ...dialect.types.sizes import Dim, Size, atoms_of, in_order, key_of, product, same_size
from ...dialect.types.unify import put
from ..analysis.reduction_order import ORDERED, along_memory, reduction_update
from ..contraction.match_contraction import factors_of, match_reduction, sum_of_products
from ..contraction.split_groups import split_groups
from ..contraction.vnni_packing import at_least
from ..loops.collapse import collapsed
from ..loops.substitute_sizes import substitute_sizes
from ..passes import kernel_pass
from .blocked_sums import MIN_TERMS, reduction_accumulators, reduction_of

Atoms = frozenset[object]
# unknown sizes of a kernel that are versioned, at most; bounds compile time (by hand)
MAX_SIZES = 6


@kernel_pass
def reduction_versions(kernel: Kernel) -> Kernels | None:
    """The versions of a kernel, one for each order of its reductions."""
    return versions(kernel, _versions(kernel, frozenset()))


def _versions(kernel: Kernel, never: frozenset[Atoms]) -> list[Kernel]:
    """The versions of a kernel. The sizes of each set in `never` are not all 1."""
    if not any(map(_is_ordered, statements(kernel.body))):
        return [kernel]
    if (found := _with_ones(kernel, never)) is not None:
        single, atoms = found
        condition = reduce(and_, (as_index(Size.of_atom(a)).eq(1) for a in atoms))
        single = replace(single, name=f"{kernel.name}.one{len(never) or ''}").only(condition)
        ones = _versions(single, frozenset(n - {*atoms} for n in never))
        return [*ones, *_versions(kernel.only(~condition), never | {frozenset(atoms)})]
    return _by_length(kernel)


def _by_length(kernel: Kernel) -> list[Kernel]:
    """The versions of a kernel whose sums go in the order of the terms, and by blocks."""
    plain = collapsed(kernel)
    if (nest := match_reduction(plain, 0)) is None:
        return [kernel]
    long = at_least(product(tuple(i.extent for i in nest.reduction_axes)), MIN_TERMS)
    if long is not False and nest.guard and sum_of_products(plain, 0) is not None:
        return [replace(kernel, sum_order="terms")]
    if next(_reductions(plain.body), None) is None:
        return [kernel]
    if isinstance(long, bool):
        return [replace(kernel, sum_order="blocks") if long else kernel]
    cut = split_groups(plain)
    if not all(factors_of(plain if cut is None else cut.kernel) or ((),)):
        return [kernel]  # a branch in its loops tests the number of terms
    return [
        replace(kernel, sum_order="terms").only(~long),
        replace(kernel, name=f"{kernel.name}.long", sum_order="blocks").only(long),
    ]


def _reductions(block: Block) -> Iterator[For]:
    """The outermost loops that only reduce."""
    for s in block:
        if isinstance(s, For) and reduction_accumulators(s) is not None:
            yield s
        elif isinstance(s, For):
            yield from _reductions(s.body)


def _with_ones(kernel: Kernel, never: frozenset[Atoms]) -> tuple[Kernel, tuple[Any, ...]] | None:
    """The kernel for the fewest sizes, none of `never`, that change the order by being 1; None if
    no sizes do.
    """
    atoms = sorted(_atoms(kernel), key=in_order)
    before = orders(kernel) if atoms else []
    if not any(o.may_change for o in before) or len(atoms) > MAX_SIZES:
        return None
    for some in (c for count in range(1, len(atoms) + 1) for c in combinations(atoms, count)):
        if not any(n <= {*some} for n in never):
            ones: dict[object, Dim] = dict.fromkeys(some, 1)
            single = substitute_sizes(
                kernel, lambda n, ones=ones: put(n, ones) if isinstance(n, Size) else n
            )
            if [_seen(o, ones) for o in before] != [_seen(o, {}) for o in orders(single)]:
                return single, some
    return None


def _is_ordered(s: Statement) -> bool:
    """Test whether a statement updates a sum or product of floats."""
    if not isinstance(s, Store) or s.tensor.element.kind != "float":
        return False
    found = reduction_of(s)
    return found is not None and found[0] in ORDERED


def _atoms(kernel: Kernel) -> set[Any]:
    extents = [s.index.extent for s in statements(kernel.body) if isinstance(s, For)]
    sizes = [*extents, *(d for p in kernel.parameters for d in p.shape)]
    return atoms_of(sizes)


@dataclass(frozen=True)
class _Order:
    """The order of one reduction: the extents of its loops, outermost first, and whether it runs
    along memory.
    """

    extents: tuple[Dim, ...]
    along: bool
    may_change: bool  # if sizes are 1


def orders(kernel: Kernel) -> list[_Order]:
    """The orders of the float reductions."""
    return list(_in(collapsed(kernel).body, (), {}))


def _in(block: Block, around: tuple[For, ...], outside: dict[Tensor, int]) -> Iterator[_Order]:
    """The orders of the reductions in a block; `outside` counts the loops around each accumulator's
    initialization.
    """
    for s in block:
        if isinstance(s, Alloc):
            outside[s.tensor] = len(around)
        elif isinstance(s, Store) and _is_ordered(s):
            loops = around[outside.get(s.tensor, 0) :]
            found = along_memory(loops[-1]) if loops else None
            along = found is not None and found[0] is s
            may_change = len(loops) > 1 or (
                len(loops) == 1 and not along and reduction_update(s) is not None
            )
            yield _Order(tuple(n.index.extent for n in loops), along, may_change)
        inner = (*around, s) if isinstance(s, For) else around
        for b in blocks(s):
            yield from _in(b, inner, outside)


def _seen(order: _Order, ones: dict[object, Dim]) -> tuple[object, ...]:
    """A comparable description of an order under the assumption that some sizes are 1."""
    extents = [put(n, ones) for n in order.extents]
    last = extents[-1] if extents else 1
    along = order.along and not (isinstance(last, int) and last < LANES)
    left = [n for n in extents if not same_size(n, 1)]
    count = product(tuple(left))
    if not along and isinstance(count, int) and count < MIN_TERMS:
        return (False,)
    return (along, *key_of(left))
