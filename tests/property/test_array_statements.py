"""Random statements on slices of arrays that may overlap, and random calls of kernels, give what
Python gives on NumPy arrays.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import tiers

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz import array_statements, kernel_calls


@pytest.mark.parametrize(
    ("run", "seed", "quick", "refused"),
    [
        (array_statements.run, "statements", 8, 8),
        (kernel_calls.run, "calls", 6, 2),
        (partial(kernel_calls.run, target="cpu"), "traced calls", 4, 2),
        (partial(kernel_calls.run, target="reference"), "traced calls", 4, 2),
        (partial(kernel_calls.run, target="cuda-sim"), "traced calls", 2, 2),
    ],
    ids=["statements", "calls", "traced", "traced-reference", "traced-cuda-sim"],
)
def test_programs_mean_what_python_does(
    run: Callable[[str, Path], bool], seed: str, quick: int, refused: int, tmp_path: Path
) -> None:
    """At least one program of `refused` is accepted."""
    count = 300 if tiers.everything else quick
    accepted = 0
    for n in range(count):
        linecache.clearcache()
        folder = tmp_path / str(n)
        folder.mkdir()
        accepted += run(f"{seed} {n}", folder)
    assert accepted >= count // refused
