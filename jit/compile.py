"""Compile a function or a clocked program of a verified module for a target."""

from typing import TYPE_CHECKING

from ..dialect.ir.function import Function, Graph
from ..dialect.ir.module import Module
from ..dialect.support.compilation_context import compiling
from ..dialect.support.diagnostics import Diagnostic, TargetError
from ..lowering.graph.inline import has_derivatives, reached
from .functions.compiled_function import CompiledFunction
from .options import DEFAULT, CompileOptions
from .targets import find_target

if TYPE_CHECKING:
    from .functions.clocked_program import CompiledGraph


def compile_program(
    module: Module, entry: str = "main", target: str = "cpu", options: CompileOptions = DEFAULT
) -> "CompiledFunction | CompiledGraph":
    """Compiles a function or a graph of a verified module."""
    find_target(target)
    if not isinstance(program := find(module, entry), Graph):
        return compile_function(module, entry, target, options)
    from .functions.clocked_program import CompiledGraph  # and with it the dialect of graphs

    return CompiledGraph(module, program, target, options)


@compiling()
def compile_function(
    module: Module, entry: str = "main", target: str = "cpu", options: CompileOptions = DEFAULT
) -> CompiledFunction:
    """Compiles one function of a verified module for a target of TARGETS."""
    chosen = find_target(target)
    module, function = prepared(module, entry)
    try:
        return chosen.compile(module, function, options, function.name in module.effects)
    except MemoryError as e:
        raise TargetError(
            Diagnostic(f"memory does not suffice to compile @{entry}: {e}", function.span)
        ) from None


def prepared(module: Module, entry: str) -> tuple[Module, Function]:
    """The function with its derivatives expanded, as targets take it, and the module with this
    function.
    """
    function = find(module, entry)
    entry = function.name
    if has_derivatives(module, function):
        from ..lowering.graph.differentiate import (
            expand_derivatives,
        )  # and with it the theano dialect

        for f in reached(module, function):
            module = expand_derivatives(module, f)
        function = module.functions[entry]
    return module, function


def find(module: Module, entry: str) -> Function:
    """Find a function or graph by name, `main` also naming the only one of a program; raise
    TargetError if there is none.
    """
    if entry not in module.functions:
        if entry == "main" and len(module.named) == 1:
            return next(iter(module.named.values()))
        names = ", ".join(f"@{n}" for n in module.named) or "none"
        raise TargetError(f"the program has no function @{entry}; it has {names}")
    return module.functions[entry]
