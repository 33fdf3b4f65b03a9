"""Array expressions in kernels: slices, reductions, products and masks mean what NumPy's do."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiers

import cvm

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from array_kernels import PROGRAMS

QUICK = 12  # programs of the quick tier, of a second each
f4 = np.float32


def check(found: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            check(a, b)
        return
    assert type(found) is type(wanted)
    if wanted is not None:
        a, b = np.asarray(found), np.asarray(wanted)
        assert a.dtype == b.dtype and a.shape == b.shape
        error = 1e-5 if a.dtype == f4 else 1e-10  # sums go in another order than NumPy's
        assert np.allclose(a, b, rtol=error, atol=error, equal_nan=True)


def same(function: Callable[..., Any], *arguments: Any) -> Any:
    kernel = cvm.kernel(function)
    other = copy.deepcopy(arguments)
    with np.errstate(all="ignore"):
        wanted = function(*other)
    for _ in range(2):  # the first call of a version goes through Python
        one = copy.deepcopy(arguments)
        found = kernel(*one)
        check(found, wanted)
        check(one, other)
    return kernel


@pytest.mark.parametrize("name", tiers.some(list(PROGRAMS), QUICK))
@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_programs(name: str) -> None:
    function, make, _ = PROGRAMS[name]
    same(function, *make(6, np.random.default_rng(0)))


def overlapping(A: Any, c: Any) -> Any:
    A[1:-1] += c * A[:-2]
    A[2:] = A[:-2]
    A[:-1] = A[1:]
    A[::-1] = A
    A[1:], A[:-1] = A[:-1] * 2, A[1:] + 1
    A *= A[0]
    A[A > 3] = A[A > 3] - A[0]
    return A[1:4], A[::-2], A[5:2], A[None, 1:]


def test_the_right_side_is_evaluated_before_any_store() -> None:
    x = np.arange(9.0)
    same(overlapping, x, 2.0)
    same(overlapping, np.arange(5), 3)
    same(overlapping, np.arange(8, dtype=f4)[::2], 0.5)

    def between(a: Any, b: Any) -> None:
        a[:] = b + 1
        b += a

    kernel = cvm.kernel(between)
    for start in (0, 1, 3):
        one, other = np.arange(12.0), np.arange(12.0)
        kernel(one[start : start + 6], one[2:8])
        between(other[start : start + 6], other[2:8])
        assert np.array_equal(one, other)


def reductions(A: Any, i: Any) -> Any:
    empty = A[:0]
    return (
        (np.sum(A), A.mean(axis=0), A.sum(axis=1), np.max(A, axis=1, keepdims=True)),
        (A.std(axis=0), np.var(A[0]), A.min(), np.argmax(A[i]), np.argmin(A[:, 0])),
        (np.any(A > 2), np.all(A[0] < 9, axis=0), (A > 0).sum(), np.prod(A[0])),
        (empty.sum(), empty.sum(axis=0), np.sum(A, axis=(0, 1)), A.T, A[:, -1]),
    )


def products(A: Any, B: Any) -> Any:
    return (
        (A @ B, A @ B[:, 0], B[0] @ B.T, np.dot(A[0], B[:, 0]), A.T @ A[:, 0]),
        (np.outer(A[0], B[0]) * 2, np.add.outer(A[0], A[0]), (A + 1) @ (B - 1)),
    )


def shapes(a: Any, b: Any, n: int) -> Any:
    c = a[:, None] * b
    c += b
    d = np.where(a > 0, a, 0) + np.clip(b, -1, 1)
    e = np.triu(c, 1) + np.eye(len(a)) * n
    for k in range(1, n):
        part = np.zeros(k) + a[:k]
        d[:k] += part
        e = e + k
    return c, d, e, np.linspace(0, 1, n), a.astype(np.float32), c - np.mean(c, 1, keepdims=True)


def test_functions_of_arrays() -> None:
    rng = np.random.default_rng(0)
    for rows, columns in ((5, 7), (1, 3), (3, 1), (21, 17)):
        A = rng.normal(size=(rows, columns))
        same(reductions, A, 0)
        same(products, A, rng.normal(size=(columns, rows + 2)))
    same(reductions, rng.integers(-5, 5, size=(4, 4)).astype(np.int16), -1)
    same(products, rng.integers(-5, 5, size=(6, 9)), rng.integers(-5, 5, size=(9, 4)))
    for n in (2, 4):
        same(shapes, rng.normal(size=n), rng.normal(size=n), n)


def rebound(a: Any, n: int) -> Any:
    x, y = a * 1, a[:2] * 2
    for k in range(n):
        z = x + k
        x = y[:1] + z
        y = z[: k + 1] * 2
    return x, y


def test_names_of_arrays_get_other_values() -> None:
    for n in (0, 1, 4):
        same(rebound, np.arange(4.0), n)


def rows_at_once(A: Any, B: Any, out: Any) -> Any:
    total = 0.0
    for i in cvm.prange(len(A)):
        row = A[i] * 2 + B
        out[i, :] = row - np.mean(row)
        total += np.sum(out[i] * row)
    return total


def test_array_expressions_in_parallel_loops() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(300, 17)), rng.normal(size=17)
    one, other = np.zeros_like(A), np.zeros_like(A)
    check((cvm.kernel(rows_at_once)(A, B, one), one), (rows_at_once(A, B, other), other))

    def race(A: Any) -> None:
        for i in cvm.prange(len(A) - 1):
            A[i, :] = A[i + 1, :]

    assert "cannot run at once" in refused(race, A)


def broadcast(A: Any, b: Any) -> Any:
    A += b
    return A * b - A[:1]


def test_sizes_of_one_are_repeated_when_a_call_has_them() -> None:
    kernel = cvm.kernel(broadcast)
    for shape in ((3, 4), (1, 4), (3, 1), (1, 1)):
        one, other = np.ones((3, 4)), np.ones((3, 4))
        b = np.arange(float(np.prod(shape))).reshape(shape)
        check((kernel(one, b), one), (broadcast(other, b), other))
    for shape in ((2, 4), (3, 3)):
        with pytest.raises(ValueError, match="do not fit together"):
            kernel(np.ones((3, 4)), np.ones(shape))


def total(x: Any) -> Any:
    return np.sum(x)


def scalar_product(x: Any, y: Any) -> Any:
    return x @ y


@pytest.mark.parametrize("n", [1, 15, 16, 100, 4097, (1 << 18) - 1, (1 << 18) + 5])
def test_sums_have_the_order_of_traced_functions(n: int) -> None:
    x, y = np.random.default_rng(n).normal(size=(2, n))
    assert cvm.kernel(total)(x) == cvm.compile(total)(x)
    assert cvm.kernel(scalar_product)(x, y) == cvm.compile(scalar_product)(x, y)


def test_sums_of_axes_have_the_order_of_traced_functions() -> None:
    A = np.random.default_rng(0).normal(size=(37, 53))

    def sums(A: Any) -> Any:
        return np.sum(A, axis=0), np.sum(A, axis=1), A @ A[0], A.T @ A

    for a, b in zip(cvm.kernel(sums)(A), cvm.compile(sums)(A), strict=True):
        assert np.array_equal(a, np.asarray(b))


def refused(function: Any, *arguments: Any) -> str:
    with pytest.raises(cvm.TraceError) as caught:
        cvm.kernel(function)(*arguments)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.file == __file__ and diagnostic.code == "kernel.python"
    return f"{diagnostic.span.text}: {diagnostic.message}"


def test_what_is_not_offered() -> None:
    x, A = np.ones(3), np.ones((3, 3))

    def truth(x: Any) -> Any:
        return 1 if x > 0 else 2

    def rank(x: Any, A: Any) -> None:
        x[:] = A

    def kind(x: Any) -> None:
        x += 0.5

    def another(x: Any) -> Any:
        y = x * 2
        for i in range(3):
            y = x[1:] if i else y
        return y

    def switched(x: Any, y: Any) -> Any:
        for _ in range(3):
            x = y
        return x

    def held(x: Any) -> Any:
        y = x * 2
        pair = (y, 1)
        for _ in range(3):
            y = y + pair[0]
        return y

    def grown(x: Any) -> Any:
        y = x * 2
        for _ in range(3):
            y = np.zeros(len(y) + 1)
        return y

    def data(x: Any) -> Any:
        return np.zeros(int(x[0]))

    def cube(x: Any) -> Any:
        return np.unwrap(x)

    assert "a number is needed" in refused(truth, x)
    assert "rank 2 is stored where 1 axes are" in refused(rank, x, A)
    assert "does not take" in refused(kind, np.ones(3, np.int64))
    assert "a number is needed" in refused(another, x)
    assert "copy" in refused(switched, x, x)
    assert "gets another value elsewhere" in refused(held, x)
    assert "computed of itself" in refused(grown, x)
    assert "the size of an array that a kernel makes" in refused(data, x)
    assert "unwrap cannot be called in kernels" in refused(cube, x)


def test_sizes_that_do_not_fit_are_errors_of_the_call() -> None:
    def put(x: Any, y: Any) -> None:
        x[1:] = y

    def product(A: Any, x: Any) -> Any:
        return A @ x

    def largest(x: Any) -> Any:
        return x.max()

    def gathered(x: Any, i: Any) -> Any:
        return x[i].sum()

    for function, given, error in (
        (put, (np.ones(4), np.ones(2)), ValueError),
        (product, (np.ones((2, 3)), np.ones(2)), ValueError),
        (largest, (np.ones(0),), ValueError),
        (gathered, (np.ones(3), np.array([0, 3])), IndexError),
    ):
        kernel = cvm.kernel(function)
        for _ in range(2):
            with pytest.raises(error) as caught:
                kernel(*given)
            assert isinstance(caught.value, cvm.Error)
    same(put, np.ones(4), np.ones(1))
    same(gathered, np.arange(3.0), np.array([0, -1, 2]))


@cvm.kernel
def repeated(x: Any, y: Any, z: Any) -> Any:
    return x + (x + y), (x + (y + x)).sum(), (x + y) * (y - x), (x + y) + (x + z)


@cvm.kernel
def repeated_in_place(x: Any, y: Any) -> None:
    x += np.maximum(x, 1) + y


@pytest.mark.parametrize("sizes", [*itertools.product((0, 1, 3, 4), repeat=3)], ids=str)
def test_sizes_of_1_are_repeated_at_every_depth(sizes: tuple[int, int, int]) -> None:
    """`x + (x + y)` had the size of x, which is 1, and read the first element of y, even of none."""
    x, y, z = (np.arange(1.0, n + 1) * k for n, k in zip(sizes, (1, 3, 7), strict=True))
    for kernel, arguments in ((repeated, (x, y, z)), (repeated_in_place, (x, y))):
        own = [a.copy() for a in arguments]
        try:
            wanted = kernel.py_func(*arguments)
        except ValueError:
            with pytest.raises(ValueError, match=r"arrays of sizes|does not fit"):
                kernel(*own)
        else:
            found = kernel(*own)
            assert np.array_equal(own[0], arguments[0])
            for f, w in zip(found or (), wanted or (), strict=True):
                assert np.array_equal(f, w)
