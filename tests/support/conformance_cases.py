"""The conformance cases: programs with the arrays they are given and must return, recorded from
other implementations.

A line of `conformance/DIALECT.jsonl` is a case; `DIALECT.npz` holds its arrays by name. A case that
is not valid has to be rejected, when it is compiled or when it is called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import guard_pages
import numpy as np
from batched_nvrtc import MANY, compile_together
from cvm.jit.functions.clocked_program import CompiledGraph
from tiers import some

import cvm
from cvm.commands.diff import Side, explain

FOLDER = Path(__file__).parents[1] / "conformance"
OPERATORS = re.compile(r"(?<![!\w.])(?:cvm|dali|theano|cog)\.\w+")
Case = dict[str, Any]


@cache
def cases() -> dict[str, list[Case]]:
    """All cases, by operator."""
    found: dict[str, list[Case]] = {}
    for path in sorted(FOLDER.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            case = json.loads(line)
            found.setdefault(operator(case), []).append(case)
    return found


def operator(case: Case) -> str:
    """The operator of a case: the one it names, or the last one of its program if it names a symbol
    or a topic.
    """
    used = OPERATORS.findall(case["program"])
    return case["op"] if case["op"] in used or not used else used[-1]


def operators(case: Case) -> set[str]:
    """All that a case's program uses."""
    return {operator(case), *OPERATORS.findall(case["program"])}


@cache
def arrays(dialect: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f"{dialect}.npz") as archive:
        return {name: archive[name] for name in archive.files}


def failures(op: str, target: str, quick: int = 1 << 30) -> Iterator[str]:
    """The operator's cases that do not hold on a target, each with what is wrong; in the quick tier
    only some are tried.
    """
    known, chosen = arrays(op.partition(".")[0]), some(cases()[op], quick)
    for n in range(0, len(chosen), MANY):
        made = [(case, compiled(case, target)) for case in chosen[n : n + MANY]]
        if target == "cuda-sim":
            compile_together(source(f) for _, f in made if not isinstance(f, Exception))
        for case, f in made:
            if (wrong := failure(case, known, f)) is not None:
                yield (
                    f"{case['id']}: {wrong}\n{case['program']}\n{first_wrong(case, target, known)}"
                )


def source(f: Any) -> str:
    """The CUDA C of a function, which keeps it, or of a clocked program."""
    return f.lower("cuda") if isinstance(f, CompiledGraph) else f.source.text


def first_wrong(case: Case, target: str, known: dict[str, np.ndarray]) -> str:
    """The first operation whose values are not those of the reference, where the case is a call."""
    if "script" in case or not case["valid"] or target == "reference":
        return ""
    try:
        sides = [Side(t, "main", cvm.parse(case["program"]), t) for t in (target, "reference")]
        return explain(*sides, [known[n] for n in case["inputs"]])
    except Exception as e:
        return f"no operation to blame: {type(e).__name__}: {e}"


def compiled(case: Case, target: str, optimize: int = 2, sanitize: bool = False) -> Any:
    """The case's program, or why there is none."""
    try:
        return cvm.compile(case["program"], target=target, optimize=optimize, sanitize=sanitize)
    except Exception as e:
        return e


def failure(case: Case, known: dict[str, np.ndarray], function: Any) -> str | None:
    given = [copied(known[name]) for name in case["inputs"]]
    try:
        if isinstance(function, Exception):
            raise function
        if "script" in case:
            returned = played(function, case)
        elif guard_pages.enabled and case["valid"]:
            returned = guarded_call(function, case, known, given)
        else:
            returned = function(*given)
    except cvm.Error as e:
        return f"it is rejected: {e}" if case["valid"] else None
    except Exception as e:
        return f"it raises {type(e).__name__}: {e}"
    if not case["valid"]:
        return f"it is accepted, but should be rejected: {case['why']}"
    results = returned if isinstance(returned, tuple) else (returned,)
    if len(results) != len(case["outputs"]):
        return f"it gives {len(results)} results, not {len(case['outputs'])}"
    for result, name in zip(results, case["outputs"], strict=True):
        wrong = differs(result, known[name], case)
        if wrong is not None:
            return wrong
    for array, name in zip(given, case.get("after", ()), strict=False):
        if not np.array_equal(array, known[name], equal_nan=array.dtype.kind in "fc"):
            return "an argument does not hold afterwards what it should"
    return None


def copied(array: np.ndarray) -> np.ndarray:
    """A copy, beside a page that may not be touched where that is asked for."""
    return guard_pages.guarded(array) if guard_pages.enabled else array.copy()


def guarded_call(
    function: Any, case: Case, known: dict[str, np.ndarray], given: list[np.ndarray]
) -> Any:
    """The results of a call in guarded arrays. A batch gives the same, and so does the program
    whose sizes are left open.
    """
    afresh = lambda: [copied(known[name]) for name in case["inputs"]]  # noqa: E731
    plain = function(*afresh())
    results = plain if isinstance(plain, tuple) else (plain,)
    out = tuple(guard_pages.guarded_empty(r.shape, r.dtype) for r in results)
    found = (
        function(*given)
        if "after" in case
        else function(*given, out=out if isinstance(plain, tuple) else out[0])
    )
    calls = [function.batch(*([a] for a in afresh()))[0]] if given else []
    if (
        guard_pages.sizes_are_left_open(case["id"])
        and (general := with_open_sizes(case["program"])) is not None
    ):
        calls.append(general(*afresh()))
    for call in calls:
        for one, other in zip(call if isinstance(call, tuple) else (call,), results, strict=True):
            np.testing.assert_array_equal(one, other)
    return found


def with_open_sizes(program: str) -> Any:
    """The compiled program for arguments of any sizes but 1, by which theano broadcasts; None where
    that is no program.
    """
    try:
        return None if (text := opened(program)) is None else cvm.compile(text)
    except cvm.Error:
        return None


def opened(program: str) -> str | None:
    """The text for arguments of any sizes but 1; None where all are 1 or unknown."""
    head, main, rest = program.partition("func @main(")
    end = next(
        (n for n in range(len(rest)) if rest[: n + 1].count(")") > rest[: n + 1].count("(")), 0
    )
    arguments = re.sub(r"(?<=[<x])(?!1x)\d+(?=x)", "?", rest[:end])
    if arguments == rest[:end]:
        return None
    return head + main + arguments + re.sub(r"^\)\s*->[^{]*\{", ") {", rest[end:])


def played(graph: Any, case: Case) -> tuple[np.ndarray, ...]:
    """The readings of a clocked program during a script, stacked; a single reading by itself."""
    seen: dict[str, list[np.ndarray]] = {name: [] for name in case["reads"]}
    for command, *arguments in case["script"]:
        if command == "read":
            for name, values in seen.items():
                values.append(graph.read(name))
        else:
            getattr(graph, command)(*arguments)
    wanted = [known.shape for known in (arrays("cog")[n] for n in case["outputs"])]
    once = all(
        len(v) == 1 and v[0].shape == shape for v, shape in zip(seen.values(), wanted, strict=True)
    )
    return tuple(v[0] if once else np.stack(v) for v in seen.values())


def differs(got: np.ndarray, wanted: np.ndarray, case: Case) -> str | None:
    """A message about the first difference of a result from the case, within the case's
    tolerance.
    """
    if got.shape != wanted.shape:
        return f"the shape is {got.shape}, not {wanted.shape}"
    if case.get("dtype_matters", True) and got.dtype != wanted.dtype:
        return f"the type is {got.dtype}, not {wanted.dtype}"
    tolerance = case["tolerance"]
    if tolerance == "exact":
        same = got == wanted
        if wanted.dtype.kind in "fc":
            same |= np.isnan(got) & np.isnan(wanted)
    else:
        bound = tolerance if isinstance(tolerance, dict) else {"rtol": tolerance, "atol": 0.0}
        if (
            bound["atol"] == 0.0 and wanted.dtype == np.float32
        ):  # a result in single precision was recorded as such
            bound = {"rtol": max(bound["rtol"], 1e-6), "atol": 1e-37}
        with np.errstate(all="ignore"):
            same = np.isclose(got.astype(wanted.dtype), wanted, equal_nan=True, **bound)
    if np.all(same):
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"at {list(at)} it is {got[at].item()!r}, not {wanted[at].item()!r}"
