"""Every command of every file under filetests/ is a test. `pytest --update-golden` writes the golden lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from filetest_runner import GOLDENS, Filetest, passes, perform

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.rglob("*.cvm"))
ITEMS = [(path, command) for path in FILES for command in Filetest.load(path).commands]


@pytest.mark.parametrize(("path", "command"), ITEMS, ids=[f"{p.relative_to(FOLDER)}:{c}" for p, c in ITEMS])
def test(path: Path, command: str, update_golden: bool) -> None:
    perform(Filetest.load(path), command, update_golden)


@pytest.mark.parametrize("name", passes())
def test_every_pass_has_a_golden(name: str) -> None:
    """A pass of `cvm opt --list` has a filetest of its name in passes/, whose golden lines show the rewrite."""
    path = FOLDER / "passes" / f"{name}.cvm"
    assert path.exists(), f"{path} is missing: a small input and `// test {name}`; --update-golden writes the rest"
    assert name in Filetest.load(path).commands, f"{path} has no line `// test {name}`"


def test_expectations_are_tested() -> None:
    """Every expectation of a file is checked by one of its commands."""
    needs = {
        "// run:": {"run"},
        "// error:": {"check"},
        "// warning:": {"overflow"},
        "// check": {"llvm-opt", "asm"},
        "//>": set(GOLDENS),
    }
    for path in FILES:
        test = Filetest.load(path)
        assert test.commands, f"{path} has no `// test` line"
        for mark, commands in needs.items():
            if any(mark in line for line in test.lines):
                assert commands & set(test.commands), (
                    f"{path}: `{mark}` without `// test {'` or `// test '.join(sorted(commands))}`"
                )
