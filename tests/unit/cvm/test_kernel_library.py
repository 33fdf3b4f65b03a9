"""Functions of NumPy that are stated as kernels, and other shapes of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels_as_python import check, check_mistake

import cvm

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4))


def sorts(x: Any) -> Any:
    y, places = np.sort(x), x.argsort()
    x.sort()
    return y, places, np.argsort(y)


def sums(x: Any) -> Any:
    return np.cumsum(x), x.cumsum(), np.cumprod(x), np.count_nonzero(x), np.diff(x)


def norms(x: Any) -> Any:
    return np.linalg.norm(x), np.linalg.norm(x[:3])


def places(x: Any, v: Any) -> Any:
    return np.searchsorted(x, v)


def shapes(x: Any, n: int) -> Any:
    y = x.flatten()
    y[0] = 7
    z = x.T.flatten()
    halves = np.reshape(x, (2, 3, 2)) * 2
    total = 0.0
    for v in x.flatten():
        total = total / 2 + v
    return y, z, np.reshape(x, (n, -1)).copy(), halves[1].copy(), total, np.reshape(x[1:], 8) - 1


def median_filter(image: Any) -> Any:
    found, near = image.copy(), np.empty(9, image.dtype)
    for i in range(1, image.shape[0] - 1):
        for j in range(1, image.shape[1] - 1):
            near[:] = image[i - 1 : i + 2, j - 1 : j + 2].ravel()
            near.sort()
            found[i, j] = near[4]
    return found


@pytest.mark.parametrize("count", [0, 1, 2, 16, 17, 33, 500])
@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8])
def test_sorts(count: int, dtype: Any) -> None:
    check(sorts, RNG.permutation(min(count, np.iinfo(np.uint8).max)).astype(dtype))


def test_orders_of_equal_elements_and_of_nan() -> None:
    x = RNG.integers(0, 5, 300).astype(float)
    x[::7] = np.nan
    found, order, _ = cvm.kernel(sorts)(x.copy())
    assert np.array_equal(found, np.sort(x), equal_nan=True)
    assert np.array_equal(order, np.argsort(x, kind="stable"))


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int64, np.float32, np.float64, np.complex64]
)
@pytest.mark.parametrize("count", [0, 11])
def test_sums(dtype: Any, count: int) -> None:
    x = RNG.integers(0, 3, count).astype(dtype)
    check(sums, x)
    for found, wanted in zip(cvm.kernel(norms)(x), norms(x), strict=True):
        assert type(found) is type(wanted)
        assert np.isclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("v", [0.0, 5.5, 99.0, -99.0, float("nan")])
def test_places(v: float) -> None:
    check(places, np.sort(RNG.normal(size=21) * 5), v)
    check(places, np.array([1.0, np.nan, np.nan]), v)


def test_shapes() -> None:
    check(shapes, X, 6)
    check(shapes, np.asfortranarray(X), 2)
    check(median_filter, RNG.integers(0, 255, (9, 11)).astype(np.uint8))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("np.reshape(x, (5, -1)).copy()", "cannot reshape an array of size 12 into this shape"),
        ("np.reshape(x, 7).sum()", "cannot reshape an array of size 12 into this shape"),
        ("np.reshape(x, (-1, -1)).sum()", "only one size can be -1"),
        ("x.ravel()", "ravel may give a view in NumPy, .*: use flatten, or copy the result"),
        ("np.reshape(x, 12)", "reshape may give a view in NumPy"),
        ("np.sort(x)", "takes an array of rank 1 in kernels, got: array of float64 with rank 2"),
        ("np.cumsum(x)", "takes an array of rank 1 in kernels"),
    ],
)
def test_mistakes(line: str, message: str, tmp_path: Path) -> None:
    check_mistake(message, f"def f(x):\n    y = {line}\n    return y\n", tmp_path, X)
