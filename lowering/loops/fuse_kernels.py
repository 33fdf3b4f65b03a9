"""Fuse kernels over the same iteration space (loop fusion; MLIR's affine-loop-fusion).

    for i { t[i] = f(x[i]) };  for i { y[i] = g(t[i]) };  for i { z[i] = h(t[i]) }
    =>  for i { let a = f(x[i]); let b = g(a); let c = h(a); y[i] = b; z[i] = c }

Legal if every dependence between the kernels is at the same point of the iteration space. Pays
where kernels share an array, or one reads another's result: an array that only the fused kernel
reads needs no storage. Kernels without loops always fuse. Stores come last, so that results may be
stored in the place of operands.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.execution_plan import Loop, Plan, viewed
from ...dialect.kernel_ir.expressions import Expr, Index, Tensor, Var
from ...dialect.types.sizes import same_size
from ..analysis.accesses import reads, stores
from ..passes import plan_pass
from ..processor import processor
from .build_loops import sorted_tensors
from .clone import clone

# arrays of a fused kernel, at most: LLVM's no-alias facts grow with the number of pairs; bounds
# compile time (by hand)
ARRAYS = 16


@dataclass(eq=False)
class _Group:
    """Kernels to be fused: their common loops, and the statements inside."""

    kernels: list[ir.Kernel]
    indices: list[Index]
    bodies: list[ir.Block]
    simple: bool  # straight-line code with one store
    reads: set[Tensor] = field(default_factory=set)
    writes: set[Tensor] = field(default_factory=set)
    size: int = 0
    needs: "dict[_Group, None]" = field(
        default_factory=dict
    )  # groups that must run before, in order


@plan_pass
def fuse_kernels(plan: Plan, scalars: int = ARRAYS) -> Plan:
    """The plan with the same work in fewer kernels. A kernel without loops may access up to
    `scalars` arrays.
    """
    views = plan.views
    groups: list[_Group] = []
    users: dict[
        Tensor, dict[_Group, None]
    ] = {}  # the groups that access an array; below, those that write it
    writers: dict[Tensor, dict[_Group, None]] = {}
    for kernel in plan.kernels:
        new = _group(kernel, views)
        for t in new.reads:
            new.needs |= writers.get(t, {})
        for t in new.writes:
            new.needs |= users.get(t, {})
        if (group := _fusible_group(groups, new, views, scalars)) is None:
            groups.append(new)
        else:
            _join(group, new)
        for accessors, tensors in ((users, new.reads | new.writes), (writers, new.writes)):
            for t in tensors:
                accessors.setdefault(t, {})[group or new] = None
    # an argument that is stored is a carried value, which the next step or the caller reads
    live = {*plan.results, *plan.arguments, *views, *views.values()}
    fused = (_kernel(g, groups, live) for g in _ordered(groups))
    named = (replace(k, name=f"{k.name.rpartition('.')[0]}.{n}") for n, k in enumerate(fused))
    return replace(plan, kernels=tuple(named))


def _group(kernel: ir.Kernel, views: Mapping[Tensor, Tensor]) -> _Group:
    indices, block = ir.outer_loops(kernel.body)
    results = kernel.outputs
    inputs = kernel.inputs if isinstance(kernel, Loop) else [r.tensor for r in reads(block)]
    read, written = ({viewed(t, views) for t in tensors} for tensors in (inputs, results))
    simple = (
        bool(block)
        and not kernel.scheduled
        and len(results) == 1
        and _straight(block, results[0], indices)
        and results[0] not in read
    )
    return _Group(
        [kernel], indices, [block], simple, read, written, sum(1 for _ in ir.nodes(block))
    )


def _straight(block: ir.Block, result: Tensor, indices: list[Index]) -> bool:
    """Test whether the block has no loops and ends with the store of the result at the indices of
    the loops around it.
    """
    *before, last = block
    if ir.has_loops(tuple(before)) or any(s.tensor is result for s in stores(tuple(before))):
        return False
    return isinstance(last, ir.Store) and last.tensor is result and _at(last.indices, indices)


def _at(at: tuple[Expr, ...], indices: list[Index]) -> bool:
    return len(at) == len(indices) and all(a is i for a, i in zip(at, indices, strict=True))


def _fusible_group(
    groups: list[_Group], new: _Group, views: Mapping[Tensor, Tensor], scalars: int
) -> _Group | None:
    """The latest group that a kernel can join without a cycle of dependences between groups."""
    if not new.simple:
        return None
    for group in groups[: -processor().tuning.fused_lookback - 1 : -1]:
        extents = zip_longest(
            (i.extent for i in group.indices), (i.extent for i in new.indices), fillvalue=-1
        )
        fits = (
            group.simple
            and all(same_size(*pair) for pair in extents)
            and _worthwhile(group, new, scalars)
        )
        if fits and _pointwise(group, new, views) and not _leads(new.needs, group):
            return group
    return None


def _leads(start: Iterable[_Group], goal: _Group) -> bool:
    """Test whether one of these groups, other than the goal, depends on the goal."""
    seen: set[_Group] = set()
    stack = [g for g in start if g is not goal]
    while stack:
        if (group := stack.pop()) is goal:
            return True
        if group not in seen:
            seen.add(group)
            stack += group.needs
    return False


def _ordered(groups: list[_Group]) -> list[_Group]:
    """The groups in a topological order of their dependences."""
    done: dict[_Group, None] = {}
    for group in groups:
        stack = [group]
        while stack:
            if waiting := [g for g in stack[-1].needs if g not in done]:
                stack.append(waiting[0])
            else:
                done.setdefault(stack.pop())
    return list(done)


def _worthwhile(group: _Group, new: _Group, scalars: int) -> bool:
    arrays = group.reads | new.reads | group.writes | new.writes
    if not new.indices:
        return len(arrays) <= scalars
    shared = {t for t in new.reads & (group.reads | group.writes) if t.rank}
    return (
        bool(shared)
        and group.size + new.size <= processor().tuning.fused_kernel_nodes
        and len(arrays) <= ARRAYS
    )


def _pointwise(group: _Group, new: _Group, views: Mapping[Tensor, Tensor]) -> bool:
    """Test whether the kernel reads the group's results only at the same point, and overwrites none
    of its operands.
    """
    if new.writes & (group.reads | group.writes):
        return False
    shared = [e for e in reads(new.bodies[0]) if viewed(e.tensor, views) in group.writes]
    return all(e.tensor not in views and _at(e.indices, new.indices) for e in shared)


def _join(group: _Group, new: _Group) -> None:
    n = len(group.bodies)
    names: dict[Expr, Expr] = dict(zip(new.indices, group.indices, strict=True))
    group.bodies.append(clone(new.bodies[0], names, str(n)))
    group.kernels += new.kernels
    group.reads |= new.reads
    group.writes |= new.writes
    group.size += new.size
    group.needs |= {g: None for g in new.needs if g is not group}


def _kernel(group: _Group, groups: list[_Group], live: set[Tensor]) -> ir.Kernel:
    """The group as one kernel: every value is named, then stored if it is read outside."""
    first = group.kernels[0]
    if len(group.kernels) == 1:
        return first
    outside = live.union(*(g.reads for g in groups if g is not group))
    values: dict[Tensor, Var] = {}
    body: list[ir.Statement] = []
    last: list[ir.Store] = []
    for block in group.bodies:
        *before, store = ir.replace_reads(block, values)
        assert isinstance(store, ir.Store)
        values[store.tensor] = var = Var(store.tensor.name, store.tensor.element)
        body += [*before, ir.Let(var, store.value)]
        if store.tensor in outside:
            last.append(replace(store, value=var))
    results = [s.tensor for s in last]
    parameters = (
        *sorted_tensors({p for k in group.kernels for p in k.parameters} - {*values}),
        *results,
    )
    spans = tuple(dict.fromkeys(s for k in group.kernels for s in k.spans))
    nest = ir.nested(group.indices, (*body, *last))
    return ir.Kernel(first.name, parameters, nest, len(results), first.span, spans=spans)
