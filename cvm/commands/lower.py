"""`cvm lower`: a program, or kernels, at one stage of its compilation, as text."""

from argparse import Namespace

from cvm.dialect.ir.module import Module
from cvm.dialect.support.fp_environment import DefaultFpEnvironment
from cvm.jit.functions.clocked_program import CompiledGraph
from cvm.jit.options import CompileOptions
from cvm.jit.targets import all_stages
from cvm.lowering.formulas.overflow_warnings import print_ranges
from cvm.lowering.processor import compiling_for
from cvm.lowering.stages import at_stage, left_out
from cvm.scheduling import with_schedule
from cvm.terminal.arguments import write_arrays
from cvm.terminal.files import write
from cvm.terminal.read_program import compiled, read_level
from cvm.terminal.usage import Usage


def lower(options: Namespace) -> int:
    if options.to not in (stages := all_stages()):
        raise Usage(f"unknown stage {options.to!r}; the stages are {', '.join(stages)}")
    if options.ranges and options.to != "graph":
        raise Usage(
            "--ranges shows the ranges of a program's values: it goes with --to graph, "
            f"not {options.to}"
        )
    program = read_level(options.program)
    if options.ranges and not isinstance(program, Module):
        raise Usage(
            "--ranges shows the ranges of a program's values, and this program is below them"
        )
    if options.schedule:
        program = with_schedule(program, options.entry, options.schedule)
    f = compiled(program, options.entry, None, CompileOptions(options.optimize))
    if options.constants:
        holding = ("formulas", "loops", "schedule")
        if (
            not isinstance(program, Module)
            or isinstance(f, CompiledGraph)
            or options.to not in holding
        ):
            raise Usage(
                "--constants are of a function, and go with --to formulas, loops or schedule"
            )
        with compiling_for(f.compiled_for), DefaultFpEnvironment():
            write_arrays(
                options.constants,
                left_out(at_stage(f.module, f.computed, options.to, options.optimize)),
            )
    write(
        options.output, (print_ranges(f.module) if options.ranges else f.lower(options.to)).encode()
    )
    return 0
