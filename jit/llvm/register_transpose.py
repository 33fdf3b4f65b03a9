"""Squares of elements turned in registers: the rows that lanes have loaded, to the columns that lanes want."""

from __future__ import annotations

from .ir_writer import IRWriter


def turn(f: IRWriter, element: str, rows: list[str], side: int) -> list[str]:
    """`side` vectors, which have an element of each row; a row has `side` elements.

    Rows that are `side` apart stand side by side in one vector, so that each part of `side` lanes is a square of its own: with
    parts of 16 bytes no shuffle crosses a processor's lanes. In each step two rows half a square apart are shuffled together.
    """
    lanes, half = len(rows), side // 2
    vectors = [joined(f, element, rows[n::side], side) for n in range(side)]
    wide = f"<{lanes} x {element}>"
    for _ in range(side.bit_length() - 1):
        made = []
        for a, b in zip(vectors[:half], vectors[half:], strict=True):
            for first in (0, half):
                places = [start + first + n for start in range(0, lanes, side) for n in range(half)]
                picks = ", ".join(f"i32 {p}, i32 {lanes + p}" for p in places)
                made.append(f.add(f"shufflevector {wide} {a}, {wide} {b}, <{lanes} x i32> <{picks}>"))
        vectors = made
    return vectors


def joined(f: IRWriter, element: str, parts: list[str], length: int) -> str:
    """Vectors of this length as one."""
    lanes = length * len(parts)
    while len(parts) > 1:
        wide, places = f"<{length} x {element}>", min(2 * length, lanes)
        picks = ", ".join(f"i32 {n}" for n in range(places))
        pairs = zip(parts[::2], [*parts[1::2], "poison"], strict=False)
        parts = [f.add(f"shufflevector {wide} {a}, {wide} {b}, <{places} x i32> <{picks}>") for a, b in pairs]
        length = places
    return parts[0]
