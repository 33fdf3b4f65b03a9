"""`cvm run` of a clocked program: load its state, advance it by ticks, show it, and save it."""

from __future__ import annotations

import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cvm.cli import Usage
from cvm.commands.array_files import write_arrays
from cvm.commands.display import digest, duration, shown, waiting
from cvm.commands.inputs import arrays_by_name
from cvm.diagnostic_output import counted
from cvm.dialect.cog.clocked import Sensor
from cvm.dialect.cog.clocked import warnings as graph_warnings
from cvm.dialect.program.function import Graph
from cvm.dialect.program.module import Module
from cvm.jit.functions.clocked_program import CompiledGraph
from cvm.jit.options import CompileOptions

PATIENCE = 0.1  # seconds between updates of the progress bar
FRAMES = 50  # frames of a .gif, unless --every is given


def run_graph(module: Module, graph: Graph, options: Namespace) -> int:
    if options.random_inputs is not None:
        raise Usage(f"--random-inputs is for functions, and @{graph.name} is a graph: its sensors are 0 unless given")
    for warning in graph_warnings(graph):
        print(warning, file=sys.stderr)
    with waiting("compiling"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        g = CompiledGraph(module, graph, options.target, CompileOptions(options.optimize))
        g.reset()
        compiled = time.perf_counter() - began
    if options.load_state is not None:
        g.load(options.load_state)
    feeds = sensors(g, options)
    if g.time() == 0:
        feed(g, feeds)
    names = options.read or list(g.names)
    every = period(options)
    readings: dict[str, list[np.ndarray]] = {n: [] for n in names}
    times: list[int] = []
    out = sys.stderr if options.output == "-" else sys.stdout
    steps = options.steps if options.steps is not None else 1
    spent = 0.0

    def look() -> None:
        times.append(g.time())
        for name, found in readings.items():
            found.append(g.read(name))
        if options.every is not None or len(times) == len(parts):
            print(f"tick {g.time()}", file=out)
            for name, found in readings.items():
                print(shown(f'"{name}"', found[-1]), file=out)

    parts = [0, *(min(every, steps - k) for k in range(0, steps, every))] if every else [steps]
    with progress(steps) as advance:
        for n in parts:
            began = time.perf_counter()
            for done in moved(g, n, feeds):
                advance(done)
            spent += time.perf_counter() - began
            look()
    if options.digest:
        for name, found in readings.items():
            print(f'  sha256 of "{name}" {digest(found[-1])}', file=out)
    if options.time:
        each = f", {duration(spent / steps)} a tick" if steps else ""
        print(f"compiled in {duration(compiled)}, {counted(steps, 'tick')} in {duration(spent)}{each}", file=out)
    finish(g, options, readings, times)
    return 0


def finish(g: CompiledGraph, options: Namespace, readings: dict[str, list[np.ndarray]], times: list[int]) -> None:
    """Write the requested outputs: the readings, a picture, the state."""
    if options.output is not None:
        held: dict[str, Any] = {n: np.stack(a) if options.every is not None else a[-1] for n, a in readings.items()}
        write_arrays(options.output, held)
    if options.plot is not None:
        from cvm.plot import plot

        plot(options.plot, readings, times)
    if options.save_state is not None:
        g.save(options.save_state)


def period(options: Namespace) -> int:
    """The ticks between readings; 0 for only at the end."""
    if options.steps is not None and options.steps < 0:
        raise Usage(f"--steps {options.steps}: expected a number of ticks of at least 0")
    if options.every is not None:
        if options.every < 1:
            raise Usage(f"--every {options.every}: expected a number of ticks of at least 1")
        return options.every
    steps = options.steps if options.steps is not None else 1
    return max(1, steps // FRAMES) if options.plot is not None else 0


def sensors(g: CompiledGraph, options: Namespace) -> dict[str, Any]:
    """The feeds of the sensors: an array of a sensor's own shape is constant, one with an additional first axis has an
    array per tick.

    Fields are replaced by the given arrays.
    """
    known = {s.name: s for s in g.writable}
    inputs = {o.operator.label for o in g.graph.operations if isinstance(o.operator, Sensor)}
    feeds: dict[str, Any] = {}
    for name, array in arrays_by_name(options).items():
        if name not in known:
            raise Usage(f'@{g.graph.name} has no field or sensor "{name}": it has {", ".join(known) or "none"}')
        if name in inputs and array.ndim == known[name].initial.ndim + 1:
            feeds[name] = iter(array)
        else:
            g.write(name, array)
    return feeds


def feed(g: CompiledGraph, feeds: dict[str, Any]) -> None:
    """Write the sensors for this tick; a feed that has ended leaves its sensor unchanged."""
    for name, arrays in feeds.items():
        if (array := next(arrays, None)) is not None:
            g.write(name, array)


def moved(g: CompiledGraph, ticks: int, feeds: dict[str, Any]) -> Iterator[int]:
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
        if time.perf_counter() - began < PATIENCE:
            n *= 2


@contextmanager
def progress(steps: int) -> Iterator[Callable[[int], object]]:
    """A progress bar on a terminal, by tqdm if it is installed; otherwise the elapsed time."""
    if not sys.stderr.isatty():
        yield lambda n: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        with waiting("running"):
            yield lambda n: None
        return
    with tqdm(total=steps, unit=" ticks", unit_scale=True, leave=False, delay=1, file=sys.stderr) as bar:
        yield bar.update
