"""`cvm run`: a function called with arrays from files, or random ones, and its results shown, written and timed."""

from __future__ import annotations

import hashlib
import io
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import numpy as np

import cvm
from cvm.cli import Usage
from cvm.commands.files import load, write
from cvm.commands.inputs import inputs
from cvm.dialect.program import Graph
from cvm.jit.arguments import describe
from cvm.jit.function import TARGETS, CompiledFunction, compile_function

WHOLE = 64  # elements: an array of more is shown by its first ones and its range
FIRST = 8
WIDTH = 100


def run(options: Namespace) -> int:
    if options.target not in TARGETS:
        raise Usage(f"unknown target {options.target!r}; the targets are {', '.join(TARGETS)}")
    if options.threads is not None:
        try:
            cvm.set_num_threads(options.threads)
        except cvm.Error as e:
            raise Usage(f"--threads {options.threads}: {e.diagnostics[0].message}") from None
    module = load(options.program)
    function = module.functions.get(options.entry)
    if isinstance(function, Graph):
        raise cvm.TargetError(f"@{options.entry} is a graph: compile it in Python, and step it")
    arrays = [] if function is None else inputs(function, options)
    with waiting("compiling"):
        began = time.perf_counter()
        f = compile_function(module, options.entry, options.target)
        compiled = time.perf_counter() - began
    with waiting("running"):
        began = time.perf_counter()
        returned = f(*arrays)
        first = time.perf_counter() - began
    results = named(f, returned)
    if options.output is not None:
        archive = io.BytesIO()
        np.savez(archive, **results)  # type: ignore[arg-type]
        write(options.output, archive.getvalue())
    out = sys.stderr if options.output == "-" else sys.stdout
    for name, array in results.items():
        print(f"%{name}: {describe(array)}\n{values(array)}", file=out)
        if options.digest:
            print(f"  sha256 {digest(array)}", file=out)
    if options.time:
        print(f"compiled in {duration(compiled)}, ran in {fastest(f, arrays, first)}", file=out)
    return 0


def named(f: CompiledFunction, returned: Any) -> dict[str, np.ndarray]:
    """The results by their names in the program; one that is returned twice gets a number the second time."""
    results: dict[str, np.ndarray] = {}
    for value, array in zip(f.function.results, returned if isinstance(returned, tuple) else (returned,), strict=True):
        name = value.name
        while name in results:
            name += f".{len(results)}"
        results[name] = array
    return results


def values(array: np.ndarray) -> str:
    """A small array whole; of a large one the first elements and its range."""
    if array.size <= WHOLE:
        shown = np.array2string(
            array, WIDTH, separator=", ", prefix="  ", threshold=sys.maxsize, formatter={"all": element}
        )
        return "  " + shown.replace("\n\n", "\n")
    first = ", ".join(map(element, array.flat[:FIRST]))
    if array.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            return f"  {first}, ... ({array.size} values, from {element(array.min())} to {element(array.max())})"
    return f"  {first}, ... ({array.size} values)"


def element(value: Any) -> str:
    if isinstance(value, np.bool_):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)


def digest(array: np.ndarray) -> str:
    """SHA-256 of the type as the language writes it, a line break, and the elements, little-endian and row-major."""
    elements = array.astype(array.dtype.newbyteorder("<")).tobytes()
    return hashlib.sha256(f"{describe(array)}\n".encode() + elements).hexdigest()


def fastest(f: CompiledFunction, arrays: list[np.ndarray], first: float) -> str:
    """The shortest of a few runs, as many as half a second holds."""
    times = [first]
    until = time.perf_counter() + 0.5
    while time.perf_counter() + min(times) < until and len(times) < 1000:
        began = time.perf_counter()
        f(*arrays)
        times.append(time.perf_counter() - began)
    return f"{duration(min(times))} (best of {len(times)})" if len(times) > 1 else duration(first)


def duration(seconds: float) -> str:
    unit, name = (1, "s") if seconds >= 1 else (1e-3, "ms") if seconds >= 1e-3 else (1e-6, "µs")
    return f"{seconds / unit:.3g} {name}"


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """While something takes longer than a second, a terminal shows for how long."""
    done = Event()

    def show() -> None:
        began = time.perf_counter()
        while not done.wait(1):
            print(f"\r{what} ... {time.perf_counter() - began:.0f} s", end="", file=sys.stderr, flush=True)

    thread = Thread(target=show, daemon=True)
    if sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread.ident is not None:
            thread.join()
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
