"""NumPy's functions that take and put elements by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..array_api import astype, concatenate, where, whole_axis
from ..indexed_update import update_in_place
from ..numpy_or_dali_ufuncs import common
from ..trace import TracedArray, apply, fail
from .layout import broadcast_to, pad
from .table import arrays_of, known_size, numpy_function


@numpy_function
def take(x: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    x, at = arrays_of(x, indices)
    if mode not in ("raise", "clip", "wrap"):
        fail(f"np.take has the modes raise, clip and wrap, got {mode!r}")
    x = np.ravel(x) if axis is None else x
    along = whole_axis(axis or 0, x.ndim)
    at, mode = (as_index(at) % known_size(x, along), "clip") if mode == "wrap" else (as_index(at), mode)
    return apply("builtin.gather", x, [at], axes=(along,), mode=mode)


def as_index(x: TracedArray) -> Any:
    if x.dtype.kind not in "iu":
        fail(f"elements are numbered by integers, got {x.dtype}")
    return astype(x, np.int64)


@numpy_function
def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    x, at = arrays_of(x, indices)
    if axis is None:
        x, axis = np.ravel(x), 0
    along = whole_axis(axis, x.ndim)
    places = [as_index(at) if a == along else apply("builtin.iota_like", at, axis=a) for a in range(x.ndim)]
    return apply("builtin.gather", x, places, axes=tuple(range(x.ndim)))


@numpy_function
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    first, second = whole_axis(axis1, x.ndim), whole_axis(axis2, x.ndim)
    x = np.moveaxis(np.moveaxis(x, first, -1), second - (second > first), -1)
    rows, columns = known_size(x, x.ndim - 2), known_size(x, x.ndim - 1)
    start = max(-offset, 0), max(offset, 0)
    places = [np.arange(max(min(rows - start[0], columns - start[1]), 0)) + n for n in start]
    return apply("builtin.gather", x, arrays_of(x, *places)[1:], axes=(x.ndim - 2, x.ndim - 1))


@numpy_function
def diag(x: Any, k: int = 0) -> Any:
    if x.ndim == 2:
        return diagonal(x, k)
    n = known_size(x, 0) + abs(k)
    padded = pad(x, (max(k, 0), max(-k, 0)))
    return where(np.eye(n, k=k, dtype=bool), np.expand_dims(padded, 0), np.zeros((), x.dtype))


@numpy_function
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return np.sum(diagonal(x, offset, axis1, axis2), axis=-1)


@numpy_function
def put_along_axis(x: Any, indices: Any, values: Any, axis: int | None) -> None:
    """Changes an array that the function made."""
    if not isinstance(x, TracedArray):
        fail("np.put_along_axis changes traced arrays: make the array of traced ones, as by np.zeros_like")
    at, new = arrays_of(x, indices, values)[1:]
    flat, along = (np.ravel(x), 0) if axis is None else (x, whole_axis(axis, x.ndim))
    places = [as_index(at) if a == along else apply("builtin.iota_like", at, axis=a) for a in range(flat.ndim)]
    new = astype(broadcast_to(new, at.shape), x.dtype)
    update_in_place(x, np.reshape(apply("builtin.scatter", flat, new, places, axes=tuple(range(flat.ndim))), x.shape))


@numpy_function
def choose(a: Any, choices: Sequence[Any], mode: str = "raise") -> Any:
    """The element of the choice that `a` numbers."""
    at, *given = arrays_of(a, *choices)
    if mode != "raise":
        fail("np.choose has the mode raise here")
    shape = np.broadcast_shapes(at.shape, *(x.shape for x in given))
    stacked = concatenate([np.expand_dims(broadcast_to(x, shape), 0) for x in common(given)], 0)
    at = astype(broadcast_to(at, shape), np.int64)
    places = [where(at < 0, len(given), at), *(apply("builtin.iota_like", at, axis=n) for n in range(len(shape)))]
    return apply("builtin.gather", stacked, places, axes=tuple(range(len(shape) + 1)))
