"""Processes that may not do everything: make memory executable, or map much memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """func @main(%x: tensor<2xi32>) -> tensor<2xi32> {
  %y = cvm.elemwise_add %x, %x
  return %y
}
"""
# PR_SET_MDWE, which holds for what the process executes, too
MDWE = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    sys.exit(77)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
TRACED = """
import numpy as np
import cvm
try:
    cvm.compile(lambda x: x + 1)(np.ones(2))
except cvm.TargetError as e:
    print(e)
print(cvm.compile(lambda x: x + 1, target="reference")(np.ones(2)))
"""
REFUSED = (
    "machine code cannot be loaded: this process may not make memory executable, as by "
    "PR_SET_MDWE or SELinux: "
)
REFUSED += 'permission denied; target="reference" needs no machine code'


def without_executable_memory(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", MDWE, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "CVM_CACHE_DIR": ""},
    )
    if done.returncode == 77:
        pytest.skip("the kernel has no PR_SET_MDWE (Linux 6.3)")
    return done


def test_memory_that_may_not_become_executable(tmp_path: Path) -> None:
    (path := tmp_path / "a.cvm").write_text(PROGRAM)
    run = ("-m", "cvm", "run", str(path), "--input", "x=[1,2]", "--target")
    done = without_executable_memory(*run, "cpu")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {REFUSED}\n1 error\n"
    done = without_executable_memory(*run, "reference")
    assert (done.returncode, done.stderr) == (0, "") and "[2, 4]" in done.stdout


def test_traced_functions_without_executable_memory() -> None:
    done = without_executable_memory("-c", TRACED)
    assert (done.stdout, done.stderr) == (f"error: {REFUSED}\n[2. 2.]\n", "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS")
@pytest.mark.parametrize("command", [("check",), ("run", "--input", "x=[1,2]")])
def test_little_address_space(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A small program is read, compiled and run in 1 GB of addresses; OpenBLAS takes some for each
    processor, so it has one.
    """
    (path := tmp_path / "a.cvm").write_text(PROGRAM)
    limit = 1_000_000 << 10
    done = subprocess.run(
        [sys.executable, "-m", "cvm", *command[:1], str(path), *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert (done.returncode, done.stderr) == (0, "")
