"""Random kernels that the verifier accepts give the interpreter's bits; `python -m tests.fuzz
--attack kernels` runs more.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tiers

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz.random_kernels import run, text_of


def test_accepted_kernels_give_what_they_say() -> None:
    count = 300 if tiers.everything else 30
    accepted = sum(run(text_of(f"kernel {n}".encode())) for n in range(count))
    assert accepted >= count // 10
