"""Folds of booleans, whatever their length and axis."""

from __future__ import annotations

import numpy as np
import pytest
from legal import legal

import cvm


@pytest.mark.parametrize("name", ["all", "any"])
@pytest.mark.parametrize("axis", ["", "{axis = [0]}", "{axis = [1]}"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 130), (300, 129), (0, 5), (5, 0)])
def test_all_and_any(name: str, axis: str, shape: tuple[int, int]) -> None:
    module = cvm.parse(
        f"func @main(%x: tensor<{shape[0]}x{shape[1]}xi1>) {{\n  %y = theano.{name} %x {axis}\n  return %y\n}}\n"
    )
    legal(module)
    f = cvm.compile(module)
    random = np.random.default_rng(0)
    for share in (0, 0.003, 0.5, 0.997, 1):
        x = random.random(shape) < share
        along = None if not axis else int(axis[-3])
        np.testing.assert_array_equal(f(x), getattr(np, name)(x, axis=along))


def test_lanes_are_bytes() -> None:
    f = cvm.compile("func @main(%x: tensor<4096xi1>) {\n  %y = theano.all %x\n  return %y\n}\n")
    assert "tensor<128xui8>" in f.lower("schedule")
