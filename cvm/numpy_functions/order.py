"""NumPy's functions of the order of elements: sorting, searching, counting, prefix sums and differences."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..array_api import astype, concatenate, where, whole_axis, whole_number
from ..numpy_or_dali_ufuncs import common
from ..trace import TracedArray, apply, fail
from .indexing import take_along_axis
from .table import ARRAY_FUNCTIONS, along_axis, arrays_of, known_numbers, numpy_function


def _place(operator: str, x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    whole = axis is None
    if x.dtype.kind == "c":
        return _place("builtin.argmax", _is_extreme(operator, x, axis), axis, keepdims=keepdims)
    found = apply(operator, np.ravel(x) if whole else x, axis=0 if whole else whole_axis(axis, x.ndim))
    if not keepdims:
        return found
    return np.reshape(found, (1,) * x.ndim) if whole else np.expand_dims(found, axis)


def _is_extreme(operator: str, x: Any, axis: int | None) -> Any:
    """The complex elements that are NaN, or where none is, those of the extreme real part, and among them imaginary part."""
    largest = operator.endswith("max")
    reduce, none = (np.max, -np.inf) if largest else (np.min, np.inf)
    first = x.real == reduce(x.real, axis=axis, keepdims=True)
    last = x.imag == reduce(where(first, x.imag, none), axis=axis, keepdims=True)
    missing = np.isnan(x)
    return where(np.any(missing, axis=axis, keepdims=True), missing, first & last)


ARRAY_FUNCTIONS |= {name: partial(_place, f"builtin.{name}") for name in ("argmax", "argmin")}


@numpy_function
def argsort(x: Any, axis: int | None = -1, kind: str | None = None, *, stable: bool | None = None) -> Any:
    """The order is always stable."""
    if axis is None:
        return argsort(np.ravel(x), 0)
    along = whole_axis(axis, x.ndim)
    if x.dtype.kind != "c":
        return apply("builtin.argsort", x, axis=along)
    # by real parts, then imaginary ones; what has a NaN comes last
    order = apply("builtin.argsort", x.imag, axis=along)
    for key in (x.real, np.isnan(x.real) * np.int8(2) + np.isnan(x.imag)):
        order = take_along_axis(order, apply("builtin.argsort", take_along_axis(key, order, along), axis=along), along)
    return order


@numpy_function
def sort(x: Any, axis: int | None = -1, kind: str | None = None, *, stable: bool | None = None) -> Any:
    if axis is None:
        return sort(np.ravel(x), 0)
    return take_along_axis(x, argsort(x, axis), axis)


def _scan(scalar_op: str, x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    x = np.ravel(x) if axis is None else x
    wide = (np.uint64 if x.dtype.kind == "u" else np.int64) if x.dtype.kind in "biu" else x.dtype
    x = astype(x, wide if dtype is None else dtype)
    return apply("builtin.cumulative", x, axis=whole_axis(axis or 0, x.ndim), scalar_op=scalar_op)


ARRAY_FUNCTIONS |= {"cumsum": partial(_scan, "add"), "cumprod": partial(_scan, "mul")}


@numpy_function
def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    x = arrays_of(x, *(e for e in (prepend, append) if e is not None))[0]
    at = whole_axis(axis, x.ndim)
    one = (*x.shape[:at], 1, *x.shape[at + 1 :])
    prepend, append = (
        np.broadcast_to(e if isinstance(e, TracedArray) else np.asarray(e), one)
        if e is not None and not np.ndim(e)
        else e
        for e in (prepend, append)
    )
    if n and not (prepend is None is append):
        x = concatenate([e for e in (prepend, x, append) if e is not None], at)
    for _ in range(whole_number(n, "n")):
        later, sooner = along_axis(x, at, slice(1, None)), along_axis(x, at, slice(None, -1))
        x = np.not_equal(later, sooner) if x.dtype == np.bool_ else later - sooner
    return x


@numpy_function
def searchsorted(a: Any, v: Any, side: str = "left") -> Any:
    a, v = common(arrays_of(a, v))
    if a.ndim != 1 or side not in ("left", "right"):
        fail("np.searchsorted takes a one-dimensional sorted array, and the side left or right")
    each = np.expand_dims(v, v.ndim)
    before = a < each if side == "left" else a <= each
    if a.dtype.kind == "f":  # NaN is above all numbers
        before = before | (np.isnan(each) & (~np.isnan(a) if side == "left" else True))
    return np.sum(before, axis=-1)


@numpy_function
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    edges = known_numbers(bins, "bins")
    if x.dtype.kind == "c":
        fail("np.digitize takes real numbers")
    if len(edges) > 1 and edges[0] > edges[-1]:
        return len(edges) - searchsorted(edges[::-1], x, "left" if right else "right")
    return searchsorted(edges, x, "left" if right else "right")


@numpy_function
def histogram(x: Any, bins: Any, range: Any = None) -> Any:
    """Count the elements between known edges; the last interval is closed."""
    if isinstance(bins, (int, np.integer)) and range is not None:
        bins = np.histogram_bin_edges(np.zeros(0, x.dtype), bins, range)
    edges = known_numbers(bins, "the edges of np.histogram, or a number of bins with the range,")
    flat = np.expand_dims(np.ravel(x), 1)
    below = np.concatenate([np.sum(flat < edges[:-1], axis=0), np.sum(flat <= edges[-1:], axis=0)])
    return diff(below), edges


@numpy_function
def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    """Count each integer; `minlength` is above all of them, since it is the size of the result."""
    size = whole_number(minlength, "minlength")
    if not isinstance(x, TracedArray):
        size = max(size, int(np.max(x, initial=-1)) + 1)
    elif not size:
        fail("the size of np.bincount's result depends on the elements: give minlength, which is above all of them")
    x, *given = arrays_of(x) if weights is None else arrays_of(x, weights)
    weights = given[0] if given else None
    if x.ndim != 1 or not np.can_cast(x.dtype, np.int64):
        fail(f"np.bincount takes a one-dimensional array of integers that i64 holds, got {x.type}")
    at = astype(x, np.int64)
    at = where(at < 0, size, at)
    if weights is not None and not np.can_cast(weights.dtype, np.float64):
        fail(f"the weights of np.bincount are of a type that f64 holds, got {weights.dtype}")
    counted = np.ones_like(at) if weights is None else astype(weights, np.float64)
    return apply("builtin.scatter", np.zeros(size, counted.dtype), counted, [at], axes=(0,), scalar_op="add")
