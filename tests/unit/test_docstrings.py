"""Docstrings are sentences or noun phrases of the field: none begins with a question word, and
passes show their rewrite.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cvm.lowering.pipeline import PASSES

ROOT = Path(__file__).parents[2]
ROOMS = (
    "benchmarks",
    "cvm",
    "dialect",
    "docs",
    "examples",
    "grammar",
    "jit",
    "lowering",
    "parser",
    "tests",
)
HEADLESS = re.compile(r"(What|How|Where|Whether|Which|Who|Whose|Why|Of|So|That)\b")


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """The name and the docstring of a module, and of each class and function in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "name", "the module"), text


@pytest.mark.parametrize("room", ROOMS)
def test_no_docstring_opens_with_a_question_word(room: str) -> None:
    headless = [
        f"{path.relative_to(ROOT)}: {name}: {text.partition(chr(10))[0]}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for name, text in docstrings(path)
        if HEADLESS.match(text)
    ]
    assert not headless, (
        "begin with a verb, or with a noun phrase that names the thing:\n" + "\n".join(headless)
    )


# phrases that stand in the place of a name, and how many docstrings of a room still have one
VAGUE = re.compile(r"\b[Ww]hat (is|was|are|were)\b|\bso many\b|\bof them$|\bof them\.")
STILL_VAGUE = {
    "benchmarks": 11,
    "cvm": 33,
    "docs": 8,
    "examples": 1,
    "jit": 9,
    "lowering": 4,
    "parser": 2,
    "tests": 58,
}


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_name_what_they_are_about(room: str) -> None:
    vague = [
        f"{path.relative_to(ROOT)}: {name}: {match[0]}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for name, text in docstrings(path)
        if (match := VAGUE.search(" ".join(text.split())))
    ]
    assert len(vague) <= STILL_VAGUE.get(room, 0), "name the thing:\n" + "\n".join(vague)


@pytest.mark.parametrize("name", sorted(PASSES))
def test_the_module_of_a_pass_shows_its_rewrite(name: str) -> None:
    """The module of a pass is a file of its name, whose docstring has `before => after`."""
    files = [p for p in (ROOT / "lowering").rglob("*.py") if p.stem == name]
    assert len(files) == 1, f"{name}: {len(files)} files of this name"
    assert "=>" in (ast.get_docstring(ast.parse(files[0].read_text("utf-8"))) or ""), files[0]
