"""Arrays with some elements changed: `x.at[key].set(values)` as in JAX, and `x[key] = values` of
arrays that the function made.

A key is a subscript of NumPy's, or a mask. An index beyond its axis is an error of the call, as in
NumPy; of several values for one element `set` keeps the last, the others combine all.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tracing.diagnose import fail
from ..tracing.numpy_table import ARRAY_METHODS
from ..tracing.trace import TracedArray, apply, element_numbers, ufunc_of_trace
from .calls import implements
from .conversion import xp
from .selection import where
from .shapes import flatten, reshape
from .subscripts import indexed_axes, sliced_axes, subscript
from .ufuncs import converted

if TYPE_CHECKING:
    from ..tracing.array_types import ArrayLike, Dim

COMBINED = {"set": None, "add": "add", "multiply": "mul", "min": "minimum", "max": "maximum"}
UFUNCS = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


class IndexUpdate:
    """`x.at`; subscripted, the elements that are to be changed."""

    def __init__(self, x: TracedArray, key: object = ()) -> None:
        self.x = x
        self.key = key

    def __getitem__(self, key: Any) -> IndexUpdate:
        return IndexUpdate(self.x, key)

    def get(self) -> TracedArray:
        """Return these elements."""
        return subscript(self.x, self.key)

    def set(self, values: ArrayLike) -> TracedArray:
        """Return a copy of the array in which these elements have other values."""
        return self.changed("set", values)

    def add(self, values: ArrayLike) -> TracedArray:
        """Return a copy of the array in which values are added to these elements."""
        return self.changed("add", values)

    def multiply(self, values: ArrayLike) -> TracedArray:
        """Return a copy of the array in which these elements are multiplied by values."""
        return self.changed("multiply", values)

    def min(self, values: ArrayLike) -> TracedArray:
        """Return a copy of the array in which these elements are at most the values."""
        return self.changed("min", values)

    def max(self, values: ArrayLike) -> TracedArray:
        """Return a copy of the array in which these elements are at least the values."""
        return self.changed("max", values)

    def changed(self, name: str, values: ArrayLike) -> TracedArray:
        """Return a copy of the array in which values are combined with these elements."""
        x = self.x
        given = (
            values if isinstance(values, TracedArray) or np.isscalar(values) else np.asarray(values)
        )
        new = converted(x.tracer, given, x.dtype)
        if (mask := _mask(x, self.key)) is not None:
            if new.ndim > x.ndim - mask.ndim:
                fail(
                    "elements that a mask chooses take a number, or values along the axes "
                    "that the mask does not have"
                )
            if name != "set":
                new = ufunc_of_trace(UFUNCS[name].__name__, x, new)
            return where(xp.expand_dims(mask, tuple(range(mask.ndim, x.ndim))), new, x)
        if (place := sliced_axes(x, self.key)) is not None:
            if name != "set":
                new = ufunc_of_trace(UFUNCS[name].__name__, place.elements(x), new)
            return place.insert(x, _spread(new, place.shape))
        if name != "set" and x.dtype.kind == "c":
            return self._changed_complex(name, new)
        if (along := indexed_axes(x, self.key)) is not None:
            indices, axes = along
            kept = [n for a, n in enumerate(x.shape) if a not in axes]
            spread = _spread(new, (*kept[: axes[0]], *indices[0].shape, *kept[axes[0] :]))
            return apply("builtin.scatter", x, spread, indices, axes=axes, scalar_op=COMBINED[name])
        places = subscript(element_numbers(x), self.key)
        operands = flatten(x), flatten(_spread(new, places.shape)), [flatten(places)]
        found = apply("builtin.scatter", *operands, axes=(0,), scalar_op=COMBINED[name])
        return reshape(found, x.shape)

    def _changed_complex(self, name: str, new: TracedArray) -> TracedArray:
        """Combine values with complex elements: at one place of an axis by numbers, at several,
        which may be equal, part by part.
        """
        x, given = self.x, self.key
        key: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
        if not any(isinstance(part, (list, tuple)) or np.ndim(part) for part in key):
            new = ufunc_of_trace(UFUNCS[name].__name__, subscript(x, key), new)
            return self.changed("set", new)
        if name != "add":
            fail(
                f"complex elements at arrays of indices take add and set, got {name}: where "
                "the places differ, compute from x.at[key].get() and set the results"
            )
        parts = ((x.real, new.real), (x.imag, new.imag))
        found = [IndexUpdate(part, self.key).changed(name, values) for part, values in parts]
        return apply("theano.elemwise", *found, scalar_op="complex")


def _spread(values: TracedArray, shape: tuple[Dim, ...]) -> TracedArray:
    """Return values for each of the elements of this shape."""
    try:
        fits = xp.broadcast_shapes(values.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        fail(f"values of shape {values.shape} do not fit elements of shape {shape}")
    return xp.broadcast_to(values, shape)


ARRAY_METHODS["at"] = IndexUpdate


def _mask(x: TracedArray, key: object) -> TracedArray | np.ndarray | None:
    """Return the key as a mask of the array's first axes, or None."""
    mask = np.asarray(key) if isinstance(key, (list, np.ndarray)) else key
    if not isinstance(mask, (TracedArray, np.ndarray)) or mask.dtype != np.bool_:
        return None
    if mask.shape != x.shape[: mask.ndim]:
        fail(f"a mask has the array's first sizes, {x.shape}, got {mask.shape}")
    return mask


def update_in_place(x: TracedArray, new: TracedArray) -> None:
    """Give an array that the function made new elements."""
    x.change_in_place(_instead(x))
    x.take_value(new)


def _instead(x: TracedArray) -> str:
    return f"make a new array, as by %{x.value.name}.at[...].set(values)"


@implements(np.ndarray.__setitem__)
def setitem(x: TracedArray, key: object, values: ArrayLike) -> None:
    """Change elements in place."""
    x.change_in_place(_instead(x))
    view = values.origin if isinstance(values, TracedArray) else None
    if view is not None and view[0] is x and _same_key(view[1], key):
        return  # of `x[key] += y`, which has changed these elements already
    x.take_value(IndexUpdate(x, key).changed("set", values))


def _same_key(a: Any, b: Any) -> bool:
    """Test whether two keys are one; Python makes a slice anew for `x[1:] += y` to store it."""
    if isinstance(a, slice) and isinstance(b, slice):
        bounds = zip((a.start, a.stop, a.step), (b.start, b.stop, b.step), strict=True)
        return all(x is y or (type(x) is type(y) is int and x == y) for x, y in bounds)
    return a is b


def _ufunc_at(name: str, x: TracedArray, indices: Any, values: ArrayLike) -> None:
    """Combine values with elements in place by a ufunc: `np.add.at(x, indices, values)`."""
    if not isinstance(x, TracedArray):
        fail(
            "traced values change traced arrays only: make the array of traced ones, as by "
            "np.zeros_like"
        )
    known = isinstance(values, (TracedArray, int, float, complex))
    common = np.result_type(
        x.dtype, getattr(values if known else np.asarray(values), "dtype", values)
    )
    wraps = name in ("add", "multiply") and {x.dtype.kind, common.kind} <= {*"iu"}
    if common != x.dtype and not wraps:
        fail(
            f"NumPy computes this in {common} and converts each result to {x.dtype}: convert the "
            f"values first, as by values.astype({str(x.dtype)!r})"
        )
    update_in_place(x, IndexUpdate(x, indices).changed(name, values))


for _name, _ufunc in UFUNCS.items():
    implements(_ufunc.at)(partial(_ufunc_at, _name))
