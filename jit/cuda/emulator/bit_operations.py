"""PTX instructions on the bits of registers: shifts, fields, permutations."""

import numpy as np

from .ptx import Instruction
from .ptx_types import WORD, Array, Operation, dtype


def shift(function: np.ufunc, i: Instruction) -> Operation:
    """Counts beyond the width shift everything out."""
    kind = dtype(i.type)
    bits = np.uint32(8 * kind.itemsize)
    last = np.uint32(bits - 1)

    def compute(a: Array, count: Array) -> Array:
        shifted = function(a, np.minimum(count, last).astype(kind))
        if function is np.right_shift and kind.kind == "i":
            return shifted
        return np.where(count >= bits, kind.type(0), shifted)

    return Operation((kind, WORD), kind, compute)


def funnel(i: Instruction) -> Operation:
    left, wraps = "l" in i.modifiers, "wrap" in i.modifiers

    def compute(low: Array, high: Array, count: Array) -> Array:
        n = (count & np.uint32(31) if wraps else np.minimum(count, np.uint32(32))).astype(np.uint64)
        both = high.astype(np.uint64) << np.uint64(32) | low
        return ((both << n) >> np.uint64(32) if left else both >> n).astype(WORD)

    return Operation((WORD,) * 3, WORD, compute)


def leading_zeros(i: Instruction) -> Operation:
    kind = dtype(i.type)

    def compute(a: Array) -> Array:
        for step in (32, 16, 8, 4, 2, 1)[kind.itemsize == 4 :]:
            a = a | a >> kind.type(step)  # the highest bit, and all below it
        return np.uint32(8 * kind.itemsize) - np.bitwise_count(a)

    return Operation((kind,), WORD, compute)


def lop3(i: Instruction) -> Operation:
    def compute(a: Array, b: Array, c: Array, table: Array) -> Array:
        bits = np.zeros(a.shape, np.uint32)
        for n in range(8):
            if int(table[0]) >> n & 1:
                bits |= (a if n & 4 else ~a) & (b if n & 2 else ~b) & (c if n & 1 else ~c)
        return bits

    return Operation((WORD,) * 4, WORD, compute)


def permute(i: Instruction) -> Operation:
    def compute(a: Array, b: Array, selector: Array) -> Array:
        pick = selector[:, None] >> np.arange(0, 16, 4, dtype=np.uint32)
        byte = np.take_along_axis(
            np.stack([a, b], -1).view(np.uint8), (pick & 7).astype(np.int64), 1
        )
        return np.where(pick & 8, byte // 128 * np.uint8(255), byte).view(np.uint32)[:, 0]

    return Operation((WORD,) * 3, WORD, compute)


def extract(i: Instruction) -> Operation:
    kind = dtype(i.type)
    wide = np.dtype(f"{kind.kind}8")

    def compute(a: Array, start: Array, length: Array) -> Array:
        bits = 8 * kind.itemsize
        first = start & np.uint32(255)
        count = np.minimum(length & np.uint32(255), np.uint32(bits))
        shifted = a.astype(wide) >> np.minimum(first, np.uint32(63)).astype(wide)
        up = (np.uint32(64) - count).astype(wide)
        field = shifted << np.minimum(up, wide.type(63)) >> np.minimum(up, wide.type(63))
        return np.where(count == 0, 0, field).astype(kind)

    return Operation((kind, WORD, WORD), kind, compute)


def insert(i: Instruction) -> Operation:
    kind = dtype(i.type)
    bits = 8 * kind.itemsize

    def compute(a: Array, b: Array, start: Array, length: Array) -> Array:
        first = np.minimum(start & np.uint32(255), np.uint32(bits))
        count = np.minimum(length & np.uint32(255), np.uint32(bits) - first)
        full = np.uint64(0xFFFFFFFFFFFFFFFF)
        ones = np.where(
            count == 0,
            np.uint64(0),
            full >> (np.uint64(64) - np.maximum(count, 1).astype(np.uint64)),
        )
        place = np.minimum(first, np.uint32(63)).astype(np.uint64)
        mask = (ones << place).astype(kind)
        return (b & ~mask) | ((a.astype(np.uint64) << place).astype(kind) & mask)

    return Operation((kind, kind, WORD, WORD), kind, compute)


def bits_reversed(i: Instruction) -> Operation:
    kind = dtype(i.type)

    def compute(a: Array) -> Array:
        bits = np.unpackbits(a[:, None].view(np.uint8), axis=1, bitorder="little")
        return np.packbits(bits[:, ::-1], axis=1, bitorder="little").view(kind)[:, 0]

    return Operation((kind,), kind, compute)
