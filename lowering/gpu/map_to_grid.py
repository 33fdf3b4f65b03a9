"""Kernels placed on a GPU:  for i in 0..n { for j in 0..m { y[i, j] = f } }  =>  for t in 0..n*m parallel { y[t // m, t % m] = f }

A kernel of several nests becomes several kernels, since the whole grid only meets between them. The loops of a nest whose
iterations are independent become one parallel loop, the innermost index running fastest, so that neighbouring threads
access neighbouring elements; what has no such loop runs in one thread. Works on the loops of `nests`, before any pass
that is for CPUs.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.ir.sizes import product
from ...dialect.notation.index import Expr, Index, unflatten
from ...dialect.notation.loops import Alloc, Block, For, Kernel, statements, substitute_block
from ..analysis.accesses import accesses
from ..analysis.parallel_loops import independent_loops
from ..contraction.delinearize import apart
from ..contraction.match import only_where, recognise
from ..contraction.split_groups import grouped
from ..contraction.strategies import reshaped
from ..loops.broadcast_versions import meet
from ..loops.collapse import collapse
from ..loops.forward_substitute import unname
from ..loops.index_set_split import split as cut
from ..loops.loop_partition import borders
from ..loops.tighten_bounds import narrow
from ..reductions.blocked_sums import blocks
from ..reductions.lane_reduction import lanes
from ..reductions.reduction_versions import Order, Ordered, by_order
from ..reductions.split_reduction import in_parts
from ..storage.plan import Plan, make_plan
from .block_reduce import team
from .mma import matrix
from .shared_memory_transpose import transpose
from .tiled_product import multiply
from .vectorize_accesses import wide

# what comes before: where floats are folded, all that decides the order of folds, as on a CPU
ORDERED = (unname, cut, collapse, borders, narrow)


def place_on_gpu(plan: Plan) -> Plan:
    """The plan with kernels that each say what a grid does: one parallel loop, one loop of blocks, or serial code."""
    views = {t: home for t, home in plan.home.items() if t is not home}
    constants, ranges = dict(plan.constants), dict(plan.ranges)
    kernels: list[tuple[Kernel, Expr | None]] = []
    known = dict(constants)  # also as kernels see them

    def same(old: Kernel, new: Kernel) -> Kernel:
        """The new kernel, whose parameters are the old one's, seen differently."""
        shapes = reshaped(old, new)
        views.update(shapes)
        ranges.update({new: ranges[old] for new, old in shapes.items() if old in ranges})
        known.update({new: known[old] for new, old in shapes.items() if old in known})
        return new

    def ordered(o: Ordered) -> list[tuple[Kernel, Expr | None]]:
        """The kernels of one order, each with when it is to run."""
        plain = collapse(unname(o.kernel))
        parts = None if o.order == "terms" else in_parts(plain)
        if parts is not None and parts.long is None:
            same(o.kernel, plain)
            return [(same(parts.parts, prepared(parts.parts, "terms")), o.condition), (parts.joined, o.condition)]
        made = same(o.kernel, prepared(o.kernel, o.order))
        found = matrix(made, known, ranges)
        if found is None:
            return [(made, o.condition)]
        views.update(found.views)
        constants.update(found.constants)
        return [(k, o.condition) for k in found.kernels]

    for kernel in plan.kernels:
        for o in orders(kernel):
            same(kernel, o.kernel)
            kernels += ordered(o)
    sides = plan.name, plan.arguments, plan.results, constants
    planned = make_plan(*sides, tuple(k for k, _ in kernels), views, ranges, plan.requirements)
    placed = [
        replace(k if condition is None else only_where(condition, k), name=f"{plan.name}.{n}")
        for n, (k, condition) in enumerate((k, c) for made, c in kernels for k in place(made))
    ]
    return replace(planned, kernels=tuple(placed))


def orders(kernel: Kernel) -> list[Ordered]:
    """The kernels of each order that the sizes may make, and whether sizes meet that are equal."""
    met = meet(kernel) if folds_floats(kernel) else None
    if met is None:
        return by_order(kernel)
    equal, others = by_order(met.kernel), by_order(kernel)
    return [*(o.only(met.condition) for o in equal), *(o.only(~met.condition) for o in others)]


def prepared(kernel: Kernel, order: Order = "either") -> Kernel:
    """The kernel with its axes joined; by lanes, where the order of a fold is theirs; groups of rows apart."""
    if folds_floats(kernel):
        made = kernel
        for change in ORDERED:
            made = change(made)
        by_blocks = made if order == "terms" else blocks(made)
        by_lanes = lanes(by_blocks)
        if by_blocks is not made or any(isinstance(s, For) and s.kind == "vector" for s in statements(by_lanes.body)):
            return by_lanes
    made = collapse(unname(kernel))
    found = grouped(made)
    cut = apart(made if found is None or found.whole is not True else found.kernel)
    return cut if recognise(made) is None and recognise(cut) is not None else made


def place(kernel: Kernel) -> list[Kernel]:
    """A kernel as launches: each in the first of these ways that fits."""
    laned = (lambda k: k) if folds_floats(kernel) else lanes  # integers have no order to keep
    if any(isinstance(s, For) and s.kind == "block" for s in kernel.body):
        return [kernel]  # by now
    return [multiply(k) or transpose(k) or team(laned(k)) or wide(k) or parallel(k) for k in split(kernel)]


def folds_floats(kernel: Kernel) -> bool:
    """Whether the order of a fold matters."""
    accumulators = {s.tensor for s in statements(kernel.body) if isinstance(s, Alloc) and not s.tensor.shape}
    loops = [s for s in statements(kernel.body) if isinstance(s, For)]
    return any(t.element.kind == "float" and t in accesses(loop.body)[1] for loop in loops for t in accumulators)


def split(kernel: Kernel) -> list[Kernel]:
    """One kernel for each loop of a body that is loops one after the other; its scratch buffers become parameters."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    buffers = [s for s in kernel.body if isinstance(s, Alloc) and s.tensor.space == "heap"]
    if len(loops) + len(buffers) < len(kernel.body) or not loops:
        return [kernel]
    return [with_parameters(kernel, (loop,)) for loop in loops]


def with_parameters(kernel: Kernel, body: Block) -> Kernel:
    """A kernel of this body, its parameters the arrays that the body uses, those it writes last."""
    read, stored = accesses(body)
    own = {s.tensor for s in statements(body) if isinstance(s, Alloc)}
    used = [*kernel.parameters, *(s.tensor for s in kernel.body if isinstance(s, Alloc))]
    given = [t for t in used if t in read and t not in stored and t not in own]
    results = [t for t in used if t in stored and t not in own]
    return replace(kernel, parameters=(*given, *results), body=body, results=len(results))


def parallel(kernel: Kernel) -> Kernel:
    """The outer independent loops of a nest as one."""
    indices, block = independent_loops(kernel)
    if not indices:
        return kernel
    if len(indices) == 1:
        return kernel.with_body((For(indices[0], block, kind="parallel"),))
    shape = tuple(i.extent for i in indices)
    thread = Index("t", product(shape))
    places: dict[Expr, Expr] = dict(zip(indices, unflatten(thread, shape), strict=True))
    return kernel.with_body((For(thread, substitute_block(block, places), kind="parallel"),))
