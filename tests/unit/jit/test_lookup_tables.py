"""Rows of numbers that functions look up: the nearest floats, found by every lane, by native code
and by a GPU's.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import Index, apply
from cvm.dialect.kernel_ir.integer_lookup_tables import (
    ERF_SPACING,
    LOG_BITS,
    LOG_LEAST,
    LOG_WIDTH,
    ROWS,
    Rows,
)
from cvm.dialect.kernel_ir.loops import For, Store
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.types.tensor_types import F64, I64
from cvm.jit.cuda.emulator.ptx import Unsupported, parse
from emulated_kernels import simulated
from mpmath import erf, erfc, exp, log, mp, mpf, nint, pi, sqrt
from native_kernels import compiled, kernel, tensor

NAMES = [name for rows in ROWS for name in rows.columns]


def column(name: str) -> np.ndarray:
    rows = next(rows for rows in ROWS if name in rows.columns)
    return rows.numbers()[:, rows.columns.index(name)]


def rest(name: str, n: int) -> mpf:
    """The logarithm that a factor is to be made good for."""
    return -log(mpf(float(column(f"{name}_factor")[n])))


EXACT = {
    "erf_value": lambda n: erf(n * mpf(ERF_SPACING)),
    "erf_slope": lambda n: 2 / sqrt(pi) * exp(-((n * mpf(ERF_SPACING)) ** 2)),
    "erfc_value": lambda n: erfc(n * mpf(ERF_SPACING)),
    "erfc_slope": lambda n: 2 / sqrt(pi) * exp(-((n * mpf(ERF_SPACING)) ** 2)),
    "log_value": lambda n: rest("log", n),
    "log2_value": lambda n: rest("log2", n) / log(mpf(2)),
    "log10_value": lambda n: rest("log10", n) / log(mpf(10)),
    "pow_high": lambda n: nint(rest("pow", n) * 2**LOG_BITS) / 2**LOG_BITS,
    "pow_low": lambda n: rest("pow", n) - EXACT["pow_high"](n),
}
FACTORS = [name for name in NAMES if name.endswith("_factor")]


@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: rows.columns[0])
def test_tables_are_of_powers_of_two(rows: Rows) -> None:
    length, width = rows.numbers().shape
    assert length.bit_count() == width.bit_count() == 1 and len(rows.columns) <= width
    assert not rows.numbers().flags.writeable


@pytest.mark.parametrize("name", EXACT)
def test_numbers_are_the_nearest_ones(name: str) -> None:
    found = column(name)
    with mp.workprec(200):
        exact = [float(EXACT[name](n)) for n in range(np.flatnonzero(found)[-1] + 1)]
    np.testing.assert_array_equal(found[: len(exact)], exact)


def test_every_number_is_judged() -> None:
    assert {*EXACT, *FACTORS} == {*NAMES}


@pytest.mark.parametrize("name", FACTORS)
def test_a_factor_leaves_an_exact_number_near_zero(name: str) -> None:
    factors, count = column(name), 1 << LOG_WIDTH
    for n, factor in enumerate(factors):
        for place in (0, 1, 12_345_678_901, count - 1):
            m = float(np.int64(LOG_LEAST + n * count + place).view(np.float64))
            exact = Fraction(m) * Fraction(float(factor)) - 1
            assert float(exact) == exact and abs(exact) <= 0.006


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lanes", [1, 2, 6, 8, 24])
def test_every_lane_finds_its_row(name: str, lanes: int) -> None:
    """Also by integers that are no row's number: their low bits count."""
    at = np.random.default_rng(0).integers(-(1 << 63), 1 << 63, 96)
    at[:8] = (0, 1, -1, 767, 768, 1 << 62, -(1 << 63), 5)
    i, n, y = Index("i", 96), tensor("n", I64, 96), tensor("y", F64, 96)
    store = Store(y, (i,), apply(name, n[i]))
    loop = For(i, (store,), kind="vector", width=lanes) if lanes > 1 else For(i, (store,))
    (found,) = compiled(kernel((loop,), n, y), at)
    np.testing.assert_array_equal(found, SCALARS[name].numpy(at))


def test_functions_of_one_table_and_of_several() -> None:
    at = np.arange(-32, 32)
    i, n = Index("i", 64), tensor("n", I64, 64)
    ys = [tensor(f"y{k}", F64, 64) for k, _ in enumerate(NAMES)]
    stores = tuple(Store(y, (i,), apply(name, n[i])) for y, name in zip(ys, NAMES, strict=True))
    for run, loop in (
        (compiled, For(i, stores, kind="vector", width=8)),
        (simulated, For(i, stores)),
    ):
        for found, name in zip(
            run(kernel((loop,), n, *ys, results=len(ys)), at), NAMES, strict=True
        ):
            np.testing.assert_array_equal(found, SCALARS[name].numpy(at))


def test_tables_of_ptx_are_numbers_of_any_width() -> None:
    text = """
    .global .align 8 .b8 bytes[4] = {1, 2, 255, 0};
    .global .align 8 .u32 words[3] = {-1, 0x10};
    .visible .entry k() { ret; }"""
    assert parse(text)["k"].tables == {
        "bytes": b"\x01\x02\xff\x00",
        "words": b"\xff\xff\xff\xff\x10" + bytes(7),
    }
    with pytest.raises(Unsupported, match="global memory"):
        parse(".global .align 4 .u32 count;" + text)
