"""Blocks of operations that a function repeats, as the layers of a network are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..builtin import Elements
from ..types.attributes import attribute_text
from .function import Operation, Value
from .program_printer import written_attributes

FEWEST = 3  # times: two alike are read as quickly as one box that stands for them
LEAST = 12  # operations that a box stands for
LONGEST = 200  # operations of a block: the search takes time in proportion


class Repeat(NamedTuple):
    """`times` blocks of `period` operations each, from the operation of index `first` on."""

    first: int
    period: int
    times: int


def repeats(operations: Sequence[Operation]) -> list[Repeat]:
    """The repeated blocks of operations, from which constants are left out, in order.

    Blocks are alike if operators, attributes but the elements of constants, types of results, and
    the distances to operations whose results are taken are.
    """
    keys = _keys(operations)
    ahead = {p: _equal_ahead(keys, p) for p in range(1, min(LONGEST, len(keys) // FEWEST) + 1)}
    found: list[Repeat] = []
    at = 0
    while at < len(keys):
        times = {p: equal[at] // p + 1 for p, equal in ahead.items()}
        period = max(times, key=lambda p: (p * times[p], -p), default=0)
        enough = period and times[period] >= FEWEST and period * times[period] >= LEAST
        if enough:
            found.append(Repeat(at, period, times[period]))
        at += period * times[period] if enough else 1
    return found


def _equal_ahead(keys: Sequence[object], period: int) -> list[int]:
    """For each index, the number of keys from there on that equal those a period later."""
    counts = [0] * (len(keys) + 1)
    for n in range(len(keys) - period - 1, -1, -1):
        counts[n] = counts[n + 1] + 1 if keys[n] == keys[n + period] else 0
    return counts


def _keys(operations: Sequence[Operation]) -> list[object]:
    numbers: dict[str, int] = {}
    keys: list[object] = []
    made: dict[Value, int] = {}
    for n, operation in enumerate(operations):
        operator = operation.operator
        attributes = [
            (name, v.type if isinstance(v, Elements) else attribute_text(v))
            for name, v in written_attributes(operator).items()
        ]
        taken = [n - made[v] if v in made else None for _, v in operator.operands()]
        types = [str(r.known_type) for r in operation.results]
        text = repr((operator.name, attributes, taken, types))
        keys.append(numbers.setdefault(text, len(numbers)))
        made.update((r, n) for r in operation.results)
    return keys
