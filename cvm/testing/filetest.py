"""A filetest taken apart: its commands, its golden lines, its expectations, and the mistakes of its
comments.

`// test` lines are commands, `//>` lines the golden text after a function, `//= COMMAND` says whose
text it is. Nothing is parsed or run here.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from cvm.dialect.support.diagnostics import printable
from cvm.dialect.support.files import write_file

from .checks import Check

SUFFIXES = (".cvm", ".loops")
GOLDEN, HEADER = "//>", "//= "
CHECK_ONLY = (
    "llvm-opt",
    "asm",
    "ptx",
)  # text of LLVM or of NVIDIA's compiler, which differs between versions
WITHOUT_TEXT = ("run", "check", "overflow")
ENDS = ("error", "warning")  # expectations at the end of a line
CHECKS = ("check", "check-next", "check-same", "check-not", "check-dag", "check-label")
COUNT = "check-count"  # and a number
NEEDS = {
    "run": ("run",),
    "error": ("check",),
    "warning": ("overflow", "check"),
}  # the command that looks at an expectation
MARKS = ("run", *ENDS, *CHECKS, COUNT)
OPTION = re.compile(r"\??(\w+)=(\S+)")
Golden = dict[str, list[str]]  # of each function: its golden lines


class Failure(AssertionError):
    """A filetest is not what its file says; `diff` has the lines of a unified diff, where text was
    compared.
    """

    def __init__(self, message: str, diff: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.diff = [*diff]

    def __str__(self) -> str:
        return "\n".join([str(self.args[0]), *self.diff])


@dataclass(frozen=True)
class Command:
    """A `// test` line: its name, for `opt` a pipeline, and options."""

    text: str
    line: int

    @cached_property
    def parts(self) -> list[tuple[str, re.Match[str] | None]]:
        """The words, and the match of each that is an option; those of a pass are in braces."""
        found: list[tuple[str, re.Match[str] | None]] = []
        depth = 0
        for word in self.text.split():
            found.append((word, None if depth else OPTION.fullmatch(word)))
            depth += word.count("{") - word.count("}")
        return found

    @cached_property
    def words(self) -> list[str]:
        return [word for word, option in self.parts if option is None]

    @property
    def name(self) -> str:
        return self.words[0] if self.words else ""

    @cached_property
    def options(self) -> dict[str, str]:
        return {option[1]: option[2] for _, option in self.parts if option is not None}


class Expected(NamedTuple):
    """An `// error: code: message`, or a warning, at the end of a line."""

    line: int
    code: str
    message: str


class Filetest:
    """A file taken apart. Its lines are numbered from 1, as diagnostics do."""

    def __init__(self, text: str, path: Path = Path("filetest.cvm")) -> None:
        self.text = text
        self.path = path
        self.lines = text.splitlines()
        numbered = (
            (n, line) for n, line in enumerate(self.lines, 1) if re.match("// test( |$)", line)
        )
        self.tests = [Command(" ".join(line[8:].split()), n) for n, line in numbered]
        self.functions = {name: (first, last) for name, first, last in _functions(self.lines)}

    @staticmethod
    def load(path: Path) -> "Filetest":
        return Filetest(path.read_text("utf-8", "replace"), path)

    @property
    def commands(self) -> list[str]:
        return [c.text for c in self.tests]

    def command(self, text: str) -> Command:
        return next((c for c in self.tests if c.text == text), Command(text, 1))

    # expectations

    def expected(self, severity: str) -> list[Expected]:
        expectations = []
        for n, line in enumerate(self.lines, 1):
            for text in line.split(f"// {severity}:")[1:]:
                code, _, message = text.strip().partition(":")
                expectations.append(Expected(n, code.strip(), message.strip()))
        return expectations

    @cached_property
    def checks(self) -> dict[str, list[Check]]:
        """The checks of each command: those that follow its `// test` line, before the next command
        that prints text.
        """
        by_command: dict[str, list[Check]] = {}
        printing = [c for c in self.tests if c.name not in WITHOUT_TEXT]
        for n, line in enumerate(self.lines, 1):
            kinds = "|".join((*reversed(CHECKS), rf"{COUNT}-[1-9]\d*"))
            if (m := re.match(rf"\s*// ({kinds}):(.*)$", line)) is not None:
                above = [c for c in printing if c.line < n] or printing[:1]
                by_command.setdefault(above[-1].text if above else "", []).append(
                    Check(m[1], m[2].strip(), n)
                )
        return by_command

    @property
    def golden_commands(self) -> list[str]:
        """The commands whose text is compared with golden lines."""
        without = (*WITHOUT_TEXT, *CHECK_ONLY)
        return [c.text for c in self.tests if c.name not in without and not self.checks.get(c.text)]

    # golden lines

    def golden(self, command: str) -> Golden:
        """The golden lines of a command that stand after each function."""
        lines: Golden = {}
        for name, of, _, line in self._golden_lines():
            if of == command:
                lines.setdefault(name, []).append(line)
        return lines

    def golden_line(self, command: str, function: str) -> int:
        """The number of the first golden line of a command after a function; of the line after it,
        where there is none.
        """
        numbers = [
            n for name, of, n, _ in self._golden_lines() if (name, of) == (function, command)
        ]
        return (
            numbers[0] if numbers else self.functions.get(function, (0, len(self.lines) - 1))[1] + 2
        )

    def _golden_lines(self) -> Iterator[tuple[str, str, int, str]]:
        """Each golden line after a function: the function, the command, the number and the text."""
        goldens = self.golden_commands
        for name, (_, last) in self.functions.items():
            current = goldens[0] if len(goldens) == 1 else ""
            block = takewhile(
                lambda line: line.startswith((GOLDEN, HEADER)), self.lines[last + 1 :]
            )
            for n, line in enumerate(block, last + 2):
                if line.startswith(HEADER):
                    current = line.removeprefix(HEADER).strip()
                else:
                    yield name, current, n, line.removeprefix(GOLDEN).removeprefix(" ")

    def with_golden(self, command: str, golden: Golden) -> str:
        """The file's text with these golden lines, and without those of commands that it does not
        test.
        """
        goldens = {c: golden if c == command else self.golden(c) for c in self.golden_commands}
        lines: list[str] = []
        ends = {last: name for name, (_, last) in self.functions.items()}
        for n, line in enumerate(self.lines):
            lines += [] if line.startswith((GOLDEN, HEADER)) else [line]
            for c in goldens if n in ends else ():
                if ends[n] in goldens[c]:
                    lines += [HEADER + c] if len(goldens) > 1 else []
                    lines += [f"{GOLDEN} {text}".rstrip() for text in goldens[c][ends[n]]]
        return "\n".join(lines) + "\n"

    # mistakes of the comments

    def is_test(self) -> bool:
        """Test whether there is anything in the file for the runner: a command, an expectation, or
        nearly one.
        """
        return bool(self.tests) or any(self.problems())

    def problems(self) -> Iterator[tuple[int, str]]:
        """Each mistake of the comments, with its line: near misses, and expectations that nothing
        looks at.
        """
        names = {c.name for c in self.tests}
        for n, c in enumerate(self.tests):
            if c.text in self.commands[:n]:
                yield c.line, f"`// test {c.text}` stands in the file twice"
        for word, commands in NEEDS.items():
            at = next((n for n, line in enumerate(self.lines, 1) if f"// {word}:" in line), None)
            if at is not None and not names.intersection(commands):
                yield (
                    at,
                    f"`// {word}:` without `// test {' or '.join(commands)}`: nothing looks at it",
                )
        for of, checks in self.checks.items():
            if not of:
                yield (
                    checks[0].line,
                    f"`// {checks[0].kind}:` without a `// test` line of a stage or a pass",
                )
        accounted = {n: of for _, of, n, _ in self._golden_lines()}
        golden = (n for n, line in enumerate(self.lines, 1) if line.startswith(GOLDEN))
        if stale := next(
            (n for n in golden if accounted.get(n, "") not in self.golden_commands), None
        ):
            of = f"of {accounted[stale]}, which" if accounted.get(stale) else "that"
            yield (
                stale,
                f"golden line {of} no command of this file has written; blessing removes it",
            )
        for n, line in enumerate(self.lines, 1):
            if (expectation := _near_miss(line)) is not None:
                yield n, f"expected `{expectation}`, got `{line[line.index('//') :].strip()[:60]}`"


def _near_miss(line: str) -> str | None:
    """The expectation that a comment is nearly: a word with a wrong letter, another case, no blank,
    or no colon.
    """
    if "//" not in line or line.startswith((GOLDEN, HEADER)):
        return None
    if (
        m := re.match(r"\s*//\s*(\w+)[\s:]\s*([a-z][\w-]*)(\s.*)?$", line)
    ) is not None and _is_near(m[1], "test"):
        from .command_names import names  # which imports the passes

        return f"// test {m[2]}" if m[2] in names() and not line.startswith("// test ") else None
    if (m := re.match(r"\s*//\s*(run|RUN|Run)\s*@", line)) is not None:
        return "// run: @"
    for m in re.finditer(r"//\s*([A-Za-z]+(?:[-_][A-Za-z]+)?)(-[1-9]\d*)?\s?:", line):
        if (word := next((w for w in MARKS if _is_near(m[1], w)), None)) is not None:
            expected = f"// {word}{m[2] or '-N'}:" if word == COUNT else f"// {word}:"
            if m[0] != expected:
                return expected
    return None


def _is_near(word: str, mark: str) -> bool:
    """Test whether a word is another one but for case, one letter, or two letters in turned
    order.
    """
    a, b = sorted((word.lower().replace("_", "-"), mark), key=len)
    if len(a) == len(b):
        apart = [(x, y) for x, y in zip(a, b, strict=True) if x != y]
        return len(apart) < 2 or (len(apart) == 2 and apart[0] == apart[1][::-1])
    return a in [b[:n] + b[n + 1 :] for n in range(len(b))]


def _functions(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """Each function, graph or kernel with its first and last line, from 0: the last is the next `}`
    indented as the first.
    """
    for first, line in enumerate(lines):
        if (
            head := re.match(r"(\s*)(?:func|graph|kernel|loop|formulas)\s+@([\w.$-]+)", line)
        ) is not None:
            indent, name = head.groups()
            yield (
                name,
                first,
                next(
                    (n for n in range(first, len(lines)) if lines[n].startswith(indent + "}")),
                    first,
                ),
            )


# Blessing


def bless(path: Path, command: str = "", printed: Golden | None = None) -> list[str]:
    """Write a command's golden lines into its file, read again under a lock, drop stale ones; gives
    the diff.
    """
    handle = _locked(lock := path.with_name(f".{path.name}.lock"))
    try:
        test = Filetest.load(path)
        if (text := test.with_golden(command, printed or {})).splitlines() == test.lines:
            return []
        write_file(path, text.encode())
        return [
            *unified_diff(
                test.lines, text.splitlines(), str(path), f"{path} (blessed)", lineterm=""
            )
        ]
    finally:
        os.close(handle)
        lock.unlink(missing_ok=True)


def _locked(lock: Path) -> int:
    """A lock file of this process; one older than a minute is of a process that has died."""
    while True:
        try:
            return os.open(lock, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            with suppress(FileNotFoundError):
                if time.time() - lock.stat().st_mtime > 60:
                    lock.unlink()
            time.sleep(0.01)


def coloured(diff: Iterable[str], colour: bool) -> list[str]:
    codes = {"-": "31", "+": "32", "@": "36"}
    shown = map(printable, diff)
    return [f"\x1b[{codes[d[0]]}m{d}\x1b[0m" if colour and d[:1] in codes else d for d in shown]
