"""Compare text with `check:` lines, as LLVM's FileCheck does.

    check: T        T occurs after what was found before            check-next: T   on the line after that
    check-not: T    T does not occur before the next match          check-dag: T    with its neighbours, in any order

Blanks match any blanks. `{{...}}` is a regular expression, `[[x:...]]` one whose match has the name x, `[[x]]` that text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from .filetest import Check, Failure

SHOWN = 12  # lines of text where a check fails
_PART = re.compile(r"\{\{(.+?)\}\}|\[\[([A-Za-z_]\w*)(?::(.+?))?\]\](?!\])")


def check_text(text: str, checks: Sequence[Check], path: Path) -> None:
    """Raise Failure at the first check that does not hold."""
    captured: dict[str, str] = {}
    forbidden: list[Check] = []
    at = 0
    for kind, found in groupby(checks, lambda c: c.kind):
        if kind == "check-not":
            forbidden += found
            continue
        for step in [[*found]] if kind == "check-dag" else [[c] for c in found]:
            spans: list[tuple[int, int]] = []
            for check in step:
                spans.append(_search(text, check, at, captured, path, spans))
            first = min(start for start, _ in spans)
            if kind == "check-next" and text.count("\n", at, first) != 1:
                raise _failed("is not on the next line", step[0], text, at, path)
            _absent(text[:first], forbidden, at, captured, path)
            forbidden, at = [], max(end for _, end in spans)
    _absent(text, forbidden, at, captured, path)


def _search(
    text: str, check: Check, at: int, captured: dict[str, str], path: Path, taken: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """The first match from a position on that lies apart from those taken; its captures are taken note of."""
    for match in _pattern(check, captured, path).finditer(text, at):
        if all(match.end() <= start or match.start() >= end for start, end in taken):
            captured.update(match.groupdict())
            return match.span()
    raise _failed("does not follow in", check, text, at, path)


def _absent(text: str, forbidden: Sequence[Check], at: int, captured: dict[str, str], path: Path) -> None:
    for check in forbidden:
        if (match := _pattern(check, captured, path).search(text, at)) is not None:
            raise _failed("stands in", check, text, text.rfind("\n", 0, match.start()) + 1, path)


def _pattern(check: Check, captured: dict[str, str], path: Path) -> re.Pattern[str]:
    """The regular expression of a check."""
    parts, at, own = [], 0, set[str]()
    for m in _PART.finditer(check.pattern):
        parts.append(_literal(check.pattern[at : m.start()]))
        expression, name, inner = m.groups()
        if expression is not None:
            parts.append(f"(?:{expression})")
        elif inner is not None:
            parts.append(f"(?P<{name}>{inner})")
            own.add(name)
        elif name in own:
            parts.append(f"(?P={name})")
        elif name in captured:
            parts.append(re.escape(captured[name]))
        else:
            raise Failure(f"{path}:{check.line}: [[{name}]] has not been captured before")
        at = m.end()
    parts.append(_literal(check.pattern[at:]))
    try:
        return re.compile("".join(parts))
    except re.error as e:
        raise Failure(f"{path}:{check.line}: {check.pattern!r} is no regular expression: {e}") from None


def _literal(text: str) -> str:
    return r"[ \t]+".join(map(re.escape, re.split(r"[ \t]+", text)))


def _failed(what: str, check: Check, text: str, at: int, path: Path) -> Failure:
    lines = text[at:].splitlines()
    shown = "\n".join(lines[:SHOWN] + ["..."] * (len(lines) > SHOWN))
    return Failure(f"{path}:{check.line}: {check.kind}: {check.pattern!r} {what}\n{shown}")
