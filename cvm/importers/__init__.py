"""Models of other systems to programs, a module for each system, or some for what is large."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import cvm
from cvm.dialect.ir.module import Module
from cvm.dialect.support.diagnostics import Diagnostic, Note, Source, Span

IMPORTERS: dict[str, Callable[[Path], Module]] = {}  # of other packages, by the suffix of files


def refuse(filename: str, message: str, *notes: Note) -> NoReturn:
    """Raises ParseError: what a model's file holds cannot be taken."""
    raise cvm.ParseError(Diagnostic(message, Span(Source(filename, ""), 0, 0), "import", notes))


def unreadable(filename: str, reason: Exception | str) -> NoReturn:
    """Raises ParseError: a model's file cannot be read."""
    said = (
        reason
        if isinstance(reason, str)
        else (getattr(reason, "strerror", None) or str(reason)).lower()
    )
    refuse(filename, f"the model cannot be read: {said}")


def printable(name: str) -> str:
    """A name on one line."""
    return "".join(c if c.isprintable() else " " for c in name)


class Names:
    """Names of the language for those of a model, each of its own."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.numbers = Counter[str]()

    def of(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        return self.fresh(
            plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}", first=True
        )

    def fresh(self, stem: str, first: bool = False) -> str:
        if first and stem not in self.used:
            self.used.add(stem)
            return stem
        while (name := f"{stem}_{self.numbers[stem]}") in self.used:
            self.numbers[stem] += 1
        self.used.add(name)
        return name
