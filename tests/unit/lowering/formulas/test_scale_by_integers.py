"""Scaled integers that are rounded by integers: the bits of f64, where processors have no
instructions for that.
"""

from __future__ import annotations

import numpy as np
import pytest
from cvm.dialect.types.tensor_types import I32
from cvm.lowering.processor import NAMED, Processor, named

import cvm

RANDOM = np.random.default_rng(0)
SCALES = {
    "of models": [0.00043933166118009364, 0.003, 1.7e-5, 0.0073, 0.1, 0.9, 1.3, 17.0],
    "with halves": [0.5, 0.25, 2.0**-10, 1.5, 2.0**-24],
    "at random": np.exp(RANDOM.uniform(-12, 4, 40)).tolist(),
    "tiny": [2.0**-40, 1e-300, *np.exp(RANDOM.uniform(-24, -12, 10)).tolist()],
}


def program(scales: list[float], low: float, high: float, count: int) -> str:
    """A row of integers for each scale."""
    return f"""func @main(%x: tensor<{len(scales)}x{count}xi32>) -> tensor<{len(scales)}x{count}xi32> {{
  %m = const dense<{[[s] for s in scales]}> : tensor<{len(scales)}x1xf64>
  %0 = theano.elemwise %x {{scalar_op = "cast", dtype = f64}}
  %1 = theano.elemwise %0, %m {{scalar_op = "mul"}}
  %2 = theano.elemwise %1 {{scalar_op = "round_half_away_from_zero"}}
  %3 = theano.elemwise %2, {low} : f64 {{scalar_op = "maximum"}}
  %4 = theano.elemwise %3, {high} : f64 {{scalar_op = "minimum"}}
  %y = theano.elemwise %4 {{scalar_op = "cast", dtype = i32}}
  return %y
}}
"""


def near_steps(scale: float, low: int, high: int) -> np.ndarray:
    """The integers around those from which the result is another one, and the ends of the type."""
    steps = (np.arange(low - 2, high + 3) + 0.5) / scale
    found = np.concatenate([np.clip(steps, *I32.limits).astype(np.int64) + n for n in range(-2, 3)])
    found = np.concatenate([found, I32.limits, RANDOM.integers(*I32.limits, 50)])
    return np.clip(found, *I32.limits).astype(np.int32)


@pytest.mark.parametrize(("low", "high"), [(-142, 113), (0, 255)])
@pytest.mark.parametrize("which", SCALES)
@pytest.mark.parametrize("channels", ["one", "all"])
def test_results_are_those_of_floats(
    channels: str, which: str, low: int, high: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Processor, "has_doubles", False)
    scales = SCALES[which]
    for rows in [scales] if channels == "all" else [[s] for s in scales[:3]]:
        x = np.stack([near_steps(s, low, high) for s in rows])
        text = program(rows, low, high, x.shape[1])
        scaled = x * np.array(rows)[:, None]
        whole = np.trunc(scaled)
        away = np.where(np.abs(scaled - whole) >= 0.5, whole + np.sign(scaled), whole)
        compiled = cvm.compile(text)
        found = compiled(x)
        np.testing.assert_array_equal(found, np.clip(away, low, high).astype(np.int32))
        if which != "tiny":
            assert "double" not in compiled.lower("llvm")


def test_processors_with_doubles_keep_them() -> None:
    without = {"cortex-m0", "cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m23", "cortex-m33"}
    found = {n for n in NAMED if (p := named(n)) is not None and not p.has_doubles}
    assert found == {*without, "rv32imac"}
    text = program([0.003], -128, 127, 64)
    assert "fmul" in cvm.compile(text).lower("llvm")
