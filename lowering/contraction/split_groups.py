"""Split rows in groups with columns of their own into two loops (grouped convolution).

    for r in 0..8 { ... x[r // 4, k] ... w[r, k] }
    =>  for g in 0..2 { for r in 0..4 { ... x[g, k] ... w[g, r, k] } }

Legal always: arrays with an axis for such an index get two axes, with the same elements in the same
order. For an unknown number of rows a run-time condition tests that the groups are whole.
"""

from dataclasses import dataclass, replace

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import (
    Apply,
    Const,
    Expr,
    Extent,
    Index,
    Tensor,
    as_index,
    both,
)
from ...dialect.kernel_ir.traverse import children, rewrite
from ...dialect.types.sizes import Dim, Size, key_of
from ..analysis.accesses import every_access


@dataclass(frozen=True, eq=False)
class SplitGroups:
    """A kernel with a loop cut by groups, and when it does the same as before."""

    kernel: ir.Kernel
    whole: Expr | bool = True


def split_groups(kernel: ir.Kernel) -> SplitGroups | None:
    """Split the first loop that goes over groups; None if there is none."""
    for s in ir.statements(kernel.body):
        if isinstance(s, ir.For) and s.kind == "serial" and s.stop is None:
            divisors = {n for e in ir.nodes(kernel.body) if (n := _group(e, s.index)) is not None}
            if (
                count := _count(s.index.extent, divisors.pop()) if len(divisors) == 1 else None
            ) is not None:
                return _Cut(s, *count).kernel(kernel)
    return None


def _count(extent: Dim, divisor: Expr) -> tuple[int, Dim] | None:
    """The number of groups of an extent, and their size; for an unknown extent, the condition that
    groups are whole.
    """
    match divisor:
        case Const(size):
            many = isinstance(extent, int) and 1 < size < extent and extent % size == 0
            return (extent // size, size) if many and isinstance(extent, int) else None
        case Extent(Size(((("//", Size() as all, int(count)), 1),), 0) as size):
            return (
                (count, size)
                if isinstance(extent, Size) and extent.key == all.key and count > 1
                else None
            )
    return None


def _group(e: Expr, index: Index) -> Expr | None:
    """The divisor of an index."""
    match e:
        case Apply("floordiv", (Index() as i, (Const() | Extent()) as n), _) if i is index:
            return n
    return None


class _Cut:
    """A loop as one over groups and one inside of each."""

    def __init__(self, loop: ir.For, count: int, size: Dim) -> None:
        self.loop = loop
        self.old = loop.index
        self.count = count
        self.size = size
        self.group, self.index = Index("g", count), Index(loop.index.name, size)

    def kernel(self, kernel: ir.Kernel) -> SplitGroups | None:
        """The kernel with the loop cut; None where its index is also used otherwise."""
        split_axes: dict[Tensor, set[tuple[int, ...]]] = {}
        axes: dict[Tensor, tuple[int, Dim]] = {}  # that become two, the second of this size
        for tensor, at in every_access(kernel.body):
            parts = {n: size for n, i in enumerate(at) if (size := self.part(i)) is not None}
            split_axes.setdefault(tensor, set()).add(tuple(parts))
            if any(n not in parts and self.otherwise(i) for n, i in enumerate(at)):
                return None
            for part in parts.items():
                axes[tensor] = part
        if any(len(places) > 1 or len(*places) > 1 for t in axes if (places := split_axes[t])):
            return None
        tensors: dict[Tensor, Tensor] = {}
        tests: dict[object, Expr] = {}
        for t, (n, size) in axes.items():
            if not (isinstance(t.shape[n], int) and isinstance(size, int)):
                tests[key_of(t.shape[n]), key_of(size)] = as_index(t.shape[n]).eq(
                    as_index(size) * self.count
                )
            elif t.shape[n] != size * self.count:
                return None
            tensors[t] = replace(t, shape=(*t.shape[:n], self.count, size, *t.shape[n + 1 :]))

        def target(tensor: Tensor, at: tuple[Expr, ...]) -> tuple[Tensor, tuple[Expr, ...]] | None:
            if tensor not in axes:
                return None
            n, _ = axes[tensor]
            inner = self.index if at[n] is self.old else children(at[n])[1]
            return tensors[tensor], (*at[:n], self.group, inner, *at[n + 1 :])

        def group(e: Expr) -> Expr | None:
            return self.group if _group(e, self.old) is not None else None

        nest = ir.nested((self.group, self.index), self.loop.body)
        body = ir.redirect(
            ir.rewrite_block(kernel.body, lambda s: nest if s is self.loop else None), target
        )
        body = ir.map_expressions(body, lambda e: rewrite(e, group))
        if any(e is self.old for e in ir.nodes(body)):
            return None
        parameters = tuple(tensors.get(p, p) for p in kernel.parameters)
        return SplitGroups(replace(kernel, body=body, parameters=parameters), both(*tests.values()))

    def part(self, e: Expr) -> Dim | None:
        """The size of the second axis, of an index or a sum that becomes a group and an index in
        it.
        """
        if e is self.old:
            return self.size
        match e:
            case Apply(
                "add",
                (Apply("mul", (group, Extent(Size() as size)), _), Index(extent=Size() as extent)),
                _,
            ):
                return (
                    size if _group(group, self.old) is not None and size.key == extent.key else None
                )
        return None

    def otherwise(self, e: Expr) -> bool:
        """Test whether an expression uses the index other than by its group."""
        return e is self.old or (
            _group(e, self.old) is None and any(self.otherwise(c) for c in children(e))
        )
