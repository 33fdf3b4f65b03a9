"""Models of other systems to programs, a module for each system, or some for what is large."""

from typing import NoReturn

import cvm
from cvm.dialect.ir.diagnostics import Diagnostic, Note, Source, Span


def refuse(filename: str, message: str, *notes: str) -> NoReturn:
    """Raises ParseError: what a model's file holds cannot be taken."""
    raise cvm.ParseError(Diagnostic(message, Span(Source(filename, ""), 0, 0), "import", tuple(map(Note, notes))))
