"""Functions of NumPy on arrays that are stated as kernels, and compiled where they are called.

Sorts are stable merges: NaN goes last, and -0.0 is equal to 0.0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .source import CompiledFunction

RUN = 16  # elements that are sorted by insertion first; 8 and 32 take as long (Zen 4, 10^6 floats)


@dataclass(frozen=True)
class LibraryKernel(CompiledFunction):
    """A function that is compiled where kernels call it, without tests of indices."""

    py_func: Callable[..., Any]
    checks: bool = False

    def __call__(self, *arguments: Any) -> Any:
        return self.py_func(*arguments)


@LibraryKernel
def precedes(x: Any, y: Any) -> Any:
    """Test whether a number goes before another one in the order of sorts."""
    return x < y or (x == x and y != y)


@LibraryKernel
def sort(a: Any) -> None:
    """Sort an array of rank 1 in place."""
    n = len(a)
    for start in range(0, n, RUN):
        for i in range(start + 1, min(start + RUN, n)):
            v = a[i]
            j = i
            while j > start and precedes(v, a[j - 1]):
                a[j] = a[j - 1]
                j -= 1
            a[j] = v
    size = RUN
    while size < n:
        half = a.copy()
        for start in range(0, n, 2 * size):
            middle, end = min(start + size, n), min(start + 2 * size, n)
            i, j, k = start, middle, start
            while i < middle and j < end:
                x, y = half[i], half[j]
                if precedes(y, x):
                    a[k] = y
                    j += 1
                else:
                    a[k] = x
                    i += 1
                k += 1
            while i < middle:
                a[k] = half[i]
                i, k = i + 1, k + 1
            while j < end:
                a[k] = half[j]
                j, k = j + 1, k + 1
        size *= 2


@LibraryKernel
def sorted_copy(a: Any) -> Any:
    found = a.copy()
    sort(found)
    return found


@LibraryKernel
def argsort(a: Any) -> Any:
    """Return the places of the elements in their order; equal ones stay in theirs."""
    n = len(a)
    places = np.arange(n)
    size = 1
    while size < n:
        half = places.copy()
        for start in range(0, n, 2 * size):
            middle, end = min(start + size, n), min(start + 2 * size, n)
            i, j, k = start, middle, start
            while i < middle and j < end:
                x, y = a[half[i]], a[half[j]]
                if precedes(y, x):
                    places[k] = half[j]
                    j += 1
                else:
                    places[k] = half[i]
                    i += 1
                k += 1
            while i < middle:
                places[k] = half[i]
                i, k = i + 1, k + 1
            while j < end:
                places[k] = half[j]
                j, k = j + 1, k + 1
        size *= 2
    return places


@LibraryKernel
def cumsum(a: Any) -> Any:
    total = a[:0].sum()
    found = np.full(len(a), total)
    for n, v in enumerate(a):
        total += v
        found[n] = total
    return found


@LibraryKernel
def cumprod(a: Any) -> Any:
    total = a[:0].prod()
    found = np.full(len(a), total)
    for n, v in enumerate(a):
        total *= v
        found[n] = total
    return found


@LibraryKernel
def searchsorted(a: Any, v: Any) -> Any:
    """Return the first place where a number may stand in an array that is sorted."""
    low, high = 0, len(a)
    while low < high:
        middle = (low + high) // 2
        if precedes(a[middle], v):
            low = middle + 1
        else:
            high = middle
    return np.int64(low)


@LibraryKernel
def norm(x: Any) -> Any:
    """Return the root of the sum of squares."""
    return np.sqrt(np.square(np.abs(x) * 1.0).sum())


@LibraryKernel
def count_nonzero(a: Any) -> int:
    return int((a != 0).sum())


@LibraryKernel
def diff(a: Any) -> Any:
    return a[1:] - a[:-1]
