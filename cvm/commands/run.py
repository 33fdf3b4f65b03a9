"""`cvm run`: call a function, or kernels, with arrays from files, or random ones, or advance a
clocked program by ticks; show, write and time the results.
"""

import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from typing import Any

import numpy as np

import cvm
from cvm.dialect.cog.clocked import Sensor, warnings as graph_warnings
from cvm.dialect.ir.function import Graph
from cvm.dialect.ir.module import Module
from cvm.dialect.support.diagnostics import counted
from cvm.jit.compile import find
from cvm.jit.functions.clocked_program import CompiledGraph
from cvm.jit.functions.compiled_function import CompiledFunction
from cvm.jit.options import CompileOptions
from cvm.jit.targets import TARGETS, find_target
from cvm.scheduling import with_schedule
from cvm.terminal.arguments import arrays_by_name, inputs, write_arrays
from cvm.terminal.diagnostics import unescaped
from cvm.terminal.display import columns, digest, duration, shown, timed, waiting
from cvm.terminal.read_program import compiled, named, read_level, signature
from cvm.terminal.usage import Usage

CLOCKED = ("steps", "read", "every", "save_state", "load_state")  # options of clocked programs only
PROGRESS_SECONDS = 0.1  # between updates of the progress bar
FRAMES = 50  # frames of a .gif, unless --every is given


def run(options: Namespace) -> int:
    try:
        find_target(options.target)
    except cvm.TargetError as e:
        raise Usage(e.diagnostics[0].message) from None
    if options.threads is not None:
        try:
            cvm.set_num_threads(options.threads)
        except cvm.Error as e:
            raise Usage(f"--threads {options.threads}: {e.diagnostics[0].message}") from None
    program = read_level(options.program)
    if options.schedule:
        program = with_schedule(program, options.entry, options.schedule)
    module = program if isinstance(program, Module) else None
    function = find(module, options.entry) if module else signature(program)
    if options.profile and TARGETS[options.target].profile is None:
        raise Usage(
            "--profile is for the target "
            f"{', '.join(t.name for t in TARGETS.values() if t.profile)}"
        )
    out = sys.stderr if options.output == "-" else sys.stdout
    if module and isinstance(function, Graph):
        return run_graph(module, function, options, out)
    for name in CLOCKED:
        if getattr(options, name) not in (None, []):
            raise Usage(
                f"--{name.replace('_', '-')} is for graphs, and @{function.name} is a function"
            )
    arrays = inputs(function, options)
    with waiting("compiling"):
        code_options = CompileOptions(
            options.optimize, convert=options.convert, sanitize=options.sanitize
        )
        f, compiling = timed(compiled, program, options.entry, options.target, code_options)
    with waiting("running"), redirect_stdout(out):  # of effects, beside results on the output
        returned, first = timed(f, *arrays)
    results = named(f, returned)
    write_outputs(options, {name: [array] for name, array in results.items()})
    for name, array in results.items():
        print(shown(f"%{name}", array), file=out)
        if options.digest:
            print(f"  sha256 {digest(array)}", file=out)
    if options.time:
        acts = module is not None and function.name in module.effects  # effects happen once
        ran = duration(first) if acts else fastest(f, arrays, first)
        print(f"compiled in {duration(compiling)}, ran in {ran}", file=out)
    show_profile(f, arrays, options, out)
    return 0


def write_outputs(
    options: Namespace, readings: Mapping[str, list[np.ndarray]], times: Sequence[int] = (0,)
) -> None:
    """Write results, or the readings of a graph, and a picture."""
    if options.output is not None:
        whole = options.every is not None
        write_arrays(
            options.output, {n: np.stack(a) if whole else a[-1] for n, a in readings.items()}
        )
    if options.plot is not None:
        from cvm.terminal.plot import plot

        plot(options.plot, readings, times)


def show_profile(
    f: CompiledFunction | CompiledGraph, arrays: list[np.ndarray], options: Namespace, out: Any
) -> None:
    """Print a table of the kernels: median time, share, bytes and operations per second, results,
    comments.
    """
    profile = TARGETS[options.target].profile
    if not options.profile or profile is None:
        return
    with waiting("profiling"):
        spent = profile(f, arrays)
    whole = sum(s.seconds for s in spent)
    rows = [("time", "share", "GB/s", "G op/s", "kernel", "writes")]
    for s in spent:
        moved = (s.cost.bytes_read + s.cost.bytes_written) / s.seconds / 1e9
        done = s.cost.operations / s.seconds / 1e9
        writes = ", ".join(
            f"%{t.name}: {'x'.join(map(str, (*shape, t.element)))}" for t, shape in s.written
        )
        writes += f"  // {'; '.join(s.origins)}" if s.origins else ""
        rows.append(
            (
                duration(s.seconds),
                f"{s.seconds / whole:.1%}",
                f"{moved:.3g}",
                f"{done:.3g}",
                s.kernel,
                writes,
            )
        )
    end = (
        f"{duration(whole)} in {counted(len(spent), 'kernel')}, each with the microsecond of a call"
    )
    print("\n".join([*columns(rows, ">>>><<"), end]), file=out)


def fastest(f: CompiledFunction, arrays: list[np.ndarray], first: float) -> str:
    """The shortest of as many runs as fit half a second."""
    times = [first]
    until = time.perf_counter() + 0.5
    while time.perf_counter() + min(times) < until and len(times) < 1000:
        times.append(timed(f, *arrays)[1])
    return f"{duration(min(times))} (best of {len(times)})" if len(times) > 1 else duration(first)


# Clocked programs


def run_graph(module: Module, graph: Graph, options: Namespace, out: Any) -> int:
    """Load the state of a clocked program, advance it by ticks, show it, and save it."""
    if options.random_inputs is not None:
        raise Usage(
            f"--random-inputs is for functions, and @{graph.name} is a graph: its sensors "
            "are 0 unless given"
        )
    if options.size or options.convert:
        name = "--size" if options.size else "--convert"
        raise Usage(f"{name} is for functions, and @{graph.name} is a graph")
    for warning in graph_warnings(graph):
        print(warning, file=sys.stderr)
    with waiting("compiling"), warnings.catch_warnings(action="ignore"):
        began = time.perf_counter()
        g = CompiledGraph(
            module,
            graph,
            options.target,
            CompileOptions(options.optimize, sanitize=options.sanitize),
        )
        g.reset()
        compiling = time.perf_counter() - began
    if options.load_state is not None:
        g.load(options.load_state)
    feeds = sensors(g, options)
    if g.time() == 0:
        feed(g, feeds)
    steps, every = 1 if options.steps is None else options.steps, options.every
    if steps < 0:
        raise Usage(f"--steps {steps}: expected a number of ticks of at least 0")
    if every is not None and every < 1:
        raise Usage(f"--every {every}: expected a number of ticks of at least 1")
    if every is None and options.plot is not None:
        every = max(1, steps // FRAMES)
    readings: dict[str, list[np.ndarray]] = {n: [] for n in options.read or g.names}
    times: list[int] = []
    spent = 0.0
    parts = [0, *(min(every, steps - k) for k in range(0, steps, every))] if every else [steps]
    with progress(steps) as advance:
        for part in parts:
            began = time.perf_counter()
            for ticks in advanced(g, part, feeds):
                advance(ticks)
            spent += time.perf_counter() - began
            times.append(g.time())
            for name, arrays in readings.items():
                arrays.append(g.read(name))
            if options.every is not None or len(times) == len(parts):
                print(f"tick {g.time()}", file=out)
                for name, arrays in readings.items():
                    print(shown(f'"{name}"', arrays[-1]), file=out)
    for name, arrays in readings.items() if options.digest else ():
        print(f'  sha256 of "{name}" {digest(arrays[-1])}', file=out)
    if options.time:
        per_tick = f", {duration(spent / steps)} a tick" if steps else ""
        print(
            f"compiled in {duration(compiling)}, {counted(steps, 'tick')} in "
            f"{duration(spent)}{per_tick}",
            file=out,
        )
    show_profile(g, [], options, out)
    write_outputs(options, readings, times)
    if options.save_state is not None:
        g.save(options.save_state)
    return 0


def sensors(g: CompiledGraph, options: Namespace) -> dict[str, Any]:
    """The feeds of sensors: constant or, with one more first axis, an array per tick; fields are
    written here.
    """
    writable = {s.name: s for s in g.writable}
    labels = {o.operator.label for o in g.graph.operations if isinstance(o.operator, Sensor)}
    feeds = {}
    for name, array in arrays_by_name(options).items():
        if name not in writable:
            raise Usage(
                f'@{g.graph.name} has no field or sensor "{name}": it has '
                f"{', '.join(writable) or 'none'}"
            )
        if name in labels and array.ndim == writable[name].initial.ndim + 1:
            feeds[name] = iter(array)
        else:
            g.write(name, array)
    return feeds


def feed(g: CompiledGraph, feeds: dict[str, Any]) -> None:
    """Write the sensors for this tick; a feed that has ended leaves its sensor unchanged."""
    for name, arrays in feeds.items():
        if (array := next(arrays, None)) is not None:
            g.write(name, array)


def advanced(g: CompiledGraph, ticks: int, feeds: dict[str, object]) -> Iterator[int]:
    """Advance by ticks and yield the number advanced, at intervals for progress and interrupts."""
    n = 1
    while ticks:
        n = min(n, ticks)
        began = time.perf_counter()
        for _ in range(n if feeds else 0):
            g.step()
            feed(g, feeds)
        if not feeds:
            g.step(n)
        ticks -= n
        yield n
        if time.perf_counter() - began < PROGRESS_SECONDS:
            n *= 2


@contextmanager
def progress(steps: int, unit: str = " ticks") -> Iterator[Callable[[int], object]]:
    """A progress bar on a terminal, by tqdm if it is installed; otherwise the elapsed time."""
    if not sys.stderr.isatty() or find_spec("tqdm") is None:
        with waiting("running"):
            yield lambda n: None
        return
    from tqdm import tqdm

    with tqdm(
        total=steps,
        unit=unit,
        unit_scale=True,
        leave=False,
        delay=1,
        file=unescaped(sys.stderr),
    ) as bar:
        yield bar.update
