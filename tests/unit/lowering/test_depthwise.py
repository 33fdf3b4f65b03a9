"""Windows that move over one array for each channel are computed from words, exact at the ends of all ranges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from depthwise_programs import SHAPES, text
from legal_and_equal import legal

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
        legal(program)
        compiled, reference = cvm.compile(program), cvm.compile(program, target="reference")
        lowered = compiled.lower("schedule")
        if weights is mixed:
            assert (".windows(" in lowered) == bool(function)
            assert function in lowered and ("bytepairs" in lowered) == (function == "bytepairs")
        for x in (np.full(image, low), np.full(image, high), random.choice(np.array((low, high)), image)):
            given = x.astype(np.int32)
            np.testing.assert_array_equal(compiled(given), reference(given), strict=True)


@pytest.mark.parametrize(
    "name, rows", [("3x3", 5), ("overlapping vectors", 3), ("two rows", 3), ("strided", 7), ("dilated as it moves", 3)]
)
def test_words_are_good_for_as_many_rows_as_they_hold_windows(name: str, rows: int) -> None:
    program = text(name, 0, 127, np.ones(SHAPES[name][1], int))
    assert f"alloc stack %image: tensor<{rows}x" in cvm.compile(program).lower("schedule")
