"""A symbol of a program and the name of a target, to what runs it."""

from __future__ import annotations

from ..dialect.program import Graph, Module
from .function import CompiledFunction, compile_function, find
from .graph import CompiledGraph


def compile_program(module: Module, entry: str = "main", target: str = "cpu") -> CompiledFunction | CompiledGraph:
    """Compiles a function or a graph of a verified module."""
    found = find(module, entry, target)
    return CompiledGraph(module, found, target) if isinstance(found, Graph) else compile_function(module, entry, target)

