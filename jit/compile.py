"""Compile a function or clocked program of a module for a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dialect.program.module import Graph, Module
from .functions.compiled_function import CompiledFunction
from .options import DEFAULT, CompileOptions
from .targets import compile_function, find

if TYPE_CHECKING:
    from .functions.clocked_program import CompiledGraph


def compile_program(
    module: Module, entry: str = "main", target: str = "cpu", options: CompileOptions = DEFAULT
) -> CompiledFunction | CompiledGraph:
    """Compiles a function or a graph of a verified module."""
    found = find(module, entry, target)
    if not isinstance(found, Graph):
        return compile_function(module, entry, target, options)
    from .functions.clocked_program import (
        CompiledGraph,  # and with it the dialect of graphs, which programs of functions do without
    )

    return CompiledGraph(module, found, target, options)
