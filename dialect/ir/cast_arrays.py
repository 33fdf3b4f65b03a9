"""Conversions between element types in NumPy: the meaning of a `Cast` of index notation, on whole arrays."""

from typing import Any

import numpy as np

from .types import ElementType


def converted(array: Any, element: ElementType) -> np.ndarray:
    """The array in another element type.

    Integers wrap modulo 2^width, floats round to the nearest (ties to even), floats to integers truncate and saturate,
    NaN giving 0, and to i1 is `!= 0`. Real to complex has an imaginary part of 0; complex to real takes the real part.
    """
    given = np.asarray(array)
    if given.dtype == element.dtype:
        return given
    if element.kind == "bool":
        return np.asarray(given != 0)
    if given.dtype.kind == "c" and element.kind != "complex":
        given = np.real(given)
    with np.errstate(all="ignore"):
        if given.dtype.kind == "f" and element.is_integer:
            return _saturated(given, element)
        return np.asarray(given.astype(element.dtype))


def with_plain_truths(array: np.ndarray) -> np.ndarray:
    """A boolean array with bytes 0 and 1 only: any other byte is true, but some functions of NumPy do not treat it so."""
    if array.dtype != np.bool_ or (held := array.view(np.uint8)).max(initial=0) <= 1:
        return array
    return np.asarray(held != 0)


def _saturated(given: np.ndarray, element: ElementType) -> np.ndarray:
    low, high = element.limits
    whole = np.trunc(given.astype(np.promote_types(given.dtype, np.float32)))  # f16 does not reach high + 1
    # high + 1 is a power of two and exact; high itself need not be
    above, below = whole >= float(high + 1), whole < float(low)
    inside = np.where(above | below | np.isnan(whole), 0, whole).astype(element.dtype)
    return np.asarray(np.where(above, element.dtype.type(high), np.where(below, element.dtype.type(low), inside)))
