"""`cvm tune`: search for a schedule of kernels, or of those of a program's function, and write its
steps as text.
"""

import sys
import time
from argparse import Namespace
from typing import Any

from cvm.commands.run import progress
from cvm.dialect.ir.function import Function
from cvm.dialect.ir.module import Module
from cvm.jit.compile import find
from cvm.terminal.arguments import inputs
from cvm.terminal.display import duration
from cvm.terminal.files import write
from cvm.terminal.read_program import compiled, read_level, signature
from cvm.terminal.usage import Usage


def tune(options: Namespace) -> int:
    if not 0 < options.seconds < float("inf"):
        raise Usage(f"--seconds {options.seconds}: expected a positive number")
    program = read_level(options.program)
    function = find(program, options.entry) if isinstance(program, Module) else signature(program)
    if not isinstance(function, Function):
        raise Usage(f"tune is for functions and kernels, and @{function.name} is a graph")
    options.random_inputs = 0  # for what is not given
    arrays = inputs(function, options)
    f: Any = compiled(program, options.entry, "cpu")
    tried: list[Any] = []
    began, shown = time.perf_counter(), 0
    with progress(round(options.seconds), " s") as advance:

        def told(trial: Any) -> None:
            nonlocal shown
            if not tried or trial.seconds < min(t.seconds for t in tried):
                said = " ".join(trial.text.split("\n")) or "without steps"
                print(f"{duration(trial.seconds):>8}  {said}", file=sys.stderr)
            tried.append(trial)
            passed = int(time.perf_counter() - began)
            advance(passed - shown)
            shown = passed

        text = f.tune(*arrays, seconds=options.seconds, told=told)
    end = "the one written is the fastest" if text else "none is faster than the default"
    print(f"{len(tried)} schedules were measured; {end}", file=sys.stderr)
    write(options.output, text.encode())
    return 0
