"""NumPy's statistics, and functions of the order of elements: sorting, searching, counting, prefix
sums and differences.
"""

from functools import partial, wraps
from typing import Any

import numpy as np

from ..tracing.trace import TracedArray, apply, fail
from .array_api import (
    Axes,
    along,
    astype,
    concatenate,
    reduced_axes,
    where,
    whole_axes,
    whole_axis,
    whole_number,
)
from .elements import take, take_along_axis
from .layout import broadcast_to
from .table import ARRAY_FUNCTIONS, along_axis, arrays_of, known_numbers, known_size, numpy_function
from .ufuncs import common


def _place(operator: str, x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    if x.dtype.kind == "c":
        return _place("builtin.argmax", _is_extreme(operator, x, axis), axis, keepdims=keepdims)
    flat, at = along(x, axis)
    found = apply(operator, flat, axis=at)
    return np.expand_dims(found, at if flat is x else tuple(range(x.ndim))) if keepdims else found


def _is_extreme(operator: str, x: Any, axis: int | None) -> Any:
    """The complex elements that are NaN, or where none is, those of the extreme real part, and
    among them imaginary part.
    """
    reduce, none = (np.max, -np.inf) if operator.endswith("max") else (np.min, np.inf)
    first = x.real == reduce(x.real, axis=axis, keepdims=True)
    last = x.imag == reduce(where(first, x.imag, none), axis=axis, keepdims=True)
    missing = np.isnan(x)
    return where(np.any(missing, axis=axis, keepdims=True), missing, first & last)


ARRAY_FUNCTIONS |= {name: partial(_place, f"builtin.{name}") for name in ("argmax", "argmin")}


@numpy_function
def argsort(
    x: Any, axis: int | None = -1, kind: str | None = None, *, stable: bool | None = None
) -> Any:
    """The order is always stable."""
    np.sort((), kind=kind, stable=stable)  # type: ignore[call-overload]  # which refuses what NumPy does
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


@numpy_function
def sort(
    x: Any, axis: int | None = -1, kind: str | None = None, *, stable: bool | None = None
) -> Any:
    x, axis = (np.ravel(x), 0) if axis is None else (x, axis)
    return take_along_axis(x, argsort(x, axis, kind, stable=stable), axis)


def _scan(ufunc: str, x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    x, at = along(x, axis)
    sums = ufunc in ("add", "multiply")
    wide = (
        (np.uint64 if x.dtype.kind == "u" else np.int64)
        if x.dtype.kind in "biu" and sums
        else x.dtype
    )
    x = astype(x, wide if dtype is None else dtype)
    if x.dtype == np.bool_:  # an extreme
        return astype(_scan(ufunc, astype(x, np.uint8), at), np.bool_)
    return apply(
        "builtin.cumulative", x, axis=at, scalar_op="mul" if ufunc == "multiply" else ufunc
    )


ARRAY_FUNCTIONS |= {
    f"{u}.accumulate": partial(_scan, u, axis=0) for u in ("add", "multiply", "maximum", "minimum")
}
ARRAY_FUNCTIONS |= {"cumsum": partial(_scan, "add"), "cumprod": partial(_scan, "multiply")}


@numpy_function
def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    x = arrays_of(x, *(e for e in (prepend, append) if e is not None))[0]
    at = whole_axis(axis, x.ndim)
    one = (*x.shape[:at], 1, *x.shape[at + 1 :])
    ends = [e if e is None or np.ndim(e) else np.broadcast_to(e, one) for e in (prepend, append)]
    if n and any(e is not None for e in ends):
        x = concatenate([e for e in (ends[0], x, ends[1]) if e is not None], at)
    np.diff((), n)  # which refuses a negative order
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
    return np.sum(_precedes(a, each) if side == "left" else ~_precedes(each, a), axis=-1)


def _precedes(a: Any, b: Any) -> Any:
    """NumPy's order: complex numbers by their real parts first, and what is NaN comes last."""
    if a.dtype.kind != "c":
        return a < b if a.dtype.kind != "f" else (a < b) | (np.isnan(b) & ~np.isnan(a))
    (of_a, of_b), less, same = map(_missing_parts, (a, b)), a.real < b.real, ~(a.real > b.real)
    return (of_a < of_b) | ((of_a == of_b) & (less | (same & (a.imag < b.imag))))


def _missing_parts(x: Any) -> Any:
    """A number by which complex numbers are ordered first: those without NaN, of such imaginary
    parts, real parts, and both.
    """
    return np.isnan(x.real) * np.int8(2) + np.isnan(x.imag)


@numpy_function
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    edges, side = known_numbers(bins, "bins"), "left" if right else "right"
    np.digitize(0, edges)  # which refuses those without an order
    if x.dtype.kind == "c":
        fail("np.digitize takes real numbers")
    if len(edges) > 1 and edges[0] > edges[-1]:
        return len(edges) - searchsorted(edges[::-1], x, side)
    return searchsorted(edges, x, side)


@numpy_function
def histogram(x: Any, bins: Any, range: Any = None) -> Any:
    """Count the elements between known edges; the last interval is closed."""
    if not isinstance(bins, (int, np.integer)) or range is None:
        bins = known_numbers(bins, "the edges of np.histogram, or a number of bins with the range,")
    edges = np.histogram_bin_edges(np.zeros(0, x.dtype), bins, range)
    flat = np.expand_dims(np.ravel(x), 1)
    return diff(
        np.concatenate([np.sum(flat < edges[:-1], axis=0), np.sum(flat <= edges[-1:], axis=0)])
    ), edges


@numpy_function
def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    """Count each integer; `minlength` is above all of them, since it is the size of the result."""
    size = whole_number(minlength, "minlength")
    if not isinstance(x, TracedArray):
        size = max(size, int(np.max(x, initial=-1)) + 1)
    elif not size:
        fail(
            "the size of np.bincount's result depends on the elements: give minlength, "
            "which is above all of them"
        )
    x, *given = arrays_of(x) if weights is None else arrays_of(x, weights)
    weights = given[0] if given else None
    if x.ndim != 1 or not np.can_cast(x.dtype, np.int64):
        fail(f"np.bincount takes a one-dimensional array of integers that i64 holds, got {x.type}")
    at = astype(x, np.int64)
    at = where(at < 0, size, at)
    if weights is not None and not np.can_cast(weights.dtype, np.float64):
        fail(f"the weights of np.bincount are of a type that f64 holds, got {weights.dtype}")
    counted = np.ones_like(at) if weights is None else astype(weights, np.float64)
    return apply(
        "builtin.scatter", np.zeros(size, counted.dtype), counted, [at], axes=(0,), scalar_op="add"
    )


@numpy_function
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    x, xp, fp = arrays_of(x, xp, fp)
    if "c" in (x.dtype.kind, xp.dtype.kind, fp.dtype.kind) or xp.ndim != 1 or xp.shape != fp.shape:
        fail(
            "np.interp takes real numbers, and vectors xp and fp of one size, got "
            f"{xp.type} and {fp.type}"
        )
    x, xp, fp = (astype(a, np.float64) for a in (x, xp, fp))
    n = known_size(xp, 0)
    at = np.clip(searchsorted(xp, x, "right") - 1, 0, max(n - 2, 0))
    x0, y0 = take(xp, at), take(fp, at)
    slope = (take(fp, np.minimum(at + 1, n - 1)) - y0) / (take(xp, np.minimum(at + 1, n - 1)) - x0)
    found = slope * (x - x0) + y0
    found = where(x >= xp[-1], fp[-1], found)
    found = where(x < xp[0], fp[0] if left is None else left, found)
    found = found if right is None else where(x > xp[-1], right, found)
    return where(np.isnan(x), fp[0] if n == 1 else x, found)


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
        return astype(
            var(astype(x, np.float32), axis, None, ddof, keepdims, where, mean, correction),
            np.float16,
        )
    over = reduced_axes(axis, x.ndim, of_numbers=False)
    if correction is not None and ddof != 0:
        fail("np.var and np.std take ddof, or correction")
    ddof = ddof if correction is None else correction
    deviation = x - (np.mean(x, axis=over, keepdims=True, where=where) if mean is None else mean)
    squares = (
        np.square(deviation)
        if x.dtype.kind == "f"
        else np.square(deviation.real) + np.square(deviation.imag)
    )
    sizes = [x.shape[a] for a in over]
    if where is not True:
        count: Any = np.sum(
            broadcast_to(arrays_of(x, where)[1], x.shape),
            axis=over,
            dtype=np.float64,
            keepdims=keepdims,
        )
    elif all(isinstance(n, int) for n in sizes):
        count = float(np.prod(sizes, dtype=np.float64))
    else:
        count = np.sum(np.ones_like(x, dtype=np.float64), axis=over, keepdims=keepdims)
    rest = max(count - ddof, 0.0) if isinstance(count, float) else np.maximum(count - ddof, 0.0)
    total = np.sum(squares, axis=over, keepdims=keepdims, where=where)
    return total / rest if isinstance(rest, float) else astype(total / rest, total.dtype)


ARRAY_FUNCTIONS["std"] = wraps(var)(lambda *args, **options: np.sqrt(var(*args, **options)))


@numpy_function
def average(x: Any, axis: Axes = None, weights: Any = None, keepdims: bool = False) -> Any:
    if weights is None:
        return np.mean(x, axis=axis, keepdims=keepdims)
    x, weights = arrays_of(x, weights)
    if weights.shape != x.shape:
        if not isinstance(axis, int) or weights.shape != (x.shape[whole_axis(axis, x.ndim)],):
            fail("weights have the shape of the array, or are one for each element along an axis")
        weights = np.expand_dims(
            weights, [a for a in range(x.ndim) if a != whole_axis(axis, x.ndim)]
        )
    kind = np.result_type(x.dtype, weights.dtype, *(["f8"] if x.dtype.kind in "biu" else []))
    weighted = astype(x, kind) * (weights := astype(weights, kind))
    total = np.sum(broadcast_to(weights, weighted.shape), axis=axis, keepdims=keepdims)
    return np.sum(weighted, axis=axis, keepdims=keepdims) / total


@numpy_function
def median(x: Any, axis: Axes = None, keepdims: bool = False) -> Any:
    if axis is None or isinstance(axis, (tuple, list)):
        over = whole_axes(axis, x.ndim)
        rest = [n for a, n in enumerate(x.shape) if a not in over]
        size = np.prod([known_size(x, a) for a in over], dtype=np.int64)
        found = median(np.reshape(np.moveaxis(x, over, tuple(range(len(over)))), (size, *rest)), 0)
        return np.expand_dims(found, over) if keepdims else found
    at = whole_axis(axis, x.ndim)
    if not (n := known_size(x, at)):
        return np.mean(x, axis=at, keepdims=keepdims)
    ordered = sort(x, at)
    found = np.mean(
        along_axis(ordered, at, slice((n - 1) // 2, n // 2 + 1)), axis=at, keepdims=keepdims
    )
    last = along_axis(ordered, at, slice(n - 1, n) if keepdims else n - 1)
    return where(np.isnan(last), last, found) if x.dtype.kind in "fc" else found


def _of_present(
    reduce: Any, start: float | None, x: Any, axis: Any = None, keepdims: bool = False
) -> Any:
    """A reduction of the elements that are not NaN; one that begins with a start is NaN where there
    are none.
    """
    if x.dtype.kind not in "fc":
        return reduce(x, axis=axis, keepdims=keepdims)
    present = ~np.isnan(x)
    if start is None:
        return reduce(x, axis=axis, keepdims=keepdims, where=present)
    found = reduce(where(present, x, start), axis=axis, keepdims=keepdims)
    return where(np.any(present, axis=axis, keepdims=keepdims), found, np.nan)


STARTS = {**dict.fromkeys(("sum", "prod", "mean", "var", "std")), "max": -np.inf, "min": np.inf}
ARRAY_FUNCTIONS |= {
    f"nan{n}": partial(_of_present, getattr(np, n), start) for n, start in STARTS.items()
}
ARRAY_FUNCTIONS |= {
    "ptp": lambda x, axis=None, keepdims=False: np.subtract(
        *(f(x, axis, keepdims=keepdims) for f in (np.max, np.min))
    ),
    "count_nonzero": lambda x, axis=None, *, keepdims=False: np.sum(
        np.not_equal(x, 0), axis=axis, keepdims=keepdims
    ),
}
