"""Modules: the functions of a program by name, its rewrites, and their text."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from .function import Function, Rewrite


@dataclass(frozen=True, eq=False)
class Module:
    """A program: its functions by name, in order. `str(module)` is its text.

    Args:
        functions: The functions and graphs by name.
        filename: The name that diagnostics give for the program.
        files: The digests of the constant files it was read with, None for a file without digest.
        rewrites: The rewrites by name.
    """

    functions: dict[str, Function]
    filename: str = "<built>"
    files: Mapping[str, str | None] = field(default_factory=dict)
    rewrites: Mapping[str, Rewrite] = field(default_factory=dict, kw_only=True)

    def with_functions(self, functions: dict[str, Function]) -> "Module":
        return replace(self, functions=functions)

    @property
    def named(self) -> dict[str, Function]:
        """The functions that the text names: all but the bodies of regions."""
        return {n: f for n, f in self.functions.items() if f.captured is None}

    @cached_property
    def effects(self) -> frozenset[str]:
        """The names of the functions that have an effect, or call one that has."""
        found: dict[str, Function] = {}
        while more := {
            n: f
            for n, f in self.functions.items()
            if n not in found and any(o.acts(found) for o in f.operations)
        }:
            found.update(more)
        return frozenset(found)

    def __str__(self) -> str:
        from .program_printer import (
            print_module,
        )  # loads the operators, which a program from the cache does not need

        return print_module(self)

    def __repr__(self) -> str:
        return f"<Module {self.filename}: {', '.join(f'@{name}' for name in self.functions)}>"

    def _repr_html_(self) -> str:
        """The program in a notebook: signatures and sizes, and the drawing."""
        from .diagram import caption, html  # and with it the operators

        functions = [*self.functions.values()]
        return html(self, functions, "\n".join(map(caption, functions)))
