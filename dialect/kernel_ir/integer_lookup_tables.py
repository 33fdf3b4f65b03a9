"""Lookup tables of integer functions: an argument's low bits select the row, the function selects
the column.

Tables are computed on first use, in integers that are numbers times 2^BITS, and rounded to
nearest.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import numpy as np

# the scale of erf's and erfc's rows: near 1/128, where the first few values are near to floats
ERF_SPACING = 0.0078121514267621706
ERF_ROWS = 768
# bits of the float at which the first cell of mantissas begins: 1 is in the middle of one; a cell
# has 2^LOG_WIDTH floats
LOG_LEAST = 0x3FE6A80000000000
LOG_WIDTH = 44
# after the point, of the high parts of logarithms: those of whole powers of two can be added
# exactly
LOG_BITS = 42
LOGARITHMS = {"log": math.e, "log2": 2, "log10": 10}
BITS = 140  # fraction bits
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")


@dataclass(frozen=True)
class Rows:
    """A table of f64 with a power of two of rows. `columns` are the scalar functions that look up a
    number.
    """

    columns: tuple[str, ...]
    numbers: Callable[[], np.ndarray]

    def at(self, column: str) -> Callable[[Any], Any]:
        """The NumPy meaning of the scalar function of this name."""

        def looked_up(n: object) -> Any:
            rows = self.numbers()
            return rows[
                np.asarray(n).astype(np.int64) & (len(rows) - 1), self.columns.index(column)
            ]

        return looked_up


def _rows(found: list[tuple[float, ...]]) -> np.ndarray:
    """The numbers as an array, padded with zeros to a power of two of rows."""
    rows = np.zeros((1 << (len(found) - 1).bit_length(), len(found[0])))
    rows[: len(found)] = found
    rows.flags.writeable = False
    return rows


def _cells(ones: tuple[float, float] = (1, 1)) -> Iterator[tuple[int, int]]:
    """The fraction bits and factor times 2^bits of every cell; m times it, minus one, is exact for
    its m.
    """
    for first in range(LOG_LEAST, LOG_LEAST + (1 << 52), 1 << LOG_WIDTH):
        middle = float(np.int64(first + (1 << (LOG_WIDTH - 1))).view(np.float64))
        bits = 8 if middle < 1 else 9
        yield bits, 1 << bits if ones[0] < middle < ones[1] else round(2.0**bits / middle)


def _logarithm(over: int, under: int) -> int:
    """log(over / under) 2^BITS for a ratio near one: 2 atanh((over - under) / (over + under))."""
    total = 0
    power = (2 * (over - under) << BITS) // (over + under)
    k = 1
    while abs(power) > 1:
        total += power // k
        power = power * (over - under) ** 2 // (over + under) ** 2
        k += 2
    return total


def _logarithms(base: float) -> Callable[[], np.ndarray]:
    @cache
    def numbers() -> np.ndarray:
        two = _logarithm(2, 1)
        one = {math.e: 1 << BITS, 2: two, 10: 3 * two + _logarithm(5, 4)}[base]
        return _rows(
            [(n / 2.0**bits, -_logarithm(n, 1 << bits) / one) for bits, n in _cells((0.997, 1.005))]
        )

    return numbers


@cache
def _logarithms_in_parts() -> np.ndarray:
    rows: list[tuple[float, ...]] = []
    for bits, times in _cells():
        exact = -_logarithm(times, 1 << bits)
        shift = BITS - LOG_BITS
        high = (exact + (1 << (shift - 1))) >> shift
        rows.append(
            (times / 2.0**bits, high / 2.0**LOG_BITS, (exact - (high << shift)) / (1 << BITS), 0.0)
        )
    return _rows(rows)


def _errors() -> Iterator[tuple[int, int]]:
    """erf r and its derivative for r = 0, h, 2 h, ... times 2^BITS, h = ERF_SPACING, by a Taylor
    series from one to the next.

    The terms are the derivative times p[k] h / (k + 1), where p[k] = -2 h (r p[k - 1] + h p[k - 2])
    / k.
    """
    h = int(ERF_SPACING * 2.0**BITS)
    square = h * h >> BITS
    with localcontext(prec=60):  # digits, more than 2^BITS has
        exact = Decimal(square) / (1 << BITS)
        numbers = 2 / PI.sqrt(), (-exact).exp(), (-2 * exact).exp()
        value, (slope, less, faster) = 0, (int(n * (1 << BITS)) for n in numbers)
    for n in range(ERF_ROWS):
        yield value, slope
        before = 0
        term = 1 << BITS
        total = 0
        k = 0
        while abs(term) > 1 or abs(before) > 1:
            k += 1
            total += term // k
            before, term = term, -2 * square * (n * term + before) // (k << BITS)
        value += (slope * h >> BITS) * total >> BITS
        slope, less = slope * less >> BITS, less * faster >> BITS


@cache
def _erf() -> np.ndarray:
    return _rows([(value / (1 << BITS), slope / (1 << BITS)) for value, slope in _errors()])


@cache
def _erfc() -> np.ndarray:
    one = 1 << BITS
    return _rows([((one - value) / one, slope / one) for value, slope in _errors()])


# erf r and erfc r, and how steep the first is there; of each cell of mantissas a factor that makes
# them about one, and what its
# logarithm, subtracted, is then to be added
ROWS = (
    Rows(("erf_value", "erf_slope"), _erf),
    Rows(("erfc_value", "erfc_slope"), _erfc),
    *(
        Rows((f"{name}_factor", f"{name}_value"), _logarithms(base))
        for name, base in LOGARITHMS.items()
    ),
    Rows(("pow_factor", "pow_high", "pow_low"), _logarithms_in_parts),
)
