"""Bound the operands of a contraction, from interval analysis or by kernels that examine every
element at run time.

    for i { acc = 0; for j { acc = acc | bits(x[i, j]) }; found[i] = acc }

The bits of a number are its sign and its magnitude. The bitwise or of magnitudes is at least the
largest of them, and less than twice that; its sign is set if any number is negative.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...dialect.kernel_ir.expressions import Expr, Index, Read, Tensor, as_index, axes
from ...dialect.kernel_ir.loops import (
    Alloc,
    Block,
    For,
    Kernel,
    Statement,
    Store,
    accumulator,
    assign,
    nested,
    update,
)
from ...dialect.types.tensor_types import I16, I32
from ..analysis.integer_ranges import Ranges, interval
from .match_contraction import Contraction, kernel_from_body
from .vnni_packing import only_read, read_at

MAGNITUDE = I32.limits[1]  # all bits but the sign


@dataclass(frozen=True, eq=False)
class Magnitude:
    """The largest magnitude of a factor, and whether it has negative elements: known, or what
    kernels find.
    """

    size: Expr | int
    negative: Expr | bool


@dataclass(frozen=True, eq=False)
class OperandMagnitudes:
    """The magnitudes of a contraction's factors, and the kernels that store their bits in
    `bits`.
    """

    rows: Magnitude
    columns: Magnitude
    bits: Tensor | None = None
    kernels: tuple[Kernel, ...] = ()


def operand_magnitudes(
    kernel: Kernel, c: Contraction, ranges: Ranges, constants: Mapping[Tensor, np.ndarray]
) -> OperandMagnitudes | None:
    """The magnitudes of the factors of rows and columns; None if unknown."""
    magnitudes: list[Magnitude | None] = []
    kernels: list[Kernel] = []
    bits: list[Tensor] = []
    for e in (c.a, c.b):
        values = interval(e, ranges, constants)
        read = only_read(e)
        size = max(values.high, -1 - values.low)
        if size <= I16.limits[1] or (read is not None and read.tensor in constants):
            magnitudes.append(Magnitude(size, values.low < 0))
        elif read is None:
            return None
        else:
            stored_bits, body = bits_of(e, read)
            kernels.append(kernel_from_body(kernel, "bits", body, (stored_bits,)))
            bits.append(stored_bits)
            magnitudes.append(None)
    joined: Tensor | None = None
    if bits:
        joined, body = joined_bits(bits)
        kernels.append(kernel_from_body(kernel, "sizes", body, (joined,)))
    each = iter([] if joined is None else [joined[n] for n in range(len(bits))])
    rows, columns = (
        Magnitude((stored := next(each)) & MAGNITUDE, stored < 0) if m is None else m
        for m in magnitudes
    )
    return OperandMagnitudes(rows, columns, joined, tuple(kernels))


def bits_of(e: Expr, read: Read) -> tuple[Tensor, Block]:
    """The ored bits of a factor, along the first axis of its array: the sign, and the bits of x, or
    of ~x below 0.
    """
    first, *rest = axes(read.tensor.shape)
    value = read_at(e, read, (first, *rest))
    bits = Tensor("bits", (first.extent,), I32, "heap")
    return bits, (For(first, _ored(rest, value ^ ((value >> 31) & MAGNITUDE), bits, first)),)


def joined_bits(parts: Sequence[Tensor]) -> tuple[Tensor, Block]:
    """The bit widths of whole factors, joined from those of their parts."""
    sizes = Tensor("size", (len(parts),), I32, "heap")
    body = list[Statement]()
    for n, bits in enumerate(parts):
        i = Index("n", bits.shape[0])
        body += _ored([i], bits[i], sizes, as_index(n))
    return sizes, tuple(body)


def _ored(over: Sequence[Index], value: Expr, to: Tensor, at: Expr) -> Block:
    """The bitwise or of values over some indices, stored to an element."""
    acc = accumulator("acc", I32)
    return (
        Alloc(acc),
        assign(acc, 0),
        *nested(over, (update("or", acc, value),)),
        Store(to, (at,), acc[()]),
    )
