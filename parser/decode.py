"""Decode bytes as UTF-8; bytes that are no text, and marks of a merge, are mistakes with a place,
like any others.
"""

import codecs
import re

from ..dialect.support.diagnostics import Diagnostic, Note, Source, Span

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
WIDE = {  # encodings of several bytes a character by the first bytes; the longer ones first
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
MARK = re.compile(
    r"^(?:<{7}|\|{7}|={7}|>{7})(?: .*|\r)?$", re.MULTILINE
)  # a line that a merge leaves
CONFLICT = re.compile(
    r"(?m)^(<{7}.*\n)((?:(?!<{7}|\|{7}|={7}|>{7}).*\n)*)([|=]{7}.*\n(?:(?![<>]{7}).*\n)*>{7}.*)"
)


def decode(data: str | bytes, filename: str) -> tuple[Source, list[Diagnostic]]:
    """Decode the text, with replacement characters, and report errors; skip a byte order mark,
    split at lone returns.
    """
    text = data if isinstance(data, str) else ""
    at = None
    message = ""
    if not isinstance(data, str):
        text, at, message = _from_bytes(bytes(data))
    elif not data.isascii():
        text, at, message = _from_text(data)
    if "\r" in text:
        text = re.sub(r"\r(?!\n)", "\n", text)
    left, conflicts = _resolved(text) if any(mark * 7 in text for mark in "<=>") else (text, [])
    source = Source(filename, left)
    shown = source if left is text else Source(filename, text)
    diagnostics = (
        [] if at is None else [Diagnostic(message, Span(shown, at, at + 1), "parse.encoding")]
    )
    for start, end in conflicts:
        last = text.rfind("\n", start, end) + 1
        notes = (Note("it ends here", Span(shown, last, end)),) if last else ()
        message = "a conflict of a merge is not resolved"
        diagnostics.append(
            Diagnostic(message, Span(shown, start, start + 7), "parse.conflict", notes)
        )
    return source, diagnostics


def _resolved(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text with blanks for the marks and the second side of each conflict of a merge, and where
    conflicts are.

    Beside a mark without the others nothing is left of the text, since nobody knows which lines are
    the program's.
    """
    conflicts = [m.span() for m in CONFLICT.finditer(text)]
    left = CONFLICT.sub(lambda m: re.sub(".", " ", m[1]) + m[2] + re.sub(".", " ", m[3]), text)
    alone = MARK.search(left)
    return (left, conflicts) if alone is None else ("", [alone.span()])


def _from_text(text: str) -> tuple[str, int | None, str]:
    """The text, the offset of the first half of a surrogate pair, and a message about it."""
    text = text.removeprefix(BOM)
    if not (halves := [n for n, c in enumerate(text) if "\ud800" <= c <= "\udfff"]):
        return text, None, ""
    message = f"the text has no half of a surrogate pair, got U+{ord(text[halves[0]]):04X}"
    text = "".join(REPLACEMENT if "\ud800" <= c <= "\udfff" else c for c in text)
    return text, halves[0], message + _others(len(halves))


def _from_bytes(data: bytes) -> tuple[str, int | None, str]:
    """The text, the offset of the first byte that is no text, and a message about it."""
    wide = next((name for mark, name in WIDE.items() if data.startswith(mark)), None)
    if wide is None and len(data) > 1 and any(data[:8:2]) != any(data[1:8:2]):
        wide = "UTF-16"
    if wide is not None:
        return "", 0, f"the text is UTF-8, but this file is {wide}; save it as UTF-8"
    try:
        return data.decode("utf-8").removeprefix(BOM), None, ""
    except UnicodeDecodeError as e:
        text = data.decode("utf-8", "replace")
        first = len(data[: e.start].decode("utf-8"))
        wrong = f"the text is UTF-8, but holds the byte 0x{data[e.start]:02x}"
        return text, first, wrong + _others(text.count(REPLACEMENT)) + "; save it as UTF-8"


def _others(count: int) -> str:
    if count == 1:
        return ""
    return " and 1 other" if count == 2 else f" and {count - 1} others"


def untokened(
    source: Source, diagnostics: list[Diagnostic], more: list[Diagnostic]
) -> list[Diagnostic]:
    """The mistakes of a text and those of its tokens, but for tokens that are none because they are
    no text.
    """
    if diagnostics:
        more = [d for d in more if not source.text.startswith(REPLACEMENT, d.span.start)]
    return [*diagnostics, *more]
