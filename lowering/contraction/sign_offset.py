"""Offset signed bytes by 128, for byte dot products of which one factor has no sign.

    sum of x * w  =  sum of (x + 128) * w  -  128 * sum of w

Legal where w is constant: its sums are then, too. Adding 128 to a byte is turning its highest
bit.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from ...dialect.kernel_ir.expressions import Expr, Tensor, both, constant, select
from ...dialect.types.tensor_types import I8, I32, UI8
from ..analysis.accesses import depends
from .contraction_problem import Problem
from .match_contraction import LoweredContraction
from .operand_bitwidths import Magnitude, OperandMagnitudes
from .pack_panels import PanelPacking
from .vnni_packing import known_terms

OFFSET = 128  # added to signed bytes to make them unsigned ones
HIGHEST = -0x7F7F7F80  # the highest bits of a word's bytes: 0x80808080


class ByteKernels(Protocol):
    """The kernels of a contraction of bytes, once `offset` has told whether a factor's sign is
    moved.
    """

    def offset(self, sign: Expr | bool) -> bool: ...

    def lower(self) -> LoweredContraction | None: ...


def with_sign_offset(
    sizes: OperandMagnitudes, kernels: Callable[[bool], ByteKernels]
) -> LoweredContraction | None:
    """The kernels with the unsigned factor in its place, offset if need be, and where they are
    exact; None if never.
    """
    for plain in (True, False):
        for unsigned, signed, swapped in (
            (sizes.columns, sizes.rows, False),
            (sizes.rows, sizes.columns, True),
        ):
            exact = both(signed.size <= I8.limits[1], _is_byte(unsigned))
            sign = unsigned.negative
            if exact is False or plain != (sign is False):
                continue
            form = kernels(swapped)
            if not plain and not form.offset(sign):
                if not isinstance(sign, Expr):
                    continue
                exact = both(exact, ~sign)
            lowered = form.lower()
            return None if lowered is None else replace(lowered, exact=exact)
    return None


def are_bytes(problem: Problem) -> bool:
    """Test whether the factors are known to be such bytes at compile time."""
    c = problem.contraction
    rows = problem.sizes.rows
    columns = problem.sizes.columns
    if not isinstance(rows.size, int) or not isinstance(columns.size, int):
        return False
    least, most = I8.limits[1], UI8.limits[1]
    order = [i for i in (*c.outer, c.row, *c.reduction_axes) if depends(c.a, {i})]
    is_constant = known_terms(c.a, problem.constants, order) is not None
    by_rows = rows.size <= least and columns.size <= (least if columns.negative else most)
    by_columns = columns.size <= least and rows.size <= most and rows.negative is False
    return (by_rows and (is_constant or columns.negative is False)) or by_columns


def _is_byte(factor: Magnitude) -> Expr | bool:
    """Test whether a factor fits a byte: unsigned, or signed and offset by 128."""
    small, large = factor.size <= I8.limits[1], factor.size <= UI8.limits[1]
    if isinstance(factor.negative, bool):
        return small if factor.negative else large
    assert isinstance(small, Expr) and isinstance(large, Expr)
    return small | large & ~factor.negative


def offset_bytes(packing: PanelPacking, swapped: bool, sign: Expr | bool) -> bool:
    """Add 128 to the columns, or if `swapped` the rows, and correct the sums; False unless the
    other is constant.
    """
    if (packed := packing.known_panels(packing.words) if swapped else packing.known_rows()) is None:
        return False
    parts = (
        np.ascontiguousarray(packed)
        .view(np.int8)
        .reshape(*packed.shape, I32.bytes)
        .sum(-1, dtype=np.int32)
    )
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
        offset = (
            more[(*packing.beside, tiling.order.panel, tiling.at.place)]
            if swapped
            else more[(*packing.around, row)]
        )
        return sum - where(sign, offset)

    tiling.rest = rest
    return True


def where(sign: Expr | bool, value: Expr) -> Expr:
    """The value where a factor has a sign, or else zero."""
    return select(sign, value, 0) if isinstance(sign, Expr) else value
