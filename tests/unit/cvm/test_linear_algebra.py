"""Systems of linear equations in traced functions, beside NumPy's, and within bounds of residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from available_targets import WIDTHS

import cvm

RANDOM = np.random.default_rng(0)


def matrices(*shape: int, kind: str = "f8") -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(kind)


def definite(*shape: int) -> np.ndarray:
    a = matrices(*shape)
    return a @ a.swapaxes(-1, -2) + np.eye(shape[-1])


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solve": (lambda a, b: np.linalg.solve(a, b), (matrices(6, 6), matrices(6, 2))),
    "solve a vector": (lambda a, b: np.linalg.solve(a, b), (matrices(6, 6), matrices(6))),
    "solve stacks": (lambda a, b: np.linalg.solve(a, b), (matrices(3, 4, 4), matrices(2, 1, 4, 2))),
    "solve f32 and f64": (
        lambda a, b: np.linalg.solve(a, b),
        (matrices(3, 3, kind="f4"), matrices(3, 1)),
    ),
    "inv": (lambda a: np.linalg.inv(a), (matrices(2, 5, 5),)),
    "inv f32": (lambda a: np.linalg.inv(a), (definite(4, 4).astype("f4"),)),
    "inv of integers": (lambda a: np.linalg.inv(a), (np.array([[2, 1], [1, 3]]),)),
    "inv of one": (lambda a: np.linalg.inv(a), (np.array([[4.0]]),)),
    "pivots": (lambda a: np.linalg.inv(a), (np.eye(5)[[3, 1, 4, 0, 2]] * 2,)),
    "det": (lambda a: np.linalg.det(a), (matrices(3, 5, 5),)),
    "det of a permutation": (lambda a: np.linalg.det(a), (np.eye(4)[[1, 0, 2, 3]],)),
    "cholesky": (lambda a: np.linalg.cholesky(a), (definite(2, 5, 5),)),
    "cholesky upper": (lambda a: np.linalg.cholesky(a, upper=True), (definite(5, 5),)),
    "empty": (
        lambda a: (np.linalg.inv(a), np.linalg.det(a), np.linalg.cholesky(a)),
        (np.zeros((0, 0)),),
    ),
    "no stack": (lambda a: np.linalg.inv(a), (np.zeros((0, 3, 3)),)),
    "cov": (lambda x: np.cov(x), (matrices(3, 7),)),
    "cov of two": (lambda x, y: np.cov(x, y), (matrices(3, 7), matrices(2, 7))),
    "cov of columns": (lambda x: np.cov(x, rowvar=False, bias=True), (matrices(3, 7),)),
    "cov of one": (lambda x: np.cov(x), (matrices(7),)),
    "cov of integers": (lambda x: np.cov(x, ddof=0), (np.arange(12).reshape(3, 4),)),
    "corrcoef": (lambda x, y: np.corrcoef(x, y), (matrices(3, 7), matrices(7))),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_numpy(name: str) -> None:
    f, arguments = CALLS[name]
    got, want = cvm.compile(f)(*arguments), f(*arguments)
    for g, w in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want)), strict=True):
        assert g.dtype == np.asarray(w).dtype and g.shape == np.shape(w)
        bound = 1e-4 if g.dtype == np.float32 else 1e-10
        np.testing.assert_allclose(g, w, rtol=bound, atol=bound)


def test_residuals_are_small_and_bits_are_equal() -> None:
    a, b = matrices(40, 40), matrices(40, 3)
    f = cvm.compile(lambda a, b: np.linalg.solve(a, b))
    x = f(a, b)
    scale = np.abs(a).sum(1).max() * np.abs(x).max() + np.abs(b).max()
    assert np.abs(a @ x - b).max() <= 40 * np.finfo(np.float64).eps * scale
    for how in ({"target": "reference"}, *({"cpu": cpu} for cpu in WIDTHS)):
        assert cvm.compile(lambda a, b: np.linalg.solve(a, b), **how)(a, b).tobytes() == x.tobytes()


def test_derivatives() -> None:
    a, b = matrices(4, 4), matrices(4)
    inverse = np.linalg.inv(a)
    for f, want in (
        (lambda a: np.linalg.solve(a, b).sum(), -np.outer(inverse.sum(0), inverse @ b)),
        (lambda a: np.linalg.det(a), np.linalg.det(a) * inverse.T),
    ):
        np.testing.assert_allclose(cvm.grad(f)(a), want, rtol=1e-8, atol=1e-10)


def test_singular_matrices() -> None:
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    assert not np.isfinite(cvm.compile(lambda a: np.linalg.inv(a))(singular)).any()
    assert cvm.compile(lambda a: np.linalg.det(a))(singular) == 0
    found = cvm.compile(lambda a: np.linalg.cholesky(a))(-np.eye(2))
    assert np.isnan(found).any()


@pytest.mark.parametrize(
    ("f", "arguments", "said"),
    [
        (lambda a: np.linalg.inv(a), (matrices(2, 3),), r"square matrices, got the shape \(2, 3\)"),
        (lambda a: np.linalg.inv(a), (matrices(3),), "square matrices"),
        (lambda a: np.linalg.inv(a), (matrices(2, 2) + 1j,), "real numbers"),
        (lambda a: np.linalg.det(a), (matrices(2, 2, kind="f2"),), "real numbers but float16"),
        (lambda a, b: np.linalg.solve(a, b), (matrices(2, 2), matrices(3)), "right sides"),
        (lambda a: np.cov(a[None, None]), (matrices(3),), "at most two axes"),
        (lambda a: np.cov(a, aweights=[1, 2, 3]), (matrices(3),), "no weights"),
    ],
)
def test_mistakes(f: Callable[..., Any], arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(cvm.Error, match=said):
        cvm.compile(f)(*arguments)
