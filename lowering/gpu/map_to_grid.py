"""Map kernels to the GPU's grid: independent loops become one parallel loop over threads.

    for i in 0..n { for j in 0..m { y[i, j] = f } }  =>  for t in 0..n*m parallel { y[t // m, t % m] = f }

A kernel of several nests becomes several kernels, since only a launch synchronizes the whole grid. The innermost index
varies fastest over threads, so that accesses coalesce; a nest without an independent loop runs in one thread. Takes
plain nests, before any CPU pass.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.ir.sizes import product
from ...dialect.notation.index import Expr, Index, unflatten
from ...dialect.notation.loops import Alloc, Block, For, Kernel, statements, substitute_block
from ..analysis.accesses import accesses
from ..analysis.parallel_loops import independent_loops
from ..contraction.delinearize import delinearize
from ..contraction.match import guard_kernel, match_contraction, reshaped_parameters
from ..contraction.split_groups import split_groups
from ..loops.broadcast_versions import broadcast_versions
from ..loops.collapse import collapse
from ..loops.forward_substitute import forward_substitute
from ..loops.index_set_split import index_set_split as cut
from ..loops.loop_partition import loop_partition
from ..loops.tighten_bounds import tighten_bounds
from ..reductions.blocked_sums import blocked_sums
from ..reductions.lane_reduction import lane_reduction
from ..reductions.reduction_versions import Order, OrderedVersion, reduction_versions
from ..reductions.split_reduction import split_reduction
from ..storage.plan import Plan, make_plan
from .block_reduce import block_reduce
from .mma import mma
from .shared_memory_transpose import shared_memory_transpose
from .tiled_product import tiled_product
from .vectorize_accesses import vectorize_accesses

# passes that come before: for float reductions, those that decide their order, as on a CPU
ORDERED = (forward_substitute, cut, collapse, loop_partition, tighten_bounds)


def map_to_grid(plan: Plan) -> Plan:
    """The plan with kernels of one grid each: one parallel loop, one loop of blocks, or serial code."""
    views = {t: home for t, home in plan.home.items() if t is not home}
    constants, ranges = dict(plan.constants), dict(plan.ranges)
    kernels: list[tuple[Kernel, Expr | None]] = []
    known = dict(constants)  # also under the parameters of new kernels

    def same(old: Kernel, new: Kernel) -> Kernel:
        """The new kernel over the old one's parameters, reshaped."""
        shapes = reshaped_parameters(old, new)
        views.update(shapes)
        ranges.update({new: ranges[old] for new, old in shapes.items() if old in ranges})
        known.update({new: known[old] for new, old in shapes.items() if old in known})
        return new

    def ordered(o: OrderedVersion) -> list[tuple[Kernel, Expr | None]]:
        """The kernels of one order of reductions, each with the condition under which it runs."""
        plain = collapse(forward_substitute(o.kernel))
        parts = None if o.order == "terms" else split_reduction(plain)
        if parts is not None and parts.long is None:
            same(o.kernel, plain)
            return [(same(parts.parts, prepared(parts.parts, "terms")), o.condition), (parts.joined, o.condition)]
        made = same(o.kernel, prepared(o.kernel, o.order))
        found = mma(made, known, ranges)
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
        replace(k if condition is None else guard_kernel(condition, k), name=f"{plan.name}.{n}")
        for n, (k, condition) in enumerate((k, c) for made, c in kernels for k in place(made))
    ]
    return replace(planned, kernels=tuple(placed))


def map_nests_to_grid(plan: Plan) -> Plan:
    """The plan with every nest a launch of its own, its independent outer loops the grid, and no other change."""
    launched = [parallel(part) for kernel in plan.kernels for part in split(kernel)]
    return replace(plan, kernels=tuple(replace(k, name=f"{plan.name}.{n}") for n, k in enumerate(launched)))


def orders(kernel: Kernel) -> list[OrderedVersion]:
    """The versions of a kernel for each order of its reductions, and for equal broadcast sizes."""
    met = broadcast_versions(kernel) if folds_floats(kernel) else None
    if met is None:
        return reduction_versions(kernel)
    equal, others = reduction_versions(met.kernel), reduction_versions(kernel)
    return [*(o.only(met.condition) for o in equal), *(o.only(~met.condition) for o in others)]


def prepared(kernel: Kernel, order: Order = "either") -> Kernel:
    """The kernel with loops collapsed, ordered reductions by lanes, and groups of rows split."""
    if folds_floats(kernel):
        made = kernel
        for change in ORDERED:
            made = change(made)
        by_blocks = made if order == "terms" else blocked_sums(made)
        by_lanes = lane_reduction(by_blocks)
        if by_blocks is not made or any(isinstance(s, For) and s.kind == "vector" for s in statements(by_lanes.body)):
            return by_lanes
    made = collapse(forward_substitute(kernel))
    found = split_groups(made)
    cut = delinearize(made if found is None or found.whole is not True else found.kernel)
    return cut if match_contraction(made) is None and match_contraction(cut) is not None else made


def place(kernel: Kernel) -> list[Kernel]:
    """A kernel as launches: the first mapping that applies."""
    laned = (lambda k: k) if folds_floats(kernel) else lane_reduction  # integer reductions have no order
    if any(isinstance(s, For) and s.kind == "block" for s in kernel.body):
        return [kernel]  # by now
    return [
        tiled_product(k) or shared_memory_transpose(k) or block_reduce(laned(k)) or vectorize_accesses(k) or parallel(k)
        for k in split(kernel)
    ]


def folds_floats(kernel: Kernel) -> bool:
    """Test whether the order of a kernel's reductions decides their bits."""
    accumulators = {s.tensor for s in statements(kernel.body) if isinstance(s, Alloc) and not s.tensor.shape}
    loops = [s for s in statements(kernel.body) if isinstance(s, For)]
    return any(t.element.kind == "float" and t in accesses(loop.body)[1] for loop in loops for t in accumulators)


def split(kernel: Kernel) -> list[Kernel]:
    """One kernel per loop of a sequence of loops; its scratch buffers become parameters."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    buffers = [s for s in kernel.body if isinstance(s, Alloc) and s.tensor.space == "heap"]
    if len(loops) + len(buffers) < len(kernel.body) or not loops:
        return [kernel]
    return [with_parameters(kernel, (loop,)) for loop in loops]


def with_parameters(kernel: Kernel, body: Block) -> Kernel:
    """A kernel with this body; its parameters are the arrays of the body, results last."""
    read, stored = accesses(body)
    own = {s.tensor for s in statements(body) if isinstance(s, Alloc)}
    used = [*kernel.parameters, *(s.tensor for s in kernel.body if isinstance(s, Alloc))]
    given = [t for t in used if t in read and t not in stored and t not in own]
    results = [t for t in used if t in stored and t not in own]
    return replace(kernel, parameters=(*given, *results), body=body, results=len(results))


def parallel(kernel: Kernel) -> Kernel:
    """The outer independent loops of a nest as one parallel loop."""
    indices, block = independent_loops(kernel)
    if not indices:
        return kernel
    if len(indices) == 1:
        return kernel.with_body((For(indices[0], block, kind="parallel"),))
    shape = tuple(i.extent for i in indices)
    thread = Index("t", product(shape))
    places: dict[Expr, Expr] = dict(zip(indices, unflatten(thread, shape), strict=True))
    return kernel.with_body((For(thread, substitute_block(block, places), kind="parallel"),))
