"""Text compared with `check:` lines, as LLVM's FileCheck does.

    check: T        T occurs after the last match
    check-next: T   T occurs on the line after the last match
    check-same: T   T occurs on the line of the last match, after it
    check-not: T    T does not occur before the next match
    check-dag: T    T and neighboring check-dag texts occur in any order
    check-count-3: T  T occurs three times after the last match
    check-label: T  T begins a block: the checks up to the next label hold within this one

Blanks match any blanks. `{{...}}` is a regular expression, `[[x:...]]` one whose match is named x,
`[[x]]` that text. Matching some takes exponential time, so this file is also a program: the process
that matches them, which the system ends in time.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

SHOWN = 12  # lines of text where a check fails
SECONDS = 10  # of the processor, for the regular expressions of a command
PATIENCE = 60  # seconds of the clock for each of them
_PART = re.compile(r"\{\{(.+?)\}\}|\[\[([A-Za-z_]\w*)(?::(.+?))?\]\](?!\])")


class Check(NamedTuple):
    """A line that looks for text, by one of the kinds above."""

    kind: str
    pattern: str
    line: int


class Mismatch(Exception):
    """A check that does not hold: its line, and the reason."""


def check_text(text: str, checks: Sequence[Check]) -> None:
    """Raise Mismatch for the first check that does not hold."""
    if not any(_PART.search(check.pattern) for check in checks):
        return _compare(text, checks)
    said = _in_a_process(json.dumps([SECONDS, text, checks])).splitlines()
    try:
        if (mismatch := json.loads(said[-1])) is not None:
            raise Mismatch(*mismatch)
    except (
        IndexError,
        ValueError,
    ):  # the process was ended: it says before each check which one it is at
        line = int(said[-1].removeprefix("at ")) if said else checks[0].line
        pattern = next(c.pattern for c in checks if c.line == line)
        raise Mismatch(line, f"{pattern!r} takes more than {SECONDS} s to match") from None


def _in_a_process(question: str) -> str:
    """All that this program prints of a question, until it ends or is ended."""
    command = [sys.executable, "-I", "-S", __file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            return process.communicate(question, SECONDS * PATIENCE)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0]
        except BaseException:
            process.kill()
            raise


def main() -> None:
    """Answer a question on standard input: print the check at work, and at the end the mismatch."""
    seconds, text, checks = json.load(sys.stdin)
    with suppress(ImportError, ValueError):  # without such limits the clock alone ends it
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        _compare(text, [Check(*c) for c in checks], lambda line: print(f"at {line}", flush=True))
        print("null")
    except Mismatch as e:
        print(json.dumps(e.args))


def _compare(
    text: str, checks: Sequence[Check], begin: Callable[[int], object] = lambda line: None
) -> None:
    captured: dict[str, str] = {}
    labels = [c for c in checks if c.kind == "check-label"]
    spans: list[tuple[int, int]] = []
    for label in labels:
        spans.append(_search(text, label, spans[-1][1] if spans else 0, captured, begin, ()))
    blocks: list[list[Check]] = [[]]
    for check in checks:
        if check.kind == "check-label":
            blocks.append([])
        else:
            blocks[-1].append(check)
    ends = [*(start for start, _ in spans), len(text)]
    for block, at, end in zip(blocks, [0, *(after for _, after in spans)], ends, strict=True):
        _compare_block(text[:end], block, at, captured, begin)


def _compare_block(
    text: str,
    checks: Sequence[Check],
    at: int,
    captured: dict[str, str],
    begin: Callable[[int], object],
) -> None:
    forbidden: list[Check] = []
    for kind, group in groupby(checks, lambda c: c.kind):
        if kind == "check-not":
            forbidden += group
            continue
        times = int(kind.removeprefix("check-count-")) if kind.startswith("check-count-") else 1
        each = ([c] for c in group for _ in range(times))
        for step in [[*group]] if kind == "check-dag" else each:
            spans: list[tuple[int, int]] = []
            for check in step:
                spans.append(_search(text, check, at, captured, begin, spans))
            first = min(start for start, _ in spans)
            if kind == "check-next" and text.count("\n", at, first) != 1:
                raise _failed("is not on the next line", step[0], text, at)
            if kind == "check-same" and text.count("\n", at, first):
                raise _failed("is not on the same line", step[0], text, at)
            _absent(text[:first], forbidden, at, captured, begin)
            forbidden, at = [], max(end for _, end in spans)
    _absent(text, forbidden, at, captured, begin)


def _search(
    text: str,
    check: Check,
    at: int,
    captured: dict[str, str],
    begin: Callable[[int], object],
    spans: Sequence[tuple[int, int]],
) -> tuple[int, int]:
    """The first match from a position on that lies apart from those taken; its captures are taken
    note of.
    """
    begin(check.line)
    for match in _pattern(check, captured).finditer(text, at):
        if all(match.end() <= start or match.start() >= end for start, end in spans):
            captured.update(match.groupdict())
            return match.span()
    raise _failed("does not follow in", check, text, at)


def _absent(
    text: str,
    forbidden: Sequence[Check],
    at: int,
    captured: dict[str, str],
    begin: Callable[[int], object],
) -> None:
    for check in forbidden:
        begin(check.line)
        if (match := _pattern(check, captured).search(text, at)) is not None:
            raise _failed("stands in", check, text, text.rfind("\n", 0, match.start()) + 1)


def _pattern(check: Check, captured: dict[str, str]) -> re.Pattern[str]:
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
            raise Mismatch(check.line, f"[[{name}]] has not been captured before")
        at = m.end()
    parts.append(_literal(check.pattern[at:]))
    try:
        return re.compile("".join(parts))
    except (re.error, OverflowError, RecursionError) as e:
        raise Mismatch(check.line, f"{check.pattern!r} is no regular expression: {e}") from None


def _literal(text: str) -> str:
    return r"[ \t]+".join(map(re.escape, re.split(r"[ \t]+", text)))


def _failed(problem: str, check: Check, text: str, at: int) -> Mismatch:
    lines = text[at:].splitlines()
    shown = "\n".join(lines[:SHOWN] + ["..."] * (len(lines) > SHOWN))
    return Mismatch(check.line, f"{check.kind}: {check.pattern!r} {problem}\n{shown}")


if __name__ == "__main__":
    main()
