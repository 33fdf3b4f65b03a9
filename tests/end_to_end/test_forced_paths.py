"""A sample of the recorded cases holds on every path that native code can take; with --every-case
all of them have to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path as File
from typing import Any

import pytest
from conformance_cases import Case, arrays, cases, compiled, failure
from cvm.jit.functions import codegen_units, native_function
from cvm.jit.llvm import native_code
from cvm.lowering.processor import processor
from forced_paths import PATHS, Path

ROOT = File(__file__).parents[2]
SAMPLE = 24  # cases of a dialect on each path, others on each,
FEW = 4  # and fewer of those that only some operators' cases take
SHARES = 4  # of a dialect's cases, to be run beside each other or one after the other
DIALECTS = "cog", "cvm", "dali", "theano"
WAYS = [
    pytest.param(
        name,
        dialect,
        share,
        id=f"{name}-{dialect}-{share}",
        marks=[pytest.mark.slow] if share else [],
    )
    for dialect in DIALECTS
    for share in range(SHARES)
    for name, path in PATHS.items()
    if not path.only or any(op.partition(".")[0] == dialect for op in path.only)
]
TRIMMED = r"ignore:.*\[cog\.feedback\.trimmed\]"  # some cases have drivers that are
SEEN = [name for name, path in PATHS.items() if path.seen]


@pytest.fixture(scope="module", autouse=True)
def code_made_once() -> Iterator[None]:
    """Cache LLVM's code by its text and processor, shared by all paths: half of the time."""
    real = native_code.fresh_object_code
    make = lru_cache(maxsize=1 << 12)(
        lambda text, pipeline, passes, cpu: real(text, pipeline, passes)
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (native_code, codegen_units, native_function):
            patch.setattr(
                module,
                "fresh_object_code",
                lambda text, pipeline="few", passes=True: make(
                    text, pipeline, passes, processor().cpu
                ),
            )
        yield


def failures(
    path: Path, dialect: str, every: int = 1, first: int = 0, share: int = 0, shares: int = 1
) -> tuple[int, list[str]]:
    """The number of a share of a dialect's cases on this path, and the failures of some."""
    known = dict(arrays(dialect))
    found = [
        c
        for op, some in cases().items()
        if op.partition(".")[0] == dialect and op in (path.only or (op,))
        for c in some
    ]
    wrong, count = [], 0
    for case in found[first % every :: every][share::shares]:
        other = path.rewritten(case, known)
        if other is None:
            continue
        function = compiled(other, "cpu", path.optimize)
        if path.kept:
            function = compiled(other, "cpu", path.optimize)
        count += 1

        def called(*given: Any, function: Any = function, case: Case = other) -> Any:
            return path.called(function, list(given), case)

        played = isinstance(function, Exception) or "script" in other
        said = failure(other, known, function if played else called)
        if said is not None:
            wrong.append(f"{case['id']}: {said}\n{other['program']}")
    return count, wrong


@pytest.mark.sample(40)
@pytest.mark.filterwarnings("error", TRIMMED)
@pytest.mark.parametrize("name, dialect, share", WAYS)
def test(
    name: str, dialect: str, share: int, tmp_path: File, request: pytest.FixtureRequest
) -> None:
    path = PATHS[name]
    total = sum(
        len(some)
        for op, some in cases().items()
        if op.partition(".")[0] == dialect and op in (path.only or (op,))
    )
    every = (
        1 if request.config.getoption("--every-case") else total // (FEW if path.only else SAMPLE)
    )
    with path.taken(tmp_path):
        count, wrong = failures(path, dialect, every, 7 * list(PATHS).index(name), share, SHARES)
    if not count:
        pytest.skip("no case can be written so")
    assert not wrong, f"{len(wrong)} of {count} cases do not hold\n\n" + "\n".join(wrong)


def test_settings_are_made_wherever_they_are_looked_up() -> None:
    """A module that has a name from another one does not see what is set there."""
    also: dict[str, set[str]] = {}
    for file in (f for room in ("lowering", "jit") for f in (ROOT / room).rglob("*.py")):
        own = ["cvm", *file.relative_to(ROOT).with_suffix("").parts]
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level and node.module:
                origin = ".".join([*own[: -node.level], node.module])
                for alias in node.names:
                    also.setdefault(f"{origin}.{alias.name}", set()).add(
                        ".".join([*own, alias.name])
                    )
    for name, path in PATHS.items():
        missing = (
            set().union(*(also.get(setting, ()) for setting in path.settings))
            - path.settings.keys()
        )
        assert not missing, f"{name}: {sorted(missing)}"


@pytest.mark.sample(10)
@pytest.mark.filterwarnings(TRIMMED)
@pytest.mark.parametrize("name", SEEN)
def test_is_taken(name: str, tmp_path: File) -> None:
    """By some recorded case, and by none as costs say."""
    path, known = PATHS[name], dict(arrays(PATHS[name].of.partition(".")[0]))
    found = [case for case in cases()[path.of] if case["valid"]]
    assert not any(path.seen in _schedule(case["id"]) for case in found)
    with path.taken(tmp_path):
        others = (path.rewritten(case, known) for case in found)
        assert any(_shows(path, case) for case in others if case is not None)


@lru_cache(maxsize=1 << 12)
def _schedule(name: str) -> str:
    """The kernels of a recorded case as costs say."""
    (case,) = (c for some in cases().values() for c in some if c["id"] == name)
    return compiled(case, "cpu").lower("schedule")


def _shows(path: Path, case: Case) -> bool:
    return path.seen in compiled(case, "cpu").lower("schedule")
