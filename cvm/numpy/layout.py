"""NumPy's functions that arrange, repeat, join and split arrays, and make new ones in the form of
others.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..tracing.trace import apply, fail
from .array_api import (
    astype,
    concatenate,
    of_shape,
    subscript,
    where,
    whole_axes,
    whole_axis,
    whole_number,
)
from .table import ARRAY_FUNCTIONS, along_axis, arrays_of, known_size, numpy_function
from .ufuncs import common, converted


@numpy_function
def broadcast_to(x: Any, shape: Any) -> Any:
    if x.shape == (sizes := (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)):
        return x
    return of_shape(
        sizes, apply("theano.elemwise", np.zeros(sizes, np.bool_), x, scalar_op="second")
    )


def _array(x: Any) -> Any:
    return x.as_array(x.copied()) if x.is_scalar else x


def _spread(x: Any, shape: Any) -> Any:
    """A view that NumPy gives read-only, of scalars, too."""
    return _array(x).viewed(lambda a: broadcast_to(a, shape), read_only=True)


@numpy_function
def tile(x: Any, reps: Any) -> Any:
    counts = (reps,) if isinstance(reps, (int, np.integer)) else tuple(reps)
    counts = tuple(whole_number(n, "a repetition") for n in counts) or (1,)
    found = apply("cvm.tile", x, reps=tuple(n or 1 for n in counts))
    return (
        subscript(found, (..., *(slice(None if n else 0) for n in counts)))
        if 0 in counts
        else found
    )


@numpy_function
def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return np.reshape(roll(np.ravel(x), shift, 0), x.shape)
    for count, a in zip(*map(np.ravel, np.broadcast_arrays(np.asarray(shift), axis)), strict=True):
        at = whole_axis(int(a), x.ndim)
        n = known_size(x, at)
        if 0 < (cut := n - int(count) % n if n else 0) < n:
            x = concatenate(
                [along_axis(x, at, slice(cut, None)), along_axis(x, at, slice(None, cut))], at
            )
    return x


@numpy_function
def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    first, second = whole_axes(axes, x.ndim)
    if k % 2:
        return np.flip(np.swapaxes(x, first, second), first if k % 4 == 1 else second)
    return np.flip(x, (first, second)) if k % 4 else x


@numpy_function
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Any:
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
                np.full((*x.shape[:a], w, *x.shape[a + 1 :]), v)
                for w, v in ((before, low), (after, high))
            ]
            x = concatenate([sides[0], x, sides[1]], a)
        else:
            x = along_axis(x, a, np.pad(np.arange(n), (before, after), mode=mode))  # type: ignore[call-overload]
    return x


def _filled(value: int, x: Any, dtype: Any = None, *, shape: Any = None) -> Any:
    return full_like(x, np.asarray(value, x.dtype if dtype is None else dtype), dtype, shape=shape)


@numpy_function
def full_like(x: Any, fill_value: Any, dtype: Any = None, *, shape: Any = None) -> Any:
    x, value = arrays_of(x, fill_value)
    dtype = x.dtype if dtype is None else np.dtype(dtype)
    value = (
        converted(x.tracer, fill_value, dtype) if type(fill_value) is int else astype(value, dtype)
    )
    found = apply("theano.elemwise", x, value, scalar_op="second")
    return of_shape(x.shape, found) if shape is None else broadcast_to(value, shape)


@numpy_function
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    ends: list[Any] = [*common((start, stop))]
    start, stop = (x * 1.0 for x in ends)
    count = whole_number(num, "num")
    div = count - 1 if endpoint else count
    delta = stop - start
    kind = np.result_type(start.dtype, stop.dtype, float(count))
    y = np.indices((count,), kind)[0].reshape((count,) + (1,) * delta.ndim)
    step = delta / div if div > 0 else delta * np.nan
    found = where(np.any(step == 0), y / max(div, 1) * delta, y * step) if div > 0 else y * delta
    found = found + start
    if endpoint and count > 1:
        last = np.expand_dims(broadcast_to(astype(stop, found.dtype), delta.shape), 0)
        found = concatenate([along_axis(found, 0, slice(None, -1)), last], 0)
    found = np.floor(found) if dtype is not None and np.dtype(dtype).kind in "iu" else found
    found = np.moveaxis(astype(found, kind if dtype is None else dtype), 0, axis)
    return (found, step) if retstep else found


@numpy_function
def array_split(x: Any, sections: Any, axis: int = 0) -> Any:
    at = whole_axis(axis, x.ndim)
    pieces = np.array_split(range(known_size(x, at)), np.asarray(sections).tolist())
    parts = [slice(*(p[[0, -1]] + [0, 1]) if len(p) else [0]) for p in pieces]
    return [x.viewed(lambda a, part=part: along_axis(a, at, part)) for part in parts]


@numpy_function
def split(x: Any, sections: Any, axis: int = 0) -> Any:
    if (
        isinstance(sections, (int, np.integer))
        and (n := known_size(x, whole_axis(axis, x.ndim))) % sections
    ):
        fail(f"an axis of {n} elements has no {sections} equal parts: use np.array_split")
    return array_split(x, sections, axis)


def _of_rank_at_least(rank: int, *arrays: Any) -> Any:
    found = [_with_axes(x, rank) for x in arrays_of(*arrays)]
    return found[0] if len(found) == 1 else tuple(found)


NEW_AXES = {
    (1, 0): (0,),
    (2, 0): (0, 1),
    (2, 1): (0,),
    (3, 0): (0, 1, 2),
    (3, 1): (0, 2),
    (3, 2): (2,),
}


def _with_axes(x: Any, rank: int) -> Any:
    """A vector becomes a row, and a matrix has its third axis last."""
    return np.expand_dims(x, NEW_AXES[rank, x.ndim]) if x.ndim < rank else x


def _joined(rank: int, along: int, arrays: Sequence[Any]) -> Any:
    found = [_with_axes(x, rank) for x in arrays_of(*arrays)]
    return concatenate(found, 0 if found[0].ndim == 1 else along)


@numpy_function
def rollaxis(x: Any, axis: int, start: int = 0) -> Any:
    at, to = whole_axis(axis, x.ndim), start + x.ndim if start < 0 else start
    return np.moveaxis(x, at, to - (at < to))


@numpy_function
def broadcast_arrays(*arrays: Any) -> Any:
    found = arrays_of(*arrays)
    shape = np.broadcast_shapes(*(x.shape for x in found))
    if all(x.shape == shape for x in found):
        return tuple(_array(x) for x in found)
    return tuple(_spread(x, shape) for x in found)


@numpy_function
def meshgrid(*arrays: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    np.meshgrid(indexing=indexing)  # type: ignore[call-overload]  # which refuses others than NumPy's
    flat = [np.ravel(x) for x in arrays_of(*arrays)]
    order = (
        [1, 0, *range(2, len(flat))]
        if indexing == "xy" and len(flat) > 1
        else list(range(len(flat)))
    )
    shape = [known_size(flat[n], 0) for n in order]
    spread = [
        np.expand_dims(x, [a for a in range(len(flat)) if order[a] != n])
        for n, x in enumerate(flat)
    ]
    full = broadcast_to if copy else _spread
    return tuple(x if sparse else full(x, tuple(shape)) for x in spread)


ARRAY_FUNCTIONS |= {
    "broadcast_to": _spread,
    **{
        f"{name}_like": partial(_filled, n) for name, n in (("zeros", 0), ("ones", 1), ("empty", 0))
    },
    "vsplit": lambda x, sections: split(
        x, sections, whole_axis(1, x.ndim) - 1
    ),  # of at least two axes
    "hsplit": lambda x, sections: split(x, sections, 0 if x.ndim == 1 else 1),
    "dsplit": lambda x, sections: split(x, sections, 2),
    **{
        f"{letter}stack": partial(_joined, *how)
        for letter, *how in (("v", 2, 0), ("h", 1, 1), ("d", 3, 2))
    },
    **{f"atleast_{rank}d": partial(_of_rank_at_least, rank) for rank in (1, 2, 3)},
    "triu": lambda x, k=0: where(
        ~np.tri(*x.shape[-2:], k=k - 1, dtype=bool), x, np.zeros((), x.dtype)
    ),
    "tril": lambda x, k=0: where(np.tri(*x.shape[-2:], k=k, dtype=bool), x, np.zeros((), x.dtype)),
    "append": lambda x, values, axis=None: concatenate(arrays_of(x, values), axis),
    "column_stack": lambda xs: concatenate(
        [x if x.ndim > 1 else np.reshape(x, (-1, 1)) for x in arrays_of(*xs)], 1
    ),
    "fliplr": lambda x: np.flip(x, 1),
    "flipud": lambda x: np.flip(x, 0),
    "copy": lambda x: apply("theano.elemwise", x, scalar_op="identity"),
}
