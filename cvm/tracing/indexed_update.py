"""Arrays with some elements changed: `x.at[key].set(values)` as in JAX, and `x[key] = values` of
arrays that the function made.

A key is a subscript of NumPy's, or a mask. An index beyond its axis is an error of the call, as in
NumPy; of several values for one element `set` keeps the last, the others combine all.
"""

from functools import partial, partialmethod
from typing import Any

import numpy as np

from ..numpy.array_api import ravel, reshape, subscript, where
from ..numpy.ufuncs import converted
from .trace import NUMPY_FUNCTIONS, TracedArray, apply, element_numbers, fail, ufunc_of_trace

COMBINED = {"set": None, "add": "add", "multiply": "mul", "min": "minimum", "max": "maximum"}
UFUNCS = {"add": "add", "multiply": "multiply", "min": "minimum", "max": "maximum"}


class IndexUpdate:
    """`x.at`; subscripted, the elements that are to be changed."""

    def __init__(self, x: TracedArray, key: Any = ()) -> None:
        self.x = x
        self.key = key

    def __getitem__(self, key: Any) -> "IndexUpdate":
        return IndexUpdate(self.x, key)

    def get(self) -> Any:
        return subscript(self.x, self.key)

    def changed(self, name: str, values: Any) -> Any:
        """A copy of the array with these elements changed."""
        x = self.x
        given = (
            values if isinstance(values, TracedArray) or np.isscalar(values) else np.asarray(values)
        )
        new = converted(x.tracer, given, x.dtype)
        if (mask := _mask(x, self.key)) is not None:
            if new.ndim > x.ndim - np.ndim(self.key):
                fail(
                    "elements that a mask chooses take a number, or values along the axes "
                    "that the mask does not have"
                )
            return where(mask, new if name == "set" else ufunc_of_trace(UFUNCS[name], x, new), x)
        places = subscript(element_numbers(x), self.key)
        try:
            fits = np.broadcast_shapes(new.shape, places.shape) == places.shape
        except ValueError:
            fits = False
        if not fits:
            fail(f"values of shape {new.shape} do not fit elements of shape {places.shape}")
        given = ravel(x), ravel(np.broadcast_to(new, places.shape)), [ravel(places)]
        return reshape(
            apply("builtin.scatter", *given, axes=(0,), scalar_op=COMBINED[name]), x.shape
        )


def _mask(x: TracedArray, key: Any) -> Any:
    """The key as a mask of the array's rank, or None."""
    mask = np.asarray(key) if isinstance(key, (list, np.ndarray)) else key
    if not isinstance(mask, (TracedArray, np.ndarray)) or mask.dtype != np.bool_:
        return None
    if mask.shape != x.shape[: mask.ndim]:
        fail(f"a mask has the array's first sizes, {x.shape}, got {mask.shape}")
    return np.expand_dims(mask, tuple(range(mask.ndim, x.ndim)))


def update_in_place(x: TracedArray, new: Any) -> None:
    """Gives an array that the function made new elements."""
    x.change_in_place(_instead(x))
    x.take_value(new)


def _instead(x: TracedArray) -> str:
    return f"make a new array, as by %{x.value.name}.at[...].set(values)"


def _set(self: TracedArray, key: Any, values: Any) -> None:
    self.change_in_place(_instead(self))
    view = values.origin if isinstance(values, TracedArray) else None
    if view is not None and view[0] is self and view[1] is key:
        return  # of `x[key] += y`, which has changed these elements already
    self.take_value(IndexUpdate(self, key).changed("set", values))


def _update(name: str, x: Any, indices: Any, values: Any) -> None:
    if not isinstance(x, TracedArray):
        fail(
            "traced values change traced arrays only: make the array of traced ones, as by "
            "np.zeros_like"
        )
    update_in_place(x, IndexUpdate(x, indices).changed(name, values))


for _name in COMBINED:
    setattr(IndexUpdate, _name, partialmethod(IndexUpdate.changed, _name))
NUMPY_FUNCTIONS |= {f"{ufunc}.at": partial(_update, name) for name, ufunc in UFUNCS.items()}
TracedArray.at = property(IndexUpdate)  # type: ignore[attr-defined]
TracedArray.__setitem__ = _set  # type: ignore[method-assign]
