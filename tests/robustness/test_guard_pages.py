"""Memory beyond the arrays of callers is not touched: arrays lie beside pages whose access ends the
process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import conformance_cases
import guard_pages
import numpy as np
import pytest
from guard_pages import PAGE, guarded, guarded_empty

ROOT = Path(__file__).parents[2]
TOUCH = """
import sys
sys.path[:0] = ["tests/support", "."]
import numpy as np
from guard_pages import guarded
array = guarded(np.arange(5, dtype=np.int32), at_end={at_end})
print("made", flush=True)
(np.lib.stride_tricks.as_strided(array, (6,)) if {at_end} else np.lib.stride_tricks.as_strided(array[::-1], (6,)))[5] = 1
"""
PLANTED = """
import sys
sys.path[:0] = ["tests/support", "tests/robustness", "."]
import numpy as np
import pytest
import cvm
from guard_pages import guarded
from test_sanitize import ROWS, longer, plant
patch = pytest.MonkeyPatch()
x, v = np.ones((64, 64), np.float32), np.ones(64, np.float32)
given = guarded(x, True), guarded(v, True)
assert (cvm.compile(ROWS)(*given) == 0).all()
plant(patch, "kernel_condition_to_branch", longer)
patch.setenv("CVM_CACHE_DIR", "")
f = cvm.compile(ROWS)
print("made", flush=True)
f(*given)
"""


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("shape", [(5,), (0, 3), (33, 65), ()])
def test_arrays_lie_beside_a_page(shape: tuple[int, ...], at_end: bool) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)
    made = guarded(array, at_end)
    np.testing.assert_array_equal(made, array, strict=True)
    assert made.flags.writeable and (made.ctypes.data + at_end * made.nbytes) % PAGE == 0
    assert guarded_empty(shape, np.dtype(np.int8)).shape == shape


@pytest.mark.parametrize(
    "script",
    [TOUCH.format(at_end=True), TOUCH.format(at_end=False), PLANTED],
    ids=["after the end", "before the beginning", "a loop that is too long"],
)
def test_a_touched_page_ends_the_process(script: str, tmp_path: Path) -> None:
    known = {**os.environ, "CVM_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=known,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.stdout, done.returncode) == ("made\n", -11), done.stderr


@pytest.mark.parametrize("open_every", [0, 1, 2])
def test_arrays_of_conformance_cases_lie_beside_pages(
    monkeypatch: pytest.MonkeyPatch, open_every: int
) -> None:
    made, opened = [], []
    monkeypatch.setattr(guard_pages, "open_every", open_every)
    monkeypatch.setattr(
        guard_pages, "guarded_empty", lambda *given: made.append(given) or guarded_empty(*given)
    )
    monkeypatch.setattr(conformance_cases, "with_open_sizes", lambda text: opened.append(text))
    chosen = [c for c in conformance_cases.cases()["dali.add"] if c["valid"]][:8]
    with guard_pages.beside(True):
        for case in chosen:
            function = conformance_cases.compiled(case, "cpu")
            assert (
                conformance_cases.failure(case, conformance_cases.arrays("dali"), function) is None
            )
    assert len(made) == sum(3 * len(c["inputs"]) + len(c["outputs"]) for c in chosen)
    assert (
        len(opened) == len(chosen)
        if open_every == 1
        else 0 < len(opened) < len(chosen)
        if open_every
        else not opened
    )
