"""Blocks multiplied by 7 products in place of 8: exact wherever they are taken, and taken only where they are exact."""

from __future__ import annotations

from math import inf
from operator import add, sub

import contraction_programs as contractions
import numpy as np
import pytest
from cvm.jit.functions import native_function
from cvm.lowering.contraction import strassen, strassen_coefficients, strategies, winograd
from cvm.lowering.processor import Processor
from legal_and_equal import agreed

import cvm

PROGRAMS = {  # of the operation, the image or rows, the weights
    "dense": ("cvm.dense %x, %w", (24, 64), (64, 64)),
    "dense, odd sizes": ("cvm.dense %x, %w", (37, 48), (75, 48)),
    "dense, few rows": ("cvm.dense %x, %w", (5, 32), (70, 32)),
    "1x1": ("cvm.conv2d %x, %w", (1, 32, 9, 9), (26, 32, 1, 1)),
    "1x1, several images": ("cvm.conv2d %x, %w", (3, 16, 8, 9), (24, 16, 1, 1)),
    "strided": ("cvm.conv2d %x, %w {padding = [1, 1], stride = [2, 2]}", (1, 16, 18, 20), (27, 16, 3, 3)),
    "dilated": ("cvm.conv2d %x, %w {padding = [1, 4], dilation = [1, 4]}", (1, 8, 10, 12), (9, 8, 3, 3)),
    "groups": ("cvm.conv2d %x, %w {padding = [2, 2], groups = 3}", (2, 24, 9, 17), (30, 8, 5, 5)),
}


@pytest.fixture(autouse=True, params=[1, 2])
def whatever_it_costs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(strassen, "LEVELS", (request.param,))
    monkeypatch.setattr(strassen, "MAX_COST_RATIO", inf)
    monkeypatch.setattr(strategies, "MIN_PRODUCTS", 0)
    monkeypatch.setattr(native_function, "processor", Processor)
    monkeypatch.setattr(strategies, "lower_maddubs", lambda *_: None)
    monkeypatch.setattr(winograd, "MIN_TILES", 1 << 20)
    return request.param


def text(name: str, declared: str = "", weights: np.ndarray | None = None, more: str = "") -> str:
    return contractions.text(PROGRAMS[name], declared, declared if weights is None else weights, more)


def arrays(name: str, low: int, high: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """All at one end, at either, and anywhere."""
    random, (_, *shapes) = np.random.default_rng(seed), PROGRAMS[name]
    ends = np.array([low, high], np.int32)
    x, w = ([np.full(s, n, np.int32) for n in (low, high)] for s in shapes)
    mixed = tuple(random.choice(ends, s) for s in shapes)
    anywhere = tuple(random.integers(low, high, s, np.int32, endpoint=True) for s in shapes)
    return [(a, b) for a in x for b in w] + [mixed, anywhere]  # type: ignore[list-item]


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_of_8_bits(name: str) -> None:
    lowered = agreed(text(name, " {range = [-128, 127]}"), *arrays(name, -128, 127))
    assert "%points" in lowered and ".other." not in lowered and ".bits(" not in lowered


@pytest.mark.parametrize("name", PROGRAMS)
def test_constant_weights(name: str) -> None:
    for x, w in arrays(name, -128, 127)[-3:]:
        assert "%points" in agreed(text(name, " {range = [-128, 127]}", w), (x,))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("largest", [127, 2047, 8191, 2**31 - 1])
def test_whatever_the_factors_are(name: str, largest: int) -> None:
    assert "%points" in agreed(text(name), *arrays(name, -largest - 1, largest)[-3:])


@pytest.mark.parametrize("size", [2046, 2047, 8190, 8191])
def test_taken_only_where_sums_of_blocks_fit(size: int, whatever_it_costs: int) -> None:
    for low, high in ((-size - 1, size), (0, size), (-size - 1, 0)):
        lowered = agreed(text("dense", f" {{range = [{low}, {high}]}}"), *arrays("dense", low, high))
        assert ("%points" in lowered) == ((size + 1) * 4**whatever_it_costs < 1 << 15)


def test_what_follows_is_done_with_the_sums() -> None:
    more = "  %s = cvm.cvm_right_shift %y {precision = 8, shift_bit = 4}\n  %z = cvm.relu %s\n"
    for name in ("dense, odd sizes", "strided"):
        assert "%points" in agreed(text(name, " {range = [-127, 127]}", more=more), *arrays(name, -127, 127))


def test_sums_of_any_threads_are_the_same() -> None:
    (given,) = arrays("dense, odd sizes", -127, 127)[-1:]
    function = cvm.compile(text("dense, odd sizes", " {range = [-127, 127]}"))
    one = function(*given)
    cvm.set_num_threads(2)
    try:
        np.testing.assert_array_equal(function(*given), one)
    finally:
        cvm.set_num_threads(1)


def test_the_products_are_those_of_the_matrices(whatever_it_costs: int) -> None:
    random, side = np.random.default_rng(0), 2**whatever_it_costs
    a, b = random.integers(-9, 10, (2, side, side))
    lefts, rights = (
        strassen_coefficients.turned(s, m.tolist(), add, sub)
        for s, m in ((strassen_coefficients.left, a), (strassen_coefficients.right, b))
    )
    assert len(lefts) == len(rights) == 7**whatever_it_costs
    points = [x * y for x, y in zip(lefts, rights, strict=True)]
    np.testing.assert_array_equal(strassen_coefficients.turned_back(points, add, sub), a @ b)


def test_taken_by_itself_only_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def lowered(m: int, n: int, k: int) -> str:
        declared = " {range = [-127, 127]}"
        program = f"func @main(%x: tensor<{m}x{k}xi32>{declared}, %w: tensor<{n}x{k}xi32>{declared}) {{\n"
        return cvm.compile(f"{program}  %y = cvm.dense %x, %w\n  return %y\n}}\n").lower("schedule")

    assert "%points: tensor<49x" in lowered(512, 512, 512)
    assert "%points" not in lowered(16, 64, 64) and "%points" not in lowered(512, 16, 512)
