"""Profile a function, or a tick: every kernel of the plan is timed by itself, in order, on the
arrays of the whole call.
"""

import ctypes
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from ...dialect.kernel_ir.execution_plan import Plan
from ...dialect.kernel_ir.expressions import Tensor
from ...dialect.types.sizes import evaluate
from ...lowering.analysis.count_operations import Cost, cost
from ...lowering.processor import compiling_for
from ..llvm.emit import emit_plans
from ..llvm.native_code import Library, object_code
from ..runtime.thread_pool import imports
from .clocked_program import CompiledGraph
from .native_function import ENTRY, NativeFunction, aligned_memory
from .steppers import NativeStepper, native_stepper


@dataclass(frozen=True)
class Spent:
    """The median seconds of one kernel, what it writes, with the sizes of the call, what it does,
    and for which lines.
    """

    kernel: str
    written: tuple[tuple[Tensor, tuple[int, ...]], ...]
    seconds: float
    cost: Cost
    origins: tuple[
        str, ...
    ]  # the comments on the lines of the operations that it computes, up to a colon


def profile(
    f: NativeFunction | CompiledGraph, arguments: Sequence[np.ndarray] = (), rounds: int = 20
) -> list[Spent]:
    """Time the kernels of a call with these arguments, which stay as they are, or those of a
    graph's next tick.
    """
    if isinstance(f, CompiledGraph):
        return _profile_tick(f, rounds)
    given = [a.copy() for a in arguments]
    out = f(*given)
    results = [*out] if isinstance(out, tuple) else [out]
    sizes = f.sizes_of(given)
    workspace = aligned_memory(evaluate(f.plan.workspace, sizes))
    with compiling_for(f.compiled_for):
        return _timed(
            f.plan, f.pointers([*given, *results]), workspace, sizes, f.options.optimize > 0, rounds
        )


def _profile_tick(g: CompiledGraph, rounds: int) -> list[Spent]:
    """Times the kernels on a copy of the state."""
    current = {s.name: g.read(s.name, copy=False) for s in g.clockwork.states}
    stepper = native_stepper(g)
    if not isinstance(stepper, NativeStepper):
        return profile(
            cast(NativeFunction, g.function(g.clockwork.advance)), [*current.values()], rounds
        )
    for name, array in current.items():
        stepper.current[name][...] = array
    with compiling_for(g.options.cpu):
        return _timed(g.step_plan.plan, stepper.tables[0], stepper.workspace, {}, True, rounds)


def _timed(
    plan: Plan,
    pointers: object,
    workspace: np.ndarray,
    sizes: Mapping[object, int],
    passes: bool,
    rounds: int,
) -> list[Spent]:
    plans = [replace(plan, kernels=(k,)) for k in plan.kernels]
    runs = [_run(one, pointers, workspace, sizes, passes) for one in plans]
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, found in zip(runs, times, strict=True):
            began = time.perf_counter()
            run()
            found.append(time.perf_counter() - began)
    return [
        _spent(one, statistics.median(found), sizes)
        for one, found in zip(plans, times, strict=True)
    ]


def _run(
    plan: Plan, pointers: Any, workspace: np.ndarray, sizes: Mapping[Any, int], passes: bool
) -> Callable[[], int]:
    """One kernel, in the places that the whole plan gives its arrays."""
    text = emit_plans(plan, optimize=passes)
    code = object_code(text.module, passes=passes)
    wanted = imports(stops=False) if text.module.is_parallel else {}
    library = Library([code], {"entry": ENTRY}, imports=wanted)
    known = (ctypes.c_int64 * len(text.sizes))(*(sizes[atom] for atom in text.sizes))
    return lambda: library.functions["entry"](pointers, known, workspace.ctypes.data)


def _spent(plan: Plan, seconds: float, sizes: Mapping[Any, int]) -> Spent:
    (kernel,) = plan.kernels
    shapes = tuple((t, tuple(evaluate(d, sizes) for d in t.shape)) for t in kernel.outputs)
    notes = (
        span.source.line(span.line).partition("//")[2].partition(": ")[0].strip()
        for span in kernel.spans
    )
    return Spent(
        kernel.name, shapes, seconds, cost(plan, sizes), tuple(dict.fromkeys(filter(None, notes)))
    )
