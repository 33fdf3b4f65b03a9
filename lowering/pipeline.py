"""The passes of a compilation, in their order: for a CPU, for a GPU, and for the tick of a clocked program.

    function -> graph passes -> formulas -> formula passes -> plan of kernels -> plan passes -> kernel passes -> plan

Every pass stands in the file of its name, with the rewrite it does, when it is legal and when it pays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..dialect.notation.formulas import Formulas
from ..dialect.notation.loops import Kernel
from ..dialect.notation.plan import Plan
from ..dialect.program.function import Function
from ..dialect.program.module import Module
from ..dialect.program.verify_inplace import arguments_overwritten
from .analysis.integer_ranges import integer_ranges
from .contraction.lower_contraction import lower_contraction
from .formulas.build_formulas import build_formulas
from .formulas.fuse import fuse
from .formulas.rounding_shift import rounding_shift
from .gpu.block_reduce import block_reduce
from .gpu.distribute import distribute
from .gpu.expose_contraction import expose_contraction
from .gpu.map_to_grid import map_to_grid
from .gpu.mma import mma
from .gpu.number_kernels import number_kernels
from .gpu.ordered_reduction import ordered_reduction
from .gpu.shared_memory_transpose import shared_memory_transpose
from .gpu.tiled_product import tiled_product
from .gpu.vectorize_accesses import vectorize_accesses
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
from .loops.fuse_kernels import fuse_kernels
from .loops.index_set_split import index_set_split
from .loops.inline_lets import inline_lets
from .loops.kernel_condition_to_branch import kernel_condition_to_branch
from .loops.loop_partition import loop_partition
from .loops.nontemporal_stores import nontemporal_stores
from .loops.parallelize import parallelize
from .loops.saturating_narrow import saturating_narrow
from .loops.split_complex import split_complex
from .loops.tighten_bounds import tighten_bounds
from .loops.unroll import unroll
from .loops.unswitch_broadcast import unswitch_broadcast
from .loops.vectorize import vectorize
from .pass_context import Context
from .passes import declare, run_passes
from .processor import Processor, compiling_for
from .reductions.blocked_sums import blocked_sums
from .reductions.bool_reduction import bool_reduction
from .reductions.cache_row import cache_row
from .reductions.column_reduction import column_reduction
from .reductions.fuse_rows import fuse_rows
from .reductions.lane_reduction import lane_reduction
from .reductions.partition_reduction import partition_reduction
from .reductions.reduction_versions import reduction_versions
from .reductions.split_reduction import split_reduction
from .reductions.widen_in_steps import widen_in_steps
from .stepping.fast_forward import fast_forward
from .stepping.pack_state import pack_state
from .stepping.slp_vectorize import slp_vectorize
from .stepping.split_step_and_observe import StepAndObserve
from .stepping.step_plan import StepPlan
from .stepping.time_skew import time_skew
from .storage.in_place import in_place
from .storage.narrow_storage import narrow_storage
from .storage.place_buffers import place_buffers

_function = partial(declare, level="graph", unit=Function)
_formulas = partial(declare, level="formulas", unit=Formulas)
_plan = partial(declare, level="loops", unit=Plan)
_kernel = partial(declare, level="loops", unit=Kernel)
_gpu = partial(declare, level="gpu", unit=Kernel, on_scheduled=True)
_tick = partial(declare, level="loops", unit=StepPlan)

STEP_SCALARS = 10_000  # 0-dimensional states that one kernel of a tick may access

# all targets

CANONICAL = (_function(simplify), _function(fold_constants), _function(simplify))
GRAPH = (
    _function(differentiate),
    _function(inline),
    *CANONICAL,
    _function(fold_zero_points),
    _function(cse),
    _function(dce),
)
BUILD_FORMULAS = declare(build_formulas, "formulas", Function, body=[p.run for p in GRAPH])
TO_FORMULAS = (BUILD_FORMULAS, _formulas(fuse))
FORMULAS = (_formulas(integer_ranges), _formulas(rounding_shift))
BUILD_LOOPS = declare(build_loops, "loops", Formulas)
LOOPS = (BUILD_LOOPS, _plan(fuse_kernels), _plan(in_place), _plan(split_complex))

# CPU

CPU_LOOPS = (_plan(narrow_storage), _plan(fuse_rows), _plan(place_buffers))
VERSIONS = (  # one kernel to several
    _kernel(broadcast_versions),
    _kernel(reduction_versions),
    _kernel(lower_contraction),
    _kernel(partition_reduction),
    _kernel(split_reduction),
)
NESTS = (
    _kernel(cache_row),
    _kernel(inline_lets),
    _kernel(index_set_split),
    _kernel(collapse),
    _kernel(loop_partition),
    _kernel(tighten_bounds),
    _kernel(bool_reduction),
    _kernel(column_reduction),
    _kernel(vectorize_short_axis),
    _kernel(tiled_transpose),
    _kernel(parallelize),
    _kernel(unswitch_broadcast),
    _kernel(vectorize),
    _kernel(widen_in_steps),
    _kernel(blocked_sums),
    _kernel(lane_reduction),
    _kernel(saturating_narrow, on_scheduled=True),
    _kernel(unroll, on_scheduled=True),
)
KERNEL_CONDITION_TO_BRANCH = _kernel(kernel_condition_to_branch, on_scheduled=True)
CPU_SCHEDULE = (*VERSIONS, *NESTS, _kernel(nontemporal_stores), KERNEL_CONDITION_TO_BRANCH, _plan(place_buffers))
CPU = (*GRAPH, *TO_FORMULAS, *FORMULAS, *LOOPS, *CPU_LOOPS, *CPU_SCHEDULE)

# GPU

NUMBER_KERNELS = declare(number_kernels, "gpu", Plan)
GPU_SCHEDULE = (
    _kernel(broadcast_versions, float_sums=True),
    _kernel(reduction_versions),
    _kernel(split_reduction, grid=True),
    declare(ordered_reduction, "gpu", Kernel),
    _kernel(inline_lets),
    _kernel(collapse),
    declare(expose_contraction, "gpu", Kernel),
    declare(mma, "gpu", Kernel),
    _gpu(distribute),
    _gpu(tiled_product),
    _gpu(shared_memory_transpose),
    _gpu(block_reduce),
    _gpu(vectorize_accesses),
    _gpu(map_to_grid),
    KERNEL_CONDITION_TO_BRANCH,
    _plan(place_buffers),
    NUMBER_KERNELS,
)
GPU = (*GRAPH, *TO_FORMULAS, *FORMULAS, *LOOPS, *GPU_SCHEDULE)

# either, where nothing is optimized

UNOPTIMIZED_GRAPH = (_function(inline), _function(dce))
UNOPTIMIZED_FORMULAS = (
    *UNOPTIMIZED_GRAPH,
    declare(build_formulas, "formulas", Function, body=[p.run for p in UNOPTIMIZED_GRAPH]),
)
UNOPTIMIZED = (*UNOPTIMIZED_FORMULAS, BUILD_LOOPS, _plan(split_complex), _plan(place_buffers))
UNOPTIMIZED_GPU = (*UNOPTIMIZED[:-1], _gpu(distribute), _gpu(map_to_grid), _plan(place_buffers), NUMBER_KERNELS)

# the tick of a clocked program, on a CPU: what it stores it reads again at the next one, so no store bypasses the caches

STEP_LOOPS = (
    BUILD_LOOPS,
    _plan(fuse_kernels, scalars=STEP_SCALARS),
    _plan(in_place),
    _plan(pack_state),
    _plan(split_complex),
)
STEP_SCHEDULE = (
    *VERSIONS,
    *NESTS,
    KERNEL_CONDITION_TO_BRANCH,
    _tick(slp_vectorize),
    _tick(time_skew),
    _tick(fast_forward),
    _plan(place_buffers),
)
STEP = (*GRAPH, *TO_FORMULAS, *STEP_LOOPS, *STEP_SCHEDULE)

TARGETS = {"cpu": CPU, "cuda": GPU}
PIPELINES = {"canonicalize": CANONICAL, "schedule": (*CPU_LOOPS, *CPU_SCHEDULE), "gpu": GPU_SCHEDULE, "step": STEP}
PASSES = {p.name: p for p in reversed((*CPU, *GPU, *STEP))}  # of passes with options, those of the CPU
PASSES = {p.name: PASSES[p.name] for p in (*CPU, *GPU, *STEP)}  # in order
DOWN = {  # what takes a program down from a form, where passes below it are chosen by name
    "graph": (_function(differentiate), _function(inline), BUILD_FORMULAS),
    "formulas": (*FORMULAS, *LOOPS),
}
DOWN_TO_TICK = {
    "graph": (*GRAPH, *TO_FORMULAS),
    "formulas": STEP_LOOPS[: [p.name for p in STEP_LOOPS].index("pack_state")],
}


def context_of(module: Module, function: Function) -> Context:
    """The context of the passes over a function and what it becomes."""
    return Context(module, function, arguments_overwritten(function))


def step_context(module: Module, clockwork: StepAndObserve) -> Context:
    """The same for the tick of a graph, whose state moves in place where it can."""
    moving = [n for n, s in enumerate(clockwork.states) if s.driver is not None]
    return Context(module, clockwork.advance, overwritten=dict(enumerate(moving)))


def to_formulas(module: Module, function: Function, optimize: int = 2) -> Formulas:
    """The function's formulas, fused, or one for each operation that some result needs where nothing is optimized."""
    passes = (*GRAPH, *TO_FORMULAS) if optimize else UNOPTIMIZED_FORMULAS
    return run_passes(passes, function, context_of(module, function))


def unscheduled(module: Module, function: Function) -> Plan:
    """The function as plain nests, before any pass that is for one kind of processor."""
    return run_passes((*GRAPH, *TO_FORMULAS, *FORMULAS, *LOOPS), function, context_of(module, function))


def nests(module: Module, function: Function) -> Plan:
    """The function as plain nests for a CPU."""
    return run_passes((*GRAPH, *TO_FORMULAS, *FORMULAS, *LOOPS, *CPU_LOOPS), function, context_of(module, function))


def schedule(
    plan: Plan, processor: Processor | None = None, ready: Callable[[Kernel], None] = lambda kernel: None
) -> Plan:
    """The plain nests scheduled for a CPU; `ready` is told each kernel as soon as it is."""
    with compiling_for(processor):
        return run_passes(CPU_SCHEDULE, plan, Context(), ready)


def unoptimized(module: Module, function: Function) -> Plan:
    """The function as one scalar nest for each operation."""
    return run_passes(UNOPTIMIZED, function, context_of(module, function))


def lower(module: Module, function: Function, processor: Processor | None = None, optimize: int = 2) -> Plan:
    """The function as a CPU runs it."""
    return schedule(nests(module, function), processor) if optimize else unoptimized(module, function)


def schedule_for_gpu(plan: Plan) -> Plan:
    """The plain nests scheduled for a GPU."""
    return run_passes(GPU_SCHEDULE, plan, Context())


def lower_for_gpu(module: Module, function: Function, optimize: int = 2) -> Plan:
    """The function as a GPU runs it."""
    passes = GPU if optimize else UNOPTIMIZED_GPU
    return run_passes(passes, function, context_of(module, function))


def lower_step(module: Module, clockwork: StepAndObserve, scheduled: bool = True) -> StepPlan:
    """The tick of a graph as a CPU runs it; not `scheduled`, as plain nests."""
    passes = STEP if scheduled else (*GRAPH, *TO_FORMULAS, *STEP_LOOPS)
    return run_passes(passes, clockwork.advance, step_context(module, clockwork))
