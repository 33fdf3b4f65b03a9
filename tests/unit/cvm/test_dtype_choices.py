"""Element types of NumPy's functions of traced arrays: by operand, `dtype`, `where` and `out`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cvm

MASK = np.array([[True, False, True], [True, True, False]])
# values whose sums and products differ by the type in which they are computed
X = {
    "?": MASK,
    "i1": np.array([[100, 27, 1], [-128, 127, 3]], "i1"),
    "u1": np.array([[200, 250, 1], [255, 7, 3]], "u1"),
    "i4": np.array([[2**31 - 1, 2**31 - 1, 5], [-(2**31), 3, 7]], "i4"),
    "u4": np.array([[2**32 - 1, 2**31, 5], [2**32 - 1, 3, 7]], "u4"),
    "i8": np.array([[2**53 + 1, 2**53 + 3, 5], [-(2**60), 3, 7]], "i8"),
    "f2": np.array([[2048, 1, 0.5], [60000, 60000, 7]], "f2"),
    "f4": np.array([[2**24, 1, 0.1], [3e38, -7, 0.3]], "f4"),
    "f8": np.array([[2.0**53, 0.7, 0.1], [1e300, -7, 0.3]], "f8"),
}
REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: (
        np.sum(x),
        np.sum(x, axis=1),
        np.sum(x, axis=1, where=MASK),
        np.sum(x, axis=0, initial=2),
    ),
    "sum of a dtype": lambda x: tuple(np.sum(x, axis=1, dtype=d) for d in ("i4", "i8", "f4", "f8")),
    "prod": lambda x: (
        np.prod(x, axis=1),
        np.prod(x, axis=0, where=MASK),
        np.prod(x, axis=1, initial=3),
    ),
    "prod of a dtype": lambda x: tuple(
        np.prod(x, axis=1, dtype=d) for d in ("i4", "i8", "f4", "f8")
    ),
    "max": lambda x: (
        np.max(x),
        np.max(x, axis=1, initial=1),
        np.max(x, axis=0, where=MASK, initial=0),
    ),
    "min": lambda x: (
        np.min(x),
        np.min(x, axis=1, initial=1),
        np.min(x, axis=0, where=MASK, initial=1),
    ),
    "any": lambda x: (
        np.any(x),
        np.any(x, axis=1, where=MASK),
        np.all(x, axis=0),
        np.all(x, axis=1, where=MASK),
    ),
    "mean": lambda x: (
        np.mean(x),
        np.mean(x, axis=1),
        np.mean(x, axis=1, where=MASK),
        np.mean(x, axis=0, keepdims=True),
    ),
    "mean of a dtype": lambda x: tuple(np.mean(x, axis=1, dtype=d) for d in ("f4", "f8")),
    "mean in integers": lambda x: tuple(np.mean(x, axis=1, dtype=d) for d in ("i4", "u1", "i8")),
    "mean of a dtype where": lambda x: tuple(
        np.mean(x, axis=1, dtype=d, where=MASK) for d in ("i8", "f4", "f8")
    ),
    "where": lambda x: (
        np.where(x, x, 1),
        np.where(MASK, x, 2.5),
        np.where(MASK, np.float32(1), x),
    ),
    "clip": lambda x: (np.clip(x, 1, 3), np.clip(x, 0.5, None)) if x.dtype != bool else (),
    "joined": lambda x: (
        np.concatenate([x, np.ones((1, 3), "f4")]),
        np.stack([x, np.ones((2, 3), "i4")]),
    ),
    "matmul": lambda x: (x @ x.T, x @ np.ones(3, "i4"), np.ones(2, "f4") @ x),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", X)
def test_types_are_numpys(dtype: str, name: str) -> None:
    function = REDUCTIONS[name]
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        expected = function(X[dtype])
        if not expected:
            return
        found = cvm.compile(function, target="reference")(X[dtype])
    for number, (actual, wanted) in enumerate(zip(found, expected, strict=True)):
        assert actual.dtype == wanted.dtype, f"result {number}"
        assert actual.shape == wanted.shape
        np.testing.assert_allclose(
            actual, wanted, rtol=4 * _eps(wanted), atol=0, err_msg=str(number)
        )


def _eps(array: Any) -> float:
    return float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 0.0


TYPES = [(d, o) for d in ("?", "u1", "i4", "i8", "f4", "f8") for o in ("f4", "f8")]


@pytest.mark.parametrize(("dtype", "out"), [pair for pair in TYPES if pair != ("f8", "f4")])
@pytest.mark.parametrize("name", ["sum", "prod", "mean"])
def test_a_float_to_write_decides_the_type(name: str, dtype: str, out: str) -> None:
    def function(x: Any) -> Any:
        result = np.zeros_like(x[:, 0], dtype=out)
        getattr(np, name)(x, axis=1, out=result)
        return result

    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        wanted, found = (f(X[dtype]) for f in (function, cvm.compile(function, target="reference")))
    assert found.dtype == wanted.dtype == np.dtype(out)
    np.testing.assert_allclose(found, wanted, rtol=4 * _eps(wanted), atol=0)


Joined = Callable[[Any], Any]
BY_DALI: dict[str, tuple[Any, Joined, Any]] = {
    "an integer beside integers": (np.int8(5), lambda x: np.stack([x, 2]), np.array([5, 2], "i1")),
    "an integer beside floats": (np.float32(5), lambda x: np.stack([x, 2]), np.array([5, 2], "f4")),
    "a float beside floats": (
        np.float64(5),
        lambda x: np.stack([0.1, x]),
        np.array([0.1, 5], "f8"),
    ),
    "a float beside f32": (np.float32(5), lambda x: np.stack([x, 0.1]), np.array([5, 0.1], "f4")),
    "numbers of NumPy": (
        np.int16(5),
        lambda x: np.stack([np.int16(3), x, 4]),
        np.array([3, 5, 4], "i2"),
    ),
    "arrays": (np.int16([5]), lambda x: np.concatenate([x, x]), np.array([5, 5], "i2")),
    "truths": (np.bool_(True), lambda x: np.stack([x, False]), np.array([True, False])),
}
REFUSED: dict[str, tuple[Any, Joined, str]] = {
    "a float beside integers": (
        np.int32(5),
        lambda x: np.stack([x, 2.5]),
        "of one element type, got i32 and f64",
    ),
    "a truth beside integers": (
        np.int32(5),
        lambda x: np.stack([x, True]),
        "of one element type, got i32 and i1",
    ),
    "an integer beyond the type": (
        np.uint8(5),
        lambda x: np.stack([x, 300]),
        "300 is no number of NumPy's uint8",
    ),
    "another type of NumPy": (
        np.int32(5),
        lambda x: np.stack([x, np.int64(3)]),
        "of one element type, got i32 and i64",
    ),
}


@pytest.mark.parametrize("case", BY_DALI)
def test_numbers_take_the_type_of_arrays_by_the_rules_of_dali(case: str) -> None:
    x, function, wanted = BY_DALI[case]
    found = cvm.compile(function, rules="dali", target="reference")(np.asarray(x))
    np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize("case", REFUSED)
def test_types_that_dali_does_not_join(case: str) -> None:
    x, function, said = REFUSED[case]
    with pytest.raises(cvm.Error, match=said):
        cvm.compile(function, rules="dali", target="reference")(np.asarray(x))
