"""Sixteen loops over elements as people write them, with their arguments for a size.

Each is the same Python function for `cvm.kernel`, which tests every index and divisor that it does
not prove, and for numba, which is asked to test nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from side_by_side import Case, installed

import cvm

Arguments = tuple[Any, ...]
KERNELS: dict[str, tuple[Callable[..., Any], Callable[[int, np.random.Generator], Arguments]]] = {}


def _with(make: Callable[[int, np.random.Generator], Arguments]) -> Callable[[Any], Any]:
    """Enter a kernel under its name; `make` gives arguments for a size."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        KERNELS[function.__name__] = function, make
        return function

    return enter


def _sequence(n: int, rng: np.random.Generator, most: int = 4) -> np.ndarray:
    return rng.integers(0, most, n)


@_with(lambda n, rng: (n, n, 50, np.zeros((n, n), np.int64)))
def mandelbrot(width, height, most, out):  # type: ignore[no-untyped-def]
    for row in range(height):
        for column in range(width):
            a = 3.0 * column / width - 2.0
            b = 2.0 * row / height - 1.0
            x = y = 0.0
            n = 0
            while n < most and x * x + y * y <= 4.0:
                x, y = x * x - y * y + a, 2.0 * x * y + b
                n += 1
            out[row, column] = n


@_with(lambda n, rng: (_sequence(n, rng), _sequence(n, rng), np.arange(n + 1)))
def levenshtein(a, b, row):  # type: ignore[no-untyped-def]
    for i in range(1, len(a) + 1):
        diagonal = row[0]
        row[0] = i
        for j in range(1, len(b) + 1):
            above = row[j]
            row[j] = min(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]))
            diagonal = above
    return row[len(b)]


@_with(lambda n, rng: (rng.normal(size=n), rng.normal(size=n)))
def dynamic_time_warping(x, y):  # type: ignore[no-untyped-def]
    cost = np.full((len(x) + 1, len(y) + 1), np.inf)
    cost[0, 0] = 0.0
    for i in range(1, len(x) + 1):
        for j in range(1, len(y) + 1):
            d = abs(x[i - 1] - y[j - 1])
            cost[i, j] = d + min(cost[i - 1, j], cost[i, j - 1], cost[i - 1, j - 1])
    return cost[len(x), len(y)]


@_with(lambda n, rng: (rng.normal(size=n * n), rng.random(n * n) < 0.01, np.empty(n * n)))
def scan_with_reset(x, reset, out):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(x)):
        if reset[i]:
            total = 0.0
        total += x[i]
        out[i] = total


@_with(lambda n, rng: (rng.normal(size=n * n), rng.random(n * n), np.zeros(64, np.int64)))
def conditional_histogram(x, weight, counts):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        if weight[i] > 0.25:
            k = int((x[i] + 4.0) * 8.0)
            if 0 <= k < len(counts):
                counts[k] += 1


@_with(lambda n, rng: (rng.integers(0, n * n, (n * n, 2)), np.arange(n * n)))
def union_find(edges, parent):  # type: ignore[no-untyped-def]
    count = len(parent)
    for e in range(len(edges)):
        a, b = edges[e, 0], edges[e, 1]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a != b:
            parent[max(a, b)] = min(a, b)
            count -= 1
    return count


@_with(lambda n, rng: (rng.normal(size=(n, n)), 10))
def gauss_seidel(x, steps):  # type: ignore[no-untyped-def]
    for _ in range(steps):
        for i in range(1, x.shape[0] - 1):
            for j in range(1, x.shape[1] - 1):
                x[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


@_with(lambda n, rng: (rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), rng.random(n), 0.01, 4))
def n_body(position, velocity, mass, dt, steps):  # type: ignore[no-untyped-def]
    n = len(mass)
    for _ in range(steps):
        for i in range(n):
            ax = ay = az = 0.0
            for j in range(n):
                if i != j:
                    dx = position[j, 0] - position[i, 0]
                    dy = position[j, 1] - position[i, 1]
                    dz = position[j, 2] - position[i, 2]
                    r = dx * dx + dy * dy + dz * dz + 0.01
                    f = mass[j] / (r * math.sqrt(r))
                    ax += f * dx
                    ay += f * dy
                    az += f * dz
            velocity[i, 0] += dt * ax
            velocity[i, 1] += dt * ay
            velocity[i, 2] += dt * az
        for i in range(n):
            for k in range(3):
                position[i, k] += dt * velocity[i, k]


@_with(
    lambda n, rng: (_sequence(n, rng), _sequence(n, rng), np.zeros((n + 1, n + 1), np.int64), 1, -2)
)
def needleman_wunsch(a, b, score, match, gap):  # type: ignore[no-untyped-def]
    for i in range(len(a) + 1):
        score[i, 0] = gap * i
    for j in range(len(b) + 1):
        score[0, j] = gap * j
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            best = score[i - 1, j - 1] + (match if a[i - 1] == b[j - 1] else -match)
            if score[i - 1, j] + gap > best:
                best = score[i - 1, j] + gap
            if score[i, j - 1] + gap > best:
                best = score[i, j - 1] + gap
            score[i, j] = best
    return score[-1, -1]


@_with(lambda n, rng: (rng.random((n, n)) * 255,))
def dithering(image):  # type: ignore[no-untyped-def]
    height, width = image.shape
    for y in range(height):
        for x in range(width):
            old = image[y, x]
            new = 255.0 if old >= 128.0 else 0.0
            image[y, x] = new
            error = old - new
            if x + 1 < width:
                image[y, x + 1] += error * 7 / 16
            if y + 1 < height:
                if x > 0:
                    image[y + 1, x - 1] += error * 3 / 16
                image[y + 1, x] += error * 5 / 16
                if x + 1 < width:
                    image[y + 1, x + 1] += error * 1 / 16


@_with(
    lambda n, rng: (rng.integers(0, 3, n * 8).astype(np.uint8), np.zeros((n * 8, 2), np.int32), 64)
)
def lz_match(data, out, window):  # type: ignore[no-untyped-def]
    n = len(data)
    i = count = 0
    while i < n:
        best = length = 0
        for start in range(max(0, i - window), i):
            k = 0
            while i + k < n and k < 255 and data[start + k] == data[i + k]:
                k += 1
            if k > length:
                best, length = i - start, k
        out[count, 0] = best
        out[count, 1] = length
        count += 1
        i += length if length > 0 else 1
    return count


@_with(lambda n, rng: (rng.normal(size=1 << max(4, (n * n // 8).bit_length())),))
def bitonic_sort(x):  # type: ignore[no-untyped-def]
    n = len(x)
    k = 2
    while k <= n:
        j = k // 2
        while j > 0:
            for i in range(n):
                other = i ^ j
                if other > i:
                    up = (i & k) == 0
                    if (x[i] > x[other]) == up:
                        x[i], x[other] = x[other], x[i]
            j //= 2
        k *= 2


@_with(lambda n, rng: (n * n * 4,))
def sieve(n):  # type: ignore[no-untyped-def]
    prime = np.ones(n + 1, dtype=np.bool_)
    prime[0] = False
    if n > 0:
        prime[1] = False
    i = 2
    while i * i <= n:
        if prime[i]:
            for k in range(i * i, n + 1, i):
                prime[k] = False
        i += 1
    count = 0
    for k in range(n + 1):
        if prime[k]:
            count += 1
    return count


def _csr(n: int, rng: np.random.Generator) -> Arguments:
    counts = rng.integers(0, 12, n * 8)
    starts = np.concatenate([[0], np.cumsum(counts)])
    total = int(starts[-1])
    columns = rng.integers(0, n * 8, total)
    return starts, columns, rng.normal(size=total), rng.normal(size=n * 8), np.empty(n * 8)


@_with(_csr)
def csr_product(starts, columns, values, x, y):  # type: ignore[no-untyped-def]
    for i in range(len(y)):
        total = 0.0
        for k in range(starts[i], starts[i + 1]):
            total += values[k] * x[columns[k]]
        y[i] = total


@_with(
    lambda n, rng: (
        np.sort(rng.normal(size=n * n)),
        rng.normal(size=n * 8),
        np.empty(n * 8, np.int64),
    )
)
def binary_search(x, wanted, out):  # type: ignore[no-untyped-def]
    for q in range(len(wanted)):
        low, high = 0, len(x)
        while low < high:
            middle = (low + high) // 2
            if x[middle] < wanted[q]:
                low = middle + 1
            else:
                high = middle
        out[q] = low


def _viterbi(n: int, rng: np.random.Generator) -> Arguments:
    return (
        rng.integers(0, 8, n),
        np.log(rng.random((16, 16))),
        np.log(rng.random((16, 8))),
        np.empty((n, 16)),
        np.zeros((n, 16), np.int64),
        np.zeros(n, np.int64),
    )


@_with(_viterbi)
def viterbi(seen, move, emit, score, back, path):  # type: ignore[no-untyped-def]
    states = move.shape[0]
    for s in range(states):
        score[0, s] = emit[s, seen[0]]
    for t in range(1, len(seen)):
        for s in range(states):
            best = score[t - 1, 0] + move[0, s]
            at = 0
            for p in range(1, states):
                value = score[t - 1, p] + move[p, s]
                if value > best:
                    best = value
                    at = p
            score[t, s] = best + emit[s, seen[t]]
            back[t, s] = at
    last = 0
    for s in range(1, states):
        if score[len(seen) - 1, s] > score[len(seen) - 1, last]:
            last = s
    for t in range(len(seen) - 1, -1, -1):
        path[t] = last
        last = back[t, last]


# some milliseconds in compiled code: a call's own cost does not show, and few calls are interrupted
# on a busy machine
SIZES = {
    "mandelbrot": 200,
    "levenshtein": 1000,
    "dynamic_time_warping": 1000,
    "scan_with_reset": 1000,
    "conditional_histogram": 800,
    "union_find": 400,
    "gauss_seidel": 250,
    "n_body": 300,
    "needleman_wunsch": 800,
    "dithering": 500,
    "lz_match": 3000,
    "bitonic_sort": 250,
    "sieve": 500,
    "csr_product": 8000,
    "binary_search": 1500,
    "viterbi": 5000,
}


def by_numba(function: Callable[..., Any]) -> Callable[..., Any]:
    """A new function of numba's, without tests of indices and divisors."""
    return installed("numba").njit(error_model="numpy")(function)


def case(name: str) -> Case:
    """A kernel on arguments that are set anew before each call; results and arrays are equal."""
    function, make = KERNELS[name]
    given = make(SIZES[name], np.random.default_rng(0))
    found: dict[str, Callable[..., Any]] = {
        "cvm": cvm.kernel(function),
        "cvm, unchecked": cvm.kernel(checks=False)(function),
    }
    if installed("numba"):
        found["numba"] = by_numba(function)
    one = Case({}, tolerance=0.0)
    for who, f in found.items():
        one.contenders[who], one.before[who] = _own(f, given)
    return one


def _own(f: Callable[..., Any], given: Arguments) -> tuple[Callable[[], Any], Callable[[], None]]:
    """A call on arrays of its own, which gives them too, and what fills these again."""
    own = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in given)
    arrays = [(a, b) for a, b in zip(own, given, strict=True) if isinstance(a, np.ndarray)]

    def run() -> tuple[Any, ...]:
        result = f(*own)
        return (0 if result is None else result, *(a for a, _ in arrays))

    def fill() -> None:
        for a, b in arrays:
            np.copyto(a, b)

    return run, fill


WORK: dict[str, Callable[[], Case]] = {name: partial(case, name) for name in KERNELS}
