"""Reductions of booleans, whatever their length and axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from available_targets import EVERY
from legal_and_equal import legal

import cvm


@pytest.mark.parametrize("name", ["all", "any"])
@pytest.mark.parametrize("axis", ["", "{axis = [0]}", "{axis = [1]}"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 130), (300, 129), (0, 5), (5, 0)])
def test_all_and_any(name: str, axis: str, shape: tuple[int, int]) -> None:
    module = cvm.parse(
        f"func @main(%x: tensor<{shape[0]}x{shape[1]}xi1>) {{\n"
        f"  %y = theano.{name} %x {axis}\n  return %y\n}}\n"
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
    "dali.and %x, true",
    "dali.xor %x, %x",
    "dali.mul %x, 3",
    "dali.eq %x, true",
    "dali.where %x, 5, 7",
    "theano.sum %x",
    "theano.max %x",
    "theano.all %x {axis = [1]}",
    "theano.any %x {axis = [0]}",
    "cvm.repeat %x {axis = 0, repeats = 2}",
    "cvm.transpose %x",
]
LOOK_ALIKE = [[0, 255], [255], [0, 1, 2, 128], [2]]  # bytes that mean truth values


@pytest.mark.parametrize("target", EVERY)
def test_a_mask_of_any_bytes(target: str) -> None:
    """It may be a view of its bytes: for NumPy all but 0 are true."""
    random = np.random.default_rng(0)
    lines = [f"%y{n} = {line}" for n, line in enumerate(OF_MASKS)]
    results = ", ".join(f"%y{n}" for n in range(len(lines)))
    for n in (1, 7, 64, 100):
        text = "\n".join([f"func @main(%x: tensor<3x{n}xi1>) {{", *lines, f"return {results}", "}"])
        f = cvm.compile(text, target=target)
        for bytes in LOOK_ALIKE:
            x = random.choice(np.array(bytes, np.uint8), (3, n))
            for found, wanted in zip(f(x.view(np.bool_)), f(x != 0), strict=True):
                assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("target", EVERY)
def test_a_constant_of_any_bytes(target: str, tmp_path: Path) -> None:
    mask = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    np.save(tmp_path / "mask.npy", mask)
    program = tmp_path / "mask.cvm"
    program.write_text(
        'func @main(%x: tensor<4xi32>) {\n  %m = const file("mask.npy") : tensor<4xi1>\n'
        "  %n = theano.sum %m\n  %y = dali.mul %x, %m\n  return %n, %y\n}\n"
    )
    count, masked = cvm.compile(program, target=target)(np.full(4, 5, np.int32))
    assert count == 3 and masked.tolist() == [0, 5, 5, 5]
    traced = cvm.compile(lambda x: x * mask, target=target)
    assert traced(np.full(4, 5, np.int32)).tolist() == [0, 5, 5, 5]
