"""Type checkers on a user's script: no complaint about its right lines, and one about each wrong
line.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import pydoc
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from cvm.jit.options import Stage, TargetName
from cvm.jit.targets import TARGETS, all_stages

import cvm

ROOT = Path(__file__).parents[3]
SCRIPT = """
import numpy as np

import cvm


@cvm.compile
def scale(x: np.ndarray, n: int = 2) -> np.ndarray:
    return x * n


@cvm.compile(target="reference", static_argnames="axis", like="numpy")
def largest(x: np.ndarray, axis: int) -> np.ndarray:
    return x.max(axis=axis)


class Model:
    @cvm.compile
    def forward(self, x: np.ndarray) -> np.ndarray:
        return x


PROGRAM = "func @main(%x: tensor<3xi32>) { %y = cvm.relu %x\\n return %y }"
y: np.ndarray = scale(np.ones(3), n=3)
z: np.ndarray = largest(y, 0)
z = Model().forward(z)
scale(y, out=np.empty(3))
program = cvm.compile(PROGRAM, target="cpu", convert=True)
text: str = program.lower("llvm")
module = cvm.parse(PROGRAM)
total = cvm.scan(lambda c, x: (c + x, c), 0.0, y)
slopes = cvm.vmap(cvm.grad(lambda x: x * x))(y)
scale(y, 1, 2, 3)  # wrong
scale()  # wrong
w: str = scale(y)  # wrong
cvm.compile(PROGRAM, target="gpu")  # wrong
cvm.compile(PROGRAM, like="torch")  # wrong
program.lower("machine code")  # wrong
"""
WRONG = {n for n, line in enumerate(SCRIPT.splitlines(), 1) if "# wrong" in line}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel lays it out, and the script beside it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "cvm", folder / "cvm")
    for room in ("dialect", "parser", "lowering", "jit", "grammar"):
        shutil.copytree(ROOT / room, folder / "cvm" / room)
    (folder / "script.py").write_text(SCRIPT, "utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("pyright"), reason="pyright is not installed")
def test_pyright(site: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "script.py",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=site, timeout=300)
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert {d["range"]["start"]["line"] + 1 for d in found if d["severity"] == "error"} == WRONG, (
        done.stdout
    )


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("mypy"), reason="mypy is not installed")
def test_mypy(site: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--follow-imports=silent",
        "--no-incremental",
        "script.py",
    ]
    environment = {**os.environ, "MYPYPATH": str(site)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=site, timeout=300, env=environment
    )
    assert {
        int(n) for n in re.findall(r"^script.py:(\d+): error", done.stdout, re.MULTILINE)
    } == WRONG, done.stdout


def test_literal_types_name_all_there_are() -> None:
    assert set(get_args(TargetName)) == {*TARGETS} and set(get_args(Stage)) == {*all_stages()}


def test_signatures_are_those_of_the_function_and_the_program() -> None:
    def scale(x: np.ndarray, n: int = 2) -> np.ndarray:
        """Multiply."""
        return x * n

    f = cvm.compile(scale)
    assert (
        inspect.signature(f) == inspect.signature(scale)
        and f.__doc__ == "Multiply."
        and f.__name__ == "scale"
    )
    g = cvm.compile("func @main(%x: tensor<3xi32>, %1: tensor<i32>) { return %x }")
    assert str(inspect.signature(g)) == "(x0: 'tensor<3xi32>', x1: 'tensor<i32>', /, *, out=None)"
    h = cvm.compile("func @main(%x: tensor<3xi32>) { return %x }")
    shown = pydoc.plain(pydoc.render_doc(h)).partition("\n")[2]
    assert (
        "@main(tensor<3xi32>) on cpu" in shown and "_" not in shown
    )  # a class has private attributes
    assert str(inspect.signature(h)) == "(x: 'tensor<3xi32>', *, out=None)"
