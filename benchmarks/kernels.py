"""Where a program's time goes: every kernel of a function timed for itself, in their order, with random arguments.

python benchmarks/kernels.py PROG.cvm [--entry main] [--threads 1] [--rounds 20]
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cvm.jit.function import NativeFunction
from cvm.jit.llvm import emit
from cvm.jit.native import Library
from cvm.jit.threads import parallel_address
from cvm.lowering.plan import Plan

import cvm
from cvm.commands.inputs import inputs


def runner(plan: Plan, n: int, pointers: Any, workspace: int) -> Callable[[], int]:
    """One kernel of a plan, in the places that the whole plan gives its arrays."""
    text = emit(replace(plan, kernels=plan.kernels[n : n + 1])).module
    imports = {"parallel": parallel_address()} if "@parallel(" in text else {}
    library = Library(text, {"entry": (ctypes.c_void_p,) * 3}, imports=imports)
    return lambda _keep=library: _keep.functions["entry"](pointers, None, workspace)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--entry", default="main")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    cvm.set_num_threads(options.threads)
    f = cvm.compile(options.program, entry=options.entry)
    assert isinstance(f, NativeFunction)
    given = inputs(f.function, Namespace(input=[], inputs=None, random_inputs=0))
    out = f(*given)
    results = list(out) if isinstance(out, tuple) else [out]
    plan = f.plan
    assert isinstance(plan.workspace, int), "every size is known"
    pointers, workspace = f.pointers([*given, *results]), f.workspace({})
    runs = [runner(plan, n, pointers, workspace) for n in range(len(plan.kernels))]
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(options.rounds):
        for run, found in zip(runs, times, strict=True):
            began = time.perf_counter()
            run()
            found.append((time.perf_counter() - began) * 1e6)
    medians = [statistics.median(found) for found in times]
    for kernel, spent in zip(plan.kernels, medians, strict=True):
        written = kernel.parameters[len(kernel.parameters) - kernel.results :]
        shapes = ", ".join(f"%{t.name}: {'x'.join(map(str, t.shape))}x{t.element}" for t in written)
        print(f"{spent:9.1f} µs {spent / sum(medians):6.1%}  {kernel.name:24} {shapes}")
    print(f"{sum(medians):9.1f} µs in {len(runs)} kernels, workspace {plan.workspace / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
