"""Random statements on slices of arrays that may overlap, and random calls of kernels, give what
Python gives on NumPy arrays.
"""

from __future__ import annotations

import linecache
import sys
from pathlib import Path

import tiers

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz import array_statements, kernel_calls


def test_statements_mean_what_numpy_does(tmp_path: Path) -> None:
    count = 300 if tiers.everything else 8
    accepted = 0
    for n in range(count):
        linecache.clearcache()
        folder = tmp_path / str(n)
        folder.mkdir()
        accepted += array_statements.run(f"statements {n}", folder)
    assert accepted >= count // 8


def test_calls_mean_what_python_does(tmp_path: Path) -> None:
    count = 300 if tiers.everything else 6
    accepted = 0
    for n in range(count):
        linecache.clearcache()
        folder = tmp_path / str(n)
        folder.mkdir()
        accepted += kernel_calls.run(f"calls {n}", folder)
    assert accepted >= count // 2
