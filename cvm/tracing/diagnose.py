"""Diagnostics at the user's line of Python."""

from __future__ import annotations

import linecache
import sys
from typing import TYPE_CHECKING, NoReturn

from cvm.dialect.ir.function import Literal
from cvm.dialect.support.diagnostics import Diagnostic, Source, Span, TraceError

if TYPE_CHECKING:
    from .trace import TracedArray

_PACKAGE = __name__.partition(".")[0]
_sources: dict[str, Source] = {}


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
