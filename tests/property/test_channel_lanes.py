"""Windows that move over each channel by itself give the same bits by lanes of channels as in a
plain nest: in the order of their terms, with nothing added beyond the edges, and NaNs and zeros of
both signs in their places.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from float_windows import PROCESSORS, same_bits, shaped, text, values
from legal_and_equal import legal

import cvm

POOLS = {
    "maximum": "%y = cvm.max_pool2d %x {{pool_size = {0}, strides = {1}, padding = {2}}}",
    "minimum": "%n = dali.mul %x, -1.0\n"
    "  %m = cvm.max_pool2d %n {{pool_size = {0}, strides = {1}, padding = {2}}}\n"
    "  %y = dali.mul %m, -1.0",
    "sum": "%v = builtin.windows %x {{axes = [2, 3], sizes = {0}, strides = {1}, dilations = [1, "
    "1], before = {2}, after = {2}}}\n"
    "  %s = theano.sum %v {{axis = [4, 5], acc_dtype = {3}}}\n  %y = dali.mul %s, 0.25",
}


def taken(program: str) -> bool:
    found = cvm.compile(program).lower("strategies")
    return any("taken" in line and "channel_lanes" in line for line in found.splitlines())


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("processor", PROCESSORS)
def test_depthwise_convolutions(
    seed: int, processor: str, compile_for: Callable[..., None]
) -> None:
    random = np.random.default_rng((seed, len(processor)))
    compile_for(**PROCESSORS[processor])
    batch, channels = int(random.choice([1, 1, 3])), int(random.integers(16, 40))
    kernel = [int(random.choice([2, 3, 3, 5, 7])) for _ in range(2)]
    stride, dilation = ([int(random.choice([1, 1, 2])) for _ in range(2)] for _ in range(2))
    padding = [int(random.integers(0, k)) for k in kernel]
    size = [
        d * (k - 1) + 1 + int(random.integers(3, 16)) for k, d in zip(kernel, dilation, strict=True)
    ]
    element, dtype = [("f32", "float32"), ("f64", "float64")][seed % 2]
    attributes = (
        f"padding = {padding}, stride = {stride}, dilation = {dilation}, groups = {channels}"
    )
    x = values(random, (batch, channels, *size), dtype, random.choice([0, 0.01]))
    w = values(random, (channels, 1, *kernel), dtype, random.choice([0, 0.01]))
    b = values(random, (channels,), dtype, 0)
    program = text(shaped(*x.shape), shaped(*w.shape), attributes, element)
    known = program.replace(f", %w: tensor<{shaped(*w.shape)}x{element}>", "").replace(
        "  %s", f"  %w = const dense<1.5> : tensor<{shaped(*w.shape)}x{element}>\n  %s", 1
    )
    legal(program)
    with np.errstate(all="ignore"):
        same_bits(cvm.compile(program)(x, w, b), cvm.compile(program, optimize=0)(x, w, b))
        same_bits(
            cvm.compile(known)(x, b), cvm.compile(program, optimize=0)(x, np.full_like(w, 1.5), b)
        )


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("function", POOLS)
def test_pools(function: str, seed: int, processor: str, compile_for: Callable[..., None]) -> None:
    random = np.random.default_rng((seed, len(processor)))
    compile_for(**PROCESSORS[processor])
    kernel = [int(random.choice([2, 3, 3, 5])) for _ in range(2)]
    stride, padding = ([int(random.integers(low, k + low)) for k in kernel] for low in (1, 0))
    size = [k + int(random.integers(3, 16)) for k in kernel]
    element, dtype = [("f32", "float32"), ("f64", "float64")][seed % 2]
    x = values(
        random, (int(random.choice([1, 2])), int(random.integers(16, 40)), *size), dtype, 0.1
    )
    body = POOLS[function].format(kernel, stride, padding, element)
    program = (
        f"func @main(%x: tensor<{shaped(*x.shape)}x{element}>) {{\n  {body}\n  return %y\n}}\n"
    )
    legal(program)
    with np.errstate(all="ignore"):
        same_bits(cvm.compile(program)(x), cvm.compile(program, optimize=0)(x))


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("size", [4, 7, 14, 20])
def test_lanes_are_taken_at_every_width(
    width: int, size: int, compile_for: Callable[..., None]
) -> None:
    compile_for(tile_vector_bytes=width, vector_registers=32)
    random = np.random.default_rng(size)
    x, w = (
        values(random, (1, 19, size, size), "float32", 0),
        values(random, (19, 1, 5, 5), "float32", 0),
    )
    program = text(shaped(*x.shape), shaped(*w.shape), "padding = [2, 2], groups = 19", "f32")
    body = POOLS["maximum"].format([3, 3], [1, 1], [1, 1])
    assert taken(program) and taken(
        f"func @main(%x: tensor<{shaped(*x.shape)}xf32>) {{\n  {body}\n  return %y\n}}\n"
    )
    b = np.zeros(19, "f4")
    same_bits(cvm.compile(program)(x, w, b), cvm.compile(program, optimize=0)(x, w, b))


@pytest.mark.parametrize(
    ("image", "weights", "why"),
    [
        ("1x32x112x112", "32x1x3x3", "vectors along lines take less time"),
        ("1x8x9x9", "8x1x3x3", "too few channels or pixels for a vector"),
        ("1x32x4x40000", "32x1x3x7", "lines are too long"),
    ],
)
def test_what_is_left_to_other_lanes(
    image: str, weights: str, why: str, compile_for: Callable[..., None]
) -> None:
    compile_for(tile_vector_bytes=64, vector_registers=32)
    program = text(image, weights, f"groups = {weights.split('x')[0]}", "f32")
    assert why in cvm.compile(program, target="reference").lower("strategies")
