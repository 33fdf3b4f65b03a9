"""NumPy's reductions along axes that are operators: sums, products, means, extremes and tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cvm.dialect.types.tensor_types import BF16, F16, F32, F64

from ..tracing.diagnose import fail
from ..tracing.trace import TracedArray, apply, element_of, ufunc_of_trace
from .axes import known_count, reduced_axes
from .calls import implements
from .conversion import astype, of_shape, xp
from .selection import where as chosen_where
from .shapes import along, expand_dims, squeeze

if TYPE_CHECKING:
    from ..tracing.array_types import ArrayLike, Axes, Dtype

IDENTITY = {"sum": 0, "prod": 1, "any": False, "all": True}
COMBINE = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "all": np.logical_and,
    "any": np.logical_or,
}


@implements(np.sum, np.ndarray.sum)
def sum(
    x: TracedArray,
    axis: Axes = None,
    *,
    dtype: Dtype | None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> TracedArray:
    """Sum the elements along axes."""
    return _reduced("sum", x, axis, dtype, keepdims, initial, where)


@implements(np.prod, np.ndarray.prod)
def prod(
    x: TracedArray,
    axis: Axes = None,
    *,
    dtype: Dtype | None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> TracedArray:
    """Multiply the elements along axes."""
    return _reduced("prod", x, axis, dtype, keepdims, initial, where)


@implements(np.max, np.amax, np.ndarray.max)
def max(
    x: TracedArray,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> TracedArray:
    """Take the largest element along axes; NaN where there is one."""
    return _extreme("max", x, axis, None, keepdims, initial, where)


@implements(np.min, np.amin, np.ndarray.min)
def min(
    x: TracedArray,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> TracedArray:
    """Take the smallest element along axes; NaN where there is one."""
    return _extreme("min", x, axis, None, keepdims, initial, where)


@implements(np.all, np.ndarray.all)
def all(
    x: TracedArray, axis: Axes = None, *, keepdims: bool = False, where: ArrayLike | None = None
) -> TracedArray:
    """Test whether all elements along axes are true."""
    return _truth("all", x, axis, None, keepdims, None, where)


@implements(np.any, np.ndarray.any)
def any(
    x: TracedArray, axis: Axes = None, *, keepdims: bool = False, where: ArrayLike | None = None
) -> TracedArray:
    """Test whether any element along axes is true."""
    return _truth("any", x, axis, None, keepdims, None, where)


@implements(np.mean, np.ndarray.mean)
def mean(
    x: TracedArray,
    axis: Axes = None,
    dtype: Dtype | None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> TracedArray:
    """Average the elements: integers in f64, floats in their type, f16 in f32."""
    if dtype is None and x.type.element in (F16, BF16):
        return astype(mean(astype(x, F32), axis, None, keepdims, where), x.type.element)
    whole = dtype is not None and np.dtype(dtype).kind in "biu"
    if whole or (where is not None and where is not True):
        present = apply("theano.elemwise", x, True if where is None else where, scalar_op="second")
        wide = np.float64 if dtype is None and x.type.element.is_discrete else dtype or x.dtype
        count = sum(present, axis, keepdims=keepdims)
        total = sum(x, axis, dtype=wide, keepdims=keepdims, where=where)
        return astype(
            ufunc_of_trace("divide", total, count if whole else astype(count, wide)), wide
        )
    if dtype is not None or x.type.element.is_discrete:
        x = astype(x, F64 if dtype is None else dtype)
    if x.type.element in (F16, BF16):
        return astype(mean(astype(x, F32), axis, keepdims=keepdims), x.type.element)
    over = reduced_axes(axis, x.ndim, of_numbers=False)
    if (size := known_count(x, over)) is not None:
        count = np.asarray(size, x.dtype)
    else:  # the size is known at run time only
        ones = apply("theano.elemwise", x, np.ones((), x.dtype), scalar_op="second")
        count = apply("theano.sum", ones, axis=over)
    return _kept(ufunc_of_trace("divide", apply("theano.sum", x, axis=over), count), over, keepdims)


def _reduced(
    name: str,
    x: TracedArray,
    axis: Axes,
    dtype: Dtype | None,
    keepdims: bool,
    initial: ArrayLike | None,
    where: ArrayLike | None,
) -> TracedArray:
    """Reduce the elements that a mask chooses by the operator of this name."""
    x = _chosen(name, x, where, initial)
    over = reduced_axes(axis, x.ndim)
    if dtype is not None:
        x = astype(x, dtype)
    typed = {} if dtype is None else {"dtype": element_of(dtype)}
    found = apply(f"theano.{name}", x, axis=over, **typed)
    return _kept(_from(name, found, initial), over, keepdims)


def _extreme(
    name: str,
    x: TracedArray,
    axis: Axes,
    dtype: Dtype | None,
    keepdims: bool,
    initial: ArrayLike | None,
    where: ArrayLike | None,
) -> TracedArray:
    """Take the extreme element; where there are none, the initial value."""
    if x.dtype.kind == "c":
        return _complex_extreme(name, _chosen(name, x, where, initial), axis, keepdims, initial)
    over = reduced_axes(axis, x.ndim)
    if initial is not None and 0 in [x.shape[a] for a in over]:
        x = _chosen(name, x, where, initial)
        after = tuple(int(a in over) for a in range(x.ndim))
        x = xp.full_like(apply("builtin.pad", x, before=(0,) * x.ndim, after=after), initial)
        where = None
    return _reduced(name, x, axis, dtype, keepdims, initial, where)


def _truth(
    name: str,
    x: TracedArray,
    axis: Axes,
    dtype: Dtype | None,
    keepdims: bool,
    initial: ArrayLike | None,
    where: ArrayLike | None,
) -> TracedArray:
    """Reduce the truths of elements."""
    if x.dtype != np.bool_:
        x = ufunc_of_trace("not_equal", x, 0)
    return _reduced(name, x, axis, dtype, keepdims, initial, where)


def _chosen(
    name: str, x: TracedArray, mask: ArrayLike | None, initial: ArrayLike | None
) -> TracedArray:
    """Return the elements where the mask holds, and the identity elsewhere."""
    if mask is None or mask is True:
        return x
    if name not in IDENTITY and initial is None:
        fail(f"np.{name} of the elements that a mask chooses has to have an initial value")
    identity = np.asarray(IDENTITY.get(name, initial), x.dtype)
    return of_shape(x.shape, chosen_where(mask, x, identity))


def _from(name: str, found: TracedArray, initial: ArrayLike | None) -> TracedArray:
    """Combine the result of a reduction with its initial value."""
    if initial is None:
        return found
    return ufunc_of_trace(COMBINE[name].__name__, found, np.asarray(initial, found.dtype))


def _complex_extreme(
    name: str, x: TracedArray, axis: Axes, keepdims: bool, initial: ArrayLike | None
) -> TracedArray:
    """Take the extreme complex number along one axis, or along all of them."""
    over = reduced_axes(axis, x.ndim)
    if len(over) not in (1, x.ndim):
        fail(f"np.{name} of complex numbers takes one axis, or all of them")
    given, at = along(x, over[0] if len(over) == 1 else None)
    place = getattr(xp, f"arg{name}")(given, at, keepdims=True)
    found = squeeze(xp.take_along_axis(given, place, at), at)
    return _kept(_from(name, found, initial), over, keepdims)


def _kept(y: TracedArray, over: Sequence[int], keepdims: bool) -> TracedArray:
    return expand_dims(y, tuple(over)) if keepdims else y


def _ufunc_reduced(
    name: str,
    x: TracedArray,
    axis: Axes = 0,
    dtype: Dtype | None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> TracedArray:
    """Reduce by a ufunc: `np.add.reduce(x)`, along the first axis unless another is given."""
    rule = {"max": _extreme, "min": _extreme, "all": _truth, "any": _truth}.get(name, _reduced)
    return rule(name, x, axis, dtype, keepdims, initial, where)


for _name, _ufunc in COMBINE.items():
    implements(_ufunc.reduce)(partial(_ufunc_reduced, _name))
