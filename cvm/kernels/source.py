"""Python functions as syntax trees: their source, the places of nodes in it, and the values of
names around them.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from tokenize import TokenError
from typing import Any, NoReturn

from cvm.dialect.support.diagnostics import Diagnostic, Note, Source, Span, TraceError

CODE = "kernel.python"


class CompiledFunction:
    """A function that is compiled from the source of `py_func`."""

    py_func: Callable[..., Any]
    checks: bool


@dataclass(frozen=True, eq=False)
class FunctionSource:
    """A Python function's tree, and the file that it stands in."""

    function: Callable[..., Any]
    tree: ast.FunctionDef
    source: Source
    line: int  # of the file, the first of the tree's text
    indent: int  # columns that were taken from its lines

    def span(self, node: ast.AST | Span) -> Span:
        """The place of a node in the file, or one that is known."""
        if isinstance(node, Span):
            return node
        text, starts = self.source.text, self.source.line_starts

        def offset(line: int, column: int) -> int:
            start = starts[min(self.line + line - 2, len(starts) - 1)]
            row = text[start : text.find("\n", start) if "\n" in text[start:] else len(text)]
            return (
                start
                + self.indent
                + len(row[self.indent :].encode()[:column].decode(errors="ignore"))
            )

        if not isinstance(node, (ast.expr, ast.stmt, ast.arg)):
            return Span(self.source, offset(1, 0), offset(1, 0))
        first = offset(node.lineno, node.col_offset)
        whole = node.end_lineno == node.lineno and node.end_col_offset is not None
        end = offset(node.lineno, node.end_col_offset or 0) if whole else text.find("\n", first)
        return Span(self.source, first, max(end, first + 1))

    def mistake(
        self, message: str, node: ast.AST | Span, *notes: tuple[str, ast.AST | Span]
    ) -> TraceError:
        """An error at a node, with notes at others."""
        found = tuple(Note(text, self.span(at)) for text, at in notes)
        return TraceError(Diagnostic(message, self.span(node), CODE, found))

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values of names around the function, as they are now: they are constants of the
        kernel.
        """
        function = self.function
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        found = {**vars(builtins), **function.__globals__}
        for name, cell in cells:
            try:
                found[name] = cell.cell_contents
            except ValueError:  # of a variable that is not set yet, as in a recursive function
                continue
        return found


def read_source(function: Callable[..., object]) -> FunctionSource:
    """The source of a function; raises TraceError where there is none, or it is no plain
    function.
    """

    def refuse(message: str) -> NoReturn:
        name = getattr(function, "__qualname__", repr(function))
        raise TraceError(Diagnostic(f"{name}: {message}", code=CODE))

    if not inspect.isfunction(function):
        refuse("a kernel is a Python function that was defined by def")
    try:
        lines, first = inspect.getsourcelines(function)
        filename = inspect.getsourcefile(function) or "<python>"
    except (OSError, TypeError, SyntaxError, TokenError):
        refuse("its source cannot be read; kernels are compiled from it")
    text = "".join(lines)
    plain = textwrap.dedent(text)
    indent = len(lines[0]) - len(lines[0].lstrip())
    try:
        (tree,) = ast.parse(plain).body
    except (SyntaxError, ValueError):
        refuse("its source cannot be read on its own")
    if not isinstance(tree, ast.FunctionDef):
        refuse("a kernel is a function that was defined by def, no lambda and not async")
    whole = "\n" * (first - 1) + text
    return FunctionSource(function, tree, Source(filename, whole), first, indent)
