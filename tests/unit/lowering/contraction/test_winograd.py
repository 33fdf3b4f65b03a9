"""Windows of 3 x 3 turned into fewer products: exact wherever they are taken, and taken only where
they are exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from contraction_programs import preferred
from cvm.lowering.contraction.winograd_transforms import WINOGRAD_F2X2_3X3, WINOGRAD_F4X4_3X3
from legal_and_equal import agreed

import cvm

SHAPES = {  # of the image, the weights, and what else is said
    "even": ((1, 16, 8, 8), (8, 16, 3, 3), "padding = [1, 1]"),
    "odd": ((1, 16, 9, 11), (13, 16, 3, 3), "padding = [1, 1]"),
    "7x7": ((1, 18, 7, 7), (9, 18, 3, 3), "padding = [1, 1]"),
    "no border": ((1, 16, 12, 23), (8, 16, 3, 3), ""),
    "wide border": ((1, 16, 6, 10), (8, 16, 3, 3), "padding = [2, 3]"),
    "a narrower panel": ((1, 16, 14, 14), (13, 16, 3, 3), "padding = [1, 1]"),
    "groups": ((2, 32, 8, 9), (16, 16, 3, 3), "padding = [1, 1], groups = 2"),
    "several images": ((3, 16, 8, 9), (8, 16, 3, 3), "padding = [1, 1]"),
}


@pytest.fixture(autouse=True)
def small_ones_too(compile_for: Callable[..., None]) -> None:
    cheap = (
        ("winograd_2x2", 0.01),
        ("winograd_4x4", 0.01),
    )  # as of problems large enough for their transforms to pay
    compile_for(packing_products=0, winograd_results=0, strategy_costs=cheap)


def program(
    name: str, more: str = "", declared: str = "", weights: np.ndarray | None = None
) -> str:
    image, shape, attributes = SHAPES[name]
    types = [f"tensor<{'x'.join(map(str, s))}xi32>" for s in (image, shape)]
    argument, constant = f", %w: {types[1]}{declared}", ""
    if weights is not None:
        argument, constant = "", f"  %w = const dense<{weights.tolist()}> : {types[1]}\n"
    return f"""func @main(%x: {types[0]}{declared}{argument}) {{
{constant}  %y = cvm.conv2d %x, %w {{{attributes}}}
{more}  return %{"z" if more else "y"}
}}
"""


def both(text: str, *several: tuple[np.ndarray, ...]) -> str:
    """The schedule of a program with turned windows, which agrees with the reference for all
    arguments given.
    """
    schedule = agreed(text, *several)
    assert ".turned(" in schedule
    return schedule


def values(name: str, x: int, w: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    image, weights, _ = SHAPES[name]
    return tuple(
        random.integers(-n, n, s, endpoint=True).astype(np.int32)
        for n, s in ((x, image), (w, weights))
    )  # type: ignore[return-value]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", SHAPES)
def test_whatever_the_factors_are(name: str) -> None:
    sizes = [(127, 127), (8191, 300), (8192, 300), (300, 3639), (300, 3641), (2**31 - 1, 2**31 - 1)]
    both(program(name), *(values(name, *most) for most in sizes))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", SHAPES)
def test_constant_weights_are_turned_beforehand(name: str) -> None:
    x, w = values(name, 127, 127)
    assert ".weights(" not in both(program(name, weights=w), (x,), (x << 16,))


def test_at_the_ends_of_what_is_taken() -> None:
    image, weights, _ = SHAPES["odd"]
    signs = np.indices(image).sum(0) % 2 * 2 - 1
    ends = [(-128, -128), (127, -128), (-8192, 100), (8191, -100), (-100, -3640), (100, 3639)]
    both(
        program("odd"),
        *(
            ((x * sign).astype(np.int32), np.full(weights, w, np.int32))
            for x, w in ends
            for sign in (np.ones_like(signs), signs)
        ),
    )


def test_with_declared_ranges_nothing_looks_and_nothing_else_is_there() -> None:
    text = program("odd", declared=" {range = [-128, 127]}")
    schedule = both(text, values("odd", 127, 127))
    assert ".bits(" not in schedule and ".other." not in schedule


def test_what_follows_is_done_with_the_results() -> None:
    more = "  %s = cvm.cvm_right_shift %y {precision = 8, shift_bit = 4}\n  %z = cvm.relu %s\n"
    both(program("odd", more), values("odd", 127, 127), values("odd", 1 << 20, 127))


def test_sums_too_large_to_be_divided_are_computed_as_any_other() -> None:
    x, w = values("even", 1, 1)
    both(program("even"), (x * 0 + 8191, w * 0 + 3639))  # 4 y is beyond an i32
    assert (
        WINOGRAD_F2X2_3X3.fits(8191, 3639, 9) is True
        and WINOGRAD_F2X2_3X3.fits(8191, 3639, 9 * 16) is False
    )


def test_sums_of_any_threads_are_the_same() -> None:
    text, arrays = program("several images"), values("several images", 127, 127)
    function = cvm.compile(text)
    one = function(*arrays)
    cvm.set_num_threads(3)
    try:
        np.testing.assert_array_equal(function(*arrays), one)
    finally:
        cvm.set_num_threads(1)


@pytest.mark.sample(3)
@pytest.mark.parametrize("attributes", ["padding = [1, 1]", "", "padding = [2, 3]"])
@pytest.mark.parametrize("how", ["weights of each call", "known weights", "groups", "declared"])
def test_images_of_any_size(attributes: str, how: str) -> None:
    """One program for all: by turned windows where they fit, by tiles or as it was where they do
    not.
    """
    random = np.random.default_rng(0)
    groups = 2 if how == "groups" else 1
    w = random.integers(-128, 128, (20, 16, 3, 3)).astype(np.int32)
    given = "" if how == "known weights" else ", %w: tensor<20x16x3x3xi32>"
    constant = f"  %w = const dense<{w.tolist()}> : tensor<20x16x3x3xi32>\n" if not given else ""
    declared = " {range = [-127, 127]}" if how == "declared" else ""
    at = ", ".join(filter(None, (attributes, f"groups = {groups}")))
    body = f"{constant}  %y = cvm.conv2d %x, %w {{{at}}}\n  %z = cvm.relu %y\n  return %z\n"
    text = f"func @main(%x: tensor<?Nx{16 * groups}x?Hx?Wxi32>{declared}{given}) {{\n{body}}}\n"
    shapes = (
        (1, 8, 18),
        (2, 9, 19),
        (1, 3, 16),
        (1, 21, 33),
        (0, 9, 20),
        (3, 17, 17),
        (1, 5, 6),
        (1, 40, 15),
    )
    images = (
        random.integers(-most, most, (n, 16 * groups, h, width), endpoint=True).astype(np.int32)
        for n, h, width in shapes
        for most in ((127,) if declared else (127, 8191, 8192, 2**31 - 1))
    )
    both(text, *((x, w) if given else (x,) for x in images))


LARGER = {  # the same, for which larger tiles take fewer products
    "28x28": ((1, 16, 28, 28), (20, 16, 3, 3), "padding = [1, 1]"),
    "14x14": ((1, 18, 14, 14), (9, 18, 3, 3), "padding = [1, 1]"),
    "odd": ((1, 16, 17, 35), (13, 16, 3, 3), "padding = [1, 1]"),
    "no border": ((1, 16, 30, 43), (8, 16, 3, 3), ""),
    "wide border": ((1, 16, 16, 29), (8, 16, 3, 3), "padding = [2, 3]"),
    "groups": ((2, 32, 20, 19), (16, 16, 3, 3), "padding = [1, 1], groups = 2"),
    "many panels": ((3, 16, 40, 41), (14, 16, 3, 3), "padding = [1, 1]"),
}


def in_tiles_of_four(schedule: str) -> bool:
    """Test whether weights are transformed into 36 numbers each."""
    return re.search(r"%weights: tensor<[\dx]*x36x\d+x\d+xi32>", schedule) is not None


def by_four(text: str, *several: tuple[np.ndarray, ...]) -> None:
    assert in_tiles_of_four(both(text, *several))


@pytest.fixture
def larger(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, shapes in LARGER.items():
        monkeypatch.setitem(SHAPES, name, shapes)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", LARGER)
def test_larger_tiles_whatever_the_factors_are(larger: None, name: str) -> None:
    _, w = values(name, 127, 127)
    most = [127, 326, 327, 8191, 8192, 2**31 - 1]
    by_four(program(name, weights=w), *(values(name, n, 127)[:1] for n in most))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "x, w", [(-327, -128), (326, -128), (-128, -227), (127, 227), (326, 227), (-327, -227)]
)
def test_larger_tiles_at_the_ends_of_what_is_taken(larger: None, x: int, w: int) -> None:
    image, weights, _ = LARGER["odd"]
    text = program("odd", weights=np.full(weights, w, np.int32))
    signs = np.indices(image).sum(0) % 2 * 2 - 1
    rows = np.indices(image)[2] % 3 * 2 - 1
    factors = (np.ones_like(signs), signs, np.clip(rows, -1, 1))
    by_four(text, *(((x * factor).astype(np.int32),) for factor in factors))


def test_weights_too_large_for_larger_tiles_are_turned_by_the_others(larger: None) -> None:
    _, weights, _ = LARGER["odd"]
    text = program("odd", weights=np.full(weights, 228, np.int32))
    assert not in_tiles_of_four(both(text, values("odd", 127, 127)[:1]))


def test_sums_too_large_to_be_divided_by_64() -> None:
    assert (
        WINOGRAD_F4X4_3X3.fits(127, 127, 2047) is True
        and WINOGRAD_F4X4_3X3.fits(127, 127, 2048) is False
    )
    assert (
        WINOGRAD_F4X4_3X3.fits(127, 127, 9, (1 << 18) - 1) is True
        and WINOGRAD_F4X4_3X3.fits(127, 127, 9, 1 << 18) is False
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", LARGER)
def test_what_follows_larger_tiles_is_done_once_for_each_element(larger: None, name: str) -> None:
    """With another array of the same shape, and a value that is used twice."""
    x, w = values(name, 127, 127)
    more = (
        "  %s = cvm.cvm_right_shift %y {precision = 8, shift_bit = 4}\n"
        "  %t = cvm.elemwise_add %s, %s\n"
    )
    more += "  %u = cvm.elemwise_add %t, %y\n  %z = cvm.cvm_clip %u {precision = 9}\n"
    by_four(program(name, more, " {range = [-128, 127]}", weights=w), (x,))


def test_larger_tiles_of_any_threads_are_the_same(larger: None) -> None:
    for name in ("28x28", "many panels"):
        x, w = values(name, 127, 127)
        function = cvm.compile(program(name, weights=w))
        one = function(x)
        for threads in (2, 3, 5):
            cvm.set_num_threads(threads)
            try:
                np.testing.assert_array_equal(function(x), one)
            finally:
                cvm.set_num_threads(1)


def test_large_weights_are_asked_for_before_they_are_multiplied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for channels, asked in ((64, True), (16, False)):
        monkeypatch.setitem(
            SHAPES, "asked", ((1, channels, 16, 16), (channels, channels, 3, 3), "padding = [1, 1]")
        )
        x, w = values("asked", 127, 127)
        text = program("asked", declared=" {range = [-127, 127]}", weights=w)
        assert ("call void @llvm.prefetch" in cvm.compile(text).lower("llvm")) == asked
        by_four(text, (x,))


SMALL = {  # as few tiles, rows and channels as there may be
    "one tile": ((1, 2, 4, 4), (2, 2, 3, 3), ""),
    "a column of tiles": ((1, 2, 20, 4), (2, 2, 3, 3), ""),
    "a row of tiles": ((2, 4, 2, 21), (3, 4, 3, 3), "padding = [1, 1]"),
    "more than a vector": ((1, 2, 6, 6), (3, 2, 3, 3), "padding = [1, 1]"),
    "nothing but a border": ((1, 2, 1, 1), (5, 2, 3, 3), "padding = [3, 4]"),
    "small groups": ((1, 6, 5, 4), (6, 2, 3, 3), "padding = [1, 0], groups = 3"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("transform", ["winograd_2x2", "winograd_4x4"])
def test_small_ones_whatever_they_cost(
    name: str,
    known: bool,
    transform: str,
    monkeypatch: pytest.MonkeyPatch,
    tune: Callable[..., None],
) -> None:
    larger = ("winograd_4x4",) if transform == "winograd_2x2" else ()
    smaller = (
        (("winograd_2x2", 0.01),) if transform == "winograd_4x4" else ()
    )  # for weights that are given
    costs = (*preferred(transform, larger), *smaller)
    tune(winograd_rows=0, winograd_tiles=0, winograd_steps=0, strategy_costs=costs)
    monkeypatch.setitem(SHAPES, name, SMALL[name])
    x, w = values(name, 127, 127)
    text = program(name, weights=w if known else None)
    several = ((x * most,) if known else (x * most, w) for most in (1, 1 << 10, 1 << 20))
    assert in_tiles_of_four(both(text, *several)) == (known and transform == "winograd_4x4")
