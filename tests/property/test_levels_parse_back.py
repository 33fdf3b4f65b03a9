"""The text of every level parses back, prints alike, and computes the same bytes, with arrays given
by their names: for every operator's example and samples, and for the programs in examples/.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance_cases import cases
from cvm.dialect.ir.function import Graph
from cvm.dialect.ir.module import Module
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.kernel_printer import array_names, plan_text
from cvm.dialect.spec.operator import OPERATORS
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.processor import compiling_for
from cvm.lowering.stages import at_stage, left_out
from cvm.parser.kernels import read_kernels
from operator_checks import program
from samples import SAMPLES
from tiers import some

import cvm
from cvm.terminal.arguments import random_arrays
from cvm.terminal.operator_pages import by_dialect
from cvm.terminal.read_program import compiled, read_level, warnings_of

ROOT = Path(__file__).parents[2]
OPS = sorted(op.name for members in by_dialect().values() for op in members)
FOLDERS = [ROOT / "examples", ROOT / "tests/filetests/builtin"]
PROGRAMS = sorted(
    p
    for folder in FOLDERS
    for p in folder.rglob("*.cvm")
    if "invalid" not in p.stem and p.parts[-2] not in ("tests", "passes")
)
STAGES = ("formulas", "loops", "schedule")
RECORDED = sorted({c["program"] for found in cases().values() for c in found if c["valid"]})
EXAMPLES = [OPERATORS[name].example for name in OPS]
FEW, SHARES = 120, 8  # programs of the quick tier, and tests that share them


def scheduled(text: str) -> Plan:
    """The kernels of a schedule, whose tiles that move back store again what others have stored:
    the verifier does not prove it of kernels from outside.
    """
    plan, _ = read_kernels(text, "text")
    for kernel in plan.all_kernels:
        check_kernel(kernel)
    return plan


def parses_back(f: Any, name: str, arrays: Sequence[np.ndarray], stage: str) -> None:
    """The text of a function at a stage gives the function's results, or fails where it does."""
    with compiling_for(f.compiled_for):
        lowered = at_stage(f.module, f.computed, stage)
    text = f.lower(stage)
    read = scheduled(text) if stage == "schedule" else read_level("text", text.encode())
    again = compiled(read, name, "cpu")
    if stage != "formulas":
        assert again.lower("loops") == text
    if stage == "loops":  # whose float sums are in the order of their terms
        again = compiled(scheduled(again.lower("schedule")), name, "cpu")
    given = left_out(lowered) | dict(
        zip((a.name for a in f.function.arguments), arrays, strict=True)
    )
    try:
        wanted = f(*map(np.copy, arrays))  # some are overwritten
    except cvm.Error:  # which need not be one of a kernel
        with suppress(cvm.Error):
            again(
                *(
                    _as_taken(given[a.name], a.known_type.array_shape)
                    for a in again.function.arguments
                )
            )
        return
    found = again(
        *(_as_taken(given[a.name], a.known_type.array_shape) for a in again.function.arguments)
    )
    results = found if isinstance(found, tuple) else (found,)
    if isinstance(lowered, Plan):
        names = array_names(lowered)
        known = {f"%{r.name}": y for r, y in zip(again.function.results, results, strict=True)}
        results = tuple(known[names[lowered.home.get(t, t)]] for t in lowered.results)
    for result, value in zip(
        results, wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        assert result.tobytes() == value.tobytes()


def _as_taken(array: np.ndarray, shape: Sequence[object]) -> np.ndarray:
    """Complex numbers as kernels take them: as pairs of floats."""
    if array.dtype.kind != "c" or len(shape) == array.ndim:
        return array
    return np.ascontiguousarray(array).reshape(*array.shape, 1).view(np.real(array).dtype)


def functions_parse_back(module: Module) -> None:
    for name, function in module.functions.items():
        if not isinstance(function, Graph) and name not in module.effects:
            f = cvm.compile(module, name)
            for stage in STAGES:
                parses_back(f, name, random_arrays(function, 0), stage)


@pytest.mark.parametrize("name", some(OPS, 30))
def test_example_of_operator(name: str) -> None:
    functions_parse_back(cvm.parse(OPERATORS[name].example, f"{name}.cvm"))


@pytest.mark.filterwarnings("ignore:.*trimmed")
@pytest.mark.parametrize("share", range(SHARES))
def test_loops_are_accepted_unchanged_and_without_warning(share: int) -> None:
    wrong = []
    for text in [*EXAMPLES, *some(RECORDED, FEW)][share::SHARES]:
        module = cvm.parse(text)
        for name in module.functions.keys() - module.effects:
            loops = cvm.compile(module, name, "reference").lower("loops")
            try:
                plan = read_level("text", loops.encode())
                said = [d.message for d in warnings_of(plan)]
                if not isinstance(plan, Plan) or plan_text(plan) != loops:
                    said.append("its text differs")
            except cvm.Error as e:
                said = [str(e)]
            wrong += [f"{message}\n{text}" for message in said]
    assert wrong == []


@pytest.mark.parametrize("path", some(PROGRAMS, 4), ids=lambda p: str(p.relative_to(ROOT)))
def test_program(path: Path) -> None:
    functions_parse_back(cvm.load(path))


@pytest.mark.parametrize("unknown_sizes", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("name", some(sorted(SAMPLES), 3))
def test_sample_of_operator(name: str, unknown_sizes: bool) -> None:
    for seed in range(1):
        try:
            module, arrays = program(SAMPLES[name](np.random.default_rng(seed)), unknown_sizes)
        except cvm.VerifyError:
            continue
        f = cvm.compile(module)
        for stage in STAGES:
            parses_back(f, "main", arrays, stage)
