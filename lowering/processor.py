"""What a processor has that loops for it go by; where nothing is told of it, what all have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Processor:
    quads: bool = False  # adds the products of four bytes to a sum, modulo 2^32, by one instruction
    registers: int = 16  # for vectors


PLAIN = Processor()
