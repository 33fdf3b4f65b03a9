"""Rotations by computed shifts, and updates of complex elements at arrays of indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from available_targets import HERE, WIDTHS

import cvm

X = np.arange(12.0).reshape(3, 4)
C = X + 1j * np.cos(X)
EXTREMES = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def everywhere(function: Callable[..., Any], *arguments: object) -> list[np.ndarray]:
    """Return the results of every target and of each width of the processor's vectors."""
    hows: list[dict[str, Any]] = [{"target": "reference"}, {}]
    hows += [{"cpu": cpu} for cpu in WIDTHS]
    hows += [{"target": "cuda-sim"}] * ("cuda-sim" in HERE)
    return [cvm.compile(function, **how)(*arguments) for how in hows]


def added(x: Any, key: Any, values: Any) -> Any:
    x = x.copy()
    np.add.at(x, key, values)
    return x


ROLLS: dict[str, Callable[[Any, Any], Any]] = {
    "flat": lambda x, k: np.roll(x, k),
    "axis": lambda x, k: np.roll(x, k, axis=1),
    "axes": lambda x, k: np.roll(x, (k, 1), axis=(0, -1)),
    "twice": lambda x, k: np.roll(x, (k, 2, k), axis=0),
    "one for axes": lambda x, k: np.roll(x, k, axis=(0, 1)),
    "empty": lambda x, k: np.roll(x[:0], k, axis=0),
    "scalar": lambda x, k: np.roll(x[1, 1], k),
}


@pytest.mark.parametrize("name", ROLLS)
def test_rolls_by_computed_shifts(name: str) -> None:
    function = ROLLS[name]
    for shift in (0, 1, -1, 5, -12, 1000003):
        k = np.int64(shift)
        for found in everywhere(function, X, k):
            np.testing.assert_array_equal(found, function(X, k), strict=True)


def test_shifts_of_any_integer_type() -> None:
    roll = cvm.compile(lambda x, k: np.roll(x, k, axis=1))
    for k in (*map(np.int64, EXTREMES), np.uint64(2**64 - 1), np.uint8(255), np.int8(-128)):
        np.testing.assert_array_equal(roll(X, k), np.roll(X, int(k) % 4, axis=1))
    x = np.arange(300)
    np.testing.assert_array_equal(roll(x[None], np.uint8(255))[0], np.roll(x, 255))
    both = cvm.compile(lambda x, k: np.roll(x, k, axis=(0, 1)))
    np.testing.assert_array_equal(both(X, np.array([1, -2])), np.roll(X, (1, -2), axis=(0, 1)))
    with pytest.raises(cvm.TraceError, match="takes integers as shifts"):
        roll(X, np.float64(1))


def test_rolls_in_vmap_and_their_derivatives() -> None:
    shifts = np.array([1, 2, 7])
    rows = cvm.compile(lambda x, k: cvm.vmap(np.roll)(x, k))(X, shifts)
    np.testing.assert_array_equal(rows, [np.roll(r, k) for r, k in zip(X, shifts, strict=True)])
    gradient = cvm.grad(lambda x, k: (np.roll(x, k) * x).sum())(X[0], np.int64(1))
    np.testing.assert_array_equal(gradient, np.roll(X[0], 1) + np.roll(X[0], -1))


PLACES: dict[str, Any] = {
    "equal": (np.array([0, 2, 2]), C),
    "two axes": ((np.array([0, 0, 2]), np.array([1, 1, 0])), C[0, :3]),
    "beside a slice": ((slice(None), np.array([-1, -1])), C[:, :2]),
    "list": (([2, 2],), C[0]),
    "real values": (np.array([1, 1, 1]), X),
    "number": (np.array([1, 1, 1]), 1 - 2j),
    "one": ((np.int64(1), np.int64(2)), 3j),
    "negative zero": (np.array([1]), complex(-0.0, -0.0)),
}


@pytest.mark.parametrize("kind", ["c8", "c16"])
@pytest.mark.parametrize("name", PLACES)
def test_complex_numbers_are_added_at_arrays_of_indices(name: str, kind: str) -> None:
    key, values = PLACES[name]
    x = (-0.0 * C).astype(kind) if name == "negative zero" else C.astype(kind)
    if isinstance(values, np.ndarray):
        real = "f4" if kind == "c8" else "f8"
        values = values.astype(kind if values.dtype.kind == "c" else real)
    wanted = added(x, key, values)
    for function in (lambda x: x.at[key].add(values), lambda x: added(x, key, values)):
        for found in everywhere(function, x):
            assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


def test_one_complex_element_in_a_loop_and_derivatives() -> None:
    def summed(x: Any, places: Any) -> Any:
        return cvm.fori_loop(0, 4, lambda n, y: y.at[places[n]].multiply(2j), x * 1)

    places, wanted = np.array([1, 0, 1, 2]), C[0] * [2j, -4, 2j, 1]
    np.testing.assert_array_equal(cvm.compile(summed)(C[0], places), wanted)

    def size(x: Any) -> Any:
        y = (x + 1j * x).at[np.array([0, 2, 2])].add(x[:3] * 2j)
        return (y.real**2 + y.imag**2).sum()

    x = np.arange(1.0, 5.0)
    steps = [(size_of(size, x + d) - size_of(size, x - d)) / 2e-4 for d in np.eye(4) * 1e-4]
    np.testing.assert_allclose(cvm.grad(size)(x), steps, rtol=1e-6)


def size_of(function: Callable[..., Any], x: np.ndarray) -> float:
    return float(cvm.compile(function)(x))


def test_products_of_complex_elements_at_arrays_of_indices_are_refused() -> None:
    with pytest.raises(cvm.TraceError, match="take add and set, got multiply"):
        cvm.compile(lambda x: x.at[[0, 0]].multiply(2j))(C)
