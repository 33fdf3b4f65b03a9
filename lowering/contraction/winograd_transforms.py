"""Winograd's transforms F(2, 3) and F(4, 3), for windows of 3 of stride 1, exact in integers.

    y[i + u] = sum over r of w[r] * x[i + r]      u < 2
    =>  y = A' ((G w) * (B' x)) / 2               4 products in place of 6; F(4, 3): 6, not 12

    G = 2  0  0      B' = 1  0 -1  0      A' = 1  1  1  0
        1  1  1           0  1  1  0           0  1 -1 -1
        1 -1  1           0 -1  1  0
        0  0  2           0  1  0 -1

    G = 6  0  0      B' = 4  0 -5  0  1  0      A' = 1  1  1  1  1  0
       -4 -4 -4           0 -4 -4  1  1  0           0  1 -1  2 -2  0
       -4  4 -4           0  4 -4 -1  1  0           0  1  1  4  4  0
        1  2  4           0 -2 -1  2  1  0           0  1 -1  8 -8  2
        1 -2  4           0  2 -1 -2  1  0
        0  0 12           0  4  0 -5  0  1

The second gives 24 y. Both axes of a window are turned so. Sums are modulo 2^32: what 576 y is a
multiple of is divided by exactly, 9 by its inverse and 64 where 64 y is an i32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dialect.kernel_ir.expressions import Expr, apply, both, cast
from ...dialect.types.tensor_types import I16, I64

Vector = Sequence[Any]


@dataclass(frozen=True, eq=False)
class WinogradTransform:
    """A Winograd transform: the results of a tile along an axis, the products with B', G and A',
    and the factor of the results.
    """

    size: int
    input: Callable[[Sequence[Expr]], list[Expr]]  # of words of two
    weights: Callable[[Vector], list[Any]]
    sums: Callable[[Vector], list[Any]]
    odd: int
    bits: int
    most_input: int  # magnitudes that fit 16 bits when they are turned
    most_weight: int

    @property
    def side(self) -> int:
        """The products of a tile, and what it is made of, along an axis."""
        return self.size + 2

    @property
    def points(self) -> int:
        return self.side**2

    def known_points(self, array: np.ndarray) -> np.ndarray | None:
        """The points of weights, the last two axes of an array, along its first axis; None where
        some are beyond 16 bits.
        """
        if max(array.max(), -array.min()) > I16.limits[1]:
            return None
        rows = self.weights([array[..., r, :].astype(np.int32) for r in range(3)])
        points = np.stack(
            [n for row in rows for n in self.weights([row[..., s] for s in range(3)])]
        )
        return None if max(points.max(), -points.min()) > I16.limits[1] else points

    def divided(self, sum: Expr) -> Expr:
        """The result that a sum is a multiple of."""
        inverse = pow(self.odd, -1, 1 << 32)
        inverse -= (inverse >> 31) << 32
        return (sum * inverse if self.odd > 1 else sum) >> self.bits

    def fits(
        self, x: Expr | int, w: Expr | int, terms: int, reach: int | None = None
    ) -> Expr | bool:
        """The condition that transformed factors fit 16 bits and sums divide exactly; `reach`
        bounds known weights.
        """
        input_bound, weight_bound = (
            cast(n, I64) + 1 if isinstance(n, Expr) else n + 1 for n in (x, w)
        )
        largest = input_bound * weight_bound * terms if reach is None else input_bound * reach
        tests = [x <= self.most_input, largest < 1 << (31 - self.bits)]
        return both(*tests, *(() if reach is not None else (w <= self.most_weight,)))


def _input_of_two(x: Sequence[Expr]) -> list[Expr]:
    sum = _add(x[1], x[2])
    return [_sub(x[0], x[2]), sum, _sub(x[2], x[1]), _sub(x[1], x[3])]


def _weights_of_two(g: Vector) -> list[Any]:
    ends = g[0] + g[2]
    return [g[0] << 1, ends + g[1], ends - g[1], g[2] << 1]


def _sums_of_two(m: Vector) -> list[Any]:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def _input_of_four(x: Sequence[Expr]) -> list[Expr]:
    even = _sub(x[4], x[2])
    odd = _twice(_sub(x[3], x[1]))
    more = _sub(x[4], _twice(_twice(x[2])))
    less = _sub(x[3], _twice(_twice(x[1])))
    first = _add(_twice(_twice(_sub(x[0], x[2]))), even)
    last = _sub(_sub(x[5], x[3]), _twice(odd))
    return [first, _add(more, less), _sub(more, less), _add(even, odd), _sub(even, odd), last]


def _weights_of_four(g: Vector) -> list[Any]:
    ends = (g[0] + g[2]) * -4
    far = g[0] + g[2] * 4
    return [g[0] * 6, ends - g[1] * 4, ends + g[1] * 4, far + g[1] * 2, far - g[1] * 2, g[2] * 12]


def _sums_of_four(m: Vector) -> list[Any]:
    near, far = m[1] + m[2], m[3] + m[4]
    apart, across = m[1] - m[2], m[3] - m[4]
    last = apart + (across << 3) + (m[5] << 1)
    return [m[0] + near + far, apart + (across << 1), near + (far << 2), last]


def _add(a: Expr, b: Expr) -> Expr:
    return apply("addhalves", a, b)


def _sub(a: Expr, b: Expr) -> Expr:
    return apply("subhalves", a, b)


def _twice(a: Expr) -> Expr:
    return _add(a, a)


WINOGRAD_F2X2_3X3 = WinogradTransform(
    2,
    _input_of_two,
    _weights_of_two,
    _sums_of_two,
    odd=1,
    bits=2,
    most_input=8191,
    most_weight=3639,
)
WINOGRAD_F4X4_3X3 = WinogradTransform(
    4,
    _input_of_four,
    _weights_of_four,
    _sums_of_four,
    odd=9,
    bits=6,
    most_input=326,
    most_weight=226,
)
