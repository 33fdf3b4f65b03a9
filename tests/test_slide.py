"""Windows that move over one array for each channel are computed from words, exact at the ends of all ranges."""

from __future__ import annotations

import numpy as np
import pytest
from cvm.jit.functions import native_function
from cvm.lowering.processor import Processor
from legal import legal

import cvm

SHAPES = {  # of the image, the weights, and what else is said
    "3x3": ((1, 4, 9, 16), (4, 1, 3, 3), "padding = [1, 1], groups = 4"),
    "overlapping vectors": ((2, 3, 6, 28), (3, 1, 3, 3), "padding = [1, 1], groups = 3"),
    "strided": ((1, 3, 14, 29), (3, 1, 3, 3), "padding = [1, 1], stride = [2, 2], groups = 3"),
    "5x5": ((1, 3, 7, 18), (3, 1, 5, 5), "padding = [2, 2], groups = 3"),
    "dilated": ((1, 3, 9, 21), (3, 1, 3, 2), "padding = [2, 2], dilation = [2, 3], groups = 3"),
    "two rows": ((1, 3, 7, 16), (3, 1, 2, 3), "padding = [1, 1], groups = 3"),
    "one row": ((1, 3, 7, 16), (3, 1, 1, 5), "padding = [0, 2], groups = 3"),
    "dilated as it moves": (
        (1, 3, 13, 32),
        (3, 1, 3, 3),
        "padding = [1, 1], stride = [2, 2], dilation = [2, 1], groups = 3",
    ),
    "short rows": ((1, 4, 7, 7), (4, 1, 3, 3), "padding = [1, 1], groups = 4"),
    "shorter rows, strided": ((1, 3, 9, 9), (3, 1, 3, 3), "padding = [1, 1], stride = [2, 2], groups = 3"),
    "a short vector": ((1, 3, 5, 4), (3, 1, 3, 3), "padding = [1, 1], groups = 3"),
    "wide border": ((1, 3, 2, 20), (3, 1, 3, 3), "padding = [4, 3], groups = 3"),
}
RANGES = {  # of the image and the weights, and how they are multiplied
    "bytes": ((0, 127), (-128, 127), "bytepairs"),
    "all of a byte": ((0, 255), (-64, 64), "bytepairs"),
    "too much for bytes": ((0, 255), (-65, 65), "pairdot"),
    "signed": ((-128, 127), (-128, 127), "pairdot"),
    "16 bits": ((-32768, 32767), (-32768, 32767), "pairdot"),
    "beyond": ((-32769, 32767), (-128, 127), ""),
}


@pytest.fixture(autouse=True)
def of_a_plain_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_function, "processor", Processor)


def text(name: str, low: int, high: int, weights: np.ndarray) -> str:
    image, kernel, attributes = SHAPES[name]
    x, w = (f"tensor<{'x'.join(map(str, s))}xi32>" for s in (image, kernel))
    return f"""func @main(%x: {x} {{range = [{low}, {high}]}}) {{
  %w = const dense<{weights.tolist()}> : {w}
  %s = cvm.conv2d %x, %w {{{attributes}}}
  %y = cvm.cvm_right_shift %s {{precision = 24, shift_bit = 1}}
  return %y
}}
"""


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
