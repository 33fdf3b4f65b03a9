"""Rows of numbers that functions of an integer look up: its low bits say which row, the function which column.

They are computed when one is first needed, in integers, each number being the nearest one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

# what the numbers of erf's and erfc's rows are multiplied by: near 1/128, where the first few values are near to floats
ERF_SPACING = 0.0078121514267621706
ERF_ROWS = 768
BITS = 140  # after the point


@dataclass(frozen=True)
class Rows:
    """A table of f64, of a power of two of rows. `columns` are the names of the scalar functions that look up a number."""

    columns: tuple[str, ...]
    numbers: Callable[[], np.ndarray]

    def at(self, column: str) -> Callable[[Any], Any]:
        """What the function of this name means."""

        def looked_up(n: Any) -> Any:
            rows = self.numbers()
            return rows[np.asarray(n).astype(np.int64) & (len(rows) - 1), self.columns.index(column)]

        return looked_up


def _rows(found: list[tuple[float, ...]]) -> np.ndarray:
    """The numbers as an array; what fills a power of two of rows is zero."""
    rows = np.zeros((1 << (len(found) - 1).bit_length(), len(found[0])))
    rows[: len(found)] = found
    rows.flags.writeable = False
    return rows


def _root_of_four_over_pi() -> int:
    def inverse_tangent(n: int) -> int:
        """atan(1/n) 2^(BITS + 32)"""
        total, power, k = 0, (1 << (BITS + 32)) // n, 0
        while power:
            total += (-power if k & 1 else power) // (2 * k + 1)
            power //= n * n
            k += 1
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    return math.isqrt((4 << (3 * BITS + 32)) // pi)


def _errors() -> Iterator[tuple[int, int]]:
    """erf r and its derivative for r = 0, h, 2 h, ... times 2^BITS, h being ERF_SPACING: by the Taylor series from one to the next.

    The terms are the derivative times p[k] h / (k + 1), where p[k] = -2 h (r p[k - 1] + h p[k - 2]) / k.
    """
    h = int(ERF_SPACING * 2.0**BITS)
    square = h * h >> BITS
    value, slope = 0, _root_of_four_over_pi()
    less, faster = (_exponential(-k * square) for k in (1, 2))  # e^(-h^2), e^(-2 h^2)
    for n in range(ERF_ROWS):
        yield value, slope
        before, term, total, k = 0, 1 << BITS, 0, 0
        while abs(term) > 1 or abs(before) > 1:
            k += 1
            total += term // k
            before, term = term, -2 * square * (n * term + before) // (k << BITS)
        value += (slope * h >> BITS) * total >> BITS
        slope, less = slope * less >> BITS, less * faster >> BITS


def _exponential(x: int) -> int:
    """e^x of a number near zero times 2^BITS."""
    total, term, k = 0, 1 << BITS, 0
    while abs(term) > 1:
        k += 1
        total += term
        term = term * x // (k << BITS)
    return total


@cache
def _erf() -> np.ndarray:
    return _rows([(value / (1 << BITS), slope / (1 << BITS)) for value, slope in _errors()])


@cache
def _erfc() -> np.ndarray:
    one = 1 << BITS
    return _rows([((one - value) / one, slope / one) for value, slope in _errors()])


# erf r and erfc r, and how steep the first is there
ROWS = (
    Rows(("erf_value", "erf_slope"), _erf),
    Rows(("erfc_value", "erfc_slope"), _erfc),
)
