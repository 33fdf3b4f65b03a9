"""`cvm opt`: a program, or kernels, through passes chosen by name or by target, and the text of what they make of it."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cvm.cli import Usage
from cvm.commands.display import duration
from cvm.commands.io import write
from cvm.commands.levels import Level, read_level
from cvm.dialect.ir.suggest import did_you_mean
from cvm.dialect.notation.formulas import Formulas
from cvm.dialect.notation.loops import Kernel
from cvm.dialect.notation.plan import Kernels, Plan
from cvm.dialect.notation.printer import kernels_text
from cvm.dialect.program.function import Function, Graph
from cvm.dialect.program.module import Module
from cvm.dialect.program.printer import print_module
from cvm.lowering.formulas.printer import formulas_text
from cvm.lowering.pass_context import Context
from cvm.lowering.passes import LEVELS, Pass, run_passes
from cvm.lowering.pipeline import DOWN, PASSES, PIPELINES, TARGETS, context_of, step_context
from cvm.lowering.stepping.split_step_and_observe import split_step_and_observe
from cvm.lowering.stepping.step_plan import StepPlan

FORMS = ("graph", "formulas", "loops")  # of a program, each below the one before
FORM_OF = {Function: "graph", Formulas: "formulas", Plan: "loops", Kernel: "loops", StepPlan: "loops"}


def opt(options: Namespace) -> int:
    if options.list:
        print("\n".join(listing()))
        return 0
    if options.program is None:
        raise Usage("opt needs a program, or --list")
    if options.target and options.pipeline:
        raise Usage("--target is the whole pipeline of a target, and --pipeline another one")
    chosen = TARGETS[options.target] if options.target else tuple(_chosen(options.pipeline))
    names = [p.name for p in chosen]
    for name in options.print_after:
        _known(name)
        if name not in names:
            raise Usage(f"--print-after {name}: the pipeline is {options.target or ','.join(names) or 'empty'}")
    program = read_level(options.program)
    report = Report(options.print_after_all, frozenset(options.print_after), options.generic)
    text = _text_after(program, chosen, options.target, report, options.generic)
    if options.timing:
        report.print_times()
    write(options.output, text.encode())
    return 0


def text_after(program: Level, pipeline: str = "", target: str | None = None) -> str:
    """The text of a program after passes, or after all passes of a target."""
    chosen = TARGETS[target] if target in TARGETS else tuple(_chosen(pipeline))
    return _text_after(program, chosen, target, Report(False, frozenset(), False))


def _text_after(
    program: Level, chosen: Sequence[Pass], target: str | None, report: Report, generic: bool = False
) -> str:
    passes, form = _complete(chosen, "loops" if isinstance(program, Plan) else "graph")
    if generic and form != "graph":
        raise Usage("--generic is a form of the graph, and this pipeline ends below it")
    if isinstance(program, Plan):
        return text_of(run_passes(passes, program, Context(), watch=report))
    if form == "graph":
        made = {name: _of_function(passes, program, f, report) for name, f in program.functions.items()}
        return print_module(program.with_functions(made), generic)
    return "\n".join(_below(passes, program, target, report))


def listing() -> list[str]:
    """The passes with what they do, level by level, and the pipelines that have names."""
    lines: list[str] = []
    width = max(map(len, (*PASSES, *PIPELINES))) + 2
    for level in LEVELS:
        lines += [f"{level}:", *(f"  {p.name:{width}}{p.summary}" for p in PASSES.values() if p.level == level)]
    lines.append("pipelines:")
    return [*lines, *(f"  {name:{width}}{', '.join(p.name for p in of)}" for name, of in PIPELINES.items())]


def _known(name: str) -> None:
    names = (*PASSES, *PIPELINES)
    if name not in names:
        raise Usage(f"there is no pass {name}{did_you_mean(name, names)}; opt --list names them all")


def _chosen(pipeline: str) -> Iterator[Pass]:
    for name in (name for part in pipeline.split(",") if (name := part.strip())):
        _known(name)
        yield from PIPELINES.get(name) or (PASSES[name],)


def _complete(passes: Sequence[Pass], form: str) -> tuple[list[Pass], str]:
    """The passes, and before them those that take the program down to the form that they transform; and its last form."""
    found: list[Pass] = []
    packed = False
    for p in passes:
        wanted = FORM_OF[p.unit]
        if FORMS.index(wanted) < FORMS.index(form):
            where = f"after {found[-1].name} there are only {form}" if found else f"the program holds {form}"
            raise Usage(f"{p.name} works on the {wanted}, but {where}")
        if (p.unit is StepPlan) != packed and (p.unit is StepPlan or p.name == "pack_state"):
            raise Usage(f"{p.name} works on {'plain loops' if packed else 'the loops that pack_state gives'}")
        packed = packed or p.name == "pack_state"
        while form != wanted:
            found += DOWN[form]
            form = FORMS[FORMS.index(form) + 1]
        found.append(p)
        form = p.level if p.level in FORMS else "loops"
    return found, form


def _of_function(passes: Sequence[Pass], module: Module, function: Function, report: Report) -> Function:
    """The function after graph passes; a graph, whose operations stand for its whole clock, stays as it is."""
    if isinstance(function, Graph):
        return function
    return run_passes(passes, function, context_of(module, function), watch=report)


def _below(passes: Sequence[Pass], module: Module, target: str | None, report: Report) -> Iterator[str]:
    """The functions after passes that end below the graph. Of a graph these are the one that moves it by a tick, for a CPU
    by a pipeline of its own, and the one that computes its probes."""
    step = PIPELINES["step"] if target == "cpu" else passes if any(p.name == "pack_state" for p in passes) else ()
    for function in module.functions.values():
        if not isinstance(function, Graph):
            yield text_of(run_passes(passes, function, context_of(module, function), watch=report))
            continue
        clocked = split_step_and_observe(module, function)
        if step and clocked.advance.results:
            yield text_of(run_passes(step, clocked.advance, step_context(module, clocked), watch=report))
        for f in (clocked.advance, clocked.observe):
            if f.results and not (step and (f is clocked.advance or step is passes)):
                yield text_of(run_passes(passes, f, context_of(module, f), watch=report))


def text_of(item: Any, generic: bool = False) -> str:
    """The text of a function, formulas, a plan or a kernel."""
    match item:
        case Function():
            return print_module(Module({item.name: item}), generic)
        case Formulas():
            return formulas_text(item)
        case Plan() | Kernels():
            return kernels_text(item.kernels)
        case Kernel():
            return kernels_text([item])
        case StepPlan():
            return kernels_text([*item.plan.kernels, *(item.several.kernels if item.several else ())])
    raise TypeError(f"no text for {type(item).__name__}")


@dataclass
class Report:
    """Progress of a pipeline: the program after the passes to show, and the time that each pass takes."""

    all: bool
    after: frozenset[str]
    generic: bool

    def __post_init__(self) -> None:
        self.times: dict[str, float] = {}
        self.began = time.perf_counter()

    def __call__(self, done: Pass, before: Any, after: Any) -> None:
        self.times[done.name] = self.times.get(done.name, 0.0) + time.perf_counter() - self.began
        if self.all or done.name in self.after:
            text = text_of(after, self.generic)
            same = text == text_of(before, self.generic)
            print(
                f"// after {done.name}",
                f": no change of @{before.name}" if same else f"\n{text}",
                sep="",
                file=sys.stderr,
            )
        self.began = time.perf_counter()

    def print_times(self) -> None:
        whole = sum(self.times.values())
        for name, taken in (*self.times.items(), ("all", whole)):
            print(f"{name:14} {duration(taken):>8}  {taken / (whole or 1):4.0%}", file=sys.stderr)
