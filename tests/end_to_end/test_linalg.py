"""`cvm lower --to linalg`: IREE, a compiler of others, takes it and gives our results: integers to the bit, floats within bounds."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from cvm.dialect.program.function import Graph
from cvm.dialect.spec.op import OPERATORS
from outcomes import arguments
from pages import ROOT
from tiers import some

import cvm

compiler = pytest.importorskip("iree.compiler")
runtime = pytest.importorskip("iree.runtime")

REFUSED = ("is not lowered to linalg", "linalg has no complex numbers")
BOUND = {np.dtype(np.float16): 4e-3, np.dtype(np.float32): 4e-6, np.dtype(np.float64): 1e-11}  # of the largest value


def by_iree(text: str, name: str, given: list[np.ndarray]) -> list[np.ndarray]:
    """The results of a function, compiled and run by IREE on one thread."""
    flags = ["--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"]
    code = compiler.compile_str(text, target_backends=["llvm-cpu"], extra_args=flags)
    context = runtime.SystemContext(config=runtime.Config("local-sync"))
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, code))
    found = context.modules.module[name](*given)
    return [f.to_host() for f in (found if isinstance(found, (tuple, list)) else (found,))]


def assert_agrees(program: str, given: list[np.ndarray] | None = None) -> bool:
    """Compares one function's results; False where it has no formula."""
    module = cvm.parse(program)
    function = module.functions.get("main") or list(module.functions.values())[-1]
    if isinstance(function, Graph):
        return False
    try:
        text = cvm.compile(module, function.name, "reference").lower("linalg")
    except cvm.TargetError as e:
        assert any(r in str(e) for r in REFUSED), e
        return False
    arrays = arguments(function, np.random.default_rng(0)) if given is None else given
    try:
        wanted: Any = cvm.compile(module, function.name)(*[a.copy() for a in arrays])
    except cvm.Error:  # sizes that do not fit each other
        return False
    for got, want in zip(by_iree(text, function.name, arrays), _all(wanted), strict=True):
        got = got.view(want.dtype) if got.dtype.itemsize == want.dtype.itemsize else got
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
        else:
            largest = np.abs(want[np.isfinite(want)]).max(initial=1)
            np.testing.assert_allclose(got, want, rtol=0, atol=BOUND[want.dtype] * largest)
    return True


def _all(found: Any) -> tuple[np.ndarray, ...]:
    return found if isinstance(found, tuple) else (found,)


def functions() -> list[str]:
    """The operators whose page has an example that is a function, without those of one clocked graph."""
    return sorted(name for name, op in OPERATORS.items() if op.example and "graph @" not in op.example)


@pytest.mark.parametrize("name", some(functions(), 24))
def test_an_operator(name: str) -> None:
    if not assert_agrees(dedent(OPERATORS[name].example).strip()):
        pytest.skip("it has no formula, or complex numbers")


def test_the_digits_network() -> None:
    network = cvm.load(ROOT / "examples" / "digits" / "digits.cvm")
    x = np.load(ROOT / "examples" / "digits" / "test.npz")["images"][:4].astype(np.int32)
    text = cvm.compile(network).lower("linalg")
    (found,) = by_iree(text, "main", [x])
    np.testing.assert_array_equal(found, cvm.compile(network)(x))


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    """Those of docs/mlir.md, after the installation; the last prints what the program gives."""
    (block,) = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "mlir.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    for command in block.splitlines()[1:]:
        tool, *rest = shlex.split(command)
        start = [sys.executable, "-m", "cvm"] if tool == "cvm" else [str(Path(sys.executable).parent / tool)]
        done = subprocess.run(
            [*start, *rest], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
        assert not done.returncode, done.stderr
    x, layer = np.array([[1, 2, 3], [-4, 5, 6]], np.int32), cvm.compile(ROOT / "examples" / "layer.cvm")
    rows = "".join(f"[{' '.join(map(str, row))}]" for row in layer(x))
    assert rows in done.stdout


def test_a_loop_without_a_formula_is_refused_by_name() -> None:
    program = dedent(OPERATORS["cvm.get_valid_count"].example).strip()
    with pytest.raises(cvm.TargetError, match="it is computed by loops, and has no formula") as found:
        cvm.compile(program).lower("linalg")
    assert "cvm.get_valid_count" in str(found.value)
