"""Decode bytes as UTF-8; an invalid byte is a mistake with a place, like any other."""

from __future__ import annotations

from ..dialect.ir.diagnostics import Diagnostic, Source, Span

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
MANY = 20  # places that are reported; the rest of a file that is no text would only repeat them


def decode(data: str | bytes, filename: str) -> tuple[Source, list[Diagnostic]]:
    """The text with the replacement character where it is not text, and what is wrong with it."""
    if isinstance(data, str):
        text, places = data, []
        if not text.isascii():
            places = [n for n, c in enumerate(text) if "\ud800" <= c <= "\udfff"][:MANY]
            text = (
                "".join("\N{REPLACEMENT CHARACTER}" if "\ud800" <= c <= "\udfff" else c for c in text)
                if places
                else text
            )
        wrong = [(p, f"the text has no half of a surrogate pair, got U+{ord(data[p]):04X}") for p in places]
    else:
        text, wrong = _decode(bytes(data))
    source = Source(filename, text)
    found = [Diagnostic(message, Span(source, at, at + 1), "parse.encoding") for at, message in wrong[:MANY]]
    if text.startswith(BOM):
        found.insert(0, Diagnostic("a program begins without a byte order mark", Span(source, 0, 1), "parse.encoding"))
    return source, found


def _decode(data: bytes) -> tuple[str, list[tuple[int, str]]]:
    try:
        return data.decode("utf-8"), []
    except UnicodeDecodeError:
        pass
    parts: list[str] = []
    wrong: list[tuple[int, str]] = []
    length = start = 0
    while start < len(data):
        try:
            parts.append(data[start:].decode("utf-8"))
            break
        except UnicodeDecodeError as e:
            if len(wrong) >= MANY:
                parts.append(data[start:].decode("utf-8", "replace"))
                break
            parts.append(data[start : start + e.start].decode("utf-8") + "\N{REPLACEMENT CHARACTER}")
            length += len(parts[-1])
            wrong.append((length - 1, f"the text is UTF-8, but holds the byte 0x{data[start + e.start]:02x}"))
            start += e.end
    return "".join(parts), wrong


def untokened(diagnostics: list[Diagnostic], more: list[Diagnostic]) -> list[Diagnostic]:
    """The mistakes of a text and those of its tokens, but for tokens that are none because they are no text."""
    told = {d.span.start for d in diagnostics}
    return [*diagnostics, *(d for d in more if d.span.start not in told)]
