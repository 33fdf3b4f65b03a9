"""NumPy's statistics that are composed of reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..tracing.diagnose import fail
from ..tracing.trace import TracedArray
from .axes import known_count, known_size, reduced_axes, whole_axes, whole_axis
from .calls import implements
from .conversion import arrays_of, astype, xp
from .order import sort
from .selection import where as chosen_where
from .shapes import broadcast
from .subscripts import along_axis

if TYPE_CHECKING:
    from ..tracing.array_types import ArrayLike, Axes, Dtype


@implements(np.var, np.ndarray.var)
def var(
    x: TracedArray,
    axis: Axes = None,
    dtype: Dtype | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike = True,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> TracedArray:
    """Compute the variance along axes."""
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
    deviation = x - (xp.mean(x, axis=over, keepdims=True, where=where) if mean is None else mean)
    squares = (
        xp.square(deviation)
        if x.dtype.kind == "f"
        else xp.square(deviation.real) + xp.square(deviation.imag)
    )
    if where is not True:
        mask = broadcast(arrays_of(x, where)[1], x.shape)
        count: Any = xp.sum(mask, axis=over, dtype=np.float64, keepdims=keepdims)
    elif (count := known_count(x, over)) is None:
        count = xp.sum(xp.ones_like(x, dtype=np.float64), axis=over, keepdims=keepdims)
    rest = max(count - ddof, 0.0) if isinstance(count, float) else xp.maximum(count - ddof, 0.0)
    total = xp.sum(squares, axis=over, keepdims=keepdims, where=where)
    return total / rest if isinstance(rest, float) else astype(total / rest, total.dtype)


@implements(np.std, np.ndarray.std)
def std(
    x: TracedArray,
    axis: Axes = None,
    dtype: Dtype | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike = True,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> TracedArray:
    """Compute the standard deviation along axes."""
    return xp.sqrt(var(x, axis, dtype, ddof, keepdims, where, mean, correction))


@implements(np.average)
def average(
    x: TracedArray, axis: Axes = None, weights: ArrayLike | None = None, keepdims: bool = False
) -> TracedArray:
    """Average the elements, each with its weight."""
    if weights is None:
        return xp.mean(x, axis=axis, keepdims=keepdims)
    x, given = arrays_of(x, weights)
    if given.shape != x.shape:
        if not isinstance(axis, int) or given.shape != (x.shape[whole_axis(axis, x.ndim)],):
            fail("weights have the shape of the array, or are one for each element along an axis")
        given = xp.expand_dims(given, [a for a in range(x.ndim) if a != whole_axis(axis, x.ndim)])
    kind = np.result_type(x.dtype, given.dtype, *(["f8"] if x.dtype.kind in "biu" else []))
    given = astype(given, kind)
    weighted = astype(x, kind) * given
    total = xp.sum(broadcast(given, weighted.shape), axis=axis, keepdims=keepdims)
    return xp.sum(weighted, axis=axis, keepdims=keepdims) / total


@implements(np.median)
def median(x: TracedArray, axis: Axes = None, keepdims: bool = False) -> TracedArray:
    """Take the middle of the sorted elements, or the mean of the two in the middle."""
    if axis is None or isinstance(axis, (tuple, list)):
        over = whole_axes(axis, x.ndim)
        rest = [n for a, n in enumerate(x.shape) if a not in over]
        size = np.prod([known_size(x, a) for a in over], dtype=np.int64)
        found = median(xp.reshape(xp.moveaxis(x, over, tuple(range(len(over)))), (size, *rest)), 0)
        return xp.expand_dims(found, over) if keepdims else found
    at = whole_axis(axis, x.ndim)
    if not (n := known_size(x, at)):
        return xp.mean(x, axis=at, keepdims=keepdims)
    ordered = sort(x, at)
    middle = along_axis(ordered, at, slice((n - 1) // 2, n // 2 + 1))
    found = xp.mean(middle, axis=at, keepdims=keepdims)
    last = along_axis(ordered, at, slice(n - 1, n) if keepdims else n - 1)
    return chosen_where(xp.isnan(last), last, found) if x.dtype.kind in "fc" else found


@implements(np.ptp)
def ptp(x: TracedArray, axis: Axes = None, keepdims: bool = False) -> TracedArray:
    """Subtract the smallest element from the largest."""
    largest, smallest = (f(x, axis, keepdims=keepdims) for f in (xp.max, xp.min))
    return xp.subtract(largest, smallest)


@implements(np.nansum)
def nansum(x: TracedArray, axis: Axes = None, keepdims: bool = False) -> TracedArray:
    """Sum the elements that are not NaN."""
    return _of_present(xp.sum, x, axis, keepdims)


@implements(np.nanprod)
def nanprod(x: TracedArray, axis: Axes = None, keepdims: bool = False) -> TracedArray:
    """Multiply the elements that are not NaN."""
    return _of_present(xp.prod, x, axis, keepdims)


@implements(np.nanmean)
def nanmean(x: TracedArray, axis: Axes = None, keepdims: bool = False) -> TracedArray:
    """Average the elements that are not NaN."""
    return _of_present(xp.mean, x, axis, keepdims)


@implements(np.nanvar)
def nanvar(x: TracedArray, axis: Axes = None, keepdims: bool = False) -> TracedArray:
    """Compute the variance of the elements that are not NaN."""
    return _of_present(xp.var, x, axis, keepdims)


@implements(np.nanstd)
def nanstd(x: TracedArray, axis: Axes = None, keepdims: bool = False) -> TracedArray:
    """Compute the standard deviation of the elements that are not NaN."""
    return _of_present(xp.std, x, axis, keepdims)


@implements(np.nanmax)
def nanmax(x: TracedArray, axis: Axes = None, keepdims: bool = False) -> TracedArray:
    """Take the largest element that is not NaN; NaN where there is none."""
    return _of_present(xp.max, x, axis, keepdims, -np.inf)


@implements(np.nanmin)
def nanmin(x: TracedArray, axis: Axes = None, keepdims: bool = False) -> TracedArray:
    """Take the smallest element that is not NaN; NaN where there is none."""
    return _of_present(xp.min, x, axis, keepdims, np.inf)


def _of_present(
    reduce: Any, x: TracedArray, axis: Axes, keepdims: bool, start: float | None = None
) -> TracedArray:
    """Reduce the elements that are not NaN; with a start, where there are none, to NaN."""
    if x.dtype.kind not in "fc":
        return reduce(x, axis=axis, keepdims=keepdims)
    present = ~xp.isnan(x)
    if start is None:
        return reduce(x, axis=axis, keepdims=keepdims, where=present)
    found = reduce(chosen_where(present, x, start), axis=axis, keepdims=keepdims)
    return chosen_where(xp.any(present, axis=axis, keepdims=keepdims), found, np.nan)


@implements(np.cov)
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: None = None,
    aweights: None = None,
    *,
    dtype: Dtype | None = None,
) -> TracedArray:
    """Compute the covariances of variables, each of which is a row, or a column."""
    if fweights is not None or aweights is not None:
        fail("np.cov takes no weights here")
    variables = [_variables(x, rowvar) for x in (m, y) if x is not None]
    usual = np.result_type(np.float64, *(x.dtype for x in variables))
    kind = usual if dtype is None else np.dtype(dtype)
    rows = xp.concatenate([astype(x, kind) for x in variables], axis=0)
    count = known_size(rows, 1)
    less = (0 if bias else 1) if ddof is None else ddof
    away = rows - xp.mean(rows, axis=1, keepdims=True)
    turned = xp.conj(away.T) if kind.kind == "c" else away.T
    sums = xp.matmul(away, turned) / max(count - less, 0)
    return xp.squeeze(sums)


def _variables(x: ArrayLike, rowvar: bool) -> TracedArray:
    """Return variables as rows."""
    (given,) = arrays_of(x)
    if given.ndim > 2:
        fail(f"np.cov takes arrays of at most two axes, got the shape {given.shape}")
    rows = given if given.ndim == 2 else xp.reshape(given, (1, -1))
    return rows if rowvar or given.ndim < 2 else rows.T


@implements(np.corrcoef)
def corrcoef(
    x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, *, dtype: Dtype | None = None
) -> TracedArray:
    """Compute the correlations of variables, between -1 and 1."""
    found = cov(x, y, rowvar, dtype=dtype)
    if found.ndim == 0:
        return found / found
    deviation = xp.sqrt(xp.diagonal(found).real if found.dtype.kind == "c" else xp.diagonal(found))
    found = found / deviation[:, None] / deviation[None, :]
    if found.dtype.kind == "c":
        fail("np.corrcoef takes real numbers")
    return xp.clip(found, -1, 1)
