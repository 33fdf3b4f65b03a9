"""`cvm lower`: a program at one stage of its compilation, as text."""

from __future__ import annotations

from argparse import Namespace

import cvm
from cvm.cli import Usage
from cvm.commands.files import load, write
from cvm.jit.function import ALL_STAGES


def lower(options: Namespace) -> int:
    if options.to not in ALL_STAGES:
        raise Usage(f"unknown stage {options.to!r}; the stages are {', '.join(ALL_STAGES)}")
    f = cvm.compile(load(options.program), options.entry, target="reference")
    write(options.output, f.lower(options.to).encode())
    return 0
