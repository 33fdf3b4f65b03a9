"""Common parts of the dialect's operators: element types, and parameters of a whole tensor or along
an axis of it.
"""

from typing import Any

import numpy as np

from ..kernel_ir.expressions import Expr, cast, maximum, minimum
from ..spec.operator import C, Operator, T
from ..types.tensor_types import I32, ElementType
from .rounding import ROUNDINGS


class QuantOperator(Operator[T]):
    """An operator on quantized tensors."""

    # of a result of type `to`, whose attributes min and max are by default the limits of the type
    low = property(lambda o: o.to.limits[0] if o.min is None else o.min)
    high = property(lambda o: o.to.limits[1] if o.max is None else o.max)
    rule = property(lambda o: ROUNDINGS[o.rounding])


def quantised(number: int, *names: str) -> C:
    """A constraint that these operands hold integers of 8 or 16 bits."""
    text = ", ".join(f"element({n})" for n in names) + " in {i8, ui8, i16, ui16}"
    return C(
        number,
        text,
        lambda o: all(
            e.is_integer and e.bits <= 16 for e in (getattr(o, n).element for n in names)
        ),
    )


def parameter(number: int, name: str, size: str) -> C:
    """A constraint that an operand is one integer of at most 32 bits, or a row of them, one for
    each of `size`.
    """

    def holds(o: Any) -> bool:
        p = getattr(o, name)
        if not p.element.is_integer or (p.element.bits >= 32 and p.element is not I32):
            return False
        return p.rank == 0 or bool(size and p.rank == 1 and p.shape[0] == o.symbols[size](o))

    shapes = f"in {{(), ({size},)}}" if size else "= ()"
    return C(
        number, f"shape({name}) {shapes}, element({name}) in {{i8, ui8, i16, ui16, i32}}", holds
    )


def along_axis(p: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """A parameter aligned with an axis of an array; integers in i64."""
    wide = p if p.dtype.kind == "f" else p.astype(np.int64)
    if not p.ndim:
        return wide
    return wide.reshape([-1 if n == axis else 1 for n in range(rank)])


def clamped(rounded: Expr, zero_point: int, low: int, high: int, to: ElementType) -> Expr:
    """min(max(rounded + zero_point, low), high) in the type `to`, the sum modulo 2^32."""
    return cast(minimum(maximum(cast(rounded, I32) + zero_point, low), high), to)


def in_limits(number: int) -> C:
    """A constraint on the attributes min, max and zero_point of a result of type `to`."""

    def holds(o: Any) -> bool:
        low, high = (
            o.to.limits if o.to.is_integer and o.to.bits <= 32 and o.to.name != "ui32" else (1, 0)
        )
        return low <= o.low <= o.high <= high and I32.limits[0] <= o.zero_point <= I32.limits[1]

    return C(
        number,
        "to in {i8, ui8, i16, ui16, i32}, min <= max in its limits, zero_point in those of i32",
        holds,
    )
