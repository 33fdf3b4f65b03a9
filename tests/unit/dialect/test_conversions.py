"""Conversions between all pairs of element types: NumPy's, the machine code's and exact arithmetic
agree.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import Index, cast
from cvm.dialect.kernel_ir.loops import For, Store
from cvm.dialect.numpy.astype_formula import arrays_like_numpy
from cvm.dialect.types.cast_arrays import converted
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, I32, I64, UI32, UI64, ElementType
from native_kernels import compiled, kernel, tensor

REAL = [e for e in ELEMENT_TYPES.values() if e.kind != "complex"]
FLOATS = [e for e in REAL if e.kind == "float"]


def edges(element: ElementType) -> np.ndarray:
    """Values at and around every limit of every type, as far as this type has them."""
    if element.kind == "bool":
        return np.array([False, True])
    whole = {
        s * (2**n + d)
        for n in (0, 7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64)
        for d in (-1, 0, 1)
        for s in (1, -1)
    }
    whole |= {
        0,
        65504,
        65519,
        65520,
        65535,
        2049,
        2051,
        16777219,
        9007199254740995,
        2**63 + 1025,
        2**40 + 2**15,
    }
    if element.is_integer:
        low, high = element.limits
        return np.array(sorted(v for v in whole if low <= v <= high), element.dtype)
    odd = [
        0.5,
        -0.5,
        1.5,
        2.5,
        -1.5,
        0.999,
        1e-8,
        6e-8,
        3e-8,
        1e-40,
        1e-46,
        5e-324,
        65519.999,
        1 + 2**-11,
        1 + 2**-11 + 2**-40,
    ]
    special = [
        math.nan,
        math.inf,
        -math.inf,
        -0.0,
        3.4028235677973366e38,
        3.4028235677973362e38,
        1e300,
        -1e300,
    ]
    with np.errstate(over="ignore"):
        return np.array([*map(float, sorted(whole)), *odd, *special]).astype(element.dtype)


def exactly(value: Any, element: ElementType) -> Any:
    """One value in another type, in exact arithmetic."""
    if element.kind == "bool":
        return value != 0
    if element.kind == "float":
        return nearest(value, element)
    if isinstance(value, float):
        low, high = element.limits
        return (
            0 if math.isnan(value) else low if value < low else high if value > high else int(value)
        )
    low, high = element.limits
    return (value - low) % (high - low + 1) + low


def nearest(value: Any, element: ElementType) -> float:
    """The float nearest to a number, ties to even."""
    if isinstance(value, float) and (not math.isfinite(value) or value == 0):
        return value
    digits, least = {"f16": (11, -24), "bf16": (8, -133), "f32": (24, -149), "f64": (53, -1074)}[
        element.name
    ]
    number = Fraction(value)
    if number == 0:
        return 0.0
    exponent = max(math.floor(math.log2(abs(number))) - digits + 1, least)
    for e in (exponent - 1, exponent, exponent + 1):  # log2 may be one off
        scaled = abs(number) / Fraction(2) ** e
        if scaled < 2**digits and e >= least:
            break
    rounded = Fraction(round(scaled)) * Fraction(2) ** e
    large = {"f16": 2**16, "f64": 2**1024}.get(element.name, 2**128)
    found = math.inf if rounded >= large else float(rounded)
    return math.copysign(found, number)


@pytest.mark.parametrize("source", REAL, ids=str)
def test_conversions(source: ElementType) -> None:
    x = edges(source)
    operand, i = tensor("x", source, len(x)), Index("i", len(x))
    results = [tensor(f"y{n}", e, len(x)) for n, e in enumerate(REAL)]
    body = tuple(Store(y, (i,), cast(operand[i], y.element)) for y in results)
    found = compiled(kernel((For(i, body),), operand, *results, results=len(results)), x)
    for target, native in zip(REAL, found, strict=True):
        wanted = np.array([exactly(v, target) for v in x.tolist()], target.dtype)
        for what, got in (("numpy", converted(x, target)), ("native", native)):
            same = (
                (got == wanted) & (np.signbit(got) == np.signbit(wanted))
                if target.kind == "float"
                else got == wanted
            )
            same |= (got != got) & (wanted != wanted)
            wrong = [(v, g, w) for v, g, w, s in zip(x, got, wanted, same, strict=True) if not s]
            assert not wrong, f"{what}: {source} to {target}: {wrong[:5]}"
            assert got.dtype == target.dtype


@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_complex(source: ElementType) -> None:
    x = edges(source)
    for target in (e for e in ELEMENT_TYPES.values() if e.kind == "complex"):
        part = FLOATS[-2] if target.bits == 64 else FLOATS[-1]
        there = converted(x, target)
        assert there.dtype == target.dtype and not there.imag.any()
        np.testing.assert_array_equal(there.real, converted(x, part))
        np.testing.assert_array_equal(converted(there, part), there.real)


@pytest.mark.parametrize("target", ELEMENT_TYPES.values(), ids=str)
@pytest.mark.parametrize("source", ELEMENT_TYPES.values(), ids=str)
def test_the_reference_converts_alike_whatever_the_length(
    source: ElementType, target: ElementType
) -> None:
    """NumPy's loops do not: by their width they give one integer or another for NaN and numbers out
    of range.
    """
    if "bf16" in (source.name, target.name):
        pytest.importorskip("ml_dtypes")
    given = edges(source if source.kind != "complex" else ELEMENT_TYPES["f32"])
    if source.kind == "complex":
        given = np.array([complex(x, -x) for x in given], source.dtype)
    for convert in (converted, arrays_like_numpy):
        together = convert(given, target)
        alone = np.concatenate([convert(given[k : k + 1], target) for k in range(len(given))])
        assert together.tobytes() == alone.tobytes()


@pytest.mark.parametrize("element", [e for e in REAL if e.is_integer], ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_astype_is_that_of_x86_for_every_number(source: ElementType, element: ElementType) -> None:
    low, high = (I64 if element in (I64, UI32, UI64) else I32).limits
    given = edges(source)
    for x, y in zip(given.astype(float), arrays_like_numpy(given, element).tolist(), strict=True):
        if element is UI64 and x >= 2.0**63:
            wanted = int(x) if x < 2.0**64 else 0  # of which the upper half is the least i64
        else:
            wanted = int(x) if math.isfinite(x) and low - 1 < x < high + 1 else low
        least = element.limits[0]
        assert y == (wanted - least) % (1 << element.bits) + least, x
