"""NumPy's statistics of traced arrays."""

from __future__ import annotations

from functools import partial, wraps
from typing import Any

import numpy as np

from ..array_api import Axes, astype, where, whole_axes, whole_axis
from ..trace import fail
from .layout import broadcast_to
from .order import sort
from .table import ARRAY_FUNCTIONS, along_axis, arrays_of, known_size, numpy_function


def _count(x: Any, over: tuple[int, ...]) -> Any:
    sizes = [x.shape[a] for a in over]
    if all(isinstance(n, int) for n in sizes):
        return float(np.prod(sizes, dtype=np.float64))
    return np.sum(np.ones_like(x, dtype=np.float64), axis=over)


@numpy_function
def var(
    x: Any,
    axis: Axes = None,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = True,
    mean: Any = None,
    correction: float | None = None,
) -> Any:
    if x.dtype.kind == "c" and dtype is not None and np.dtype(dtype).kind != "c":
        fail("np.var and np.std of complex numbers take a complex dtype, or none")
    if dtype is not None or x.dtype.kind in "biu":
        x = astype(x, np.float64 if dtype is None else dtype)
    if x.dtype == np.float16:
        return astype(var(astype(x, np.float32), axis, None, ddof, keepdims, where, mean, correction), np.float16)
    over, ddof = whole_axes(axis, x.ndim), ddof if correction is None else correction
    deviation = x - (np.mean(x, axis=over, keepdims=True, where=where) if mean is None else mean)
    squares = np.square(deviation) if x.dtype.kind == "f" else np.square(deviation.real) + np.square(deviation.imag)
    count = (
        _count(x, over)
        if where is True
        else np.sum(broadcast_to(where, x.shape), axis=over, dtype=np.float64, keepdims=keepdims)
    )
    rest = max(count - ddof, 0.0) if isinstance(count, float) else np.maximum(count - ddof, 0.0)
    total = np.sum(squares, axis=over, keepdims=keepdims, where=where)
    return total / rest if isinstance(rest, float) else astype(total / rest, total.dtype)


ARRAY_FUNCTIONS["std"] = wraps(var)(lambda *args, **options: np.sqrt(var(*args, **options)))


@numpy_function
def average(x: Any, axis: Axes = None, weights: Any = None, keepdims: bool = False) -> Any:
    if weights is None:
        return np.mean(x, axis=axis, keepdims=keepdims)
    x, weights = arrays_of(x, weights)
    if weights.ndim != x.ndim:
        if axis is None or isinstance(axis, (tuple, list)) or weights.ndim != 1:
            fail("weights have the shape of the array, or are one for each element along an axis")
        weights = np.expand_dims(weights, [a for a in range(x.ndim) if a != whole_axis(axis, x.ndim)])
    weighted = x * weights
    total = np.sum(broadcast_to(weights, weighted.shape), axis=axis, keepdims=keepdims)
    return np.sum(weighted, axis=axis, keepdims=keepdims) / total


@numpy_function
def median(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    if axis is None:
        flat = median(np.ravel(x), 0)
        return np.reshape(flat, (1,) * x.ndim) if keepdims else flat
    at = whole_axis(axis, x.ndim)
    ordered, n = sort(x, at), known_size(x, at)
    found = np.mean(along_axis(ordered, at, slice((n - 1) // 2, n // 2 + 1)), axis=at, keepdims=keepdims)
    last = along_axis(ordered, at, slice(n - 1, n) if keepdims else n - 1)
    return where(np.isnan(last), np.nan, found) if x.dtype.kind == "f" else found


def _without_nan(reduce: Any, start: float, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """A reduction of the elements that are not NaN; it is NaN where there are none and the start is infinite."""
    if x.dtype.kind != "f":
        return reduce(x, axis=axis, keepdims=keepdims)
    missing = np.isnan(x)
    found = reduce(where(missing, start, x), axis=axis, keepdims=keepdims)
    return where(np.all(missing, axis=axis, keepdims=keepdims), np.nan, found) if np.isinf(start) else found


STARTS = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}
ARRAY_FUNCTIONS |= {f"nan{n}": partial(_without_nan, getattr(np, n), start) for n, start in STARTS.items()}


@numpy_function
def nanmean(x: Any, axis: Axes = None, keepdims: bool = False) -> Any:
    if x.dtype.kind != "f":
        return np.mean(x, axis=axis, keepdims=keepdims)
    present = np.sum(~np.isnan(x), axis=axis, keepdims=keepdims)
    return np.nansum(x, axis=axis, keepdims=keepdims) / astype(present, x.dtype)


ARRAY_FUNCTIONS |= {
    "ptp": lambda x, axis=None, keepdims=False: (
        np.max(x, axis=axis, keepdims=keepdims) - np.min(x, axis=axis, keepdims=keepdims)
    ),
    "count_nonzero": lambda x, axis=None, *, keepdims=False: np.sum(np.not_equal(x, 0), axis=axis, keepdims=keepdims),
}
