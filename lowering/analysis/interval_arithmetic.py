"""Interval arithmetic: for each scalar function, a row from the operands' bounds to the result's.

Bounds are those of unbounded integers; `integer_ranges` wraps them to the type. A bound is an int, or an array where it
differs between elements.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ...dialect.notation.interval import UNBOUNDED

Bound: TypeAlias = Any  # an int, or an array of integers
Bounds: TypeAlias = tuple[Bound, Bound]


def least(*bounds: Bound) -> Bound:
    """The elementwise minimum of some bounds."""
    found = bounds[0]
    for b in bounds[1:]:
        found = min(found, b) if isinstance(found, int) and isinstance(b, int) else np.minimum(found, b)
    return found


def greatest(*bounds: Bound) -> Bound:
    """The elementwise maximum of some bounds."""
    found = bounds[0]
    for b in bounds[1:]:
        found = max(found, b) if isinstance(found, int) and isinstance(b, int) else np.maximum(found, b)
    return found


def hull(*bounds: Bounds) -> Bounds:
    """The smallest bounds that contain all of these."""
    return least(*(b[0] for b in bounds)), greatest(*(b[1] for b in bounds))


def scalar(bounds: Bounds) -> tuple[int, int]:
    """One pair of bounds for all elements."""
    low, high = bounds
    return low if isinstance(low, int) else int(low.min()), high if isinstance(high, int) else int(high.max())


def _mul(a: Bounds, b: Bounds) -> Bounds:
    if a[0] is a[1] or b[0] is b[1]:  # one factor is a single value
        known, other = (a[0], b) if a[0] is a[1] else (b[0], a)
        return hull(*((known * v, known * v) for v in other))
    corners = [x * y for x in a for y in b]
    return least(*corners), greatest(*corners)


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) if (a < 0) == (b < 0) else -(abs(a) // abs(b))


def _divisors(b: Bounds) -> list[int]:
    """The divisors at which a quotient is extreme: both ends of the interval and its members nearest to zero, without
    zero.
    """
    return [v for v in {*b, -1, 1} if v and b[0] <= v <= b[1]]


def _div(a: Bounds, b: Bounds, quotient: Callable[[int, int], int] = _quotient) -> Bounds | None:
    found = [quotient(x, y) for x in a for y in _divisors(b)]
    return (min(found), max(found)) if found else None


def _floordiv(a: Bounds, b: Bounds) -> Bounds | None:
    return _div(a, b, lambda x, y: x // y)


def _rem(a: Bounds, b: Bounds) -> Bounds:
    """C's remainder: it has the dividend's sign, a magnitude below the divisor's, and at most the dividend's magnitude."""
    most = max(abs(b[0]), abs(b[1]), 1) - 1
    return max(min(a[0], 0), -most), min(max(a[1], 0), most)


def _floormod(a: Bounds, b: Bounds) -> Bounds:
    """Floor modulo: it has the divisor's sign and a magnitude below it; a dividend already in that range is unchanged."""
    low, high = min(b[0] + 1, 0), max(b[1] - 1, 0)
    if b[0] > 0 and a[0] >= 0:
        high = min(high, a[1])
        return (a[0], a[1]) if a[1] < b[0] else (0, high)
    return low, high


def _abs(a: Bounds) -> Bounds:
    low, high = a
    return greatest(low, -high, 0), greatest(-low, high)


def _bits(a: Bounds, b: Bounds) -> tuple[int, bool]:
    """The largest bit length of the operands' bounds, and whether all are non-negative."""
    return max(v.bit_length() if v >= 0 else (~v).bit_length() for v in (*a, *b)), min(a[0], b[0]) >= 0


def _and(a: Bounds, b: Bounds) -> Bounds:
    for x, mask in ((a, b), (b, a)):
        if mask[0] == mask[1] and not (mask[1] + 1) & mask[1] and x[0] >= 0 and x[1] <= mask[1]:
            return x  # the mask clears no bit
    positive = [x[1] for x in (a, b) if x[0] >= 0]
    if positive:
        return 0, min(positive)
    bits, _ = _bits(a, b)
    return -(1 << bits), max(a[1], b[1], -1)


def _or(a: Bounds, b: Bounds) -> Bounds:
    bits, positive = _bits(a, b)
    return (max(a[0], b[0]) if positive else -(1 << bits)), (1 << bits) - 1


def _xor(a: Bounds, b: Bounds) -> Bounds:
    bits, positive = _bits(a, b)
    return (0 if positive else -(1 << bits)), (1 << bits) - 1


def _shl(a: Bounds, s: Bounds) -> Bounds | None:
    if s[0] < 0 or s[1] > 63:
        return None
    return min(a[0] << s[0], a[0] << s[1]), max(a[1] << s[0], a[1] << s[1])


def _shr(a: Bounds, s: Bounds) -> Bounds | None:
    if s[0] < 0 or s[1] > 63:
        return None
    return min(a[0] >> s[0], a[0] >> s[1]), max(a[1] >> s[0], a[1] >> s[1])


_Row: TypeAlias = Callable[..., "Bounds | None"]


def _compared(certain: Callable[[Bounds, Bounds], bool], never: Callable[[Bounds, Bounds], bool]) -> _Row:
    def compare(a: Bounds, b: Bounds) -> Bounds:
        return (1, 1) if certain(a, b) else (0, 0) if never(a, b) else (0, 1)

    return compare


ELEMENTWISE: dict[str, _Row] = {  # over ints or arrays
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _mul,
    "neg": lambda a: (-a[1], -a[0]),
    "abs": _abs,
    "max": lambda a, b: (greatest(a[0], b[0]), greatest(a[1], b[1])),
    "min": lambda a, b: (least(a[0], b[0]), least(a[1], b[1])),
}

SCALAR: dict[str, _Row] = {  # over ints
    "div": _div,
    "rem": _rem,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "and": _and,
    "or": _or,
    "xor": _xor,
    "shl": _shl,
    "shr": _shr,
    "any": lambda a: a,
    "eq": _compared(lambda a, b: a[0] == a[1] == b[0] == b[1], lambda a, b: a[1] < b[0] or b[1] < a[0]),
    "ne": _compared(lambda a, b: a[1] < b[0] or b[1] < a[0], lambda a, b: a[0] == a[1] == b[0] == b[1]),
    "lt": _compared(lambda a, b: a[1] < b[0], lambda a, b: a[0] >= b[1]),
    "le": _compared(lambda a, b: a[1] <= b[0], lambda a, b: a[0] > b[1]),
    "gt": _compared(lambda a, b: a[0] > b[1], lambda a, b: a[1] <= b[0]),
    "ge": _compared(lambda a, b: a[0] >= b[1], lambda a, b: a[1] < b[0]),
}


Over: TypeAlias = list[
    tuple["int | None", int]
]  # the indices of a reduction: the axis of arrays, if they have it, and the extent


def _along(b: Bound, over: Over, reduce: Callable[..., Any], repeat: Callable[[Bound, int], Bound]) -> Bound:
    for axis, count in over:
        if isinstance(b, np.ndarray) and axis is not None and b.ndim >= -axis and b.shape[axis] > 1:
            b = reduce(b, axis=axis, keepdims=True)
        else:
            b = repeat(b, count)
    return b


def _times(b: Bound, count: int) -> Bound:
    return b * count if isinstance(b, int) else b.astype(np.int64) * count


def _sum(body: Bounds, over: Over) -> Bounds:
    return _along(body[0], over, np.sum, _times), _along(body[1], over, np.sum, _times)


def _extreme(reduce: Callable[..., Any]) -> _Reduction:
    return lambda body, over: tuple(_along(b, over, reduce, lambda b, _: b) for b in body)


def _product(body: Bounds, over: Over) -> Bounds:
    low, high = scalar(body)
    count, most = prod(n for _, n in over), max(-low, high)
    far = UNBOUNDED if most > 1 and count * most.bit_length() > 256 else most**count
    return (-far if low < 0 else 0), far


def _bitwise(function: str) -> _Reduction:
    def reduce(body: Bounds, _: Over) -> Bounds:
        one = scalar(body)
        return hull(one, SCALAR[function](one, one) or one)

    return reduce


_Reduction: TypeAlias = Callable[[Bounds, Over], Bounds]

REDUCTIONS: dict[str, _Reduction] = {
    "add": _sum,
    "mul": _product,
    "max": _extreme(np.max),
    "min": _extreme(np.min),
    "and": _bitwise("and"),
    "or": _bitwise("or"),
    "xor": _bitwise("xor"),
}
