"""Mutations: of bytes, and of texts by their tokens. Each takes a generator of random numbers and
is repeatable.
"""

from __future__ import annotations

import random
import re

NUMBERS = (
    b"0",
    b"-1",
    b"1",
    b"2",
    b"255",
    b"4097",
    b"2147483647",
    b"-2147483648",
    b"4294967296",
    b"9223372036854775808",
    b"1e400",
    b"nan",
)
WORDS = re.compile(rb"\s+|//[^\n]*|[%@!]?[\w.$]+|.", re.DOTALL)
MOST = 1 << 16  # bytes of a mutated input


def mutate_bytes(data: bytes, chance: random.Random) -> bytes:
    """Change, drop, repeat, insert or overwrite a few stretches."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(found) + 1)
        size = chance.choice((1, 1, 2, 4, 8, 64))
        match chance.randrange(6):
            case 0 if at < len(found):
                found[at] ^= 1 << chance.randrange(8)
            case 1:
                del found[at : at + size]
            case 2:
                found[at:at] = found[at : at + size]
            case 3:
                found[at : at + size] = chance.randbytes(size)
            case 4:
                value = chance.choice(
                    (0, 1, 127, 128, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
                )
                width = next(w for w in (1, 2, 4, 8) if value < 1 << 8 * w)
                found[at : at + width] = value.to_bytes(width, "little")
            case _:
                del found[at:]
    return bytes(found[:MOST])


def mutate_text(data: bytes, chance: random.Random, other: bytes = b"") -> bytes:
    """Change, drop, swap, repeat or take over tokens: most of the result is still the language."""
    words = WORDS.findall(data) or [b" "]
    others = WORDS.findall(other) or words
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(words))
        match chance.randrange(9):
            case 0:
                del words[at]
            case 1:
                words.insert(at, words[chance.randrange(len(words))])
            case 2:
                to = chance.randrange(len(words))
                words[at], words[to] = words[to], words[at]
            case 3:
                words[at] = chance.choice(others)
            case 4:
                numbers = [i for i, w in enumerate(words) if w.isdigit()]
                words[chance.choice(numbers or [at])] = chance.choice(NUMBERS)
            case 5:
                start = chance.randrange(len(others))
                words[at:at] = others[start : start + chance.randrange(1, 30)]
            case 6:
                words[at:] = words[: chance.randrange(1, 40)]
            case 7:
                words[at] = chance.choice(
                    (
                        b"{",
                        b"}",
                        b"(",
                        b")",
                        b"[",
                        b"]",
                        b"<",
                        b">",
                        b"\n",
                        b"\x00",
                        b"\xff",
                        b"//",
                        b'"',
                    )
                )
            case _:
                words[at] = mutate_bytes(words[at], chance)
        words = words or [b" "]
    return b"".join(words)[:MOST]
