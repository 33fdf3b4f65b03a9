"""`cvm opt`: a program, or kernels, through passes chosen by name, and the text of what they make of it."""

from __future__ import annotations

import re
import sys
import time
from argparse import Namespace
from collections.abc import Sequence

import cvm
from cvm.cli import Usage
from cvm.commands.display import duration
from cvm.commands.io import STDIN, load, read, write
from cvm.lowering.passes import LEVELS, STEPS, State, lowered, of_kernels
from cvm.parser.suggest import did_you_mean


def opt(options: Namespace) -> int:
    if options.list:
        print("\n".join(listing()))
        return 0
    if options.program is None:
        raise Usage("opt needs a program, or --list")
    names = [name for part in options.pipeline.split(",") if (name := part.strip())]
    for name in (*names, *options.print_after):
        if name not in STEPS:
            raise Usage(f"there is no pass {name}{did_you_mean(name, STEPS)}; opt --list names them all")
    for name in options.print_after:
        if name not in names:
            raise Usage(f"--print-after {name}: the pipeline is {','.join(names) or 'empty'}")
    levels = [LEVELS.index(STEPS[name].level) for name in names]
    for n, level in enumerate(levels):
        if level < max(levels[:n], default=0):
            above = names[levels.index(max(levels[:n]))]
            raise Usage(
                f"{names[n]} works on the {LEVELS[level]}, but after {above} there are only {LEVELS[max(levels[:n])]}"
            )
    state = _read(options.program)
    if names and LEVELS.index(state.level) > levels[0]:
        raise Usage(f"{names[0]} works on the {LEVELS[levels[0]]}, but {options.program} holds {state.level}")
    if options.generic and (state.level != "graph" or (levels and levels[-1] > 0)):
        raise Usage("--generic is a form of the graph, and this pipeline ends below it")
    state = _through(names, state, options)
    write(options.output, state.text(options.generic).encode())
    return 0


def listing() -> list[str]:
    """The passes with what they do, level by level."""
    lines = []
    width = max(map(len, STEPS)) + 2
    for level in LEVELS:
        lines += [f"{level}:", *(f"  {name:{width}}{step.does}" for name, step in STEPS.items() if step.level == level)]
    return lines


def _read(name: str) -> State:
    data = read(name)
    if re.match(rb"(\s|//[^\n]*\n)*kernel\b", data) is None:
        return State(load(name, data))
    from cvm.lowering.analysis.legality import LoweringError, check_kernel
    from cvm.lowering.text.parser import parse_kernels

    kernels = parse_kernels(data.decode("utf-8", "replace"), STDIN if name == "-" else name)
    try:
        for kernel in kernels:
            check_kernel(kernel)
    except LoweringError as e:
        raise cvm.Error(str(e)) from None
    return of_kernels(kernels)


def _through(names: Sequence[str], state: State, options: Namespace) -> State:
    times: list[tuple[str, float]] = []
    for name in names:
        began = time.perf_counter()
        step = STEPS[name]
        state = step.run(lowered(state, step.level))
        times.append((name, time.perf_counter() - began))
        if options.print_after_all or name in options.print_after:
            print(f"// after {name}\n{state.text(options.generic)}", file=sys.stderr)
    if options.timing:
        whole = sum(t for _, t in times)
        for name, taken in (*times, ("all", whole)):
            print(f"{name:14} {duration(taken):>8}  {taken / (whole or 1):4.0%}", file=sys.stderr)
    return state
