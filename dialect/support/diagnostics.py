"""Source locations and diagnostics: program texts, spans in them, messages, and the errors that
carry messages.

Also reads a program's file, or reports why it cannot be read.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from .files import read_pieces
from .limits import LIMITS, excess

# C0 and C1, which terminals obey, and what changes the direction of text or begins a line
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str, kept: str = "\n\t") -> str:
    """A text whose control characters, except those kept, are escaped as in JSON: names and
    messages for terminals.
    """
    return _CONTROL.sub(lambda m: m[0] if m[0] in kept else f"\\u{ord(m[0]):04x}", text)


@dataclass(frozen=True, eq=False)
class Source:
    """A program's text and its file name."""

    filename: str
    text: str

    @cached_property
    def line_starts(self) -> list[int]:
        return [0, *(m.end() for m in re.finditer("\n", self.text))]

    def place(self, offset: int) -> tuple[int, int]:
        """The line and column, both from 1, of an offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def on_new_line(self, offset: int, besides: str = "") -> bool:
        """Test whether an offset is preceded on its line by blanks only (and some other
        characters).
        """
        start = self.line_starts[bisect_right(self.line_starts, offset) - 1]
        return not self.text[max(start, offset - 1000) : offset].strip(f" \t\r{besides}")

    def line(self, number: int) -> str:
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : len(self.text) if end < 0 else end].rstrip("\r")

    def __reduce__(self) -> tuple[object, ...]:
        return Source, (self.filename, self.text)


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a source, as offsets; every node carries one, from the parser on."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.source.place(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.place(self.start)[1]

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def __str__(self) -> str:
        line, column = self.source.place(self.start)
        return f"{self.source.filename}:{line}:{column}"

    def snippet(self) -> str:
        """The source line with a caret under the span, cut to a readable width."""
        line, column = self.source.place(self.start)
        text = self.source.line(line)
        width = max(1, min(self.end - self.start, len(text) - column + 1))
        if column > 100 or len(text) > 160:
            cut = max(0, column - 61)
            text = text[cut : cut + 140]
            column = column - cut
            width = max(1, min(width, len(text) - column + 1))
        shown = "".join(
            c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text
        )
        lead = "".join("\t" if c == "\t" else " " for c in shown[: column - 1])
        return f"  {shown}\n  {lead}^{'~' * (width - 1)}"


NOWHERE = Span(Source("<built>", ""), 0, 0)


def counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


@dataclass(frozen=True)
class Note:
    """Additional information about a diagnostic.

    Args:
        message: The information.
        span: Another place in the text, if there is one.
    """

    message: str
    span: Span | None = None


@dataclass(frozen=True)
class Diagnostic:
    """One mistake of a program or a call. `str(diagnostic)` shows it with its source line.

    Args:
        message: The rule that is broken, with the actual values.
        span: The place in the program's text; `file`, `line` and `column` (from 1) are taken from
            it.
        code: The rule's identifier, such as `cvm.dense.C2`, which `cvm explain` takes.
        notes: Other places that are involved.
        severity: `"error"` or `"warning"`.
    """

    message: str
    span: Span = NOWHERE
    code: str = ""
    notes: tuple[Note, ...] = field(default=())
    severity: str = "error"

    @property
    def file(self) -> str:
        return self.span.source.filename

    @property
    def line(self) -> int:
        return self.span.line

    @property
    def column(self) -> int:
        return self.span.column

    def __str__(self) -> str:
        code = f"[{self.code}]" if self.code else ""
        message = printable(self.message)
        if self.span is NOWHERE:
            lines = [f"{self.severity}{code}: {message}"]
        else:
            lines = [f"{printable(str(self.span), '')}: {self.severity}{code}: {message}"]
            lines += [self.span.snippet()] if self.span.source.text else []
        for note in self.notes:
            if note.span is None or note.span is NOWHERE:
                lines.append(f"  note: {printable(note.message)}")
            else:
                place = printable(str(note.span), "")
                lines += [f"{place}: note: {printable(note.message)}", note.span.snippet()]
        return "\n".join(lines)


class Error(Exception):
    """The base class of all errors of cvm; `diagnostics` has one entry for each mistake."""

    def __init__(self, diagnostics: str | Diagnostic | Iterable[Diagnostic]) -> None:
        if isinstance(diagnostics, str):
            diagnostics = Diagnostic(diagnostics)
        several = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        super().__init__(several)
        self.diagnostics: tuple[Diagnostic, ...] = several

    def __str__(self) -> str:
        return "\n".join(map(str, self.diagnostics))


class ParseError(Error):
    """A text is not a program, or a model cannot be imported."""


class VerifyError(Error):
    """A program breaks a rule of the language or a constraint of an operator."""


class MissingFileError(ParseError, FileNotFoundError):
    """There is no file of this name."""


class CallError(Error, TypeError):
    """A compiled function was called with arguments that it does not take, or failed while
    running.
    """


class TraceError(Error):
    """A Python function cannot be traced or compiled; the diagnostic has its line."""

    static_names: frozenset[str] = (
        frozenset()
    )  # numbers that are known once the arguments of these names are static


class TargetError(Error):
    """The target is unknown, does not support an operation, or lacks a requirement."""


for _public in (Error, ParseError, VerifyError, CallError, TraceError, TargetError):
    _public.__module__ = "cvm"  # where people find it, and what a traceback shows


def read_bytes(path: str | Path, stream: BinaryIO | None = None) -> bytes:
    """The content of a file or stream; raises ParseError if it cannot be read."""
    try:
        with nullcontext(stream) if stream is not None else open(path, "rb") as file:
            data = read_pieces(file, LIMITS.get().text_bytes + 1)
        if len(data) > LIMITS.get().text_bytes:
            raise ValueError(excess("text_bytes", len(data)))
        return data
    except (OSError, ValueError) as e:
        reason = getattr(e, "strerror", None) or str(e)
        where = Span(Source(str(path), ""), 0, 0)
        kind, near = ParseError, ""
        if isinstance(e, FileNotFoundError):
            from .suggest import similar_file

            kind, near = MissingFileError, similar_file(path)
        said = f"the file cannot be read: {reason.lower()}{near}"
        raise kind(Diagnostic(said, where, "parse.file")) from None
