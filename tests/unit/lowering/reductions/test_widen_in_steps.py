"""Sums of narrow integers are exact, whatever their values, length and axis."""

from __future__ import annotations

import numpy as np
import pytest
from legal_and_equal import legal

import cvm

DTYPES = {"i8": np.int8, "ui8": np.uint8, "i16": np.int16, "ui16": np.uint16}


def summed(element: str, shape: tuple[int, ...], attributes: str) -> cvm.Compiled:
    sizes = "".join(f"{n}x" for n in shape)
    module = cvm.parse(
        f"func @main(%x: tensor<{sizes}{element}>) {{\n  %y = theano.sum %x {attributes}\n"
        f"  return %y\n}}\n"
    )
    legal(module)
    return cvm.compile(module)


@pytest.mark.sample(70)
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("shape", [(3, 100), (17, 20_001), (300, 129), (600, 1024), (40, 0)])
@pytest.mark.parametrize("wide", ["i64", "i32", "i16"])
def test_sums(element: str, axis: int | None, shape: tuple[int, ...], wide: str) -> None:
    wide = f"u{wide}" if element.startswith("u") else wide
    chosen = "" if axis is None else f"axis = [{axis}], "
    f = summed(element, shape, f"{{{chosen}dtype = {wide}, acc_dtype = {wide}}}")
    dtype = DTYPES[element]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for x in (
        np.full(shape, low),
        np.full(shape, high),
        np.random.default_rng(0).integers(low, high + 1, shape),
    ):
        x = x.astype(dtype)
        np.testing.assert_array_equal(f(x), np.sum(x, axis=axis, dtype=f(x).dtype))


@pytest.mark.parametrize(
    ("element", "size"), [("i8", 64 * 256 + 64), ("ui8", 64 * 256), ("i16", 32 * (1 << 16) + 40)]
)
def test_as_many_terms_as_fit(element: str, size: int) -> None:
    f = summed(element, (17, size), "{axis = [1]}")
    assert "%part" in f.lower("schedule")
    dtype = DTYPES[element]
    for value in (np.iinfo(dtype).min, np.iinfo(dtype).max):
        np.testing.assert_array_equal(
            f(np.full((17, size), value, dtype)), np.full(17, int(value) * size)
        )
