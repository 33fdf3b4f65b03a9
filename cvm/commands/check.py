"""`cvm check`: verify programs, and print `ok` or all mistakes; with `--overflow` also possible integer overflows."""

from __future__ import annotations

import sys
from argparse import Namespace

import cvm
from cvm.commands.levels import read_level
from cvm.dialect.cog.clocked import warnings
from cvm.dialect.program.function import Graph
from cvm.dialect.program.module import Module
from cvm.lowering.formulas.overflow_warnings import possible_overflows


def check(options: Namespace) -> int:
    mistakes: list[cvm.Diagnostic] = []
    overflows: list[cvm.Diagnostic] = []
    for name in options.programs:
        try:
            module = read_level(name)
            if not isinstance(module, Module):
                print(f"{name}: ok, {_count(len(module.kernels), 'kernel')}")
                continue
            functions = module.functions.values()
            for graph in (f for f in functions if isinstance(f, Graph)):
                for warning in warnings(graph):
                    print(warning, file=sys.stderr)
        except cvm.Error as e:
            mistakes += e.diagnostics
        else:
            operations = sum(len(f.operations) for f in functions)
            print(f"{name}: ok, {_count(len(functions), 'function')}, {_count(operations, 'operation')}")
            if options.overflow:
                overflows += possible_overflows(module)
    for warning in overflows:
        print(warning, file=sys.stderr)
    if overflows:
        print(_count(len(overflows), "possible overflow"), file=sys.stderr)
    if mistakes:
        raise cvm.Error(mistakes)
    return 1 if overflows else 0


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
