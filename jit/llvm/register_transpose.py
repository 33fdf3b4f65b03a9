"""Transpose squares of elements in registers: lanes load rows, and get columns."""

from .ir_builder import IRBuilder, Value, shuffle


def turn(b: IRBuilder, rows: list[Value], side: int) -> list[Value]:
    """`side` vectors, which have an element of each row; a row has `side` elements.

    Rows that are `side` apart stand side by side in one vector, so that each part of `side` lanes
    is a square of its own: with parts of 16 bytes no shuffle crosses a processor's lanes. Each step
    shuffles two rows half a square apart.
    """
    lanes = len(rows)
    half = side // 2
    vectors = [joined(b, rows[n::side]) for n in range(side)]
    for _ in range(side.bit_length() - 1):
        turned = []
        for x, y in zip(vectors[:half], vectors[half:], strict=True):
            for first in (0, half):
                places = [start + first + n for start in range(0, lanes, side) for n in range(half)]
                turned.append(b.add(shuffle(x, [n for p in places for n in (p, lanes + p)], y)))
        vectors = turned
    return vectors


def joined(b: IRBuilder, parts: list[Value]) -> Value:
    """Vectors of one length as one."""
    lanes = parts[0].lanes * len(parts)
    while len(parts) > 1:
        places = min(2 * parts[0].lanes, lanes)
        pairs = zip(parts[::2], [*parts[1::2], None], strict=False)
        parts = [b.add(shuffle(x, range(places), y)) for x, y in pairs]
    return parts[0]
