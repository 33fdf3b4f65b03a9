"""Transcendental functions: within 2 ulp, right at the edges, exact where they can be, the same
bits in vectors.
"""

from __future__ import annotations

import numpy as np
import pytest
from cvm.dialect.types.tensor_types import F16, F32, F64, ElementType
from cvm.lowering.math import FUNCTIONS
from exact_functions import LONG, NUMPY, in_mpmath
from ulps import LANES, PAIRS, arguments, exact, numbered, run, ulps, worst

INF, NAN = np.inf, np.nan
BOTH = pytest.mark.parametrize("element", [F32, F64], ids=str)


@BOTH
@pytest.mark.parametrize("function", FUNCTIONS)
def test_error(function: str, element: ElementType) -> None:
    quick = element is F32 or (LONG and function in NUMPY)
    operands = arguments(function, element, 100_000 if quick else 2_000)
    error, where = worst(ulps(run(function, *operands), exact(function, *operands)), operands)
    assert error <= 2, f"{error} ulp at {where}"


@BOTH
@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_errors_are_measured_against(function: str, element: ElementType) -> None:
    """The quick exact values are mpmath's, but for much less than an ulp."""
    operands = arguments(function, element, 600)
    slow = in_mpmath(function, *(o.astype(np.float64) for o in operands))
    quick = exact(function, *operands)
    np.testing.assert_array_equal(np.isnan(quick), np.isnan(slow))
    assert ulps(quick.astype(element.dtype), slow).max() <= 0.51


def test_errors_are_counted_alike_by_machine_code_and_by_numpy() -> None:
    for element in (F16, F32):
        (x,) = arguments("tan", element, 6000)
        x = x[: len(x) // LANES * LANES]
        found, wanted = run("tan", x), exact("tan", x)
        found[::7], found[::11], found[::3] = np.nan, -0.0, np.inf
        found[::5] *= -1
        plain = wanted != 0  # where an ulp is the least one, and both are only large
        by_numpy = np.append(ulps(found[:-1], wanted[:-1]), ulps(found[-1:], wanted[-1:]))
        np.testing.assert_array_equal(
            ulps(found, wanted)[plain], by_numpy.astype(np.float32)[plain]
        )


@pytest.mark.parametrize("function", FUNCTIONS)
def test_f16_is_rounded_from_f32(function: str) -> None:
    operands = arguments(function, F16, 4000) if function in PAIRS else (numbered(F16, 0, 1 << 16),)
    assert ulps(run(function, *operands), exact(function, *operands)).max() <= 0.51


@pytest.mark.sample(16)
@BOTH
@pytest.mark.parametrize("function", FUNCTIONS)
def test_same_bits_for_every_number_of_lanes(function: str, element: ElementType) -> None:
    operands = arguments(function, element, 400)
    wide = run(function, *operands)
    for lanes in (1, 4, 8):
        np.testing.assert_array_equal(run(function, *operands, lanes=lanes), wide)


# of C's Annex F, what is not the value at a point: (function, operands, result)
EDGES = [
    *(("exp", x, y) for x, y in ((0, 1), (-0.0, 1), (-INF, 0), (INF, INF))),
    *(("exp2", x, 2.0**x) for x in range(-126, 128)),
    *(("expm1", x, y) for x, y in ((0, 0), (-0.0, -0.0), (-INF, -1), (INF, INF))),
    *(("log", x, y) for x, y in ((1, 0), (0, -INF), (-0.0, -INF), (-1, NAN), (-INF, NAN), (INF,
     INF))),
    *(("log2", 2.0**n, n) for n in range(-149, 128)),
    *(("log10", 10.0**n, n) for n in range(11)),
    *(("log1p", x, y) for x, y in ((0, 0), (-0.0, -0.0), (-1, -INF), (-2, NAN), (INF, INF))),
    *((f, x, y) for f in ("sin", "tan") for x, y in ((-0.0, -0.0), (0, 0), (INF, NAN), (-INF,
     NAN))),
    *(("cos", x, y) for x, y in ((0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN))),
    *((f, x, y) for f in ("asin", "atanh") for x, y in ((-0.0, -0.0), (1.5, NAN), (-INF, NAN))),
    *(("acos", x, y) for x, y in ((1, 0), (-1.5, NAN), (INF, NAN))),
    *(("atanh", x, y) for x, y in ((1, INF), (-1, -INF))),
    *(("acosh", x, y) for x, y in ((1, 0), (0.5, NAN), (-INF, NAN), (INF, INF))),
    *((f, x, x) for f in ("sinh", "asinh", "cbrt") for x in (-0.0, 0, INF, -INF)),
    *(("cosh", x, INF) for x in (INF, -INF)),
    *(("tanh", x, y) for x, y in ((-0.0, -0.0), (INF, 1), (-INF, -1), (100, 1))),
    *(("cbrt", n**3, n) for n in range(-200, 201)),
    *(("rsqrt", x, y) for x, y in ((4, 0.5), (0, INF), (-0.0, -INF), (INF, 0), (-1, NAN))),
    *(("sigmoid", x, y) for x, y in ((0, 0.5), (INF, 1), (-INF, 0))),
    *(("softplus", x, y) for x, y in ((INF, INF), (-INF, 0), (1000, 1000))),
    *(("erf", x, y) for x, y in ((-0.0, -0.0), (INF, 1), (-INF, -1))),
    *(("erfc", x, y) for x, y in ((0, 1), (INF, 0), (-INF, 2))),
    *(("erfcx", x, y) for x, y in ((0, 1), (INF, 0), (-INF, INF))),
    *((f, NAN, NAN) for f in FUNCTIONS if f not in ("pow", "atan2")),
    *(("pow", (x, 0), 1) for x in (0, -0.0, 1, -5, INF, -INF, NAN)),
    *(("pow", (1, y), 1) for y in (0, -3, 0.5, INF, -INF, NAN)),
    *(("pow", (-1, y), 1) for y in (2, INF, -INF)),
    *(("pow", (-8, y), NAN) for y in (1 / 3, 0.5, -1.5)),
    *(("pow", (x, y), 0) for x, y in ((0, 2), (-0.0, 2), (-0.0, 0.5), (0, INF), (0.5, INF), (-2,
     -INF), (INF, -0.1))),
    *(("pow", (x, -y), INF) for x, y in ((0, 2), (-0.0, 2), (-0.0, 0.5), (0, INF), (0.5, INF), (-2,
     -INF), (INF, -1))),
    *(("pow", (x, 3), x**3) for x in (-0.0, -INF, -2)),
    *(("pow", (x, -3), y) for x, y in ((-0.0, -INF), (-INF, -0.0), (-2, -0.125))),
    *(("pow", (x, y), NAN) for x, y in ((NAN, 1), (2, NAN), (NAN, NAN))),
    *(("pow", (b, n), b**n) for b in range(2, 60) for n in range(1, 24) if b**n < 1 << 24),
    *(("atan2", (y, x), y) for y in (0, -0.0) for x in (0, 1, INF)),
    *(("atan2", (y, INF), np.copysign(0, y)) for y in (1, -1)),
    *(("atan2", (y, x), np.copysign(np.pi, y)) for y in (0, -0.0) for x in (-1, -0.0, -INF)),
    *(("atan2", (y, x), np.copysign(np.pi / 2, y)) for y in (1, -1, INF, -INF) for x in (0, -0.0)),
    *(("atan2", (y, x), np.copysign(np.pi / 4, y)) for y in (INF, -INF, 2, -2) for x in (abs(y),)),
    *(("atan2", (y, -INF), np.copysign(np.pi * 3 / 4, y)) for y in (INF, -INF)),
    *(("atan2", (y, x), NAN) for y, x in ((NAN, 1), (1, NAN), (NAN, INF), (INF, NAN))),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("function", FUNCTIONS)
def test_edges(function: str, element: ElementType) -> None:
    """To the bit, signs of zeros included."""
    rows = [(x if isinstance(x, tuple) else (x,), y) for f, x, y in EDGES if f == function]
    operands = [
        np.array(column, element.dtype) for column in zip(*(x for x, _ in rows), strict=True)
    ]
    found, wanted = run(function, *operands), np.array([y for _, y in rows]).astype(element.dtype)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(
        np.signbit(found) | np.isnan(found), np.signbit(wanted) | np.isnan(wanted)
    )
