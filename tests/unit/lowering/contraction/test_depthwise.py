"""Windows that move over one array for each channel are computed from words, exact at the ends of
all ranges.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from cvm.jit.host_processor import host_processor
from cvm.lowering.processor import AVX2_PRODUCTS, named, processor
from depthwise_programs import SHAPES, text
from legal_and_equal import agreed, legal

import cvm

RANGES = {  # of the image and the weights, and how they are multiplied
    "bytes": ((0, 127), (-128, 127), "bytepairs"),
    "all of a byte": ((0, 255), (-64, 64), "bytepairs"),
    "too much for bytes": ((0, 255), (-65, 65), "pairdot"),
    "signed": ((-128, 127), (-128, 127), "pairdot"),
    "16 bits": ((-32768, 32767), (-32768, 32767), "pairdot"),
    "beyond": ((-32769, 32767), (-128, 127), ""),
}


@pytest.fixture(autouse=True)
def of_a_plain_processor(compile_for: Callable[..., None]) -> None:
    compile_for()


@pytest.mark.sample(18)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("ranges", RANGES)
def test_every_path(name: str, ranges: str) -> None:
    (low, high), ends, function = RANGES[ranges]
    image, kernel, _ = SHAPES[name]
    random = np.random.default_rng(0)
    mixed = random.choice(np.array(ends), kernel)
    mixed.flat[:2] = ends
    for weights in (np.full(kernel, ends[0]), np.full(kernel, ends[1]), mixed):
        program = text(name, low, high, weights)
        images = (
            np.full(image, low),
            np.full(image, high),
            random.choice(np.array((low, high)), image),
        )
        lowered = agreed(program, *((x.astype(np.int32),) for x in images))
        if weights is mixed:
            assert (".windows(" in lowered) == bool(function)
            assert function in lowered and ("bytepairs" in lowered) == (function == "bytepairs")


@pytest.mark.parametrize(
    "name, rows",
    [
        ("3x3", 5),
        ("overlapping vectors", 3),
        ("two rows", 3),
        ("strided", 7),
        ("dilated as it moves", 3),
    ],
)
def test_words_are_good_for_as_many_rows_as_they_hold_windows(name: str, rows: int) -> None:
    program = text(name, 0, 127, np.ones(SHAPES[name][1], int))
    assert f"alloc stack %image: tensor<{rows}x" in cvm.compile(program).lower("schedule")


CHANNELS_LAST = {  # height, width and channels, those of the window, stride and dilation
    "3x3": ((9, 10, 24), (3, 3), 1, 1),
    "strided": ((9, 12, 40), (3, 3), 2, 1),
    "5x5": ((12, 11, 17), (5, 5), 1, 1),
    "dilated": ((10, 11, 16), (3, 3), 1, 2),
    "two rows": ((13, 9, 48), (2, 3), 1, 1),
    "panels of channels": ((6, 70, 120), (3, 3), 1, 1),
}


@pytest.mark.parametrize("name", CHANNELS_LAST)
@pytest.mark.parametrize("zero, least", [(-13, -13), (3, -128)])
@pytest.mark.parametrize("plain", [True, False])
def test_channels_last(
    name: str, zero: int, least: int, plain: bool, compile_for: Callable[..., None]
) -> None:
    """Lines that are left over, vectors and panels that overlap, and all signs."""
    compile_for(dot_products=AVX2_PRODUCTS if plain else host_processor().dot_products)
    image, kernel, stride, dilation = CHANNELS_LAST[name]
    random, channels = np.random.default_rng(0), image[-1]
    weights = random.choice(np.array([-128, 127, 3]), (*kernel, channels, 1))
    x, w = ("x".join(map(str, shape)) for shape in (image, weights.shape))
    program = f"""
        func @main(%x: tensor<1x{x}xi8> {{range = [{least}, 127]}}, %b: tensor<{channels}xi32>) {{
          %w = const dense<{weights.tolist()}> : tensor<{w}xi8>
          %zero = const dense<{zero}> : tensor<i32>
          %none = const dense<0> : tensor<i32>
          %y = quant.depthwise_conv2d %x, %w, %zero, %none, %b {{stride = [{stride}, {stride}], dilation = [{dilation}, {dilation}]}}
          return %y
        }}
    """
    legal(program, named("znver4"))
    compiled, reference = cvm.compile(program), cvm.compile(program, target="reference")
    lowered, has_bytes = compiled.lower("schedule"), processor().has_int8_dot_product
    assert (".windows(" in lowered) == (has_bytes or stride == 1)
    assert ("quaddot_us" in lowered) == has_bytes
    bias = random.integers(-(2**31), 2**31, channels, dtype=np.int64).astype(np.int32)
    for values in (np.full((1, *image), 127), random.choice([least, 127], (1, *image))):
        given = values.astype(np.int8), bias
        np.testing.assert_array_equal(compiled(*given), reference(*given), strict=True)
