"""Version a kernel on whether broadcast dimensions of unknown size are equal.

    for i in 0..n { y[i] = a[select(i < p, i, 0)] + b[select(i < q, i, 0)] }
    where n is p or q, whichever is not 1
    =>  if p == q { for i in 0..p { y[i] = a[i] + b[i] } }
        if ~(p == q) { the same as before }

Legal since exactly one version runs. Pays always: with equal sizes accesses are contiguous. The
other version is for `unswitch_broadcast`.
"""

from dataclasses import replace

from ...dialect.kernel_ir.execution_plan import Kernels, versions
from ...dialect.kernel_ir.expressions import Expr, as_index, both
from ...dialect.kernel_ir.loops import Block, For, Kernel, map_expressions, nodes, statements
from ...dialect.kernel_ir.traverse import rewrite
from ...dialect.spec.broadcasting import joined
from ...dialect.types.sizes import Dim, Size, key_of, same_size
from ..analysis.accesses import reduces_floats
from ..formulas.match_broadcast_index import repeated, unrepeated
from ..passes import kernel_pass
from .substitute_sizes import substitute_sizes


@kernel_pass
def broadcast_versions(kernel: Kernel, float_sums: bool = False) -> Kernels | None:
    """A version for equal sizes and one for others, or None; with `float_sums` only where float
    sums depend on it.
    """
    return (
        None if float_sums and not reduces_floats(kernel) else versions(kernel, _versions(kernel))
    )


def _versions(kernel: Kernel) -> list[Kernel]:
    if (equal_sizes := _with_equal_sizes(kernel)) is None:
        return [kernel]
    equal, condition = equal_sizes
    return [
        *_versions(replace(equal, name=f"{kernel.name}.equal").only(condition)),
        kernel.only(~condition),
    ]


def _with_equal_sizes(kernel: Kernel) -> tuple[Kernel, Expr] | None:
    """The kernel for where the sizes that are broadcast are equal, and the test that they are."""
    same: dict[object, Dim] = {}
    tests: list[Expr] = []
    along: list[
        Expr
    ] = []  # indices along which the sizes are equal; an operand may be repeated at others, too
    repeats = broadcast_sizes(kernel.body)
    for loop in statements(kernel.body) if repeats else ():
        if isinstance(loop, For) and (sizes := repeats.get(loop.index)):
            extent = loop.index.extent
            common: Dim = next((n for n in sizes.values() if n.is_atom), next(iter(sizes.values())))
            if not isinstance(extent, Size):  # the size they are broadcast to is known
                common = extent
            equal = (
                sizes
                if same_size(joined(*sizes.values()), extent)
                else {**sizes, key_of(extent): extent}
            )
            tests += [
                as_index(n).eq(as_index(common)) for k, n in equal.items() if k != key_of(common)
            ]
            same |= dict.fromkeys([*sizes, key_of(extent)], common)
            along.append(loop.index)
    if not isinstance(condition := both(*tests), Expr):
        return None
    whole = lambda e: i if repeated(e) is not None and (i := unrepeated(e)) in along else None  # noqa: E731
    equal = kernel.with_body(map_expressions(kernel.body, lambda e: rewrite(e, whole)))
    return substitute_sizes(equal, lambda n: same.get(key_of(n), n)), condition


def broadcast_sizes(block: Block) -> dict[Expr, dict[object, Size]]:
    """The sizes of operands that may be repeated, along each index."""
    sizes_of: dict[Expr, dict[object, Size]] = {}
    for e in nodes(block):
        if (place := repeated(e)) is not None:
            sizes_of.setdefault(unrepeated(place[0]), {})[place[1].key] = place[1]
    return sizes_of
