"""Each statement of docs/robustness.md names a test that exists; so does SECURITY.md."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["docs/robustness.md", "SECURITY.md"]


@pytest.mark.parametrize("page", PAGES)
def test_listed_tests_exist(page):
    listed = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / page).read_text("utf-8"))
    assert len(listed) > 5
    for file, name in listed:
        assert (ROOT / file).exists(), file
        assert not name or f"def {name}(" in (ROOT / file).read_text("utf-8"), name


def test_each_statement_names_its_test():
    rows = re.findall(
        r"^\| (?!.*\| test \|$)(.*) \|$",
        (ROOT / "docs/robustness.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert len(rows) > 30
    assert all(re.search(r" \| `tests/[\w/]+\.py::\w+`$", row) for row in rows)
