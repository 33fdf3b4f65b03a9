"""NumPy's functions of the order of elements: sorting, searching, counting, prefix sums and
differences.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tracing.diagnose import fail
from ..tracing.trace import TracedArray, apply
from .axes import known_numbers, known_size, whole_axis, whole_number
from .calls import implements
from .conversion import arrays_of, astype, xp
from .elements import take, take_along_axis
from .reductions import sum
from .selection import where
from .shapes import along, concatenate, expand_dims
from .subscripts import along_axis
from .ufuncs import common

if TYPE_CHECKING:
    from ..tracing.array_types import ArrayLike, Axes, Dtype


@implements(np.argmax, np.ndarray.argmax)
def argmax(x: TracedArray, axis: int | None = None, *, keepdims: bool = False) -> TracedArray:
    """Find the index of the first largest element along an axis."""
    x = x if x.dtype.kind != "c" else _is_extreme(xp.max, -np.inf, x, axis)
    return _place("builtin.argmax", x, axis, keepdims)


@implements(np.argmin, np.ndarray.argmin)
def argmin(x: TracedArray, axis: int | None = None, *, keepdims: bool = False) -> TracedArray:
    """Find the index of the first smallest element along an axis."""
    if x.dtype.kind == "c":
        return _place("builtin.argmax", _is_extreme(xp.min, np.inf, x, axis), axis, keepdims)
    return _place("builtin.argmin", x, axis, keepdims)


def _place(operator: str, x: TracedArray, axis: int | None, keepdims: bool) -> TracedArray:
    flat, at = along(x, axis)
    found = apply(operator, flat, axis=at)
    return expand_dims(found, at if flat is x else tuple(range(x.ndim))) if keepdims else found


def _is_extreme(reduce: Any, none: float, x: TracedArray, axis: int | None) -> TracedArray:
    """Test complex elements for NaN, or where there is none, for the extreme real part, and among
    them imaginary part.
    """
    first = x.real == reduce(x.real, axis=axis, keepdims=True)
    last = x.imag == reduce(where(first, x.imag, none), axis=axis, keepdims=True)
    missing = xp.isnan(x)
    return where(xp.any(missing, axis=axis, keepdims=True), missing, first & last)


@implements(np.argsort, np.ndarray.argsort)
def argsort(
    x: TracedArray,
    axis: int | None = -1,
    kind: str | None = None,
    *,
    stable: bool | None = None,
) -> TracedArray:
    """Find the indices that sort the elements along an axis; the order is always stable."""
    xp.sort((), kind=kind, stable=stable)  # which refuses what NumPy does
    x, at = along(x, axis)
    if x.dtype.kind != "c":
        return apply("builtin.argsort", x, axis=at)
    # by real parts, then imaginary ones; what has a NaN comes last
    order = apply("builtin.argsort", x.imag, axis=at)
    for key in (x.real, _missing_parts(x)):
        order = take_along_axis(
            order, apply("builtin.argsort", take_along_axis(key, order, at), axis=at), at
        )
    return order


@implements(np.sort)
def sort(
    x: TracedArray,
    axis: int | None = -1,
    kind: str | None = None,
    *,
    stable: bool | None = None,
) -> TracedArray:
    """Sort the elements along an axis."""
    x, axis = (xp.ravel(x), 0) if axis is None else (x, axis)
    return take_along_axis(x, argsort(x, axis, kind, stable=stable), axis)


@implements(np.cumsum, np.ndarray.cumsum)
def cumsum(x: TracedArray, axis: int | None = None, dtype: Dtype | None = None) -> TracedArray:
    """Compute the prefix sums along an axis."""
    return _accumulated("add", x, axis, dtype)


@implements(np.cumprod, np.ndarray.cumprod)
def cumprod(x: TracedArray, axis: int | None = None, dtype: Dtype | None = None) -> TracedArray:
    """Compute the prefix products along an axis."""
    return _accumulated("multiply", x, axis, dtype)


def _accumulated(
    ufunc: str, x: TracedArray, axis: int | None = 0, dtype: Dtype | None = None
) -> TracedArray:
    """Combine the elements up to each place by a ufunc."""
    x, at = along(x, axis)
    sums = ufunc in ("add", "multiply")
    wide = (
        (np.uint64 if x.dtype.kind == "u" else np.int64)
        if x.dtype.kind in "biu" and sums
        else x.dtype
    )
    x = astype(x, wide if dtype is None else dtype)
    if x.dtype == np.bool_:  # an extreme
        return astype(_accumulated(ufunc, astype(x, np.uint8), at), np.bool_)
    scalar_op = "mul" if ufunc == "multiply" else ufunc
    return apply("builtin.cumulative", x, axis=at, scalar_op=scalar_op)


for _ufunc in (np.add, np.multiply, np.maximum, np.minimum):
    implements(_ufunc.accumulate)(partial(_accumulated, _ufunc.__name__))


@implements(np.diff)
def diff(
    x: ArrayLike,
    n: int = 1,
    axis: int = -1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> TracedArray:
    """Subtract neighbors along an axis, `n` times."""
    found = arrays_of(x, *(e for e in (prepend, append) if e is not None))[0]
    at = whole_axis(axis, found.ndim)
    one = (*found.shape[:at], 1, *found.shape[at + 1 :])
    ends = [
        e if e is None or np.ndim(e) else xp.broadcast_to(e, one)  # type: ignore[arg-type]
        for e in (prepend, append)
    ]
    if n and any(e is not None for e in ends):
        found = concatenate([e for e in (ends[0], found, ends[1]) if e is not None], at)
    xp.diff((), n)  # which refuses a negative order
    for _ in range(whole_number(n, "n")):
        later, sooner = along_axis(found, at, slice(1, None)), along_axis(found, at, slice(-1))
        found = xp.not_equal(later, sooner) if found.dtype == np.bool_ else later - sooner
    return found


@implements(np.searchsorted, np.ndarray.searchsorted)
def searchsorted(a: ArrayLike, v: ArrayLike, side: str = "left") -> TracedArray:
    """Find the indices at which elements of `v` keep a sorted vector in order."""
    vector, values = common(arrays_of(a, v))
    if vector.ndim != 1 or side not in ("left", "right"):
        fail("np.searchsorted takes a one-dimensional sorted array, and the side left or right")
    each = xp.expand_dims(values, values.ndim)
    return sum(_precedes(vector, each) if side == "left" else ~_precedes(each, vector), -1)


def _precedes(a: TracedArray, b: TracedArray) -> TracedArray:
    """Compare in NumPy's order: complex numbers by their real parts first, and what is NaN comes
    last.
    """
    if a.dtype.kind != "c":
        return a < b if a.dtype.kind != "f" else (a < b) | (xp.isnan(b) & ~xp.isnan(a))
    (of_a, of_b), less, same = map(_missing_parts, (a, b)), a.real < b.real, ~(a.real > b.real)
    return (of_a < of_b) | ((of_a == of_b) & (less | (same & (a.imag < b.imag))))


def _missing_parts(x: TracedArray) -> TracedArray:
    """Number complex numbers by what orders them first: those without NaN, of such imaginary parts,
    real parts, and both.
    """
    return xp.isnan(x.real) * np.int8(2) + xp.isnan(x.imag)


@implements(np.digitize)
def digitize(x: TracedArray, bins: ArrayLike, right: bool = False) -> TracedArray:
    """Find the intervals between known edges that hold the elements."""
    edges, side = known_numbers(bins, "bins"), "left" if right else "right"
    np.digitize(0, edges)  # which refuses those without an order
    if x.dtype.kind == "c":
        fail("np.digitize takes real numbers")
    if len(edges) > 1 and edges[0] > edges[-1]:
        return len(edges) - searchsorted(edges[::-1], x, side)
    return searchsorted(edges, x, side)


@implements(np.histogram)
def histogram(x: TracedArray, bins: Any, range: Any = None) -> tuple[TracedArray, np.ndarray]:
    """Count the elements between known edges; the last interval is closed."""
    if not isinstance(bins, (int, np.integer)) or range is None:
        bins = known_numbers(bins, "the edges of np.histogram, or a number of bins with the range,")
    edges = np.histogram_bin_edges(np.zeros(0, x.dtype), bins, range)
    flat = xp.expand_dims(xp.ravel(x), 1)
    below, up_to_last = xp.sum(flat < edges[:-1], axis=0), xp.sum(flat <= edges[-1:], axis=0)
    return diff(concatenate([below, up_to_last])), edges


@implements(np.bincount)
def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, minlength: int = 0) -> TracedArray:
    """Count each integer; `minlength` is above all of them, since it is the size of the result."""
    size = whole_number(minlength, "minlength")
    if not isinstance(x, TracedArray):
        size = max(size, int(np.max(x, initial=-1)) + 1)  # type: ignore[arg-type]
    elif not size:
        fail(
            "the size of np.bincount's result depends on the elements: give minlength, "
            "which is above all of them"
        )
    counted, *given = arrays_of(x) if weights is None else arrays_of(x, weights)
    if counted.ndim != 1 or not np.can_cast(counted.dtype, np.int64):
        taken = "a one-dimensional array of integers that i64 holds"
        fail(f"np.bincount takes {taken}, got {counted.type}")
    at = astype(counted, np.int64)
    at = where(at < 0, size, at)
    if given and not np.can_cast(given[0].dtype, np.float64):
        fail(f"the weights of np.bincount are of a type that f64 holds, got {given[0].dtype}")
    added = astype(given[0], np.float64) if given else xp.ones_like(at)
    empty = np.zeros(size, added.dtype)
    return apply("builtin.scatter", empty, added, [at], axes=(0,), scalar_op="add")


@implements(np.count_nonzero)
def count_nonzero(x: TracedArray, axis: Axes = None, *, keepdims: bool = False) -> TracedArray:
    """Count the elements that are not zero."""
    return xp.sum(xp.not_equal(x, 0), axis=axis, keepdims=keepdims)


@implements(np.interp)
def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
) -> TracedArray:
    """Interpolate linearly between the points (xp, fp)."""
    at, places, values = arrays_of(x, xp, fp)
    if (
        "c" in (at.dtype.kind, places.dtype.kind, values.dtype.kind)
        or places.ndim != 1
        or places.shape != values.shape
    ):
        fail(
            "np.interp takes real numbers, and vectors xp and fp of one size, got "
            f"{places.type} and {values.type}"
        )
    at, places, values = (astype(a, np.float64) for a in (at, places, values))
    n = known_size(places, 0)
    below = searchsorted(places, at, "right") - 1
    below = np.clip(below, 0, max(n - 2, 0))
    above = np.minimum(below + 1, n - 1)
    x0, y0 = take(places, below), take(values, below)
    slope = (take(values, above) - y0) / (take(places, above) - x0)
    found = slope * (at - x0) + y0
    found = where(at >= places[-1], values[-1], found)
    found = where(at < places[0], values[0] if left is None else left, found)
    found = found if right is None else where(at > places[-1], right, found)
    return where(np.isnan(at), values[0] if n == 1 else at, found)
