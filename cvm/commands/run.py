"""`cvm run`: call a function, or kernels, with arrays from files, or random ones; show, write and time the results."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import numpy as np

import cvm
from cvm.cli import Usage
from cvm.commands.array_files import write_arrays
from cvm.commands.display import digest, duration, shown, waiting
from cvm.commands.inputs import inputs
from cvm.commands.levels import compiled, read_level, signature
from cvm.diagnostic_output import counted
from cvm.dialect.program.function import Graph
from cvm.dialect.program.module import Module
from cvm.jit.functions.compiled_function import CompiledFunction
from cvm.jit.options import CompileOptions
from cvm.jit.targets import TARGETS, find_target

CLOCKED = ("steps", "read", "every", "save_state", "load_state")  # options of clocked programs only


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
    module = program if isinstance(program, Module) else None
    function = module.functions.get(options.entry) if module else signature(program)
    profile = TARGETS[options.target].profile
    if options.profile and (profile is None or isinstance(function, Graph)):
        able = ", ".join(t.name for t in TARGETS.values() if t.profile)
        raise Usage(f"--profile is for functions on the target {able}")
    if module and isinstance(function, Graph):
        from cvm.commands.run_clocked import run_graph

        return run_graph(module, function, options)
    for name in CLOCKED:
        if getattr(options, name) not in (None, []):
            raise Usage(f"--{name.replace('_', '-')} is for graphs, and @{options.entry} is a function")
    arrays = [] if function is None else inputs(function, options)
    with waiting("compiling"):
        began = time.perf_counter()
        f: Any = compiled(program, options.entry, options.target, CompileOptions(options.optimize))
        compiling = time.perf_counter() - began
    with waiting("running"):
        began = time.perf_counter()
        returned = f(*arrays)
        first = time.perf_counter() - began
    results = named(f, returned)
    if options.output is not None:
        write_arrays(options.output, results)
    if options.plot is not None:
        from cvm.plot import plot

        plot(options.plot, {name: [array] for name, array in results.items()})
    out = sys.stderr if options.output == "-" else sys.stdout
    for name, array in results.items():
        print(shown(f"%{name}", array), file=out)
        if options.digest:
            print(f"  sha256 {digest(array)}", file=out)
    if options.time:
        print(f"compiled in {duration(compiling)}, ran in {fastest(f, arrays, first)}", file=out)
    if options.profile and profile is not None:
        with waiting("profiling"):
            spent = profile(f, arrays)
        print("\n".join(profiled(spent)), file=out)
    return 0


def profiled(spent: Sequence[Any]) -> list[str]:
    """A table of the kernels: median time and share, bytes and operations per second, results, and the comments on operations."""
    whole = sum(s.seconds for s in spent)
    rows = [("time", "share", "GB/s", "G op/s", "kernel", "writes")]
    for s in spent:
        moved = (s.cost.bytes_read + s.cost.bytes_written) / s.seconds / 1e9
        done = s.cost.operations / s.seconds / 1e9
        writes = ", ".join(f"%{t.name}: {'x'.join(map(str, (*shape, t.element)))}" for t, shape in s.written)
        writes += "".join(f"  // {'; '.join(s.origins)}" for _ in s.origins[:1])
        rows.append((duration(s.seconds), f"{s.seconds / whole:.1%}", f"{moved:.3g}", f"{done:.3g}", s.kernel, writes))
    widths = [max(len(row[n]) for row in rows) for n in range(5)]
    lines = [
        "  ".join((*(c.rjust(w) for c, w in zip(row[:4], widths, strict=False)), row[4].ljust(widths[4]), row[5]))
        for row in rows
    ]
    return [*lines, f"{duration(whole)} in {counted(len(spent), 'kernel')}, each with the microsecond of a call"]


def named(f: CompiledFunction, returned: Any) -> dict[str, np.ndarray]:
    """The results by their names in the program; one that is returned twice has a number the second time."""
    results: dict[str, np.ndarray] = {}
    for value, array in zip(f.function.results, returned if isinstance(returned, tuple) else (returned,), strict=True):
        name = value.name
        while name in results:
            name += f".{len(results)}"
        results[name] = array
    return results


def fastest(f: CompiledFunction, arrays: list[np.ndarray], first: float) -> str:
    """The shortest of as many runs as fit half a second."""
    times = [first]
    until = time.perf_counter() + 0.5
    while time.perf_counter() + min(times) < until and len(times) < 1000:
        began = time.perf_counter()
        f(*arrays)
        times.append(time.perf_counter() - began)
    return f"{duration(min(times))} (best of {len(times)})" if len(times) > 1 else duration(first)
