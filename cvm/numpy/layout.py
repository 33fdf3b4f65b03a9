"""NumPy's functions that arrange, repeat, split and pad arrays, and make new ones in the form of
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tracing.diagnose import fail, fail_unknown
from ..tracing.trace import TracedArray, apply
from .axes import known_size, whole_axes, whole_axis, whole_number
from .calls import implements
from .conversion import arrays_of, astype, of_shape, xp
from .selection import where
from .shapes import along, as_array, broadcast, broadcast_to, concatenate, expand_dims
from .subscripts import along_axis, subscript
from .ufuncs import common, converted

if TYPE_CHECKING:
    from ..tracing.array_types import ArrayLike, Axes, Dtype


@implements(np.flip, shares_memory=True)
def flip(x: TracedArray, axis: Axes = None) -> TracedArray:
    """Reverse the elements along axes."""
    over = whole_axes(axis, x.ndim)
    return subscript(x, tuple(slice(None, None, -1 if n in over else None) for n in range(x.ndim)))


@implements(np.fliplr, shares_memory=True)
def fliplr(x: TracedArray) -> TracedArray:
    """Reverse the elements along the second axis."""
    return flip(x, 1)


@implements(np.flipud, shares_memory=True)
def flipud(x: TracedArray) -> TracedArray:
    """Reverse the elements along the first axis."""
    return flip(x, 0)


@implements(np.rot90)
def rot90(x: TracedArray, k: int = 1, axes: tuple[int, int] = (0, 1)) -> TracedArray:
    """Rotate by quarter turns in the plane of two axes."""
    first, second = whole_axes(axes, x.ndim)
    if k % 2:
        return xp.flip(xp.swapaxes(x, first, second), first if k % 4 == 1 else second)
    return xp.flip(x, (first, second)) if k % 4 else x


@implements(np.repeat, np.ndarray.repeat)
def repeat(x: TracedArray, repeats: ArrayLike, axis: int | None = None) -> TracedArray:
    """Repeat each element along an axis."""
    x, at = along(x, axis)
    if isinstance(repeats, TracedArray):
        fail_unknown(
            repeats,
            "repeats are known while compiling, since the size of the result depends on them",
        )
    if np.ndim(repeats) or repeats == 0:
        places = np.repeat(np.arange(x.shape[at]), repeats)  # type: ignore[arg-type]
        return along_axis(x, at, places)
    return apply("cvm.repeat", x, repeats=whole_number(repeats, "repeats"), axis=at)


@implements(np.tile)
def tile(x: TracedArray, reps: Any) -> TracedArray:
    """Repeat the whole array along each axis."""
    counts = (reps,) if isinstance(reps, (int, np.integer)) else tuple(reps)
    counts = tuple(whole_number(n, "a repetition") for n in counts) or (1,)
    found = apply("cvm.tile", x, reps=tuple(n or 1 for n in counts))
    if 0 not in counts:
        return found
    return subscript(found, (..., *(slice(None if n else 0) for n in counts)))


@implements(np.roll)
def roll(x: TracedArray, shift: Any, axis: object = None) -> TracedArray:
    """Rotate the elements along axes; shifts may be computed."""
    if axis is None:
        return xp.reshape(roll(xp.ravel(x), shift, 0), x.shape)
    shifts, axes = _listed(shift), _listed(axis)
    for k, a in zip(*np.broadcast_arrays(range(len(shifts)), range(len(axes))), strict=True):
        count, at = shifts[k], whole_axis(int(axes[a]), x.ndim)
        n = known_size(x, at)
        if isinstance(count, TracedArray):
            if count.ndim or count.dtype.kind not in "iu":
                fail_unknown(count, f"np.roll takes integers as shifts, got {count!r}")
            if n:  # subscripts from 1 - n to n - 1, as NumPy counts from the end
                turn = astype(count, "u8" if count.dtype == np.uint64 else "i8") % n
                x = along_axis(x, at, -astype(turn, "i8") + np.arange(n))
        elif 0 < (cut := n - int(count) % n if n else 0) < n:
            x = concatenate(
                [along_axis(x, at, slice(cut, None)), along_axis(x, at, slice(None, cut))], at
            )
    return x


def _listed(given: Any) -> list[Any]:
    """Return a number, or those of a sequence or of an array, as a list."""
    if isinstance(given, TracedArray):
        return [given[n] for n in range(known_size(given, 0))] if given.ndim == 1 else [given]
    return [*given] if isinstance(given, (list, tuple)) else [*np.ravel(given)]


@implements(np.pad)
def pad(
    x: TracedArray, pad_width: Any, mode: str = "constant", constant_values: Any = None
) -> TracedArray:
    """Add elements before and after those of each axis."""
    modes = (
        "constant",
        *(("edge", "reflect", "symmetric", "wrap") if constant_values is None else ()),
    )
    if mode not in modes:
        fail(f"np.pad of such arguments has the mode {' or '.join(modes)} here, got {mode!r}")
    widths = np.zeros((x.ndim, 2), np.int64)
    for axis, width in pad_width.items() if isinstance(pad_width, dict) else [(..., pad_width)]:
        widths[axis] = np.asarray(width).astype(np.int64, casting="safe")
    for a, (before, after) in enumerate(widths.tolist()):
        if not before and not after:
            continue
        n = known_size(x, a)
        if mode == "constant":
            values = 0 if constant_values is None else constant_values
            low, high = np.broadcast_to(np.asarray(values, x.dtype), (x.ndim, 2))[a]
            sides = [
                xp.full((*x.shape[:a], w, *x.shape[a + 1 :]), v)
                for w, v in ((before, low), (after, high))
            ]
            x = concatenate([sides[0], x, sides[1]], a)
        else:
            x = along_axis(x, a, xp.pad(np.arange(n), (before, after), mode=mode))
    return x


@implements(np.full_like)
def full_like(
    x: ArrayLike, fill_value: ArrayLike, dtype: Dtype | None = None, *, shape: Any = None
) -> TracedArray:
    """Make an array of one value in the form of another."""
    given, value = arrays_of(x, fill_value)
    kind = given.dtype if dtype is None else np.dtype(dtype)
    value = (
        converted(given.tracer, fill_value, kind)
        if type(fill_value) is int
        else astype(value, kind)
    )
    found = apply("theano.elemwise", given, value, scalar_op="second")
    return of_shape(given.shape, found) if shape is None else broadcast(value, shape)


@implements(np.zeros_like)
def zeros_like(x: TracedArray, dtype: Dtype | None = None, *, shape: Any = None) -> TracedArray:
    """Make zeros in the form of an array."""
    return _filled(0, x, dtype, shape)


@implements(np.ones_like)
def ones_like(x: TracedArray, dtype: Dtype | None = None, *, shape: Any = None) -> TracedArray:
    """Make ones in the form of an array."""
    return _filled(1, x, dtype, shape)


@implements(np.empty_like)
def empty_like(x: TracedArray, dtype: Dtype | None = None, *, shape: object = None) -> TracedArray:
    """Make zeros in the form of an array, where NumPy leaves the elements open."""
    return _filled(0, x, dtype, shape)


def _filled(value: int, x: TracedArray, dtype: Dtype | None, shape: object) -> TracedArray:
    return full_like(x, np.asarray(value, x.dtype if dtype is None else dtype), dtype, shape=shape)


@implements(np.linspace)
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Dtype | None = None,
    axis: int = 0,
) -> TracedArray | tuple[TracedArray, TracedArray]:
    """Make evenly spaced numbers between two ends."""
    first, last = (x * 1.0 for x in common((start, stop)))
    count = whole_number(num, "num")
    div = count - 1 if endpoint else count
    delta = last - first
    kind = np.result_type(first.dtype, last.dtype, float(count))
    y = np.indices((count,), kind)[0].reshape((count,) + (1,) * delta.ndim)
    step = delta / div if div > 0 else delta * np.nan
    found = where(xp.any(step == 0), y / max(div, 1) * delta, y * step) if div > 0 else y * delta
    found = found + first
    if endpoint and count > 1:
        final = expand_dims(broadcast(astype(last, found.dtype), delta.shape), 0)
        found = concatenate([along_axis(found, 0, slice(None, -1)), final], 0)
    found = xp.floor(found) if dtype is not None and np.dtype(dtype).kind in "iu" else found
    found = xp.moveaxis(astype(found, kind if dtype is None else dtype), 0, axis)
    return (found, step) if retstep else found


@implements(np.array_split)
def array_split(x: TracedArray, sections: object, axis: int = 0) -> list[TracedArray]:
    """Split along an axis into views, of nearly equal sizes or before given indices."""
    at = whole_axis(axis, x.ndim)
    pieces = np.array_split(range(known_size(x, at)), np.asarray(sections).tolist())
    parts = [slice(*(p[[0, -1]] + [0, 1]) if len(p) else [0]) for p in pieces]
    return [x.viewed(lambda a, part=part: along_axis(a, at, part)) for part in parts]


@implements(np.split)
def split(x: TracedArray, sections: object, axis: int = 0) -> list[TracedArray]:
    """Split along an axis into views, of equal sizes or before given indices."""
    if (
        isinstance(sections, (int, np.integer))
        and (n := known_size(x, whole_axis(axis, x.ndim))) % sections
    ):
        fail(f"an axis of {n} elements has no {sections} equal parts: use np.array_split")
    return array_split(x, sections, axis)


@implements(np.vsplit)
def vsplit(x: TracedArray, sections: object) -> list[TracedArray]:
    """Split along the first of at least two axes."""
    return split(x, sections, whole_axis(1, x.ndim) - 1)


@implements(np.hsplit)
def hsplit(x: TracedArray, sections: object) -> list[TracedArray]:
    """Split along the second axis, or the only one."""
    return split(x, sections, 0 if x.ndim == 1 else 1)


@implements(np.dsplit)
def dsplit(x: TracedArray, sections: object) -> list[TracedArray]:
    """Split along the third axis."""
    return split(x, sections, 2)


NEW_AXES = {
    (1, 0): (0,),
    (2, 0): (0, 1),
    (2, 1): (0,),
    (3, 0): (0, 1, 2),
    (3, 1): (0, 2),
    (3, 2): (2,),
}  # by the rank to reach and the rank of an array


def _with_axes(x: TracedArray, rank: int) -> TracedArray:
    """Add axes up to a rank: a vector becomes a row, and a matrix has its third axis last."""
    return xp.expand_dims(x, NEW_AXES[rank, x.ndim]) if x.ndim < rank else x


def _of_rank_at_least(
    rank: int, arrays: Sequence[ArrayLike]
) -> TracedArray | tuple[TracedArray, ...]:
    found = [_with_axes(x, rank) for x in arrays_of(*arrays)]
    return found[0] if len(found) == 1 else tuple(found)


@implements(np.atleast_1d)
def atleast_1d(*arrays: ArrayLike) -> TracedArray | tuple[TracedArray, ...]:
    """Make vectors of numbers."""
    return _of_rank_at_least(1, arrays)


@implements(np.atleast_2d)
def atleast_2d(*arrays: ArrayLike) -> TracedArray | tuple[TracedArray, ...]:
    """Make rows of vectors, and matrices of numbers."""
    return _of_rank_at_least(2, arrays)


@implements(np.atleast_3d)
def atleast_3d(*arrays: ArrayLike) -> TracedArray | tuple[TracedArray, ...]:
    """Add axes until there are three."""
    return _of_rank_at_least(3, arrays)


def _joined(rank: int, axis: int, arrays: Sequence[ArrayLike]) -> TracedArray:
    found = [_with_axes(x, rank) for x in arrays_of(*arrays)]
    return concatenate(found, 0 if found[0].ndim == 1 else axis)


@implements(np.vstack)
def vstack(arrays: Sequence[ArrayLike]) -> TracedArray:
    """Join along the first axis; vectors are rows."""
    return _joined(2, 0, arrays)


@implements(np.hstack)
def hstack(arrays: Sequence[ArrayLike]) -> TracedArray:
    """Join along the second axis; vectors are joined end to end."""
    return _joined(1, 1, arrays)


@implements(np.dstack)
def dstack(arrays: Sequence[ArrayLike]) -> TracedArray:
    """Join along the third axis."""
    return _joined(3, 2, arrays)


@implements(np.column_stack)
def column_stack(arrays: Sequence[ArrayLike]) -> TracedArray:
    """Join along the second axis; vectors are columns."""
    columns = [x if x.ndim > 1 else xp.reshape(x, (-1, 1)) for x in arrays_of(*arrays)]
    return concatenate(columns, 1)


@implements(np.append)
def append(x: ArrayLike, values: ArrayLike, axis: int | None = None) -> TracedArray:
    """Join values to an array, flat unless there is an axis."""
    return concatenate(arrays_of(x, values), axis)


@implements(np.broadcast_arrays)
def broadcast_arrays(*arrays: ArrayLike) -> tuple[TracedArray, ...]:
    """Broadcast arrays to one shape."""
    found = arrays_of(*arrays)
    shape = np.broadcast_shapes(*(x.shape for x in found))  # type: ignore[arg-type]
    if all(x.shape == shape for x in found):
        return tuple(as_array(x) for x in found)
    return tuple(broadcast_to(x, shape) for x in found)


@implements(np.meshgrid)
def meshgrid(
    *arrays: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[TracedArray, ...]:
    """Make the coordinates of a grid from vectors."""
    xp.meshgrid(indexing=indexing)  # which refuses others than NumPy's
    flat = [xp.ravel(x) for x in arrays_of(*arrays)]
    order = (
        [1, 0, *range(2, len(flat))]
        if indexing == "xy" and len(flat) > 1
        else list(range(len(flat)))
    )
    shape = [known_size(flat[n], 0) for n in order]
    spread = [
        xp.expand_dims(x, [a for a in range(len(flat)) if order[a] != n])
        for n, x in enumerate(flat)
    ]
    full = broadcast if copy else broadcast_to
    return tuple(x if sparse else full(x, tuple(shape)) for x in spread)


@implements(np.triu)
def triu(x: TracedArray, k: int = 0) -> TracedArray:
    """Keep the elements on and above a diagonal, and zero the others."""
    below = xp.tri(*x.shape[-2:], k=k - 1, dtype=bool)
    return where(~below, x, np.zeros((), x.dtype))


@implements(np.tril)
def tril(x: TracedArray, k: int = 0) -> TracedArray:
    """Keep the elements on and below a diagonal, and zero the others."""
    return where(xp.tri(*x.shape[-2:], k=k, dtype=bool), x, np.zeros((), x.dtype))


@implements(np.copy, np.ndarray.copy)
def copy(x: TracedArray) -> TracedArray:
    """Copy the elements into an array with memory of its own."""
    return apply("theano.elemwise", x, scalar_op="identity")
