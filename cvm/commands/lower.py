"""`cvm lower`: a program, or kernels, at one stage of its compilation, as text."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from cvm.cli import Usage
from cvm.commands.io import write
from cvm.commands.levels import compiled, read_level
from cvm.dialect.program.module import Module
from cvm.jit.options import CompileOptions
from cvm.jit.targets import all_stages
from cvm.lowering.formulas.overflow_warnings import print_ranges


def lower(options: Namespace) -> int:
    if options.to not in (stages := all_stages()):
        raise Usage(f"unknown stage {options.to!r}; the stages are {', '.join(stages)}")
    if options.ranges and options.to != "graph":
        raise Usage(f"--ranges shows the ranges of a program's values: it goes with --to graph, not {options.to}")
    program = read_level(options.program)
    if options.ranges and not isinstance(program, Module):
        raise Usage("--ranges shows the ranges of a program's values, and this program is below them")
    f: Any = compiled(program, options.entry, "reference", CompileOptions(options.optimize))
    text = print_ranges(f.module) if options.ranges else f.lower(options.to)
    write(options.output, text.encode())
    return 0
