"""Loops of kernels over ranges, arrays, tuples, enumerate, zip and reversed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels_as_python import check, check_mistake

import cvm

OFFSETS = ((0, 1), (1, 0), (0, -1), (-1, 0))
RNG = np.random.default_rng(0)
X, Y = RNG.integers(-9, 9, 7), RNG.normal(size=5)
GRID = RNG.integers(0, 2, (5, 6))


def life(g: Any, out: Any) -> None:
    rows, columns = g.shape
    for i in range(rows):
        for j in range(columns):
            near = 0
            for di in (-1, 0, 1):
                for dj in [-1, 0, 1]:
                    if di or dj:
                        near += g[(i + di) % rows, (j + dj) % columns]
            out[i, j] = near == 3 or (near == 2 and g[i, j] == 1)


def neighbors(g: Any) -> Any:
    found = 0
    for i, row in enumerate(g):
        for j, value in enumerate(row):
            for di, dj in OFFSETS:
                if 0 <= i + di < len(g) and 0 <= j + dj < len(row):
                    found = found * 3 % 1000003 + value * g[i + di, j + dj]
    return found


def counted_from(x: Any, start: int) -> Any:
    found = 0
    for n, v in enumerate(x, start):
        found += n * v
    for n, v in enumerate(x[::-1], start=start + 1):
        found -= n * v
    return found, n


def zipped(x: Any, y: Any) -> Any:
    found = 0.0
    for a, b in zip(x, y):  # noqa: B905 as users write it
        found = found * 2 + a * b
    for n, (a, b, c) in enumerate(zip(x, range(100, 0, -7), y[1:])):  # noqa: B905
        found += n * a + b * c
    return found


def backward(x: Any, n: int) -> Any:
    found = 0
    for i in reversed(range(len(x))):
        found = found * 31 + x[i]
    for i in reversed(range(2, n, 3)):
        found = found * 7 + i
    for i in reversed(range(n, -4, -2)):
        found = found * 5 + i
    for v in reversed(x):
        found = found * 3 + v
    for a in reversed((1, 2, 3)):
        found = found * 3 - a
    return found


def by_step(x: Any, step: int) -> Any:
    found = 0
    for i in reversed(range(0, len(x), step)):
        found = found * 31 + x[i]
    for i, v in zip(range(len(x) - 1, -1, -step), x):  # noqa: B905
        found = found * 7 + i * v
    return found


def left_early(x: Any) -> Any:
    for n, v in enumerate(x):
        if v < 0:
            continue
        for d in (1, 2, 4):
            if v & d:
                break
        else:
            return n, v, d
    return -1, x[0], 0


def meeting(a: int, b: float) -> Any:
    found = 0.0
    for v in (a, b, 1):
        a += 5  # the tuple has its value of before
        found += v / 2
    return found, a


def stores(x: Any) -> None:
    for n, v in enumerate(x):
        x[len(x) - 1 - n] = v + 1


def ends() -> Any:
    found = 0
    for i in reversed(range(2**63 - 3, 2**63 - 1)):
        found = found * 3 + i % 1000
    for i in reversed(range(-(2**63) + 2, -(2**63), -1)):
        found = found * 3 + i % 1000
    return found


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (life, (GRID, np.zeros_like(GRID))),
        (neighbors, (GRID,)),
        (counted_from, (X, 3)),
        (counted_from, (X, -(2**62))),
        (zipped, (X.astype(float), Y)),
        (zipped, (X.astype(float)[::2], Y)),
        (backward, (X, 11)),
        (backward, (X[:0], -1)),
        (zipped, (X.astype(float), Y[:0])),
        (by_step, (X, 2)),
        (by_step, (X, 9)),
        (left_early, (X,)),
        (left_early, (np.array([3, -1, 8, 8]),)),
        (meeting, (3, 0.5)),
        (stores, (X,)),
        (ends, ()),
    ],
)
def test_loops(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    check(function, *arguments)


def test_no_tests_of_indices_remain() -> None:
    def total(x: Any, y: Any) -> Any:
        found = 0.0
        for n, v in enumerate(x):
            found += v * n * x[n]
        for a, b in zip(x, y):  # noqa: B905
            found += a * b
        for i in reversed(range(len(x))):
            found += x[i]
        return found

    kernel = cvm.kernel(total)
    kernel(Y, Y)
    assert "fail" not in kernel.lower("loops")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("reversed(enumerate(x))", "reversed takes a range, an array or a tuple"),
        ("reversed(zip(x, x))", "reversed takes a range, an array or a tuple"),
        ("enumerate(x, 1, 2)", "enumerate takes what it counts, and a start"),
        ("zip(x, 5)", "loops run over .* not over a number of type int"),
        ("((1, 2), (3,))", "the tuples of a loop have one length"),
        ("(1, x)", "a number is needed here, not an array"),
        ("()", "loops run over"),
        ("range(0, 5, 0)", "the step of a range is not zero"),
    ],
)
def test_mistakes(line: str, message: str, tmp_path: Path) -> None:
    check_mistake(message, f"def f(x):\n    for v in {line}:\n        pass\n", tmp_path, X)
