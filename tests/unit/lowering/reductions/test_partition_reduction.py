"""Reductions over many rows in any order: threads take shares of the rows, and how many they are
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from legal_and_equal import legal

import cvm

RANDOM = np.random.default_rng(0)
SHAPES = [(16, 16), (67, 33), (1024, 40), (129, 1000), (100, 4096)]
DTYPES: dict[str, Any] = {
    "i8": np.int8,
    "ui16": np.uint16,
    "i32": np.int32,
    "f32": np.float32,
    "i1": bool,
}


@pytest.fixture(autouse=True)
def small(compile_for: Callable[..., None]) -> None:
    compile_for(l2_bytes=0, column_pitch_bytes=1)


def reduced(name: str, element: str, shape: tuple[int | str, ...], axis: str = "0") -> str:
    sizes = " x ".join(map(str, shape))
    return (
        f"func @main(%x: tensor<{sizes} x {element}>) {{\n"
        f"  %y = theano.{name} %x {{axis = [{axis}]}}\n  return %y\n}}\n"
    )


def for_any_threads(f: Any, *operands: np.ndarray) -> np.ndarray:
    before, results = cvm.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            cvm.set_num_threads(n)
            results.append(f(*operands))
    finally:
        cvm.set_num_threads(before)
    assert len({r.tobytes() for r in results}) == 1
    return results[0]


def operand(element: str, shape: tuple[int, ...]) -> np.ndarray:
    if element == "i1":
        return RANDOM.random(shape) < 0.999
    x = RANDOM.normal(size=shape) * 100 if element == "f32" else RANDOM.integers(0, 200, shape)
    return x.astype(DTYPES[element])


@pytest.mark.sample(25)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("name", "element"),
    [
        ("sum", "i8"),
        ("sum", "ui16"),
        ("prod", "i32"),
        ("max", "i32"),
        ("min", "ui16"),
        ("max", "f32"),
        ("min", "f32"),
        ("all", "i1"),
        ("any", "i1"),
    ],
)
def test_reductions_in_any_order(shape: tuple[int, int], name: str, element: str) -> None:
    text = reduced(name, element, shape)
    assert len(legal(text)) == 2
    x = operand(element, shape)
    np.testing.assert_array_equal(
        for_any_threads(cvm.compile(text), x), cvm.compile(text, target="reference")(x)
    )


def test_every_bit_of_a_maximum() -> None:
    x = np.full((64, 32), -0.0, np.float32)
    x[40, 3], x[20, 5] = 0.0, np.nan
    y = cvm.compile(reduced("max", "f32", x.shape))(x)
    assert (
        np.signbit(y[[0, 3]]).tolist() == [True, False]
        and np.isnan(y[5])
        and np.isnan(y).sum() == 1
    )


def test_several_axes_of_rows_and_columns_and_what_follows() -> None:
    text = """func @main(%x: tensor<5x30x7x9xi32>, %z: tensor<7x9xi32>) {
  %s = cvm.sum %x {axes = [0, 1]}
  %y = cvm.elemwise_add %s, %z
  return %y
}"""
    assert len(legal(text)) == 2
    x, z = (
        RANDOM.integers(-(2**31), 2**31, (5, 30, 7, 9)).astype("i4"),
        RANDOM.integers(-9, 9, (7, 9)).astype("i4"),
    )
    np.testing.assert_array_equal(
        for_any_threads(cvm.compile(text), x, z), x.sum((0, 1), dtype=np.int32) + z
    )


def test_what_stays_as_it_is() -> None:
    """Sums of floats, whose order is given; columns that are enough for threads; few rows; sizes
    that are not known.
    """
    assert len(legal(reduced("sum", "f32", (512, 64)))) == 1
    assert len(legal(reduced("max", "i32", (64, 20_000)))) == 1
    assert len(legal(reduced("max", "i32", (8, 64)))) == 1
    assert len(legal(reduced("max", "i32", ("?", 64)))) == 1


def test_what_is_read_again_is_not_shared() -> None:
    text = """func @main(%x: tensor<64x64xf64>, %w: tensor<64x64xf64>) {
  %a = theano.dimshuffle %x {new_order = [0, 1, "x"]}
  %b = theano.dimshuffle %w {new_order = ["x", 0, 1]}
  %p = dali.add %a, %b
  %y = theano.max %p {axis = [1]}
  return %y
}
"""
    assert len(legal(text)) == 1
