"""Programs at any level: functions, formulas or kernels, told apart by their text, compiled and
shown in the same way.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

import cvm
from cvm.dialect.cog.clocked import warnings
from cvm.dialect.ir.function import Function, Graph
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.warn_unused_values import unused_values
from cvm.dialect.kernel_ir.execution_plan import Loop, Plan
from cvm.dialect.kernel_ir.formulas import Formulas
from cvm.dialect.kernel_ir.loops import Statement
from cvm.dialect.support.diagnostics import Note, Span
from cvm.dialect.support.suggest import did_you_mean
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import MAX_SIZE
from cvm.jit.compile import compile_program
from cvm.jit.functions.compiled_function import CompiledFunction
from cvm.jit.options import DEFAULT, CompileOptions
from cvm.jit.targets import TARGETS, find_target
from cvm.terminal.files import load, read, shown
from cvm.terminal.usage import Usage

Level: TypeAlias = Module | Formulas | Plan


def read_level(name: str, data: str | bytes | None = None) -> Level:
    """The verified program of a file, or of standard input; `data` is its content, if it has been
    read already.
    """
    data = read(name) if data is None else data
    if (reader := reader_of(data)) is None:
        return load(name, data)
    text = data.decode("utf-8-sig", "replace") if isinstance(data, bytes) else data
    return reader(text, shown(name))


def reader_of(data: str | bytes) -> Callable[[str, str], Formulas | Plan] | None:
    """The reader of a text of formulas or kernels, by its first word after comments; None for a
    program of functions.
    """
    level = cvm._level_below_functions(data)
    return {"formulas": read_formulas, "kernels": read_kernels}[level] if level else None


def warnings_of(program: Level) -> list[cvm.Diagnostic]:
    """The warnings of a program: values that are not used, what a clocked program may not mean,
    arrays of kernels that are filled with zeros, and kernels that cannot be called together.
    """
    if isinstance(program, Plan):
        from cvm.lowering.analysis.written import unwritten

        found = [
            cvm.Diagnostic(u.message, u.kernel.span, "kernel.unwritten") for u in unwritten(program)
        ]
        try:
            check_callable(program)
        except cvm.VerifyError as e:
            found += e.diagnostics
        return [replace(d, severity="warning") for d in found]
    functions = program.functions.values() if isinstance(program, Module) else ()
    return [
        d for f in functions for d in (warnings(f) if isinstance(f, Graph) else unused_values(f))
    ]


def read_formulas(text: str, filename: str) -> Formulas:
    """The verified formulas of a text; raises with a mistake of each."""
    from cvm.lowering.loops.build_loops import build_loops
    from cvm.lowering.pass_context import Context
    from cvm.lowering.passes import run_passes
    from cvm.parser.formulas import parse_formulas

    formulas = parse_formulas(text, filename)
    _check(run_passes([build_loops], formulas, Context()), {})
    return formulas


def _check(plan: Plan, places: Mapping[Statement, Span]) -> None:
    """Raise VerifyError with the mistake of each kernel that is not legal."""
    from cvm.lowering.analysis.verify_kernel import LoweringError, check_kernel

    mistakes = []
    for kernel, home in (
        (k, p.home) for p in plan.plans for k in p.kernels if not isinstance(k, Loop)
    ):
        try:
            check_kernel(kernel, strict=True, home=home)
        except LoweringError as e:
            place = places.get(e.statement, kernel.span) if e.statement else kernel.span
            notes = (
                [Note("the other access", places[e.other])] if e.other and e.other in places else []
            )
            mistakes.append(cvm.Diagnostic(e.message, place, e.code, tuple(notes)))
    if mistakes:
        raise cvm.VerifyError(mistakes)


def read_kernels(text: str, filename: str, sizes: Mapping[str, int] | None = None) -> Plan:
    """The verified kernels of a text, linked by the names of their arrays, for these sizes; raises
    with a mistake of each.
    """
    from cvm.lowering.analysis.written import unwritten
    from cvm.parser.kernels import read_kernels as parse

    plan, places = parse(text, filename, sizes or {})
    _check(plan, places)
    if missing := [
        cvm.Diagnostic(
            u.message,
            places.get(u.statement, u.kernel.span) if u.statement else u.kernel.span,
            "kernel.unwritten",
        )
        for u in unwritten(plan)
        if u.sure
    ]:
        raise cvm.VerifyError(missing)
    return plan


def check_callable(plan: Plan) -> None:
    """Raise VerifyError if kernels cannot be called together."""
    from cvm.parser.link_kernels import check_names, check_sizes

    check_names(plan)
    check_sizes(plan)


def entries(program: Level) -> list[str]:
    """The names of what can be called; the kernels of a text are called together."""
    return [*program.named] if isinstance(program, Module) else [program.name]


def compiled(
    program: Level, entry: str, target: str | None = None, options: CompileOptions = DEFAULT
) -> Any:
    """A function, or the kernels, compiled for a target, by default one that compiles nothing yet;
    of a graph, an object with its state.
    """
    target = target or ("cpu" if isinstance(program, Plan) else "reference")
    if isinstance(program, Module):
        return compile_program(program, entry, target, options)
    from cvm.jit.functions.formula_function import FormulaFunction, FormulaReference, kernels_of

    if isinstance(program, Plan):
        check_callable(program)
        return find_target(target).compile_kernels(program, options)
    if target in ("cpu", "reference"):
        return (FormulaFunction if target == "cpu" else FormulaReference)(program, options)
    return find_target(target).compile_kernels(kernels_of(program), options, program)


def targets_of(program: Level) -> list[str]:
    """The targets that run such a program, and can run here."""
    able = {n for n, t in TARGETS.items() if isinstance(program, Module) or t.load_kernels}
    able |= {"reference"} if isinstance(program, Formulas) else set()
    if isinstance(program, Module) and program.effects:
        able = {n for n in able if TARGETS[n].load_with_effects is not None}
    return [n for n in TARGETS if n in able and not TARGETS[n].missing()]


def signature(program: Level) -> Function:
    """The arguments and results of kernels, as a function without operations."""
    assert not isinstance(program, Module)
    return compiled(program, program.name).function


def parsed_sizes(items: Sequence[str]) -> dict[str, int]:
    """The sizes of `--size NAME=N`, by name."""
    sizes: dict[str, int] = {}
    for item in items:
        name, separator, value = item.removeprefix("?").partition("=")
        number = (
            int(value) if value.isascii() and value.isdigit() and len(value) < 20 else MAX_SIZE + 1
        )
        if not (separator and name) or number > MAX_SIZE:
            raise Usage(f"--size {item}: expected NAME=NUMBER, such as N=16")
        if name in sizes:
            raise Usage(f"--size {item}: ?{name} is given twice")
        sizes[name] = number
    return sizes


def check_size_names(sizes: Mapping[str, int], known: Collection[str | None], owner: str) -> None:
    """Raise Usage for a size of `--size` that no argument of the functions leaves open."""
    for name, number in sizes.items():
        if name not in known:
            listed = f": they have {', '.join(f'?{n}' for n in known)}" if known else ""
            raise Usage(
                f"--size {name}={number}: no argument of {owner} has a size ?{name}{listed}"
            )


def bind_sizes(program: Level, sizes: Mapping[str, int]) -> Module:
    """The program with values for sizes that it leaves open."""
    if not isinstance(program, Module):
        raise Usage("sizes are bound in programs of functions; kernels take those of their arrays")
    from cvm.jit.aot.build import settled

    arguments = (a for f in program.functions.values() for a in f.arguments)
    open = {d.name for a in arguments for d in a.known_type.array_shape if isinstance(d, Size)}
    for name in sizes:
        if name not in open:
            raise Usage(f"no argument has a size ?{name}{did_you_mean(name, map(str, open))}")
    return program.with_functions(
        {name: settled(program, f, sizes) for name, f in program.functions.items()}
    )


def named(f: CompiledFunction, returned: Any) -> dict[str, np.ndarray]:
    """The results by their names in the program; one that is returned twice has a number the second
    time.
    """
    results: dict[str, np.ndarray] = {}
    for value, array in zip(
        f.function.results, returned if isinstance(returned, tuple) else (returned,), strict=True
    ):
        name = value.name
        while name in results:
            name += f".{len(results)}"
        results[name] = array
    return results
