"""Interval arithmetic: for each scalar function, a row from the operands' bounds to the result's.

Bounds are those of unbounded integers; `integer_ranges` wraps them to the type. A bound is an int,
or an array where it differs between elements.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from math import prod
from operator import floordiv, lshift, rshift
from typing import Any, TypeAlias

import numpy as np

from ...dialect.kernel_ir.integer_interval import UNBOUNDED

Bound: TypeAlias = Any  # an int, or an array of integers
Bounds: TypeAlias = tuple[Bound, Bound]
_Row: TypeAlias = Callable[..., "Bounds | None"]


def least(*bounds: Bound) -> Bound:
    """The elementwise minimum of some bounds."""
    return min(bounds) if all(isinstance(b, int) for b in bounds) else reduce(np.minimum, bounds)


def greatest(*bounds: Bound) -> Bound:
    """The elementwise maximum of some bounds."""
    return max(bounds) if all(isinstance(b, int) for b in bounds) else reduce(np.maximum, bounds)


def hull(*bounds: Bounds) -> Bounds:
    """The smallest bounds that contain all of these."""
    return least(*(b[0] for b in bounds)), greatest(*(b[1] for b in bounds))


def scalar(bounds: Bounds) -> tuple[int, int]:
    """One pair of bounds for all elements."""
    low, high = bounds
    return low if isinstance(low, int) else int(low.min()), high if isinstance(high, int) else int(
        high.max()
    )


def _mul(a: Bounds, b: Bounds) -> Bounds:
    first, second = (a, b) if a[0] is a[1] or b[0] is not b[1] else (b, a)
    corners = [
        x * y for x in (first[:1] if first[0] is first[1] else first) for y in second
    ]  # of one value, one
    return least(*corners), greatest(*corners)


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) if (a < 0) == (b < 0) else -(abs(a) // abs(b))


def _divisors(b: Bounds) -> list[int]:
    """The divisors at which a quotient is extreme: both ends, and the members nearest to zero,
    without zero.
    """
    return [v for v in {*b, -1, 1} if v and (b[0] <= v <= b[1] or (v == 1 and b[0] <= 0 <= b[1]))]


def _corners(function: Callable[[int, int], int], a: Bounds, b: Iterable[int]) -> Bounds | None:
    """The extremes of a function at the ends of one interval and some members of the other; None
    without any.
    """
    values = [function(x, y) for x in a for y in b]
    return (min(values), max(values)) if values else None


def _shifted(shift: Callable[[int, int], int]) -> _Row:
    return lambda a, s: None if s[0] < 0 or s[1] > 63 else _corners(shift, a, s)


def _rem(a: Bounds, b: Bounds) -> Bounds:
    """C's remainder: it has the dividend's sign, a magnitude below the divisor's, and at most the
    dividend's magnitude.
    """
    most = max(abs(b[0]), abs(b[1]), 1) - 1
    return max(min(a[0], 0), -most), min(max(a[1], 0), most)


def _floormod(a: Bounds, b: Bounds) -> Bounds:
    """Floor modulo: it has the divisor's sign and a magnitude below it; a dividend already in that
    range is unchanged.
    """
    low = min(b[0] + 1, 0)
    high = max(b[1] - 1, 0)
    if b[0] > 0 and a[0] >= 0:
        high = min(high, a[1])
        return (a[0], a[1]) if a[1] < b[0] else (0, high)
    return low, high


def _abs(a: Bounds) -> Bounds:
    low, high = a
    return greatest(low, -high, 0), greatest(-low, high)


def _bits(a: Bounds, b: Bounds) -> tuple[int, bool]:
    return max(v.bit_length() if v >= 0 else (~v).bit_length() for v in (*a, *b)), min(
        a[0], b[0]
    ) >= 0


def _and(a: Bounds, b: Bounds) -> Bounds:
    for x, mask in ((a, b), (b, a)):
        if mask[0] == mask[1] and not (mask[1] + 1) & mask[1] and x[0] >= 0 and x[1] <= mask[1]:
            return x  # the mask clears no bit
    if positive := [x[1] for x in (a, b) if x[0] >= 0]:
        return 0, min(positive)
    bits, _ = _bits(a, b)
    return -(1 << bits), max(a[1], b[1], -1)


def _or(a: Bounds, b: Bounds) -> Bounds:
    bits, positive = _bits(a, b)
    return (max(a[0], b[0]) if positive else -(1 << bits)), (1 << bits) - 1


def _xor(a: Bounds, b: Bounds) -> Bounds:
    bits, positive = _bits(a, b)
    return (0 if positive else -(1 << bits)), (1 << bits) - 1


def _negated(row: Callable[[Bounds, Bounds], Bounds]) -> _Row:
    return lambda a, b: (1 - row(a, b)[1], 1 - row(a, b)[0])


def _less(a: Bounds, b: Bounds) -> Bounds:
    return int(a[1] < b[0]), int(a[0] < b[1])


def _equal(a: Bounds, b: Bounds) -> Bounds:
    return int(a[0] == a[1] == b[0] == b[1]), int(a[0] <= b[1] and b[0] <= a[1])


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
    "div": lambda a, b: _corners(_quotient, a, _divisors(b)),
    "rem": _rem,
    "floordiv": lambda a, b: _corners(floordiv, a, _divisors(b)),
    "floormod": _floormod,
    "and": _and,
    "or": _or,
    "xor": _xor,
    "shl": _shifted(lshift),
    "shr": _shifted(rshift),
    "any": lambda a: a,
    "eq": _equal,
    "ne": _negated(_equal),
    "lt": _less,
    "le": lambda a, b: _negated(_less)(b, a),
    "gt": lambda a, b: _less(b, a),
    "ge": _negated(_less),
}


# the indices of a reduction: the axis of arrays, if they have it, and the extent
Over: TypeAlias = list[tuple["int | None", int]]
_Reduction: TypeAlias = Callable[[Bounds, Over], Bounds]


def _along(
    b: Bound, over: Over, reduce: Callable[..., object], repeat: Callable[[Bound, int], Bound]
) -> Bound:
    for axis, count in over:
        if isinstance(b, np.ndarray) and axis is not None and b.ndim >= -axis and b.shape[axis] > 1:
            b = reduce(b, axis=axis, keepdims=True)
        else:
            b = repeat(b, count)
    return b


def _each(reduce: Callable[..., object], repeat: Callable[[Bound, int], Bound]) -> _Reduction:
    return lambda body, over: (
        _along(body[0], over, reduce, repeat),
        _along(body[1], over, reduce, repeat),
    )


def _product(body: Bounds, over: Over) -> Bounds:
    low, high = scalar(body)
    count = prod(n for _, n in over)
    most = max(-low, high)
    far = UNBOUNDED if most > 1 and count * most.bit_length() > 256 else most**count
    return (-far if low < 0 else 0), far


def _bitwise(function: str) -> _Reduction:
    def reduce(body: Bounds, _: Over) -> Bounds:
        one = scalar(body)
        return hull(one, SCALAR[function](one, one) or one)

    return reduce


REDUCTIONS: dict[str, _Reduction] = {
    "add": _each(
        np.sum, lambda b, count: b * count if isinstance(b, int) else b.astype(np.int64) * count
    ),
    "mul": _product,
    "max": _each(np.max, lambda b, _: b),
    "min": _each(np.min, lambda b, _: b),
    **{function: _bitwise(function) for function in ("and", "or", "xor")},
}
