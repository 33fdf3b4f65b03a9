"""The contract of docs/robustness.md and SECURITY.md: each row names tests, which exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("docs/robustness.md", "SECURITY.md")
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
ROW = re.compile(r"^\|(?!---)(.+)\|$", re.MULTILINE)


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return {
        n.name
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")
    }


@pytest.mark.parametrize("page", PAGES)
def test_the_tests_that_it_names_exist(page):
    named = NAMED.findall((ROOT / page).read_text("utf-8"))
    assert len(named) > 5
    for file, name in named:
        assert (ROOT / file).is_file(), file
        assert not name or name in functions_of(file), f"{file}::{name}"


def test_every_row_names_a_test():
    rows = ROW.findall((ROOT / "docs/robustness.md").read_text("utf-8"))
    heads = [row for row in rows if row.rpartition("|")[2].strip() == "test"]
    assert len(heads) > 8
    assert [
        row for row in rows if row not in heads and not NAMED.search(row.rpartition("|")[2])
    ] == []
