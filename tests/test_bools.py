"""Folds of booleans, whatever their length and axis."""

from __future__ import annotations

import numpy as np
import pytest
from legal import legal
from targets import EVERY

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


OF_MASKS = [
    "dali.not %x",
    "dali.xor %x, %x",
    "dali.mul %x, 3",
    "dali.eq %x, true",
    "dali.where %x, 5, 7",
    "theano.sum %x",
    "theano.all %x {axis = [1]}",
    "theano.any %x {axis = [0]}",
    "cvm.transpose %x",
]


@pytest.mark.parametrize("target", EVERY)
def test_a_mask_of_0_and_255(target: str) -> None:
    """It may be a view of its bytes: for NumPy all but 0 are true."""
    random = np.random.default_rng(0)
    lines = [f"%y{n} = {line}" for n, line in enumerate(OF_MASKS)]
    results = ", ".join(f"%y{n}" for n in range(len(lines)))
    for n in (1, 7, 64, 100):
        text = "\n".join([f"func @main(%x: tensor<3x{n}xi1>) {{", *lines, f"return {results}", "}"])
        f = cvm.compile(text, target=target)
        for bytes in ([0, 255], [255]):
            x = random.choice(np.array(bytes, np.uint8), (3, n))
            for found, wanted in zip(f(x.view(np.bool_)), f(x != 0), strict=True):
                np.testing.assert_array_equal(found, wanted, strict=True)
