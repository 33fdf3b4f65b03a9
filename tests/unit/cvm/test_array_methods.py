"""Methods and subscripts of traced arrays, and NumPy's functions of them: what NumPy gives, for
every type it makes sense for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm

Array = np.ndarray
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", "float64")

# of an array of 2 by 3 by 4; exact for every type
EXACT: list[Callable[[Any], Any]] = [
    lambda x: x.max(),
    lambda x: x.max(axis=1),
    lambda x: x.min(axis=(0, -1), keepdims=True),
    lambda x: np.max(x, axis=-1, keepdims=True),
    lambda x: np.amin(x, 0),
    lambda x: np.maximum.reduce(x),
    lambda x: x.all(),
    lambda x: x.any(axis=2),
    lambda x: np.any(x, axis=(0, 2)),
    lambda x: np.logical_and.reduce(x, axis=1),
    lambda x: x.reshape(4, -1),
    lambda x: x.reshape((6, 4)),
    lambda x: np.reshape(x, (3, 8)),
    lambda x: x.flatten(),
    lambda x: x.ravel(),
    lambda x: np.ravel(x),
    lambda x: x.T,
    lambda x: x.transpose(),
    lambda x: x.transpose(1, -1, 0),
    lambda x: x.transpose((2, 0, 1)),
    lambda x: np.transpose(x, [0, 2, 1]),
    lambda x: x.swapaxes(0, 2),
    lambda x: np.moveaxis(x, 0, -1),
    lambda x: np.expand_dims(x, (0, 2)),
    lambda x: x[:1].squeeze(),
    lambda x: np.squeeze(x[:, None], axis=1),
    lambda x: np.flip(x, 1),
    lambda x: np.flip(x),
    lambda x: x.repeat(2, axis=1),
    lambda x: np.repeat(x, 3),
    lambda x: x[1],
    lambda x: x[-1, 2],
    lambda x: x[0, 1, -1],
    lambda x: x[:, 1:],
    lambda x: x[..., 0],
    lambda x: x[..., ::2],
    lambda x: x[..., ::-1],
    lambda x: x[::-1, -2:0:-1, 3:0:-2],
    lambda x: x[:, -100:100],
    lambda x: x[None],
    lambda x: x[:, np.newaxis, 1, ..., None],
    lambda x: x[()],
    lambda x: x[...],
    lambda x: x[np.int64(1), :2],
    lambda x: x[1:1],
    lambda x: x[:, 3:, ::-1],
    lambda x: x[:, :, 2:1],
    lambda x: np.concatenate([x, x]),
    lambda x: np.concatenate((x, x[..., :1]), axis=-1),
    lambda x: np.concatenate([x, x], axis=None),
    lambda x: np.stack([x, x], axis=-1),
    lambda x: np.stack([x[0], x[1]]),
    lambda x: np.where(x > 1, x, x[:, ::-1]),
    lambda x: np.maximum(x, x[:, ::-1]),
    lambda x: np.minimum(x, x[::-1]),
    lambda x: x.astype(np.float64),
    lambda x: x.astype("int8"),
    lambda x: x.astype(bool),
    lambda x: np.square(x),
]
# the same of numbers whose sums are exact
SUMS: list[Callable[[Any], Any]] = [
    lambda x: x.sum(),
    lambda x: x.sum(axis=1),
    lambda x: x.sum((0, 2)),
    lambda x: x.sum(axis=-1, keepdims=True),
    lambda x: x.sum(axis=()),
    lambda x: np.sum(x, axis=0),
    lambda x: np.sum(x, axis=None, keepdims=True),
    lambda x: np.sum(x, dtype=np.float64),
    lambda x: np.add.reduce(x),
    lambda x: x.prod(axis=0),
    lambda x: np.prod(x, axis=(0, 1)),
    lambda x: x.mean(axis=-1),
    lambda x: x.mean(axis=(0, 2), keepdims=True),
    lambda x: np.mean(x),
    lambda x: x @ x[0].T,
    lambda x: np.matmul(x, x.transpose(0, 2, 1)),
    lambda x: x[0] @ x[1, 0],
    lambda x: x[0, 0] @ x[1].T,
    lambda x: x[0, 0] @ x[0, 1],
    lambda x: np.dot(x[0], x[1].T),
    lambda x: x[0].dot(x[1, 0]),
    lambda x: np.ones((5, 3), x.dtype) @ x,
]
WITH_BOUNDS: list[Callable[[Any], Any]] = [
    lambda x: x.clip(1, 2),
    lambda x: np.clip(x, 1, 2),
    lambda x: np.clip(x, a_min=1, a_max=2),
    lambda x: x.clip(min=1),
    lambda x: x.clip(max=2),
    lambda x: np.clip(x, None, 2),
]


def data(dtype: str) -> Array:
    return np.random.default_rng(0).integers(0, 4, (2, 3, 4)).astype(dtype)


def agree(functions: list[Callable[[Any], Any]], x: Array, target: str = "cpu") -> None:
    """All in one program, each with NumPy's type and shape."""
    together = cvm.compile(lambda x: [f(x) for f in functions], target=target)
    for n, (f, found) in enumerate(zip(functions, together(x), strict=True)):
        wanted = np.asarray(f(x))
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), n
        np.testing.assert_array_equal(found, wanted, str(n))


@pytest.mark.sample(10)
@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_what_numpy_gives(dtype: str, target: str) -> None:
    agree(EXACT + SUMS, data(dtype), target)


@pytest.mark.parametrize("dtype", ["int32", *FLOATS])
def test_bounds(dtype: str) -> None:
    agree(WITH_BOUNDS, data(dtype))


def test_half_precision_and_bools() -> None:
    x = data("float16")
    agree([f for f in EXACT if f(x).dtype == np.float16 and f not in EXACT[-8:]], x)
    agree([lambda x: x.sum(axis=0), lambda x: x.mean(), lambda x: x @ x[0].T], x)
    flags = data("int8") > 1
    agree(
        [
            lambda x: x.any(axis=0),
            lambda x: x.all(),
            lambda x: x[:, ::-1],
            lambda x: x.sum(axis=1),
            lambda x: x.T,
        ],
        flags,
    )
    agree(
        [lambda x: np.concatenate([x, x], 1), lambda x: x.reshape(-1), lambda x: x.mean(axis=0)],
        flags,
    )


def test_nan_is_the_largest_and_the_least() -> None:
    x = np.array([1, np.nan, -2, 5, np.nan, 0], np.float32).reshape(2, 3)
    functions = [
        *(
            lambda x: x.max(axis=0),
            lambda x: np.min(x, axis=1),
            lambda x: np.maximum(x, 1),
            lambda x: np.minimum(1, x),
        ),
        *(lambda x: np.maximum(x, x[::-1]), lambda x: x.clip(min=0), lambda x: x.clip(0, 1)),
    ]
    for f in functions:
        np.testing.assert_array_equal(cvm.compile(f)(x), f(x))


def test_empty_arrays_and_single_numbers() -> None:
    empty = np.zeros((0, 3), np.float32)
    agree(
        [
            lambda x: x.sum(),
            lambda x: x.sum(axis=0),
            lambda x: x.prod(axis=1),
            lambda x: x.T,
            lambda x: x[:, 1:],
        ],
        empty,
    )
    one = np.array(2.5)
    agree(
        [
            lambda x: x.sum(),
            lambda x: x[None],
            lambda x: x[()],
            lambda x: x.T,
            lambda x: x.reshape(1, 1),
        ],
        one,
    )


def test_random_subscripts() -> None:
    random = np.random.default_rng(1)
    for _ in range(60):
        shape = tuple(int(n) for n in random.integers(1, 6, random.integers(1, 4)))
        x = random.integers(-99, 99, shape).astype(np.int16)
        key: list[Any] = []
        for n in shape[: random.integers(0, len(shape) + 1)]:
            bounds = [
                None if random.random() < 0.3 else int(random.integers(-n - 2, n + 3))
                for _ in range(2)
            ]
            step = int(random.choice([1, 1, 2, 3, -1, -2]))
            key.append(
                int(random.integers(-n, n))
                if random.random() < 0.3
                else slice(bounds[0], bounds[1], step)
            )
        for _ in range(random.integers(0, 3)):
            key.insert(int(random.integers(0, len(key) + 1)), None)
        if random.random() < 0.5:
            key.append(...)
        chosen = tuple(key)
        found = cvm.compile(lambda x: x[chosen])(x)  # noqa: B023
        np.testing.assert_array_equal(found, x[tuple(key)], f"{shape} {key}", strict=True)


def test_sizes_that_are_not_known_while_compiling() -> None:
    def f(x: Any) -> Any:
        return [
            *(
                x.sum(axis=0),
                x.mean(axis=1),
                x.mean(),
                x.T,
                x[::-1],
                x[:, ::-2],
                x[1:, :-1],
                x[-1],
                x[:, 0],
                x[None, 1],
            ),
            *(
                np.concatenate([x, x], axis=1),
                np.stack([x, x]),
                x.ravel(),
                x.reshape(-1),
                x @ x.T,
                x.max(keepdims=True),
            ),
        ]

    samples = [
        np.arange(m * n, dtype=np.float64).reshape(m, n)
        for m, n in ((2, 3), (5, 4), (3, 7), (4, 4))
    ]
    for x, results in zip(samples, cvm.compile(f).batch(samples), strict=True):
        for n, (found, wanted) in enumerate(zip(results, f(x), strict=True)):
            np.testing.assert_array_equal(found, wanted, str(n), strict=n != 2)


def test_derivatives_go_through() -> None:
    def f(x: Any, w: Any) -> Any:
        y = (x @ w)[:, ::-1]
        return (
            (np.concatenate([y, y[..., :1]], axis=1).reshape(-1) * 2.0).sum()
            + x.mean()
            + x.T[0].max()
        )

    x, w = np.arange(6.0).reshape(2, 3), np.ones((3, 2))
    found = cvm.grad(f)(x, w)
    step = 1e-6
    g = cvm.compile(f)
    for place in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        assert found[place] == pytest.approx((g(up, w) - g(down, w)) / (2 * step), rel=1e-5)


def test_results_fuse_and_print() -> None:
    f = cvm.compile(lambda x: (x[:, ::-1].astype(np.float32) * 2.0).T.sum(axis=0))
    x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    np.testing.assert_array_equal(f(x), x.sum(axis=1) * 2.0)
    assert f.lower("loops").count("kernel @") == 1
    again = cvm.compile(f.lower("graph"), entry=next(iter(f.program().functions)))
    np.testing.assert_array_equal(again(x), f(x))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.sort(), "traced arrays have no sort; they have T, all, any, astype, clip"),
        (lambda x: np.partition(x, 1), "np.partition has no counterpart for traced arrays; "),
        (lambda x: np.subtract.accumulate(x), "np.subtract.accumulate has no counterpart"),
        (
            lambda x: x.argmax(whole=True),
            "argmax of a traced array: got an unexpected keyword argument 'whole'; it takes x, axis",
        ),
        (
            lambda x: np.sum(x, out=np.ones(3)),
            "traced values change traced arrays only: make out of traced ones",
        ),
        (
            lambda x: np.sort(x, order="f0"),
            "np.sort of a traced array has no parameter order here; it takes x, axis",
        ),
        (lambda x: x.sum(axis=2), "the array has 2 dimensions, got axis 2"),
        (lambda x: x.sum(axis=(0, -2)), "an axis is given twice"),
        (lambda x: x.sum(axis=0.5), "an axis is an integer, got 0.5"),
        (lambda x: x.reshape(4), "cvm.reshape.C3"),
        (lambda x: x.reshape(2, "a"), "a size is an integer, got 'a'"),
        (lambda x: x.transpose(0), "as many as the array's dimensions, 2, got 1"),
        (lambda x: x[2], "the axis has 2 elements, got the subscript 2"),
        (lambda x: x[0, 0, 0], "the array has 2 dimensions, got 3 subscripts"),
        (lambda x: x[..., ...], "at most one ..."),
        (lambda x: x[::0], "a slice's step is not 0"),
        (
            lambda x: x[x > 0],
            "the number of elements that a traced mask chooses is not known while compiling",
        ),
        (
            lambda x: x[[0.5, 1]],
            "subscripts are integers, slices, ..., None and arrays of integers, got an "
            "array of float64",
        ),
        (lambda x: x["a"], "got str"),
        (lambda x: x[0.5:], "a slice's bound is an integer, got 0.5"),
        (lambda x: x @ x, "the sizes that are summed over differ: 3 and 2"),
        (lambda x: x @ 2, "multiplies matrices and vectors of numbers"),
        (lambda x: x.astype("U3"), "no element type holds NumPy's <U3"),
        (lambda x: x.astype("no type"), "data type 'no type' not understood"),
        (lambda x: np.sum([x, x]), "use np.stack for several of them"),
        (lambda x: x[:0].max(axis=0), "the reduction has no identity"),
    ],
)
def test_what_has_no_such_meaning_says_so(function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(cvm.Error) as caught:
        cvm.compile(function)(np.ones((2, 3), np.int32))
    assert message in str(caught.value)
    assert caught.value.diagnostics[0].file == __file__


def test_the_example_of_the_language_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "language.md").read_text("utf-8")
    known: dict[str, Any] = {"cvm": cvm, "np": np}
    exec(re.search(r"```python\n(@cvm.compile\n.*?)```", page, re.DOTALL)[1], known)  # type: ignore[index]
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 20, 3)).astype(np.uint8)
    gain = np.array([0.5, 1, 2], np.float32)
    found = known["normalise"](images, gain)
    wanted = known["normalise"].function(images, gain)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape) == (np.float32, (2, 6, 5, 4))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-4)
