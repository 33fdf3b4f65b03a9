"""How large the factors of a contraction are: from their ranges, or found by kernels that look at every element:

    for i { acc = 0; for j { acc = acc | magnitude(x[i, j]) }; bits[i] = acc }

Ored magnitudes are at least as large as the largest of them, and less than twice that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..dialect.index import Expr, Index, Read, Tensor, as_index, axes
from ..dialect.loops import Alloc, Block, For, Kernel, Store, accumulator, assign, update
from ..dialect.types import I16, I32
from .contraction import Contraction, made
from .ranges import Ranges, interval
from .words import loops_of, only_read, read_at


@dataclass(frozen=True, eq=False)
class Sizes:
    """The magnitudes of a contraction's factors, numbers or what kernels find."""

    rows: Expr | int
    columns: Expr | int
    found: Tensor | None = None  # by these kernels
    kernels: tuple[Kernel, ...] = ()


def sizes_of(kernel: Kernel, c: Contraction, ranges: Ranges, constants: Mapping[Tensor, np.ndarray]) -> Sizes | None:
    """How large the factors of rows and columns are; None where nothing can tell."""
    found: list[int | None] = []
    looked: list[Kernel] = []
    ored: list[Tensor] = []
    for e in (c.a, c.b):
        known, read = interval(e, ranges, constants), only_read(e)
        size = max(known.high, -1 - known.low)
        if size <= I16.limits[1] or (read is not None and read.tensor in constants):
            found.append(size)
        elif read is None:
            return None
        else:
            bits, body = bits_of(e, read)
            looked.append(made(kernel, "bits", body, (bits,)))
            ored.append(bits)
            found.append(None)
    if not ored:
        rows, columns = (n for n in found if n is not None)
        return Sizes(rows, columns)
    both, body = joined_bits(ored)
    looked.append(made(kernel, "sizes", body, (both,)))
    places = iter(range(len(ored)))
    rows, columns = (both[next(places)] if n is None else n for n in found)
    return Sizes(rows, columns, both, tuple(looked))


def magnitude(value: Expr) -> Expr:
    """A number's bits without its sign: as large as the number, or one less than a negative one."""
    return value ^ (value >> 31)


def bits_of(e: Expr, read: Read) -> tuple[Tensor, Block]:
    """The ored magnitudes of a factor, along the first axis of the array that it reads."""
    first, *rest = axes(read.tensor.shape)
    acc = accumulator("acc", I32)
    fold = loops_of(rest, (update("or", acc, magnitude(read_at(e, read, (first, *rest)))),))
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
