"""Axes and numbers that are known while compiling, as parameters of NumPy's functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tracing.array_types import Axes
from ..tracing.diagnose import fail, fail_unknown
from ..tracing.trace import TracedArray


def whole_number(value: object, what: str) -> int:
    """Return an integer; diagnose any other value."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_)):
        return int(value)
    message = f"{what} is an integer, got {value!r}"
    fail_unknown(value, message) if isinstance(value, TracedArray) else fail(message)


def whole_axis(axis: Any, rank: int) -> int:
    """Return an axis counted from the front."""
    if not -rank <= (found := whole_number(axis, "an axis")) < rank:
        fail(f"the array has {rank} dimensions, got axis {found}")
    return found % rank


def whole_axes(axis: Axes, rank: int) -> tuple[int, ...]:
    """Return different axes counted from the front; None stands for every axis."""
    if axis is None:
        return tuple(range(rank))
    found = [whole_axis(a, rank) for a in (axis if isinstance(axis, (tuple, list)) else [axis])]
    if len(set(found)) < len(found):
        fail(f"an axis is given twice in {axis!r}")
    return tuple(found)


def reduced_axes(axis: Axes, rank: int, of_numbers: bool = True) -> tuple[int, ...]:
    """Return the axes of a reduction; where they are those of numbers, too, these have 0 and -1, as
    in NumPy.
    """
    if isinstance(axis, list):
        fail("the axes of a reduction are an integer, or a tuple of them")
    return (
        ()
        if of_numbers and not rank and type(axis) is int and axis in (0, -1)
        else whole_axes(axis, rank)
    )


def known_size(x: TracedArray, axis: int) -> int:
    """Return the size of an axis, which has to be known while compiling."""
    if not isinstance(n := x.shape[axis], int):
        fail("this function needs the size of the axis while compiling")
    return n


def known_count(x: TracedArray, axes: tuple[int, ...]) -> float | None:
    """Return the number of elements along axes; None if it is not known while compiling."""
    sizes = [x.shape[a] for a in axes]
    if not all(isinstance(n, int) for n in sizes):
        return None
    return float(np.prod(sizes, dtype=np.float64))  # type: ignore[arg-type]


def known_numbers(given: object, what: str) -> np.ndarray:
    """Return a vector that has to be known while compiling."""
    if isinstance(given, TracedArray) or (numbers := np.asarray(given)).ndim != 1:
        fail(f"{what} are a one-dimensional array that is known while compiling")
    return numbers
