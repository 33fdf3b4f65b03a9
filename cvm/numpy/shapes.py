"""NumPy's functions that give arrays other shapes or axes, and join them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tracing.diagnose import fail
from ..tracing.trace import TracedArray, apply
from .axes import reduced_axes, whole_axes, whole_axis, whole_number
from .calls import implements
from .conversion import by_dali, of_one_type, of_shape

if TYPE_CHECKING:
    from ..tracing.array_types import ArrayLike, Axes, Dim


@implements(np.ndim)
def ndim(x: TracedArray) -> int:
    """Return the number of dimensions."""
    return x.ndim


@implements(np.shape)
def shape(x: TracedArray) -> tuple[Dim, ...]:
    """Return the sizes."""
    return x.shape


@implements(np.size)
def size(x: TracedArray, axis: int | None = None) -> Dim:
    """Return the number of elements, or the size of an axis."""
    return x.size if axis is None else x.shape[whole_axis(axis, x.ndim)]


def reshape(x: TracedArray, *shape: Any, order: str = "C") -> TracedArray:
    """Give the elements another shape, in row-major or column-major order."""
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if _is_fortran(order):
        return transpose(reshape(transpose(x), tuple(sizes)[::-1]))
    if {0, -1} <= {*sizes}:
        fail("the size that -1 stands for is open beside a size of 0")
    return apply("cvm.reshape", x, target_shape=tuple(whole_number(n, "a size") for n in sizes))


@implements(np.ndarray.reshape)
def reshaped(x: TracedArray, *shape: object, order: str = "C") -> TracedArray:
    """Reshape to a view where axes are split, otherwise a view or a copy, by NumPy's layout."""
    found = reshape(x, *shape, order=order)
    certain = order == "C" and _splits(x.shape, found.shape)
    return x.viewed(lambda a: reshape(a, *shape, order=order), found=found, certain=certain)


@implements(np.reshape)
def reshape_function(x: TracedArray, shape: object, order: str = "C") -> TracedArray:
    """Reshape, as `np.reshape`, which takes the sizes as one argument."""
    return reshaped(x, shape, order=order)


def _splits(old: Sequence[Dim], new: Sequence[Dim]) -> bool:
    """Test whether each size is the product of adjacent new ones, apart from sizes of 1."""
    sizes = [n for n in new if isinstance(n, int) and n != 1][::-1]
    if not all(isinstance(n, int) for n in (*old, *new)) or 0 in old:
        return False
    for size in (n for n in old if isinstance(n, int) and n != 1):
        while size != 1 and sizes and size % sizes[-1] == 0:
            size //= sizes.pop()
        if size != 1:
            return False
    return not sizes


@implements(np.ndarray.flatten)
def flatten(x: TracedArray, order: str = "C") -> TracedArray:
    """Copy the elements into a vector."""
    return apply("cvm.flatten", transpose(x) if _is_fortran(order) else x)


@implements(np.ravel, np.ndarray.ravel)
def ravel(x: TracedArray, order: str = "C") -> TracedArray:
    """Make a vector: a view of a vector that is no view itself; otherwise a view or a copy, as
    NumPy's layout has it.
    """
    return x.viewed(lambda a: flatten(a, order), certain=x.ndim <= 1 and x.origin is None)


def _is_fortran(order: str) -> bool:
    if order not in ("C", "F"):
        fail(f"the order of elements is C or F here, got {order!r}")
    return order == "F"


@implements(np.ndarray.transpose, np.ndarray.T, shares_memory=True)
def transpose(x: TracedArray, *axes: Any) -> TracedArray:
    """Permute the axes, given one by one or together, or reverse them."""
    order = (
        axes[0] if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)) else axes or None
    )
    if order is None:
        order = range(x.ndim)[::-1]
    if len(order) != x.ndim:
        fail(f"the axes are as many as the array's dimensions, {x.ndim}, got {len(order)}")
    return apply("cvm.transpose", x, axes=whole_axes(tuple(order), x.ndim)) if x.ndim else x


@implements(np.transpose, shares_memory=True)
def transpose_function(x: TracedArray, axes: Sequence[int] | None = None) -> TracedArray:
    """Permute the axes, as `np.transpose`, which takes them as one argument."""
    return transpose(x, *(axes or ()))


@implements(np.matrix_transpose, np.linalg.matrix_transpose, np.ndarray.mT, shares_memory=True)
def matrix_transpose(x: TracedArray) -> TracedArray:
    """Exchange the last two axes."""
    return swapaxes(x, -1, -2)


@implements(np.swapaxes, np.ndarray.swapaxes, shares_memory=True)
def swapaxes(x: TracedArray, axis1: int, axis2: int) -> TracedArray:
    """Exchange two axes."""
    a, b = whole_axis(axis1, x.ndim), whole_axis(axis2, x.ndim)
    return transpose(x, [{a: b, b: a}.get(n, n) for n in range(x.ndim)])


@implements(np.moveaxis, shares_memory=True)
def moveaxis(x: TracedArray, source: Axes, destination: Axes) -> TracedArray:
    """Move axes to other places."""
    moved, places = whole_axes(source, x.ndim), whole_axes(destination, x.ndim)
    if len(moved) != len(places):
        fail(f"np.moveaxis has as many destinations as sources, got {destination!r} for {source!r}")
    order = [n for n in range(x.ndim) if n not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        order.insert(place, axis)
    return transpose(x, order)


@implements(np.rollaxis)
def rollaxis(x: TracedArray, axis: int, start: int = 0) -> TracedArray:
    """Move one axis before another."""
    at, to = whole_axis(axis, x.ndim), start + x.ndim if start < 0 else start
    return x.viewed(lambda a: moveaxis(a, at, to - (at < to)))


@implements(np.expand_dims, shares_memory=True)
def expand_dims(x: TracedArray, axis: Axes) -> TracedArray:
    """Insert axes of size 1."""
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    for a in sorted(whole_axes(axis, x.ndim + count)):
        x = apply("cvm.expand_dims", x, axis=a)
    return x


@implements(np.squeeze, np.ndarray.squeeze, shares_memory=True)
def squeeze(x: TracedArray, axis: Axes = None) -> TracedArray:
    """Remove axes of size 1."""
    over = (
        tuple(n for n, d in enumerate(x.shape) if d == 1)
        if axis is None
        else reduced_axes(axis, x.ndim)
    )
    return apply("cvm.squeeze", x, axes=over) if over else x


def along(x: TracedArray, axis: int | None) -> tuple[TracedArray, int]:
    """Return the array and its axis; the array is flat where there is no axis, or x is a number."""
    x = flatten(x) if axis is None or not x.ndim else x
    return x, whole_axis(0 if axis is None else axis, x.ndim)


def broadcast(x: TracedArray, shape: Any) -> TracedArray:
    """Repeat the elements along new axes and those of size 1."""
    if x.shape == (sizes := (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)):
        return x
    return of_shape(
        sizes, apply("theano.elemwise", np.zeros(sizes, np.bool_), x, scalar_op="second")
    )


@implements(np.broadcast_to)
def broadcast_to(x: TracedArray, shape: Any) -> TracedArray:
    """Broadcast to a shape: a view that NumPy gives read-only, of scalars, too."""
    return as_array(x).viewed(lambda a: broadcast(a, shape), read_only=True)


def as_array(x: TracedArray) -> TracedArray:
    """Return an array of rank 0 for a scalar, and any other array as it is."""
    return x.as_array(x.copied()) if x.is_scalar else x


@implements(np.concatenate)
def concatenate(arrays: Sequence[ArrayLike], axis: int | None = 0) -> TracedArray:
    """Join arrays along an axis."""
    found = of_one_type(arrays, "concatenate")
    found, axis = ([flatten(x) for x in found], 0) if axis is None else (found, axis)
    return apply("cvm.concatenate", found, axis=whole_axis(axis, found[0].ndim))


@implements(np.stack)
def stack(arrays: Sequence[ArrayLike], axis: int = 0) -> TracedArray:
    """Join arrays of one shape along a new axis."""
    if not by_dali(*arrays):
        arrays = [a if isinstance(a, TracedArray) else np.asarray(a) for a in arrays]
    found = of_one_type(arrays, "stack")
    at = whole_axis(axis, found[0].ndim + 1)
    return apply("cvm.concatenate", [expand_dims(x, at) for x in found], axis=at)
