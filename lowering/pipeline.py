"""The passes of a compilation, in their order: for a CPU, for a GPU, and for the tick of a clocked
program.

    function -> graph passes -> formulas -> formula passes
             -> plan of kernels -> plan passes -> kernel passes -> plan

Every pass stands in the file of its name, with the rewrite it does, when it is legal and when it
pays.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..dialect.ir.function import Function
from ..dialect.ir.module import Module
from ..dialect.ir.verify_inplace import arguments_overwritten
from ..dialect.kernel_ir.execution_plan import Plan
from ..dialect.kernel_ir.formulas import Formulas
from ..dialect.kernel_ir.loops import Kernel
from .analysis.integer_ranges import integer_ranges
from .clocked_plan import StepPlan
from .contraction.lower_contraction import lower_contraction
from .contraction.tile_and_fuse import tile_and_fuse
from .formulas.build_formulas import build_formulas
from .formulas.fuse import fuse
from .formulas.rounding_shift import rounding_shift
from .formulas.scale_by_integers import scale_by_integers
from .formulas.simplify_with_ranges import simplify_with_ranges
from .gpu.expand_channel_groups import expand_channel_groups
from .gpu.fuse_in_block import fuse_in_block
from .gpu.loop_fission import loop_fission
from .gpu.map_to_grid import map_to_grid
from .gpu.mma import mma
from .gpu.number_kernels import number_kernels
from .gpu.ordered_reduction import ordered_reduction
from .gpu.shared_memory_transpose import shared_memory_transpose
from .gpu.tiled_product import tiled_product
from .gpu.tiled_window import tiled_window
from .gpu.vectorize_accesses import vectorize_accesses
from .gpu.warp_reduce import warp_reduce
from .graph.convert import convert
from .graph.cse import cse
from .graph.dce import dce
from .graph.differentiate import differentiate
from .graph.fold_constants import fold_constants
from .graph.fold_zero_points import fold_zero_points
from .graph.inline import inline
from .graph.simplify import simplify
from .layout.tiled_transpose import tiled_transpose
from .layout.vectorize_short_axis import vectorize_short_axis
from .loops.broadcast_versions import broadcast_versions
from .loops.build_loops import build_loops
from .loops.collapse import collapse
from .loops.expand_functions import expand_functions
from .loops.fuse_kernels import fuse_kernels
from .loops.index_set_split import index_set_split
from .loops.inline_lets import inline_lets
from .loops.kernel_condition_to_branch import kernel_condition_to_branch
from .loops.legalize_types import legalize_types
from .loops.loop_partition import loop_partition
from .loops.nontemporal_stores import nontemporal_stores
from .loops.parallelize import parallelize
from .loops.prefetch import prefetch
from .loops.sanitize import sanitize
from .loops.saturating_narrow import saturating_narrow
from .loops.tighten_bounds import tighten_bounds
from .loops.unroll import unroll
from .loops.unswitch_broadcast import unswitch_broadcast
from .loops.vectorize import vectorize
from .loops.verify_nest import verified
from .pass_context import Context
from .passes import Pass, placed, run_passes
from .processor import Processor, compiling_for
from .reductions.blocked_sums import blocked_sums
from .reductions.cache_row import cache_row
from .reductions.column_reduction import column_reduction
from .reductions.fuse_rows import fuse_rows
from .reductions.lane_reduction import lane_reduction
from .reductions.partition_reduction import partition_reduction
from .reductions.promote_bools import promote_bools
from .reductions.reduction_versions import reduction_versions
from .reductions.split_reduction import split_reduction
from .reductions.widen_in_steps import widen_in_steps
from .stepping.fast_forward import fast_forward
from .stepping.pack_state import pack_state
from .stepping.slp_vectorize import slp_vectorize
from .stepping.split_step_and_observe import StepAndObserve
from .stepping.time_skew import time_skew
from .storage.in_place import in_place
from .storage.narrow_storage import narrow_storage
from .storage.place_buffers import place_buffers

# 0-dimensional states that one kernel of a tick may access; bounds compile time (by hand)
STEP_SCALARS = 10_000

# all targets

CANONICAL = (simplify, fold_constants, simplify)
GRAPH = (
    differentiate,
    inline,
    dce,
    *CANONICAL,
    fold_zero_points,
    cse,
    dce.with_options(simplified=True),
)
BUILD_FORMULAS = build_formulas.with_options(body=[p.run for p in GRAPH], verified=verified)
TO_FORMULAS = (BUILD_FORMULAS, fuse)
FORMULAS = (scale_by_integers, integer_ranges, rounding_shift, simplify_with_ranges)
LOOPS = (build_loops, fuse_kernels, in_place, legalize_types)

# CPU

CPU_LOOPS = (narrow_storage, fuse_rows, place_buffers)
# one kernel to several
VERSIONS = (
    broadcast_versions,
    reduction_versions,
    lower_contraction,
    partition_reduction,
    split_reduction,
)
NESTS = (
    cache_row,
    inline_lets,
    index_set_split,
    collapse,
    loop_partition,
    tighten_bounds,
    promote_bools,
    column_reduction,
    vectorize_short_axis,
    tiled_transpose,
    parallelize,
    unswitch_broadcast,
    vectorize,
    widen_in_steps,
    blocked_sums,
    lane_reduction,
    saturating_narrow,
    unroll,
)
TILE = (*VERSIONS, *NESTS)
TILES = tile_and_fuse.with_options(body=TILE)
CPU_SCHEDULE = (
    TILES,
    *TILE,
    nontemporal_stores,
    kernel_condition_to_branch,
    prefetch,
    place_buffers,
)
CPU = (*GRAPH, *TO_FORMULAS, *FORMULAS, *LOOPS, *CPU_LOOPS, *CPU_SCHEDULE)

# C for processors without vectors: small code, and narrow arrays

SCALAR_LOOPS = (
    narrow_storage,
    inline_lets,
    index_set_split,
    collapse,
    loop_partition,
    tighten_bounds,
    unroll.with_options(factor=4),
    kernel_condition_to_branch,
)
SCALAR = (*GRAPH, *TO_FORMULAS, *FORMULAS, *LOOPS, *SCALAR_LOOPS, place_buffers)

# GPU

GPU_VERSIONS = (
    broadcast_versions.with_options(float_sums=True),
    reduction_versions,
    split_reduction.with_options(grid=True),
)
GPU_NESTS = (
    ordered_reduction,
    inline_lets,
    collapse,
    expand_channel_groups,
    mma,
    loop_fission,
    tiled_product,
    tiled_window,
    shared_memory_transpose,
    warp_reduce,
    vectorize_accesses,
    map_to_grid,
    kernel_condition_to_branch,
)
GPU_TILE = (*GPU_VERSIONS, *(p for p in GPU_NESTS if p is not vectorize_accesses))
GPU_SCHEDULE = (
    fuse_in_block.with_options(body=GPU_TILE),
    *GPU_VERSIONS,
    *GPU_NESTS,
    place_buffers,
    number_kernels,
)
GPU = (*GRAPH, *TO_FORMULAS, *FORMULAS, *LOOPS, *GPU_SCHEDULE)

# either, where nothing is optimized

UNOPTIMIZED_GRAPH = (inline, dce)
UNOPTIMIZED_FORMULAS = (
    *UNOPTIMIZED_GRAPH,
    BUILD_FORMULAS.with_options(body=[p.run for p in UNOPTIMIZED_GRAPH]),
)
UNOPTIMIZED = (*UNOPTIMIZED_FORMULAS, build_loops, legalize_types, place_buffers)
UNOPTIMIZED_GPU = (*UNOPTIMIZED[:-1], loop_fission, map_to_grid, place_buffers, number_kernels)

# the tick of a clocked program, on a CPU: what it stores it reads again at the next one, so no
# store bypasses the caches

STEP_LOOPS = (
    build_loops,
    fuse_kernels.with_options(scalars=STEP_SCALARS),
    in_place,
    pack_state,
    legalize_types,
)
STEP_SCHEDULE = (
    *VERSIONS,
    *NESTS,
    kernel_condition_to_branch,
    slp_vectorize,
    time_skew,
    fast_forward,
    prefetch,
    place_buffers,
)
STEP = (*GRAPH, *TO_FORMULAS, *STEP_LOOPS, *STEP_SCHEDULE)

TARGETS = {"cpu": CPU, "cuda": GPU}
PIPELINES = {
    "canonicalize": CANONICAL,
    "schedule": (*CPU_LOOPS, *CPU_SCHEDULE),
    "gpu": GPU_SCHEDULE,
    "step": STEP,
}
PASSES = {
    p.name: p for p in reversed((*CPU, *GPU, *STEP, convert, expand_functions, sanitize))
}  # of passes with options, those of the CPU
PASSES = {
    p.name: PASSES[p.name] for p in (*CPU, *GPU, *STEP, convert, expand_functions, sanitize)
}  # in order
# what takes a program down from a form, where passes below it are chosen by name
DOWN = {"graph": (differentiate, inline, BUILD_FORMULAS), "formulas": (*FORMULAS, *LOOPS)}
DOWN_TO_TICK = {
    "graph": GRAPH + TO_FORMULAS,
    "formulas": STEP_LOOPS[: [p.name for p in STEP_LOOPS].index("pack_state")],
}


def context_of(module: Module, function: Function) -> Context:
    """The context of the passes over a function and what it becomes."""
    return Context(module, function, arguments_overwritten(function))


def step_context(module: Module, clockwork: StepAndObserve) -> Context:
    """The context for the tick of a graph, whose state moves in place where it can."""
    moving = [n for n, s in enumerate(clockwork.states) if s.driver is not None]
    return Context(module, clockwork.advance, overwritten=dict(enumerate(moving)))


def _run(
    passes: Sequence[Pass[..., Any]],
    item: Any,
    context: Context,
    ready: Callable[[Kernel], None] = lambda kernel: None,
) -> Any:
    return run_passes(placed(passes), item, context, ready)


def to_formulas(module: Module, function: Function, optimize: int = 2) -> Formulas:
    """The function's formulas, fused, or one for each operation that some result needs where
    nothing is optimized.
    """
    passes = placed((*GRAPH, *TO_FORMULAS)) if optimize else UNOPTIMIZED_FORMULAS
    return run_passes(passes, function, context_of(module, function))


def unscheduled(module: Module, function: Function) -> Plan:
    """The function as plain nests, before any pass that is for one kind of processor."""
    return _run(
        (*GRAPH, *TO_FORMULAS, *FORMULAS, *LOOPS, place_buffers),
        function,
        context_of(module, function),
    )


def nests(module: Module, function: Function) -> Plan:
    """The function as plain nests for a CPU."""
    return _run(
        (*GRAPH, *TO_FORMULAS, *FORMULAS, *LOOPS, *CPU_LOOPS),
        function,
        context_of(module, function),
    )


def _checked(passes: Sequence[Pass[..., Any]]) -> Sequence[Pass[..., Any]]:
    """The passes, with `sanitize` as the last one over kernels."""
    return *passes[:-1], sanitize, passes[-1]


def schedule(
    plan: Plan,
    processor: Processor | None = None,
    ready: Callable[[Kernel], None] = lambda kernel: None,
    checks: bool = False,
) -> Plan:
    """The plain nests scheduled for a CPU; `ready` is told each kernel as soon as it is."""
    with compiling_for(processor):
        return _run(_checked(CPU_SCHEDULE) if checks else CPU_SCHEDULE, plan, Context(), ready)


def unoptimized(module: Module, function: Function, checks: bool = False) -> Plan:
    """The function as one scalar nest for each operation."""
    return run_passes(
        _checked(UNOPTIMIZED) if checks else UNOPTIMIZED, function, context_of(module, function)
    )


def lower(
    module: Module,
    function: Function,
    processor: Processor | None = None,
    optimize: int = 2,
    checks: bool = False,
) -> Plan:
    """Lower a function for a CPU; `checks` adds assertions on accesses and intervals."""
    if not optimize:
        return unoptimized(module, function, checks)
    return schedule(nests(module, function), processor, checks=checks)


def lower_to_scalars(
    module: Module, function: Function, optimize: int = 2, checks: bool = False
) -> Plan:
    """Lower a function to loops without vectors and threads."""
    if not optimize:
        return unoptimized(module, function, checks)
    passes = placed(_checked(SCALAR) if checks else SCALAR)
    return run_passes(passes, function, context_of(module, function))


def schedule_others(plan: Plan) -> Plan:
    """The plain nests scheduled for a CPU but for those that have a schedule, kernel by kernel."""
    return _run(tuple(p for p in CPU_SCHEDULE if p.unit is Kernel), plan, Context())


def schedule_for_gpu(plan: Plan) -> Plan:
    """The plain nests scheduled for a GPU."""
    return _run(GPU_SCHEDULE, plan, Context())


def lower_for_gpu(module: Module, function: Function, optimize: int = 2) -> Plan:
    """The function as a GPU runs it."""
    return run_passes(
        placed(GPU) if optimize else UNOPTIMIZED_GPU, function, context_of(module, function)
    )


def lower_step(
    module: Module, clockwork: StepAndObserve, scheduled: bool = True, checks: bool = False
) -> StepPlan:
    """The tick of a graph as a CPU runs it; not `scheduled`, as plain nests."""
    passes = STEP if scheduled else (*GRAPH, *TO_FORMULAS, *STEP_LOOPS)
    return _run(
        _checked(passes) if checks else passes, clockwork.advance, step_context(module, clockwork)
    )
