"""Conversions between element types in NumPy: the meaning of a `Cast` of index notation, on whole
arrays.
"""

import numpy as np

from .tensor_types import BF16, BY_DTYPE, ElementType, kind_of


def converted(array: object, element: ElementType) -> np.ndarray:
    """The array in another element type.

    Integers wrap modulo 2^width, floats round to the nearest (ties to even), floats to integers
    truncate and saturate, NaN giving 0, and to i1 is `!= 0`. Real to complex has imaginary part 0;
    complex to real takes the real part.
    """
    given = np.asarray(array)
    if BY_DTYPE[given.dtype] is element:
        return given
    if BY_DTYPE[given.dtype] is BF16:
        return converted(given.astype(np.float32), element)
    if element.kind == "bool":
        return np.asarray(given != 0)
    if given.dtype.kind == "c" and element.kind != "complex":
        given = np.real(given)
    with np.errstate(all="ignore"):
        if given.dtype.kind == "f" and element.is_integer:
            return _saturated(given, element)
        if element is BF16 and not np.can_cast(given.dtype, np.float32):
            given = _with_digits_of_bf16(given)
        return np.asarray(given.astype(element.dtype))


def _with_digits_of_bf16(given: np.ndarray) -> np.ndarray:
    """Numbers that f32 need not hold, rounded to the digits of bf16 in NumPy's longest float."""
    x = given.astype(np.longdouble)
    last = np.maximum(np.frexp(x)[1], -125) - 8
    return np.ldexp(np.rint(np.ldexp(x, -last)), last).astype(np.float32)


def array_of(values: object, element: ElementType) -> np.ndarray:
    """Numbers as an array of the element type, rounded once."""
    return (
        converted(np.array(values, np.float64), element)
        if element is BF16
        else np.asarray(values, element.dtype)
    )


def from_file(array: np.ndarray, element: ElementType) -> np.ndarray:
    """An array of a file as one of the element type: .npy files hold bf16 as two bytes without a
    type.
    """
    return array.view(element.dtype) if element is BF16 and array.dtype.str == "|V2" else array


def is_float(value: object) -> bool:
    """Test for a float of Python or NumPy, or a bf16."""
    return isinstance(value, (float, np.floating)) or (
        isinstance(value, np.generic) and kind_of(value.dtype) == "f"
    )


def with_plain_truths(array: np.ndarray) -> np.ndarray:
    """A boolean array with bytes 0 and 1 only: any other byte is true, but some functions of NumPy
    do not treat it so.
    """
    if array.dtype != np.bool_ or (held := array.view(np.uint8)).max(initial=0) <= 1:
        return array
    return np.asarray(held != 0)


def _saturated(given: np.ndarray, element: ElementType) -> np.ndarray:
    low, high = element.limits
    whole = np.trunc(
        given.astype(np.promote_types(given.dtype, np.float32))
    )  # f16 does not reach high + 1
    # high + 1 is a power of two and exact; high itself need not be
    above = whole >= float(high + 1)
    below = whole < float(low)
    inside = np.where(above | below | np.isnan(whole), 0, whole).astype(element.dtype)
    return np.asarray(
        np.where(above, element.dtype.type(high), np.where(below, element.dtype.type(low), inside))
    )
