"""Conversions as NumPy makes them: of floats to integers modulo 2^width, through i64; otherwise
those of every dialect.
"""

from typing import Any

import numpy as np

from ..kernel_ir.expressions import Expr, cast, select
from ..types.cast_arrays import converted
from ..types.tensor_types import BY_DTYPE, I64, UI64, ElementType
from .type_rules import part


def to_element(array: object, element: ElementType) -> np.ndarray:
    """The array in another element type."""
    given: Any = np.asarray(array)
    if not _wraps(BY_DTYPE[given.dtype], element):
        return converted(given, element)
    signed = converted(given.real, I64)
    if element is not UI64:
        return signed.astype(element.dtype)
    return np.asarray(
        np.where(given.real < 0, signed.astype(np.uint64), converted(given.real, UI64))
    )


def cast_to_element(value: Expr, element: ElementType) -> Expr:
    """Cast one element as `cast` casts arrays."""
    if not _wraps(value.type, element):
        return cast(value, element)
    real = cast(value, part(value.type))
    signed = cast(cast(real, I64), element)
    return select(real < 0.0, signed, cast(real, UI64)) if element is UI64 else signed


def _wraps(source: ElementType, element: ElementType) -> bool:
    return element.is_integer and element is not I64 and not source.is_discrete
