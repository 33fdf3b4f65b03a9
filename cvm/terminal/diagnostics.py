"""Show diagnostics: as text, in color on a terminal, as JSON, and as SARIF 2.1.0 for tools."""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, cast

import cvm
from cvm.dialect.support.diagnostics import Diagnostic, Span, counted, printable

SHOWN = 50  # diagnostics of a kind that one run prints
COLOURS = {"error": "1;31", "warning": "1;35", "note": "1;36"}
_HEAD = re.compile(r"^(.*?)(\berror|\bwarning|\bnote)(\[[\w.]+\])?: ", re.MULTILINE)
_CARET = re.compile(r"^([ \t]*)(\^~*)$", re.MULTILINE)


class Escaped:
    """A text stream that escapes control characters, as of the names of files, on their way to
    another.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def escaped_output() -> Iterator[None]:
    """Escape the control characters of all that is printed meanwhile."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast("Any", [Escaped(s) if s is not None else s for s in before])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def unescaped(stream: TextIO | None) -> TextIO | None:
    """The stream for colors and the like, whose text has been escaped before."""
    return stream.stream if isinstance(stream, Escaped) else stream


def show(diagnostics: Sequence[Diagnostic], what: str) -> None:
    """Print the first diagnostics and the number of all, where there are any, on standard error, in
    color on a terminal.
    """
    in_colour = os.environ.get("FORCE_COLOR") or (sys.stderr is not None and sys.stderr.isatty())
    shown = coloured if in_colour and not os.environ.get("NO_COLOR") else str
    for diagnostic in diagnostics[:SHOWN]:
        print(shown(diagnostic), file=unescaped(sys.stderr))
    if diagnostics:
        more = f", the first {SHOWN} shown" if len(diagnostics) > SHOWN else ""
        print(counted(len(diagnostics), what) + more, file=sys.stderr)


def coloured(diagnostic: Diagnostic) -> str:
    """The text of a diagnostic with the colors of a terminal."""
    text = _CARET.sub("\\1\033[1;32m\\2\033[0m", str(diagnostic))
    return _HEAD.sub(
        lambda m: f"\033[1m{m[1]}\033[{COLOURS[m[2]]}m{m[2]}{m[3] or ''}:\033[0m ", text
    )


def _place(span: Span) -> dict[str, Any]:
    line, column = span.source.place(span.start)
    end_line, end_column = span.source.place(max(span.start, span.end))
    place = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
    return {"file": span.source.filename, **place}


def as_json(diagnostics: Sequence[Diagnostic]) -> str:
    """A JSON list with an object for each diagnostic; lines and columns count from 1, an end is
    exclusive.
    """
    found = []
    for d in diagnostics:
        notes = [{"message": n.message, **(_place(n.span) if n.span else {})} for n in d.notes]
        head = {"severity": d.severity, "code": d.code, "message": d.message}
        found.append({**head, **_place(d.span), "notes": notes})
    return json.dumps(found, indent=1)


def as_sarif(diagnostics: Sequence[Diagnostic]) -> str:
    """A SARIF log with one run."""
    codes = sorted({d.code for d in diagnostics})
    driver = {"name": "cvm", "version": cvm.__version__, "rules": [{"id": code} for code in codes]}
    results = [
        {
            "ruleId": d.code,
            "level": d.severity,
            "message": {"text": d.message},
            "locations": [_location(d.span)],
            "relatedLocations": [
                {**_location(n.span), "message": {"text": n.message}} for n in d.notes if n.span
            ],
        }
        for d in diagnostics
    ]
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=1)


def _location(span: Span) -> dict[str, Any]:
    uri, *ends = _place(span).values()
    region = dict(zip(("startLine", "startColumn", "endLine", "endColumn"), ends, strict=True))
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}
