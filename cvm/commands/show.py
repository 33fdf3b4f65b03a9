"""`cvm lower`: a program, or kernels, at one stage of its compilation, as text. `cvm viz`: its operations and data flow, drawn.
`cvm fmt`: rewrite programs in the usual layout, in place; `-` is a filter."""

import sys
from argparse import Namespace
from html import escape
from pathlib import Path

import cvm
from cvm.cli import Usage
from cvm.commands.inputs import write_arrays
from cvm.commands.io import load, page, read, shown, suffix_of, write
from cvm.commands.read_level import compiled, read_level
from cvm.dialect.ir.fp_environment import DefaultFpEnvironment
from cvm.dialect.program.diagram import svg
from cvm.dialect.program.module import Module
from cvm.jit.compile import find
from cvm.jit.functions.clocked_program import CompiledGraph
from cvm.jit.options import CompileOptions
from cvm.jit.targets import all_stages
from cvm.lowering.formulas.overflow_warnings import print_ranges
from cvm.lowering.processor import compiling_for
from cvm.lowering.stages import at_stage, left_out
from cvm.parser.format import format_text


def lower(options: Namespace) -> int:
    if options.to not in (stages := all_stages()):
        raise Usage(f"unknown stage {options.to!r}; the stages are {', '.join(stages)}")
    if options.ranges and options.to != "graph":
        raise Usage(f"--ranges shows the ranges of a program's values: it goes with --to graph, not {options.to}")
    program = read_level(options.program)
    if options.ranges and not isinstance(program, Module):
        raise Usage("--ranges shows the ranges of a program's values, and this program is below them")
    f = compiled(program, options.entry, None, CompileOptions(options.optimize))
    if options.constants:
        holding = ("formulas", "loops", "schedule")
        if not isinstance(program, Module) or isinstance(f, CompiledGraph) or options.to not in holding:
            raise Usage("--constants are of a function, and go with --to formulas, loops or schedule")
        with compiling_for(f.compiled_for), DefaultFpEnvironment():
            write_arrays(options.constants, left_out(at_stage(f.module, f.computed, options.to, options.optimize)))
    write(options.output, (print_ranges(f.module) if options.ranges else f.lower(options.to)).encode())
    return 0


def viz(options: Namespace) -> int:
    suffix = suffix_of(options.output, (".svg", ".html"), "a picture, .svg, or a page, .html")
    module = load(options.program)
    text = svg(module, [find(module, name) for name in options.entry or module.functions])
    if suffix == ".html":
        text = page("viewer.html", TITLE=escape(Path(options.program).name), DRAWING=text)
    write(options.output, text.encode())
    return 0


def fmt(options: Namespace) -> int:
    mistakes: list[cvm.Diagnostic] = []
    changes = 0
    for name in options.programs:
        try:
            before = read(name)
            after = format_text(before, shown(name)).encode()
        except cvm.Error as e:
            mistakes += e.diagnostics
            continue
        changes += before != after
        if options.check:
            print(f"{shown(name)}: would change", file=sys.stderr) if before != after else None
        elif before != after or name == "-":
            write(name, after)
    if mistakes:
        raise cvm.Error(mistakes)
    return 1 if options.check and changes else 0
