"""Arguments that are known while a function is traced: declared static, or numbers with defaults
that turn out to be needed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import cvm

X = np.arange(6.0).reshape(2, 3)


def extent(x: Any, axis: Any) -> Any:
    return np.max(x, axis=axis) - np.min(x, axis=axis)


def total(x: Any, axis: int = 1, keepdims: bool = False) -> Any:
    return x.sum(axis=axis, keepdims=keepdims)


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": 1},
        {"static_argnums": (-1,)},
        {"static_argnames": "axis"},
        {"static_argnames": ["axis"]},
    ],
)
def test_declared(options: dict[str, Any]) -> None:
    f = cvm.compile(extent, target="reference", **options)
    for axis in (0, 1, (0, 1), None):
        np.testing.assert_array_equal(f(X, axis), extent(X, axis), strict=True)
        np.testing.assert_array_equal(f(X, axis=axis), extent(X, axis), strict=True)


@pytest.mark.parametrize(
    "function",
    [
        total,
        partial(total, axis=0, keepdims=True),
        lambda x, n=4: np.broadcast_to(x[0, 1], (n,)),
        lambda x, n=2: np.zeros(2 * n + 1) + x[0, 0],
        lambda x, n=3: sum((x * k for k in range(n)), x),
        lambda x, n=2: np.repeat(x, n),
        lambda x, n=2: np.tile(x, n),
        lambda x, dtype=np.float32: x.astype(dtype),
        lambda x, shape=(-1, 1): x.reshape(shape),
        lambda x, n=2: np.split(x, n),
        lambda x, n=1: x[:, n:],
        lambda x, n=1: np.pad(x, n),
        lambda x, n=2: np.roll(x, n, axis=1),
        lambda x, flag=True: x + 1 if flag else x,
        lambda x, n=3: x if n > 2 else -x,
    ],
)
def test_numbers_with_defaults_are_static_where_they_are_needed(function: Any) -> None:
    f = cvm.compile(function, target="reference", rules="numpy")
    for given in ((X,), (X[:, ::-1],)):
        np.testing.assert_array_equal(f(*given), function(*given), strict=True)


def test_what_was_needed_once_may_be_given() -> None:
    f = cvm.compile(total, rules="numpy")
    for call in ((X,), (X, 0), (X, 1, True), (X, 0, True), (X, -2)):
        np.testing.assert_array_equal(f(*call), total(*call), strict=True)
    gain = cvm.compile(lambda x, a=0.5: x * a, rules="numpy")
    gain(X)
    assert "%a: tensor<f64>" in str(
        gain.program()
    )  # not needed, so that another value is no other program


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (extent, "axis"),
        (lambda x, n: np.zeros(n) + x[0, 0], "n"),
        (lambda x, n: [x * k for k in range(n - 1)], "n"),
        (lambda x, n: x if n > 2 else -x, "n"),
        (lambda x, n: x[: n // 2], "n"),
        (lambda x, n: np.split(x, n), "n"),
        (lambda x, n: np.repeat(x, n), "n"),
    ],
)
def test_the_error_names_what_to_make_static(function: Any, name: str) -> None:
    with pytest.raises(cvm.TraceError, match=rf"give cvm.compile static_argnames=\['{name}'\]"):
        cvm.compile(function, rules="numpy")(X, 1)


def test_branches_on_elements_show_where() -> None:
    for function in (lambda x, n=0: x if x.sum() > n else -x, lambda x: x if x[0, 0] else -x):
        with pytest.raises(cvm.TraceError, match=r"use np\.where\(condition, a, b\)\n") as caught:
            cvm.compile(function, rules="numpy")(X)
        assert not caught.value.static_names


def test_an_array_is_not_made_static() -> None:
    with pytest.raises(cvm.CallError, match="argument axis is static, so it has to be hashable"):
        cvm.compile(total, rules="numpy")(X, np.array(1))
