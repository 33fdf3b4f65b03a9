"""Convolutions of floats give the same bits however they are computed: products go to their sum in
the order of the terms, and where a window reaches beyond the edge nothing is added, whatever the
weights are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from float_windows import ADDED, PROCESSORS, RELU, SCALED, same_bits, shaped, text, values
from legal_and_equal import legal

import cvm


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("processor", PROCESSORS)
def test_random_shapes(seed: int, processor: str, compile_for: Callable[..., None]) -> None:
    random = np.random.default_rng((seed, len(processor)))
    compile_for(**PROCESSORS[processor])
    groups = int(random.choice([1, 1, 1, 2]))
    batch, ic, oc = (
        int(random.choice([1, 1, 3])),
        int(random.integers(1, 9)),
        int(random.integers(16, 40)),
    )
    kernel = [int(random.choice([1, 2, 3, 3, 5, 7])) for _ in range(2)]
    dilation = [int(random.choice([1, 1, 2])) for _ in range(2)]
    stride = [int(random.choice([1, 1, 2, 3])) for _ in range(2)]
    padding = [
        int(random.integers(0, d * (k - 1) + 2)) for k, d in zip(kernel, dilation, strict=True)
    ]
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    size = [
        max(1, r - 2 * p) + int(random.integers(0, 24)) for r, p in zip(reach, padding, strict=True)
    ]
    element, dtype = [("f32", "float32"), ("f64", "float64")][int(random.integers(2))]
    attributes = f"padding = {padding}, stride = {stride}, dilation = {dilation}, groups = {groups}"
    x = values(random, (batch, ic * groups, *size), dtype, random.choice([0, 0.01]))
    w = values(random, (oc * groups, ic, *kernel), dtype, random.choice([0, 0.01]))
    b = values(random, (oc * groups,), dtype, 0)
    plain = text(shaped(*x.shape), shaped(*w.shape), attributes, element)
    given = [x, w, b]
    expected = cvm.compile(plain, optimize=0)(*given)
    program = text(
        shaped(*x.shape), shaped(*w.shape), attributes, element, ADDED, shaped(*expected.shape)
    )
    given.append(values(random, expected.shape, dtype, 0))
    legal(program)
    with np.errstate(all="ignore"):
        same_bits(cvm.compile(program)(*given), cvm.compile(program, optimize=0)(*given))
        same_bits(cvm.compile(plain)(*given[:3]), expected)
        close = cvm.compile(plain, target="reference")(*given[:3])
    np.testing.assert_array_equal(np.isfinite(close), np.isfinite(expected))
    np.testing.assert_allclose(expected, close, 1e-3, 1e-3)


@pytest.mark.sample(4)
@pytest.mark.parametrize("after", [RELU, SCALED, ADDED])
@pytest.mark.parametrize("size", [7, 14, 17, 32])
def test_constant_and_given_weights_and_open_batches(size: int, after: str) -> None:
    random = np.random.default_rng(size)
    x = values(random, (2, 5, size, size), "float32", 0.01)
    w, b = values(random, (24, 5, 3, 3), "float32", 0), values(random, (24,), "float32", 0)
    r = values(random, (2, 24, size, size), "float32", 0)
    plain = text(
        shaped(*x.shape), shaped(*w.shape), "padding = [1, 1]", "f32", after, shaped(*r.shape)
    )
    known = plain.replace(", %w: tensor<24x5x3x3xf32>", "").replace(
        "  %s", f"  %w = const dense<{w.tolist()}> : tensor<24x5x3x3xf32>\n  %s", 1
    )
    rest = [b, *([r] if "%r" in plain else [])]
    expected = cvm.compile(plain, optimize=0)(x, w, *rest)
    for program, given in ((plain, [x, w]), (known, [x])):
        for opened in (program, program.replace("tensor<2x", "tensor<?x")):
            compiled = cvm.compile(opened)
            assert "alloc register %sums" in compiled.lower("schedule")
            same_bits(compiled(*given, *rest), expected)


@pytest.mark.parametrize("l2", [1 << 12, 1 << 20])
def test_weights_that_leave_the_cache_are_prefetched(
    l2: int, compile_for: Callable[..., None]
) -> None:
    """Tiles prefetch the next panel of weights that do not stay in cache, and of no others."""
    random = np.random.default_rng(0)
    x, w, b = (
        values(random, shape, "float32", 0) for shape in ((1, 96, 4, 4), (24, 96, 3, 3), (24,))
    )
    type = f"tensor<{shaped(*w.shape)}xf32>"
    program = text(shaped(*x.shape), shaped(*w.shape), "padding = [1, 1]", "f32")
    program = program.replace(f", %w: {type}", "").replace(
        "  %s", f"  %w = const dense<{w.tolist()}> : {type}\n  %s", 1
    )
    compile_for(l2_bytes=l2)
    compiled = cvm.compile(program)
    assert ("prefetch %weights" in compiled.lower("schedule")) == (l2 == 1 << 12)
    same_bits(compiled(x, b), cvm.compile(program, optimize=0)(x, b))


@pytest.mark.parametrize("l1", [32 << 10, 48 << 10, 64 << 10, 96 << 10])
def test_strips_of_pixels_share_the_work(l1: int, compile_for: Callable[..., None]) -> None:
    """The last strip of pixels moves back by less than a tile, whatever the cache: few products are
    computed twice.
    """
    compile_for(
        l1_bytes=l1, vector_registers=32, tile_vector_bytes=64, strategy_costs=(("direct", 0),)
    )
    random = np.random.default_rng(0)
    x, w, b = (
        values(random, shape, "float32", 0) for shape in ((1, 8, 14, 14), (64, 8, 1, 1), (64,))
    )
    compiled = cvm.compile(text("1x8x14x14", "64x8x1x1", "", "f32"))
    (tiles,) = (k for k in compiled.cost("kernel").parts if k.name.endswith("tiles"))
    assert x.size * 64 <= tiles.functions["fma"] <= 1.08 * x.size * 64
    same_bits(
        compiled(x, w, b),
        cvm.compile(text("1x8x14x14", "64x8x1x1", "", "f32"), optimize=0)(x, w, b),
    )


def test_what_a_product_with_zero_would_spoil(compile_for: Callable[..., None]) -> None:
    """An infinite weight that only meets padding makes no NaN, and a sum that underflowed to -0
    stays -0.
    """
    compile_for()
    program = text("1x4x16x16", "16x4x3x3", "padding = [1, 1]", "f32", "%y = dali.mul %s, 1.0")
    x, w, b = np.ones((1, 4, 16, 16), "f4"), np.ones((16, 4, 3, 3), "f4"), np.full(16, -0.0, "f4")
    w[:, :, 0, :] = np.inf
    y = cvm.compile(program)(x, w, b)
    assert np.isfinite(y[:, :, 0]).all() and np.isinf(y[:, :, 1:]).all()
    w[:] = 1e-30
    w[:, :, :, 0] = 1.0
    x[:] = -1e-30
    assert "direct" in next(
        line for line in cvm.compile(program).lower("strategies").splitlines() if "taken" in line
    )
    y = cvm.compile(program)(x, w, b)
    assert (np.signbit(y[..., 0]) & (y[..., 0] == 0)).all() and (y[..., 1:] < 0).all()


@pytest.mark.sample(10)
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ("1x40x1x4", "33x40x1x3", "padding = [0, 1]"),
        ("1x1x1x640", "66x1x1x256", "stride = [1, 128]"),
        ("2x24x1x2", "40x24x1x3", "stride = [1, 2], padding = [0, 1]"),
        ("1x24x2x2", "40x24x3x3", "padding = [1, 1]"),
        ("1x40x1x1", "40x40x3x3", "padding = [1, 1]"),
        ("2x24x3x2", "40x24x3x3", "padding = [1, 1], stride = [2, 2]"),
    ],
)
def test_fewer_pixels_than_lanes(
    x: str, w: str, attributes: str, processor: str, compile_for: Callable[..., None]
) -> None:
    compile_for(**PROCESSORS[processor], packing_products=0)
    random = np.random.default_rng(0)
    given, weights = (
        values(random, tuple(map(int, s.split("x"))), "float32", 0.01) for s in (x, w)
    )
    b, program = values(random, weights.shape[:1], "float32", 0), text(x, w, attributes, "f32")
    constant = np.nan_to_num(weights)
    known = program.replace(f", %w: tensor<{w}xf32>", "").replace(
        "  %s", f"  %w = const dense<{constant.tolist()}> : tensor<{w}xf32>\n  %s", 1
    )
    legal(program)
    legal(known)
    assert re.search("taken +(direct|few_rows)", cvm.compile(known).lower("strategies"))
    with np.errstate(all="ignore"):
        same_bits(
            cvm.compile(program)(given, weights, b),
            cvm.compile(program, optimize=0)(given, weights, b),
        )
        same_bits(cvm.compile(known)(given, b), cvm.compile(known, optimize=0)(given, b))


@pytest.mark.sample(10)
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ("1x3x3x70", "24x3x3x39", "padding = [1, 19]"),
        ("1x2x1x130", "40x2x1x64", "padding = [0, 63]"),
        ("2x2x1x9", "33x2x1x31", "padding = [0, 15]"),
        ("1x2x1x65", "24x2x1x19", "padding = [0, 30], stride = [1, 3], dilation = [1, 2]"),
        ("1x24x1x65", "24x1x1x31", "padding = [0, 15], groups = 24"),
    ],
)
def test_windows_wider_than_tiles(
    x: str, w: str, attributes: str, processor: str, compile_for: Callable[..., None]
) -> None:
    """Tiles at an edge take each column of a window for the pixels that it is inside of, however
    many columns there are.
    """
    compile_for(**PROCESSORS[processor], packing_products=0)
    random = np.random.default_rng(0)
    given, weights = (
        values(random, tuple(map(int, s.split("x"))), "float32", 0.01) for s in (x, w)
    )
    b, program = values(random, weights.shape[:1], "float32", 0), text(x, w, attributes, "f32")
    legal(program)
    assert "groups" in attributes or re.search(
        "taken +direct", cvm.compile(program).lower("strategies")
    )
    with np.errstate(all="ignore"):
        same_bits(
            cvm.compile(program)(given, weights, b),
            cvm.compile(program, optimize=0)(given, weights, b),
        )
