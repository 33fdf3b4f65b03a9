"""Probes at tokens say which tests reach them, and change nothing that the program computes."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz.reach import MODULE, NOTES, PROBES, expression, in_order, probed, reaching, seconds

PROGRAM = """\
def least(n: int, *more: int) -> int:
    é = [k for k in (n, *more) if k < 3 and k != 1]
    match n:
        case 2:
            return é[0 : n - 1][0]
    return (lambda a: a * 2)(n) if é else f"{n + 1}"


LIMIT = 40 + 2
"""


def place(token: str) -> tuple[int, int]:
    """The line and the byte of the only place of a text in the program."""
    assert PROGRAM.count(token) == 1
    before = PROGRAM[: PROGRAM.index(token)]
    return before.count("\n") + 1, len(before.rpartition("\n")[2].encode())


@pytest.mark.parametrize(
    ("token", "kind"),
    [
        ("< 3", "Compare"),
        ("3 and", "Constant"),
        ("and k", "BoolOp"),
        ("- 1", "BinOp"),
        ("* 2", "BinOp"),
        ("2:", None),
        ("+ 1", "IfExp"),
        ("*more: int", None),
    ],
)
def test_the_smallest_expression_that_a_probe_may_stand_at(token: str, kind: str | None) -> None:
    found = expression(PROGRAM, place(token))
    assert (None if found is None else type(found).__name__) == kind


def test_probes_note_the_test_that_reaches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = ["< 3", "3 and", "and k", "- 1", "* 2", "2:", "40 +", "+ 2"]
    text = probed(PROGRAM, {n: place(t) for n, t in enumerate(tokens)})
    assert text.count("\n") == PROGRAM.count("\n")  # what is told of lines still holds
    (tmp_path / f"{MODULE}.py").write_text(PROBES, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, MODULE, importlib.import_module(MODULE))  # and away with it
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    program: dict[str, Any] = {}
    exec(text, program)
    for test, arguments, wanted in (
        ("test_two", (2,), 2),
        ("test_five", (5, 0), 10),
        ("test_two", (2,), 2),
    ):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", f"test_it.py::{test} (call)")
        assert program["least"](*arguments) == wanted
    notes = (tmp_path / NOTES).read_text("utf-8").splitlines()
    assert len(notes) == len(set(notes))
    found, two, five = reaching(notes), "test_it.py::test_two", "test_it.py::test_five"
    assert [found[n] for n in range(5)] == [{two, five}, {two, five}, {two, five}, {two}, {five}]
    assert (
        set(found) == {*range(5), 6, 7} and not found[6] | found[7]
    )  # the latter while the module is imported, in no test


def test_the_cheapest_test_of_each_function_goes_first() -> None:
    times = seconds(
        "0.50s call     a.py::f[1]\n0.25s setup    a.py::f[1]\n0.10s call     a.py::f[2]\n"
        "3.00s call     b.py::g\n"
    )
    assert times == {"a.py::f[1]": 0.75, "a.py::f[2]": 0.1, "b.py::g": 3.0}
    tests = ["b.py::g", "a.py::f[1]", "a.py::f[2]"]
    assert in_order(tests, times, 10) == ["a.py::f[2]", "b.py::g", "a.py::f[1]"]
    assert in_order(tests, times, 3.5) == ["a.py::f[2]", "b.py::g"]
    assert in_order(tests, times, 0) == ["a.py::f[2]"]  # one at least
    assert in_order([], times, 10) == []
