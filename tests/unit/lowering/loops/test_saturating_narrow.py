"""Shifts that round, and numbers that are narrowed and kept within limits, are exact at the ends of
every range.
"""

from __future__ import annotations

import numpy as np
import pytest
from legal_and_equal import agreed

ENDS = {"i32": (-(1 << 31), (1 << 31) - 1), "i16": (-(1 << 15), (1 << 15) - 1)}


def near(low: int, high: int, element: str, shift: int) -> np.ndarray:
    """Numbers at the ends of a range, and where results of a shift round up or reach a limit."""
    steps = [
        k * (1 << shift) + half
        for k in (-129, -128, -127, -1, 0, 1, 126, 127, 128, 255, 256)
        for half in (0, 1 << (shift - 1))
    ]
    found = {n + d for n in (low, high, 0, *steps) for d in (-1, 0, 1)}
    return np.resize(
        np.array(sorted(n for n in found if low <= n <= high), element.replace("i", "int")), (2, 64)
    )


@pytest.mark.parametrize("shift", [1, 2, 9, 31, 32])
@pytest.mark.parametrize(
    "declared", ["", " {range = [-1000000, 1000000]}", " {range = [-2147483648, 2147483391]}"]
)
def test_a_shift_that_rounds_adds_the_half_before_it_only_where_that_fits(
    shift: int, declared: str
) -> None:
    low, high = (
        ENDS["i32"] if not declared else (int(n) for n in declared.strip(" {}range=[]").split(","))
    )
    text = agreed(
        f"func @main(%x: tensor<2x64xi32>{declared}) {{\n"
        f"%y = cvm.cvm_right_shift %x {{precision = 8, shift_bit = {shift}}}\nreturn %y\n}}",
        (near(low, high, "i32", shift),),
    )
    half = 1 << (min(shift, 32) - 1)
    assert (f"+ {half} >> {shift}" in text) == (high + half < 1 << 31 and shift < 32)


@pytest.mark.parametrize(
    "low, high",
    [(-127, 127), (0, 127), (-128, 127), (0, 255), (0, 100), (-5, 5), (-128, 100), (3, 255)],
)
@pytest.mark.parametrize(
    "source, target", [("i32", "i8"), ("i32", "ui8"), ("i32", "i16"), ("i16", "i8")]
)
def test_numbers_are_narrowed_with_the_limits_of_their_type(
    source: str, target: str, low: int, high: int
) -> None:
    kept = {"i8": (-128, 127), "ui8": (0, 255), "i16": (-32768, 32767)}[target]
    if not kept[0] <= low <= high <= kept[1]:
        low, high = max(low, kept[0]), min(high, kept[1])
    text = agreed(
        f"func @main(%x: tensor<2x64x{source}>) {{\n"
        f'%a = theano.elemwise %x, {low} : {source} {{scalar_op = "maximum"}}\n'
        f'%b = theano.elemwise %a, {high} : {source} {{scalar_op = "minimum"}}\n'
        f'%y = theano.elemwise %b {{scalar_op = "cast", dtype = {target}}}\nreturn %y\n}}',
        (near(*ENDS[source], source, 8),),
    )
    assert f"{target}(min(max(%x" in text
    assert f", {kept[0]}), {kept[1]}))" in text
