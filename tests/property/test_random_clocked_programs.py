"""Random graphs: on the CPU, optimized or not, in one call or many, every state and probe has the
bits that the definitions give.
"""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import Program, set_up


@pytest.mark.sample(15)
@pytest.mark.filterwarnings("ignore:.*trimmed")
@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed: int) -> None:
    program = Program(seed)
    reference, one, many = (set_up(program.text, target) for target in ("reference", "cpu", "cpu"))
    plain = set_up(program.text, "cpu", optimize=0)
    for ticks in (0, 1, 2, 5):
        reference.step(ticks)
        many.step(ticks)
        plain.step(ticks)
        for _ in range(ticks):
            one.step()
        for name in reference.names:
            wanted = reference.read(name)
            for graph in (one, many, plain):
                np.testing.assert_array_equal(
                    graph.read(name), wanted, f"{name} at {ticks}\n{program.text}", strict=True
                )
