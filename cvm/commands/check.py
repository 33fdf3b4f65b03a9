"""`cvm check`: verify programs, and print `ok` or all mistakes and warnings; with `--overflow` also possible overflows, with
`--exact-as` how exact each operator of a model is.
"""

from __future__ import annotations

from argparse import Namespace

import cvm
from cvm.cli import Usage
from cvm.commands.io import write
from cvm.commands.levels import read_level
from cvm.commands.verify import certificate
from cvm.diagnostic_output import as_json, as_sarif, counted, show
from cvm.dialect.cog.clocked import warnings
from cvm.dialect.ir.diagnostics import Source, Span
from cvm.dialect.notation.formulas import Formulas
from cvm.dialect.program.function import Graph
from cvm.dialect.program.module import Module
from cvm.dialect.program.unused_values import unused_values
from cvm.importers.exactness import summary, verdicts
from cvm.lowering.formulas.overflow_warnings import possible_overflows

EMPTY = "expected a function, as in func @main(%x: tensor<4xi32>) { return %x }, but the text has none"


def check(options: Namespace) -> int:
    """Prints what is found; 1 where something is a mistake, may overflow, or is warned of under `--werror`."""
    mistakes: list[cvm.Diagnostic] = []
    warned: list[cvm.Diagnostic] = []
    overflows: list[cvm.Diagnostic] = []
    bounded = 0
    if options.output and (not options.exact_as or len(options.programs) > 1):
        raise Usage("-o writes the certificate of one model, with --exact-as")
    for name in options.programs:
        try:
            module = read_level(name)
        except cvm.Error as e:
            mistakes += e.diagnostics
            continue
        if not isinstance(module, Module):
            if options.format == "text":
                parts = (
                    (len(module.steps), "formula") if isinstance(module, Formulas) else (len(module.kernels), "kernel")
                )
                print(f"{name}: ok, {counted(*parts)}")
            continue
        if not module.functions:
            mistakes.append(cvm.Diagnostic(EMPTY, Span(Source(name, ""), 0, 0), "program.empty"))
            continue
        if options.exact_as:
            try:
                found = verdicts(module, options.exact_as)
                if options.output:
                    write(options.output, certificate(module, name, options.exact_as))
            except cvm.Error as e:
                mistakes += e.diagnostics
                continue
            bounded += sum(v.verdict == "bounded" for v in found)
            print(f"{name}: as {options.exact_as}, {counted(len(found), 'operator')}", *summary(found), sep="\n  ")
            continue
        functions = module.functions.values()
        warned += [d for f in functions for d in (warnings(f) if isinstance(f, Graph) else unused_values(f))]
        overflows += possible_overflows(module) if options.overflow else []
        if options.format == "text":
            operations = sum(len(f.operations) for f in functions)
            print(f"{name}: ok, {counted(len(functions), 'function')}, {counted(operations, 'operation')}")
    found = [*warned, *overflows, *mistakes]
    if options.format != "text":
        print(as_json(found) if options.format == "json" else as_sarif(found))
    else:
        for some, what in ((warned, "warning"), (overflows, "possible overflow"), (mistakes, "error")):
            show(some, what)
    return 1 if bounded or mistakes or overflows or (warned and options.werror) else 0
