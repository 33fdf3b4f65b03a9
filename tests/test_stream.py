"""Large results are written past the caches where that is right, to arrays that are aligned or not."""

from __future__ import annotations

import numpy as np
import pytest
from cvm.lowering import stream

import cvm


@pytest.mark.parametrize("size", [1000, 1001, 1])
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_any_alignment(size: int, offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LARGE", 1)
    t = f"tensor<3x{size}xi32>"
    f = cvm.compile(f"func @main(%x: {t}) -> {t} {{\n  %y = cvm.relu %x\n  return %y\n}}\n")
    assert ("streaming" in f.lower("schedule")) == (size > 1)
    x = np.random.default_rng(0).integers(-100, 100, (3, size)).astype(np.int32)
    out = np.zeros(3 * size + 16, np.int32)[offset : offset + 3 * size].reshape(3, size)
    np.testing.assert_array_equal(f(x, out=out), np.maximum(x, 0))
    np.testing.assert_array_equal(f(x), np.maximum(x, 0))


def test_small_results_are_not() -> None:
    t = "tensor<1000xi32>"
    f = cvm.compile(f"func @main(%x: {t}) -> {t} {{\n  %y = cvm.relu %x\n  return %y\n}}\n")
    assert "streaming" not in f.lower("schedule")
