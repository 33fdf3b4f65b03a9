"""`cvm lower`: a program at one stage of its compilation, as text."""

from __future__ import annotations

from argparse import Namespace

import cvm
from cvm.cli import Usage
from cvm.commands.io import load, write
from cvm.jit.targets import all_stages
from cvm.lowering.formulas.overflow_warnings import print_ranges


def lower(options: Namespace) -> int:
    if options.to not in (stages := all_stages()):
        raise Usage(f"unknown stage {options.to!r}; the stages are {', '.join(stages)}")
    if options.ranges and options.to != "graph":
        raise Usage(f"--ranges shows the ranges of a program's values: it goes with --to graph, not {options.to}")
    f = cvm.compile(load(options.program), options.entry, target="reference", optimize=options.optimize)
    text = print_ranges(f.module) if options.ranges else f.lower(options.to)
    write(options.output, text.encode())
    return 0
