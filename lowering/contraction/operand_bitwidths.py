"""Bound the operands of a contraction, from interval analysis or by kernels that examine every element at run time.

    for i { acc = 0; for j { acc = acc | bits(x[i, j]) }; found[i] = acc }

The bits of a number are its sign and its magnitude. The bitwise or of magnitudes is at least the largest of them, and
less than twice that; its sign is set if any number is negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...dialect.ir.types import I16, I32
from ...dialect.notation.expressions import Expr, Index, Read, Tensor, as_index, axes
from ...dialect.notation.loops import Alloc, Block, For, Kernel, Store, accumulator, assign, update
from ..analysis.integer_ranges import Ranges, interval
from .match import Contraction, kernel_from_body
from .vnni_packing import loops_of, only_read, read_at

MAGNITUDE = I32.limits[1]  # all bits but the sign


@dataclass(frozen=True, eq=False)
class OperandMagnitudes:
    """The magnitudes of a contraction's factors, numbers or what kernels find, and whether any is negative."""

    rows: Expr | int
    columns: Expr | int
    negative: tuple[Expr | bool, Expr | bool]  # rows and columns
    found: Tensor | None = None  # by these kernels
    kernels: tuple[Kernel, ...] = ()


def operand_magnitudes(
    kernel: Kernel, c: Contraction, ranges: Ranges, constants: Mapping[Tensor, np.ndarray]
) -> OperandMagnitudes | None:
    """The magnitudes of the factors of rows and columns; None if unknown."""
    found: list[tuple[int, bool] | None] = []
    looked: list[Kernel] = []
    ored: list[Tensor] = []
    for e in (c.a, c.b):
        known, read = interval(e, ranges, constants), only_read(e)
        size = max(known.high, -1 - known.low)
        if size <= I16.limits[1] or (read is not None and read.tensor in constants):
            found.append((size, known.low < 0))
        elif read is None:
            return None
        else:
            bits, body = bits_of(e, read)
            looked.append(kernel_from_body(kernel, "bits", body, (bits,)))
            ored.append(bits)
            found.append(None)
    if not ored:
        (rows, below), (columns, under) = (n for n in found if n is not None)
        return OperandMagnitudes(rows, columns, (below, under))
    both, body = joined_bits(ored)
    looked.append(kernel_from_body(kernel, "sizes", body, (both,)))
    places = iter(range(len(ored)))
    (rows, below), (columns, under) = (_of_bits(both[next(places)]) if n is None else n for n in found)
    return OperandMagnitudes(rows, columns, (below, under), both, tuple(looked))


def _of_bits(bits: Expr) -> tuple[Expr, Expr]:
    return bits & MAGNITUDE, bits < 0


def sign_and_magnitude(value: Expr) -> Expr:
    """A number's sign, and bits that are as large as the number, or one less than a negative one."""
    return value ^ ((value >> 31) & MAGNITUDE)


def bits_of(e: Expr, read: Read) -> tuple[Tensor, Block]:
    """The ored bits of a factor, along the first axis of the array that it reads."""
    first, *rest = axes(read.tensor.shape)
    acc = accumulator("acc", I32)
    fold = loops_of(rest, (update("or", acc, sign_and_magnitude(read_at(e, read, (first, *rest)))),))
    bits = Tensor("bits", (first.extent,), I32, "heap")
    return bits, (For(first, (Alloc(acc), assign(acc, 0), *fold, Store(bits, (first,), acc[()]))),)


def joined_bits(found: Sequence[Tensor]) -> tuple[Tensor, Block]:
    """The same of whole factors."""
    sizes, made = Tensor("size", (len(found),), I32, "heap"), []
    for n, bits in enumerate(found):
        acc, i = accumulator("acc", I32), Index("n", bits.shape[0])
        made += [
            Alloc(acc),
            assign(acc, 0),
            For(i, (update("or", acc, bits[i]),)),
            Store(sizes, (as_index(n),), acc[()]),
        ]
    return sizes, tuple(made)
