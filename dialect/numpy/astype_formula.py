"""Conversions between element types as NumPy makes them on x86-64, where C leaves the value open.

A float that is NaN or too large for an integer becomes the least i32 (for types of up to 32 bits
but ui32, of which the low bits are kept) or the least i64. ui64 is converted in two halves. NumPy's
vector loops give other values for ui32 than its scalar loops; these are the scalar ones.
"""

import numpy as np

from ..kernel_ir.expressions import Expr, cast, constant, select
from ..types.tensor_types import BF16, BY_DTYPE, F32, F64, I32, I64, UI32, UI64, ElementType


def cast_like_numpy(value: Expr, element: ElementType) -> Expr:
    """The expression of `ndarray.astype(element)` for one element."""
    source = value.type
    if element is BF16 and source is not BF16:
        return cast(
            cast(value, F32), BF16
        )  # ml_dtypes' way: of what f32 does not hold, rounded twice
    if source is element or source.is_discrete or not element.is_integer:
        return cast(value, element)
    if source.kind == "complex":
        return cast_like_numpy(cast(value, F32 if source.bits == 64 else F64), element)
    x = cast(value, F32) if source.bits == 16 else value
    if element is UI64:
        high = constant(2.0**63, x.type)
        upper = cast(_truncated(x - high, I64), UI64) ^ constant(1 << 63, UI64)
        return select(x >= high, upper, cast(_truncated(x, I64), UI64))
    return cast(_truncated(x, I64 if element in (I64, UI32) else I32), element)


def arrays_like_numpy(array: object, element: ElementType) -> np.ndarray:
    """Convert arrays as NumPy converts elements; NumPy's own loops differ, and differ between
    processors.
    """
    given = np.asarray(array)
    source = BY_DTYPE[given.dtype]
    if source.kind == "complex" and element.kind not in ("complex", "bool"):
        given = np.real(given)
    with np.errstate(all="ignore"):
        if source.is_discrete or not element.is_integer:
            return given.astype(element.dtype)
        real: np.ndarray = given.astype(np.float32) if source.bits == 16 else given
        if element is not UI64:
            return _all_truncated(real, I64 if element in (I64, UI32) else I32).astype(
                element.dtype
            )
        high = real.dtype.type(2.0**63)
        upper = _all_truncated(real - high, I64).astype(np.uint64) ^ np.uint64(1 << 63)
        return np.where(real >= high, upper, _all_truncated(real, I64).astype(np.uint64))


def _all_truncated(x: np.ndarray, element: ElementType) -> np.ndarray:
    """Apply `_truncated` to arrays."""
    low, high = element.limits
    whole = np.trunc(x)
    inside = (whole < float(high + 1)) & (whole >= float(low))
    integers = np.where(inside, whole, 0).astype(element.dtype)
    return np.where(inside, integers, element.dtype.type(low))


def _truncated(x: Expr, element: ElementType) -> Expr:
    """cvttss2si and cvttsd2si: truncation toward zero, the least integer where that does not
    fit.
    """
    low, high = element.limits
    inside = (x < float(high + 1)) & (
        (x >= float(low)) if element is I64 or x.type is F32 else x > float(low - 1)
    )
    return select(
        inside, cast(select(inside, x, constant(0.0, x.type)), element), constant(low, element)
    )
