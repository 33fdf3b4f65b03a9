"""Split rows in groups with columns of their own into two loops (grouped convolution).

    for r in 0..8 { ... x[r // 4, k] ... w[r, k] }  =>  for g in 0..2 { for r in 0..4 { ... x[g, k] ... w[g, r, k] } }


Legal always: arrays with an axis for such an index get two axes, with the same elements in the same order. For an unknown
number of rows a run-time condition tests that the groups are whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...dialect.ir.sizes import Dim, Size
from ...dialect.notation import loops as ir
from ...dialect.notation.expressions import Apply, Const, Expr, Extent, Index, Read, Tensor, as_index, both
from ...dialect.notation.traverse import children, rewrite
from ..analysis.accesses import every_access


@dataclass(frozen=True, eq=False)
class SplitGroups:
    """A kernel with a loop cut by groups, and when it does the same as before."""

    kernel: ir.Kernel
    whole: Expr | bool = True


def split_groups(kernel: ir.Kernel) -> SplitGroups | None:
    """The kernel with the first loop cut that goes over groups; None where there is none."""
    for s in ir.statements(kernel.body):
        if isinstance(s, ir.For) and s.kind == "serial" and s.stop is None:
            divisors = {n for e in ir.nodes(kernel.body) if (n := _group(e, s.index)) is not None}
            count = _count(s.index.extent, divisors.pop()) if len(divisors) == 1 else None
            if count is not None:
                return _Cut(s, *count).made(kernel)
    return None


def _count(extent: Dim, divisor: Expr) -> tuple[int, Dim] | None:
    """The number of groups of an extent, and their size; for an unknown extent, the condition that groups are whole."""
    match divisor:
        case Const(size):
            many = isinstance(extent, int) and 1 < size < extent and extent % size == 0
            return (extent // size, size) if many and isinstance(extent, int) else None
        case Extent(Size(((("//", Size() as all, int(count)), 1),), 0) as size):
            same = isinstance(extent, Size) and extent.key == all.key
            return (count, size) if same and count > 1 else None
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
        self.loop, self.old, self.count, self.size = loop, loop.index, count, size
        self.group, self.index = Index("g", count), Index(loop.index.name, size)
        self.axes: dict[Tensor, tuple[int, Dim]] = {}  # that become two, the second of this size
        self.tensors: dict[Tensor, Tensor] = {}

    def made(self, kernel: ir.Kernel) -> SplitGroups | None:
        """The kernel with the loop cut; None where its index is also used otherwise."""
        found: dict[Tensor, set[tuple[int, ...]]] = {}
        for tensor, at in every_access(kernel.body):
            found.setdefault(tensor, set()).add(tuple(n for n, i in enumerate(at) if self.part(i) is not None))
            if any(i is not self.old and self.part(i) is None and self.otherwise(i) for i in at):
                return None
            for n, i in enumerate(at):
                if (size := self.part(i)) is not None:
                    self.axes[tensor] = n, size
        if any(len(places) > 1 or len(*places) > 1 for t in self.axes if (places := found[t])):
            return None
        tests: dict[object, Expr] = {}
        for t, (n, size) in self.axes.items():
            if not (isinstance(t.shape[n], int) and isinstance(size, int)):
                tests[_written(t.shape[n]), _written(size)] = as_index(t.shape[n]).eq(as_index(size) * self.count)
            elif t.shape[n] != size * self.count:
                return None
            self.tensors[t] = replace(t, shape=(*t.shape[:n], self.count, size, *t.shape[n + 1 :]))
        body = ir.map_expressions(ir.rewrite_block(kernel.body, self.cut), lambda e: rewrite(e, self.change))
        if any(e is self.old for e in ir.nodes(body)):
            return None
        parameters = tuple(self.tensors.get(p, p) for p in kernel.parameters)
        return SplitGroups(replace(kernel, body=body, parameters=parameters), both(*tests.values()))

    def part(self, e: Expr) -> Dim | None:
        """The size of the second axis, for what is to be a group and an index in it: of unknown sizes a sum, too, by which
        groups lie one after the other."""
        if e is self.old:
            return self.size
        match e:
            case Apply("add", (Apply("mul", (group, Extent(Size() as size)), _), Index(extent=Size() as extent)), _):
                return size if _group(group, self.old) is not None and size.key == extent.key else None
        return None

    def otherwise(self, e: Expr) -> bool:
        """Test whether an expression uses the index other than by its group."""
        return e is self.old or (_group(e, self.old) is None and any(self.otherwise(c) for c in children(e)))

    def placed(self, tensor: Tensor, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        n, _ = self.axes[tensor]
        inner = self.index if at[n] is self.old else children(at[n])[1]
        return (*at[:n], self.group, inner, *at[n + 1 :])

    def change(self, e: Expr) -> Expr | None:
        if _group(e, self.old) is not None:
            return self.group
        if isinstance(e, Read) and e.tensor in self.axes:
            at = self.placed(e.tensor, e.indices)
            return Read(self.tensors[e.tensor], tuple(rewrite(i, self.change) for i in at))
        return None

    def cut(self, s: ir.Statement) -> ir.Block | None:
        if s is self.loop:
            return (ir.For(self.group, (ir.For(self.index, ir.rewrite_block(self.loop.body, self.cut)),)),)
        if isinstance(s, ir.Store) and s.tensor in self.axes:
            return (replace(s, tensor=self.tensors[s.tensor], indices=self.placed(s.tensor, s.indices)),)
        return None


def _written(size: Dim) -> object:
    """A size, to be compared as it is written."""
    return size.key if isinstance(size, Size) else size
