"""Diagnostics at the user's line of Python."""

from __future__ import annotations

import ast
import linecache
import sys
import warnings
from typing import TYPE_CHECKING, NoReturn

from cvm.dialect.ir.function import Literal
from cvm.dialect.support.diagnostics import Diagnostic, Source, Span, TraceError

if TYPE_CHECKING:
    from .trace import TracedArray

_PACKAGE = __name__.partition(".")[0]
_sources: dict[str, Source] = {}
# operations of one line that are no reason to warn: compiling more takes seconds (by hand)
UNROLLED = 200
_unrolled: set[tuple[str, int]] = set()  # the lines that were warned of


def fail(message: str, span: Span | None = None) -> NoReturn:
    """Raise TraceError at the user's line, or at another place."""
    raise TraceError(Diagnostic(message, span or caller(), "trace"))


def fail_unknown(x: TracedArray, why: str) -> NoReturn:
    """Raise for a value that is needed while compiling; where it depends on numbers alone, their
    names are those to make static.
    """
    made = {r: operation.operator for operation in x.tracer.operations for r in operation.results}
    behind = [x.value]
    for value in behind:  # which grows
        behind += [v for _, v in made[value].operands() if v not in behind] if value in made else []
    values = [v for v in behind if v not in made and not isinstance(v, Literal)]
    parameters = x.tracer.parameters
    if not values or any(v.name not in parameters or v.known_type.array_shape for v in values):
        fail(why)
    names = sorted({parameters[v.name] for v in values})
    error = TraceError(
        Diagnostic(f"{why}, or give cvm.compile static_argnames={names}", caller(), "trace")
    )
    error.static_names = frozenset(names)
    raise error


def instead_of_branch(span: Span) -> str:
    """The way to compute with arrays in place of the code at a place that asks for one's truth."""
    for node in _around(span):
        match node:
            case ast.BoolOp(op):
                return "a & b" if isinstance(op, ast.And) else "a | b"
            case ast.UnaryOp(ast.Not()):
                return "~a"
            case ast.Compare(_, [_, _, *_]):
                return "(a < b) & (b < c), of two comparisons"
            case ast.Call(ast.Name("max" | "min" as name)):
                return f"np.{name}imum(a, b)"
            case ast.IfExp() | ast.If():
                break
            case ast.While():
                return "cvm.while_loop(condition, step, start)"
    return "np.where(condition, a, b)"


def _around(span: Span) -> list[ast.expr | ast.stmt]:
    """The nodes of Python's syntax around a place that begin in its line, the innermost first."""
    text = span.source.text
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # no file, or cells of a notebook
        return []
    line = span.source.line(span.line)
    column = len(line[: span.column - 1].encode())
    end = column + len(text[span.start : span.end].encode())
    found: list[ast.expr | ast.stmt] = [
        n
        for n in ast.walk(tree)
        if isinstance(n, (ast.expr, ast.stmt))
        and n.lineno == span.line
        and n.col_offset <= column
        and (n.end_lineno != n.lineno or (n.end_col_offset or 0) >= end)
    ]
    return sorted(found, key=lambda n: (isinstance(n, ast.stmt), -n.col_offset))


def warn_of_unrolling(span: Span, count: int) -> None:
    """Warn, once for each place, of a loop of Python that is recorded step by step."""
    if count <= UNROLLED or (span.source.filename, span.line) in _unrolled:
        return
    _unrolled.add((span.source.filename, span.line))
    message = (
        f"a loop of Python records this line more than {UNROLLED} times, and compiling it takes "
        "that much longer: use cvm.fori_loop or cvm.scan, or @cvm.kernel for loops over elements"
    )
    warnings.warn_explicit(message, UserWarning, span.source.filename, span.line)


def caller() -> Span:
    """Find the user's line of Python that is running: the innermost frame outside this package and
    NumPy.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
        _PACKAGE,
        "numpy",
    ):
        frame = frame.f_back
    filename = frame.f_code.co_filename
    text = "".join(linecache.getlines(filename, frame.f_globals))
    if (source := _sources.get(filename)) is None or source.text != text:
        source = _sources[filename] = Source(filename, text)
    line, end_line, column, end_column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    if line is None or line > len(source.line_starts):
        return Span(source, 0, 0)
    start = source.line_starts[line - 1] + (column or 0)
    length = end_column - (column or 0) if end_column is not None and end_line == line else 1
    return Span(source, start, start + length)
