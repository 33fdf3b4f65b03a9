"""Run the code of a page: files, sessions at the shell, and Python. `python tests/support/pages.py
PAGE ...` renews what they print.

A block of `cvm`, `python` or `json` with `title="NAME"` is a file of that name. A block of
`console` holds commands after `$ `, each with what it prints; one of `pycon` is a Python session.
Blocks are run in order, in one folder; Python sessions share their names. `...` stands for
anything, as in doctest.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCK = re.compile(
    r"^( *)```([\w-]+)(?: title=\"([^\"]+)\")?\n(.*?)^\1```", re.MULTILINE | re.DOTALL
)
ROOT = Path(__file__).parents[2]
Checker = doctest.OutputChecker()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Recorder(doctest.DocTestRunner):
    """A runner of one example, which keeps what it printed where that is not what was expected."""

    printed = ""

    def report_failure(self, out: Any, test: Any, example: Any, got: str) -> None:
        self.printed = got

    def report_unexpected_exception(self, out: Any, test: Any, example: Any, exc_info: Any) -> None:
        self.printed = (
            "Traceback (most recent call last):\n  ...\n"
            f"{traceback.format_exception_only(exc_info[1])[-1]}"
        )


def run_page(page: str, folder: Path) -> tuple[str, list[str]]:
    """The page with what its commands print now, and where that differs from what it shows."""
    names: dict[str, object] = {"__name__": "page"}
    wrong: list[str] = []

    def renewed(match: re.Match[str]) -> str:
        indent, language, title, text = match.groups()
        body = re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        if title:
            (folder / title).parent.mkdir(parents=True, exist_ok=True)
            (folder / title).write_text(body, "utf-8")
        elif language in SESSIONS:
            found = SESSIONS[language](body, folder, names, wrong)
            return match[0].replace(text, re.sub(r"^(?=.)", indent, found, flags=re.MULTILINE))
        return match[0]

    return BLOCK.sub(renewed, page), wrong


def _console(body: str, folder: Path, names: dict[str, object], wrong: list[str]) -> str:
    """Runs each command by itself, and compares what it prints."""
    shown: list[str] = []
    for part in re.split(r"^(?=\$ )", body, flags=re.MULTILINE):
        if not part:
            continue
        command, _, want = part.partition("\n")
        words = shlex.split(command.removeprefix("$ "))
        start = {"cvm": [sys.executable, "-m", "cvm"], "python": [sys.executable]}.get(
            words[0], [words[0]]
        )
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        known = {
            **os.environ,
            "PYTHONPATH": path,
            "NO_COLOR": "1",
            "COLUMNS": "120",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            [*start, *words[1:]], cwd=folder, env=known, capture_output=True, text=True, timeout=300
        )
        shown.append(_compared(command, want, done.stderr + done.stdout, wrong))
    return "".join(shown)


def _pycon(body: str, folder: Path, names: dict[str, object], wrong: list[str]) -> str:
    """Runs the examples of a Python session, and compares what they print."""
    before = os.getcwd()
    os.chdir(folder)
    shown: list[str] = []
    try:
        for example in doctest.DocTestParser().get_examples(body):
            test = doctest.DocTest([example], names, "page", None, None, None)  # type: ignore[arg-type]
            test.globs = names
            runner = Recorder(Checker, verbose=False, optionflags=FLAGS)
            runner.run(test, clear_globs=False)
            source = "".join(
                f"{'... ' if i else '>>> '}{line}\n"
                for i, line in enumerate(example.source.splitlines())
            )
            found = (
                re.sub(r"(?<=last\):\n)(?: .*\n)+", "  ...\n", runner.printed)
                if runner.printed
                else example.want
            )
            shown.append(_compared(source.rstrip("\n"), example.want, found, wrong))
    finally:
        os.chdir(before)
    return "".join(shown)


def _compared(command: str, want: str, got: str, wrong: list[str]) -> str:
    if not Checker.check_output(want, got, FLAGS):
        wrong.append(f"{command}\nshows\n{want}\nand prints\n{got}")
        want = got
    return f"{command}\n{want}"


SESSIONS: dict[str, Callable[[str, Path, dict[str, object], list[str]], str]] = {
    "console": _console,
    "pycon": _pycon,
}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            page, wrong = run_page(Path(name).read_text("utf-8"), Path(folder))
        Path(name).write_text(page, "utf-8")
        print(f"{name}: {len(wrong)} renewed")
