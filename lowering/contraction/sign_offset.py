"""Offset signed bytes by 128, for byte dot products of which one factor has no sign.

    sum of x * w  =  sum of (x + 128) * w  -  128 * sum of w

Legal where w is constant: its sums are then, too. Adding 128 to a byte is turning its highest bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from ...dialect.ir.types import I8, I32, UI8
from ...dialect.notation.expressions import Expr, Tensor, both, constant, select
from ..analysis.accesses import depends
from .match import Contraction, LoweredContraction
from .operand_bitwidths import OperandMagnitudes
from .pack_panels import PanelPacking
from .vnni_packing import known_terms

OFFSET = 128
HIGHEST = -0x7F7F7F80  # the highest bits of a word's bytes: 0x80808080
Version = tuple[LoweredContraction, Expr | bool]  # kernels, and the condition under which they are exact


class ByteKernels(Protocol):
    """The kernels of a contraction of bytes, once `offset` has told whether a factor's sign is moved."""

    def offset(self, sign: Expr | bool) -> bool: ...

    def lower(self) -> LoweredContraction | None: ...


def with_sign_offset(sizes: OperandMagnitudes, kernels: Callable[[bool], ByteKernels]) -> Version | None:
    """The kernels with the factor that has no sign in its place, or moved there, and where they are exact; None where they
    never are. They are given whether the rows take that place."""
    below, under = sizes.negative
    for plain in (True, False):
        for unsigned, signed, sign, swapped in (
            (sizes.columns, sizes.rows, under, False),
            (sizes.rows, sizes.columns, below, True),
        ):
            held = both(signed <= I8.limits[1], _is_byte(unsigned, sign))
            if held is False or plain != (sign is False):
                continue
            way = kernels(swapped)
            if not plain and not way.offset(sign):
                if not isinstance(sign, Expr):
                    continue
                held = both(held, ~sign)
            made = way.lower()
            return None if made is None else (made, held)
    return None


def are_bytes(c: Contraction, sizes: OperandMagnitudes, constants: Mapping[Tensor, np.ndarray]) -> bool:
    """Test whether the factors are known to be such bytes at compile time."""
    least, most = I8.limits[1], UI8.limits[1]
    rows = (
        known_terms(c.a, constants, [i for i in (*c.outer, c.row, *c.reduction_axes) if depends(c.a, {i})]) is not None
    )
    below, under = sizes.negative
    if not isinstance(sizes.rows, int) or not isinstance(sizes.columns, int):
        return False
    by_rows = sizes.rows <= least and sizes.columns <= (least if under else most) and (rows or under is False)
    return by_rows or (sizes.columns <= least and sizes.rows <= most and below is False)


def _is_byte(size: Expr | int, sign: Expr | bool) -> Expr | bool:
    """Test whether numbers fit a byte: unsigned, or signed and offset by 128."""
    small, large = size <= I8.limits[1], size <= UI8.limits[1]
    if isinstance(sign, bool):
        return small if sign else large
    assert isinstance(small, Expr) and isinstance(large, Expr)
    return small | large & ~sign


def offset_bytes(packing: PanelPacking, swapped: bool, sign: Expr | bool) -> bool:
    """Adds 128 to the factor of the columns, or of the rows where they are `swapped`, and takes it from the sums; False
    where the other factor is not constant."""
    known = packing.known_panels(packing.words) if swapped else packing.known_rows()
    if known is None:
        return False
    parts = np.ascontiguousarray(known).view(np.int8).reshape(*known.shape, I32.bytes).sum(-1, dtype=np.int32)
    sums = parts.sum(-2 if swapped else -1, dtype=np.int32) * OFFSET
    more = Tensor("more", sums.shape, I32, "constant")
    packing.constants[more] = sums
    bits = where(sign, constant(HIGHEST, I32))
    if swapped:
        packing.row_bits = bits
    else:
        packing.column_bits = bits
    tiling = packing.tiling

    def rest(sum: Expr, row: Expr) -> Expr:
        found = more[(*packing.beside, tiling.panel, tiling.place)] if swapped else more[(*packing.around, row)]
        return sum - where(sign, found)

    tiling.rest = rest
    return True


def where(sign: Expr | bool, value: Expr) -> Expr:
    """The value where a factor has a sign, or else zero."""
    return select(sign, value, 0) if isinstance(sign, Expr) else value
