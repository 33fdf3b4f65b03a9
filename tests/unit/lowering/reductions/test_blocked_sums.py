"""Long reductions into few elements go by blocks: the same for every number of threads, and near
the reference on every target.
"""

from __future__ import annotations

import numpy as np
import pytest
from available_targets import HERE

import cvm

CASES = {  # the arguments' shape and element, the operation
    "whole": ("512x1024xf32", "theano.sum %x"),
    "whole f64": ("300x1000xf64", "theano.sum %x"),
    "no divisor": ("262147xf32", "theano.sum %x"),
    "few columns": ("300007x3xi32", "cvm.sum %x {axes = [0]}"),
    "few rows": ("3x300007xi32", "cvm.sum %x {axes = [1]}"),
    "first axis short": ("2x5x30011xi32", "cvm.max %x {axes = [0, 1, 2]}"),
    "least": ("700x701xui8", "theano.min %x"),
    "largest": ("512x1024xf32", "theano.max %x"),
    "product": ("600x500xf64", "theano.prod %x"),
    "booleans": ("512x512xi1", "theano.all %x"),
}


def operand(type: str) -> np.ndarray:
    *shape, element = type.split("x")
    random, sizes = np.random.default_rng(0), tuple(map(int, shape))
    match element:
        case "f32" | "f64":
            return random.uniform(0.99, 1.01, sizes).astype(
                {"f32": np.float32, "f64": np.float64}[element]
            )
        case "i1":
            return np.ones(sizes, bool)
        case "ui8":
            return random.integers(3, 200, sizes).astype(np.uint8)
    return random.integers(-(2**31), 2**31, sizes).astype(np.int32)


@pytest.mark.parametrize("name", CASES)
def test_blocks(name: str) -> None:
    type, operation = CASES[name]
    text = f"func @main(%x: tensor<{type}>) {{\n  %y = {operation}\n  return %y\n}}"
    x = operand(type)
    f = cvm.compile(text)
    assert ".parts(" in f.lower("schedule")
    threads, results = cvm.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            cvm.set_num_threads(n)
            results.append(f(x))
    finally:
        cvm.set_num_threads(threads)
    results += [cvm.compile(text, target=t)(x) for t in HERE if t not in ("cpu", "reference")]
    assert len({r.tobytes() for r in results}) == 1  # also on a GPU: the order is one
    wanted = cvm.compile(text, target="reference")(x)
    np.testing.assert_allclose(
        results[0], wanted, rtol=1e-5 if "f32" in type else 1e-10 if "f64" in type else 0
    )


def test_a_nan_anywhere_is_the_maximum() -> None:
    x = np.zeros((512, 1024), np.float32)
    x[300, 7] = np.nan
    assert np.isnan(
        cvm.compile("func @main(%x: tensor<512x1024xf32>) { %y = theano.max %x\n return %y }")(x)
    )


def test_what_follows_a_long_reduction() -> None:
    text = """
    func @main(%x: tensor<1024x512xi32>, %z: tensor<1xi32>) {
      %s = cvm.sum %x {axes = [0, 1]}
      %y = cvm.elemwise_add %s, %z
      return %y
    }"""
    x = np.arange(1024 * 512, dtype=np.int32).reshape(1024, 512)
    z = np.array([5], np.int32)
    np.testing.assert_array_equal(
        cvm.compile(text)(x, z), cvm.compile(text, target="reference")(x, z)
    )


def test_short_reductions_and_reductions_into_many_elements_stay() -> None:
    for type, operation in (
        ("100x100xi32", "theano.sum %x"),
        ("512x1024xf32", "theano.sum %x {axis = [1]}"),
    ):
        f = cvm.compile(f"func @main(%x: tensor<{type}>) {{\n  %y = {operation}\n  return %y\n}}")
        assert ".parts(" not in f.lower("schedule")


@pytest.mark.parametrize("operation, lanes", [("theano.sum", 16), ("theano.max", 64)])
def test_reductions_of_floats_whose_order_does_not_matter_have_more_lanes(
    operation: str, lanes: int
) -> None:
    f = cvm.compile(
        f"func @main(%x: tensor<512x1024xf32>) {{\n  %y = {operation} %x\n  return %y\n}}"
    )
    parts, joined = f.lower("schedule").split("\nkernel ")
    assert f"%sums: tensor<{lanes}x" in parts
    assert ("%sums: tensor<64xf32>" in joined) == (lanes == 64)


@pytest.mark.parametrize("shape, ordered", [("4096x1024", 1), ("?x1024", 1), ("256x1024", 0)])
def test_large_arrays_are_read_in_the_order_in_which_they_lie(shape: str, ordered: int) -> None:
    f = cvm.compile(
        f"func @main(%x: tensor<{shape}xf32>) {{\n  %y = theano.max %x {{axis = [1]}}\n"
        f"  return %y\n}}"
    )
    assert f.lower("llvm").count('fence syncscope("singlethread")') == ordered
    assert "fence" not in f.lower("asm")
