"""A sample of the recorded cases holds on every path that native code can take; with --slow all of them have to."""

from __future__ import annotations

from pathlib import Path as File
from typing import Any

import pytest
from cases import arrays, cases, compiled, failure
from paths import PATHS, Path

SAMPLE = 24  # cases of a dialect on each path, others on each
SEEN = [name for name, path in PATHS.items() if path.seen]


def failures(path: Path, dialect: str, every: int = 1, first: int = 0) -> tuple[int, list[str]]:
    """How many cases of a dialect went this way, and what is wrong with some."""
    known = arrays(dialect)
    found = [c for op, some in cases().items() if op.partition(".")[0] == dialect for c in some]
    wrong, count = [], 0
    for case in found[first % every :: every]:
        other = path.rewritten(case, known)
        if other is None:
            continue
        function = compiled(other, "cpu")
        if path.kept:
            function = compiled(other, "cpu")
        count += 1

        def called(*given: Any, function: Any = function) -> Any:
            return path.called(function, list(given))

        played = isinstance(function, Exception) or "script" in other
        said = failure(other, known, function if played else called)
        if said is not None:
            wrong.append(f"{case['id']}: {said}\n{other['program']}")
    return count, wrong


@pytest.mark.filterwarnings("error", r"ignore:.*\[cog\.feedback\.trimmed\]")
@pytest.mark.parametrize("dialect", ["cog", "cvm", "dali", "theano"])
@pytest.mark.parametrize("name", PATHS)
def test(name: str, dialect: str, tmp_path: File, request: pytest.FixtureRequest) -> None:
    path = PATHS[name]
    total = sum(len(some) for op, some in cases().items() if op.partition(".")[0] == dialect)
    every = 1 if request.config.getoption("--slow") else total // SAMPLE
    with path.taken(tmp_path):
        count, wrong = failures(path, dialect, every, 7 * list(PATHS).index(name))
    if not count:
        pytest.skip("no case can be written so")
    assert not wrong, f"{len(wrong)} of {count} cases do not hold\n\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", SEEN)
def test_is_taken(name: str, tmp_path: File) -> None:
    path, known = PATHS[name], arrays("cvm")
    with path.taken(tmp_path):
        found = (path.rewritten(case, known) for case in cases()["cvm.conv2d"] if case["valid"])
        assert any(path.seen in compiled(case, "cpu").lower("schedule") for case in found if case is not None)
