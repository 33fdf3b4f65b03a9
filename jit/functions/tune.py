"""Search for a schedule that makes a call faster, and keeps every bit of its results.

In turns, random steps are added to the best schedules so far, candidates are ranked by estimated
cycles, and the first of them are compiled and measured. The schedule without steps takes part, and
the winner is measured against it again at the end, both in turns, so that no search ends below
it. Results are kept by kernels, shapes and processor in the disk cache, where later calls find
them.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from ...dialect.kernel_ir.execution_plan import Plan
from ...dialect.kernel_ir.kernel_printer import plan_text
from ...dialect.kernel_ir.loops import Kernel
from ...dialect.support.diagnostics import CallError, Error
from ...lowering.analysis.cost import Sizes
from ...lowering.processor import Processor, compiling_for
from ...lowering.scheduling.apply_steps import apply_to_plan
from ...lowering.scheduling.search import estimated_cycles, random_step
from ...lowering.scheduling.steps import Refused, Step, read_step
from ..cache import disk_cache
from ..cache.keys import environment
from ..runtime.thread_pool import get_num_threads
from ..targets import find_target

POOL = 4  # schedules that further steps are added to, at most
CANDIDATES = 12  # of a turn, of which some are measured; one in three by hand
MEASURED = 4
IDLE = 20  # turns without a new schedule that end a search, as of a kernel without loops
STEPS = 4  # that a turn adds to a schedule, at most
TRIES = 8  # random steps for each that is legal
CALLS = 5  # of a measurement, within a time
SECONDS = 0.3  # of a measurement, at most, but for its first call
ROUNDS = 9  # of the last comparison
BETTER = 0.98  # ratio of times from which a schedule counts as faster: noise is not kept
GUESS = 64  # cost model: the size that an unknown one counts as
AT_END = 0.1  # share of the time that is for the last comparison

Build = Callable[[Plan, tuple[Step, ...]], Callable[..., object]]
Told = Callable[["Trial"], object]


@dataclass(frozen=True)
class Trial:
    """A schedule that was measured."""

    steps: tuple[Step, ...]
    plan: Plan
    seconds: float
    call: Callable[..., Any]

    @property
    def text(self) -> str:
        return "".join(f"{step}\n" for step in self.steps)


def search(
    plan: Plan,
    default: Callable[..., Any],
    build: Build,
    arguments: Sequence[Any],
    seconds: float,
    told: Told,
    sizes: Mapping[Any, int] = Sizes(default=GUESS),
) -> Trial:
    """The fastest schedule found for a call within a time, the one without steps at the least.

    Args:
        plan: The kernels that steps apply to.
        default: The function that the call goes to without a schedule.
        build: Gives the function of kernels with steps.
        arguments: Those of the call; each measurement has copies of its own.
        seconds: The time.
        told: Gets each trial when it has been measured.
        sizes: The unknown sizes, by which cycles are estimated.
    """
    if not 0 < seconds < float("inf"):
        raise CallError(f"expected a positive number of seconds, got {seconds}")
    end = time.perf_counter() + seconds
    until = end - seconds * AT_END
    rng = random.Random(0)
    wanted = _outcome(default, arguments)
    first = Trial((), plan, _seconds(default, arguments), default)
    told(first)
    found, seen = [first], {""}
    idle = 0  # turns without a candidate
    with contextlib.suppress(KeyboardInterrupt):
        while time.perf_counter() < until and idle < IDLE:
            pool = sorted(found, key=lambda t: t.seconds)[:POOL]
            made = [*_candidates(rng, [*pool, first], sizes, seen, until)]
            made.sort(key=lambda candidate: candidate[0])
            idle = 0 if made else idle + 1
            for _, steps, changed in made[:MEASURED]:
                if time.perf_counter() >= until:
                    break
                with contextlib.suppress(Error):  # such as one that does not compile
                    call = build(changed, steps)
                    if _outcome(call, arguments) == wanted:
                        found.append(Trial(steps, changed, _seconds(call, arguments), call))
                        told(found[-1])
    best = min(found, key=lambda t: t.seconds)
    return first if best is first else _faster(first, best, arguments, end)


def _candidates(
    rng: random.Random,
    pool: Sequence[Trial],
    sizes: Mapping[object, int],
    seen: set[str],
    until: float,
) -> Iterator[tuple[float, tuple[Step, ...], Plan]]:
    """Schedules of the pool with further random steps, and their estimated cycles."""
    for _ in range(CANDIDATES):
        base = rng.choice(pool)
        steps, plan = base.steps, base.plan
        wanted = len(steps) + rng.randint(1, STEPS)
        for _ in range(TRIES * STEPS):
            if len(steps) == wanted or time.perf_counter() >= until:
                break
            kernels = [k for k in plan.all_kernels if type(k) is Kernel and k.body]
            with contextlib.suppress(Refused, IndexError):  # without loops there is no choice
                kernel = rng.choice(kernels)
                step = random_step(rng, kernel)
                plan = apply_to_plan(plan, step, kernel.name if len(kernels) == 1 else None)
                steps = (*steps, step)
        text = "\n".join(map(str, steps))
        if text not in seen:
            seen.add(text)
            kernels = [k for k in plan.all_kernels if type(k) is Kernel]
            threads = get_num_threads()
            yield sum(estimated_cycles(k, sizes, threads) for k in kernels), steps, plan


def _copies(arguments: Sequence[Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]


def _outcome(call: Callable[..., object], arguments: Sequence[object]) -> list[tuple[object, ...]]:
    """The bytes of the results of a call, and of its arguments afterwards."""
    given = _copies(arguments)
    results = call(*given)
    arrays = [*given, *(results if isinstance(results, tuple) else (results,))]
    return [(np.shape(a), np.asarray(a).tobytes()) for a in arrays]


def _timed(call: Callable[..., object], arguments: Sequence[object]) -> float:
    given = _copies(arguments)
    began = time.perf_counter()
    call(*given)
    return time.perf_counter() - began


def _seconds(call: Callable[..., object], arguments: Sequence[object]) -> float:
    """The shortest of some calls."""
    times = [_timed(call, arguments)]
    until = time.perf_counter() + SECONDS
    while len(times) < CALLS and time.perf_counter() < until:
        times.append(_timed(call, arguments))
    return min(times)


def _faster(first: Trial, best: Trial, arguments: Sequence[object], end: float) -> Trial:
    """The faster of two, measured in turns, at least once."""
    times: tuple[list[float], list[float]] = ([], [])
    with contextlib.suppress(KeyboardInterrupt):
        for n in range(ROUNDS):
            if n and time.perf_counter() > end:
                break
            for trial, spent in zip((first, best), times, strict=True):
                spent.append(_seconds(trial.call, arguments))
    if not all(times):
        return first
    plain, fast = map(median, times)
    return replace(best, seconds=fast) if fast < plain * BETTER else replace(first, seconds=plain)


def _name(plan: Plan, shapes: Sequence[tuple[int, ...]], processor: Processor) -> str:
    parts = plan_text(plan), repr([*map(tuple, shapes)]), repr(processor), str(get_num_threads())
    return disk_cache.key("schedule", *parts, *environment())


def keep(plan: Plan, shapes: Sequence[tuple[int, ...]], processor: Processor, found: Trial) -> None:
    """Keep the result of a search for later calls with these shapes."""
    disk_cache.store(_name(plan, shapes, processor), b"// tuned\n" + found.text.encode())


def kept(plan: Plan, shapes: Sequence[tuple[int, ...]], processor: Processor) -> Plan | None:
    """The kernels with the schedule that was kept for these shapes; None if there is none."""
    if disk_cache.folder() is None:
        return None
    if (payload := disk_cache.load(_name(plan, shapes, processor))) is None:
        return None
    try:
        for line in payload.decode().splitlines()[1:]:
            plan = apply_to_plan(plan, read_step(line))
    except (Refused, UnicodeDecodeError):
        return None
    return plan


def tuned(f: Any, arguments: Sequence[object], seconds: float, told: Told) -> Trial:
    """Search for a schedule of the kernels of a compiled function, and keep that of kernels."""
    from ...lowering.pipeline import nests, schedule_others

    def build(plan: Plan, steps: tuple[Step, ...] = ()) -> Any:
        kernels = plan if given else schedule_others(plan)
        made: Any = find_target("cpu").compile_kernels(kernels, f.options)
        made.takes_kept = False
        return made

    given: Plan | None = getattr(f, "given", None)
    if not given and f.function.name in f.module.effects:
        raise CallError(f"@{f.function.name} has effects, which each trial would repeat")
    arrays = [np.asarray(a) for a in arguments]
    with compiling_for(f.compiled_for):
        plan = given or nests(f.module, f.computed)
        default = build(plan) if given else f
        default(*_copies(arrays))
        found = search(plan, default, build, arrays, seconds, told, default.sizes_of(arrays))
    if given:
        keep(plan, [a.shape for a in arrays], f.compiled_for, found)
    return found
