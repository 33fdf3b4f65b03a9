"""docs/spine.md lists all that compiles and calls a dense layer without optimization, and that is
little.
"""

from __future__ import annotations

import re

import pytest
from spine import PAGE, ROOT, entered, entries, entry, statements_of, updated

LARGEST_FILES = 60
MOST_STATEMENTS = 2686  # 2650 while tuple assignments held 36 unrelated values
HOW = (
    "python -m pytest tests/end_to_end/test_spine.py --cvm-bless lists it; say in a sentence "
    "or two what it is there for"
)


@pytest.fixture(scope="module")
def page(request: pytest.FixtureRequest) -> str:
    text = PAGE.read_text("utf-8")
    if request.config.getoption("--cvm-bless"):
        text = updated(text)
        PAGE.write_text(text, "utf-8")
    return text


def test_what_is_entered_is_listed_and_nothing_else(page: str) -> None:
    listed = {file: functions for file, functions, _ in entries(page)}
    assert len(listed) == len(list(entries(page))), "a file is listed twice"
    now = entered()
    more = {
        file: [f for f in functions if f not in listed.get(file, ())]
        for file, functions in now.items()
    }
    less = {
        file: [f for f in functions if f not in now.get(file, ())]
        for file, functions in listed.items()
    }
    assert not any(more.values()), (
        f"entered, but not listed: { {f: m for f, m in more.items() if m} }\n{HOW}"
    )
    assert not any(less.values()), (
        f"listed, but not entered: { {f: m for f, m in less.items() if m} }\n{HOW}"
    )
    assert listed == now, "the functions stand in the order of their files"


def test_every_file_is_described_in_a_sentence_or_two(page: str) -> None:
    for file, _, prose in entries(page):
        sentences = re.split(r"(?<=[.!?]) +(?=[A-Z`])", prose)
        assert prose.endswith(".") and 1 <= len(sentences) <= 2 and "TODO" not in prose, (
            f"{file}: {prose}"
        )


def test_it_can_be_read_in_an_afternoon(page: str) -> None:
    found = list(entries(page))
    statements = {
        file: sum(statements_of(file)[f] for f in functions) for file, functions, _ in found
    }
    assert len(found) <= LARGEST_FILES, f"{len(found)} files"
    total = sum(statements.values())
    assert total <= MOST_STATEMENTS, f"{total} statements: {statements}"
    assert len(found) > 40 and total > 1000, "the trace has missed most of it"


def test_an_update_changes_only_functions(page: str) -> None:
    assert updated(page) == page
    file, functions, prose = next(entries(page))
    stale = page.replace(entry(file, functions, prose), entry(file, ["gone"], prose), 1)
    assert stale != page and updated(stale) == page
    assert (ROOT / file).exists()
