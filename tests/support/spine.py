"""docs/spine.md, and what it is held against: the functions that compile and call a dense layer
without optimization.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spine.md"
ELEMENTS = "i32", "f32"
ENTRY = re.compile(
    r"- \[`(?P<file>[^`]+)`\]\(\.\./(?P=file)\): (?P<functions>`[^`]+`(?:, `[^`]+`)*)\. "
    r"(?P<prose>.+)"
)
ITEM = re.compile(r"^- (?:.+\n)+?(?=\n|- |\Z)", re.MULTILINE)
Listed = dict[str, list[str]]  # functions, in the order of their file, by file


def entries(page: str) -> Iterator[tuple[str, list[str], str]]:
    """The entries of the page: a file, its functions, and what is said of them."""
    for item in ITEM.findall(page):
        found = ENTRY.fullmatch(" ".join(item.split()))
        assert found, f"no entry: {item}"
        yield found["file"], found["functions"].strip("`").split("`, `"), found["prose"]


def entry(file: str, functions: list[str], prose: str) -> str:
    """The text of an entry."""
    text = f"- [`{file}`](../{file}): {', '.join(f'`{f}`' for f in functions)}. {prose}"
    options = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, 128, subsequent_indent="  ", **options) + "\n"


@cache
def entered() -> Listed:
    """The functions that compiling and calling enter, by file."""
    found: Listed = {}
    for element in ELEMENTS:
        script = [sys.executable, str(Path(__file__).with_name("spine_trace.py")), element]
        environment = {**os.environ, "CVM_CACHE_DIR": "", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=600)
        assert not done.returncode, done.stderr
        for file, function in json.loads(done.stdout):
            found.setdefault(file, []).append(function)
    return {
        file: [f for f in statements_of(file) if f in functions]
        for file, functions in found.items()
    }


@cache
def statements_of(file: str) -> dict[str, int]:
    """The functions and methods of a file in its order, and the number of statements of each."""
    found: dict[str, int] = {}

    def look(node: ast.AST, scope: str) -> None:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.ClassDef():
                    look(child, f"{scope}{child.name}.")
                case ast.FunctionDef():
                    found[f"{scope}{child.name}"] = sum(
                        isinstance(node, ast.stmt) for node in ast.walk(child)
                    )
                case ast.Lambda():
                    found[f"{scope}<lambda>"] = 1
                case _:
                    look(child, scope)

    look(ast.parse((ROOT / file).read_text("utf-8")), "")
    return found


def updated(page: str) -> str:
    """The page with the functions that are entered; a file that is new comes last, for somebody to
    place and describe.
    """
    now, kept = entered(), []

    def again(item: re.Match[str]) -> str:
        ((file, _, prose),) = entries(item[0])
        kept.append(file)
        return entry(file, now[file], prose) if file in now else ""

    page = ITEM.sub(again, page)
    return page + "".join(
        entry(file, functions, "TODO.") for file, functions in now.items() if file not in kept
    )
