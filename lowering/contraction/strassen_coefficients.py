"""Strassen's algorithm in Winograd's form: products of matrices of 2 x 2 blocks by 7 products of sums of blocks.

    left: a11, s2, a12, s3, s1, a12 - s2, a22        s1 = a21 + a22, s2 = s1 - a11, s3 = a11 - a21
    right: b11, t2, b21, t3, t1, b22, t2 - b21       t1 = b12 - b11, t2 = b22 - t1, t3 = b22 - b12
    y11 = p0 + p2, y12 = u + p4 + p5, y21 = u + p3 - p6, y22 = u + p3 + p4        u = p0 + p1

Blocks of more than one element are multiplied in the same way. What elements are, and how they are added, is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PRODUCTS = 7

Matrix = list[list[Any]]
Operation = Callable[[Any, Any], Any]


def left(a: Matrix, n: int, add: Operation, sub: Operation) -> Matrix:
    """The sum of the left matrix' blocks that is in a product."""
    a11, a12, a21, a22 = _quadrants(a)
    match n:
        case 0 | 2 | 6:
            return {0: a11, 2: a12, 6: a22}[n]
        case 3:
            return _each(sub, a11, a21)
        case 4:
            return _each(add, a21, a22)
        case 1:
            return _each(sub, left(a, 4, add, sub), a11)
        case _:
            return _each(sub, a12, left(a, 1, add, sub))


def right(b: Matrix, n: int, add: Operation, sub: Operation) -> Matrix:
    """The same of the right matrix."""
    b11, b12, b21, b22 = _quadrants(b)
    match n:
        case 0 | 2 | 5:
            return {0: b11, 2: b21, 5: b22}[n]
        case 3:
            return _each(sub, b22, b12)
        case 4:
            return _each(sub, b12, b11)
        case 1:
            return _each(sub, b22, right(b, 4, add, sub))
        case _:
            return _each(sub, right(b, 1, add, sub), b21)


def turned(side: Callable[..., Matrix], a: Matrix, add: Operation, sub: Operation) -> list[Any]:
    """The sums of a matrix' blocks, one for each product."""
    if len(a) == 1:
        return a[0]
    return [e for n in range(7) for e in turned(side, side(a, n, add, sub), add, sub)]


def turned_back(points: list[Any], add: Operation, sub: Operation) -> Matrix:
    """The blocks of the product."""
    if len(points) == 1:
        return [points]
    per = len(points) // 7
    parts = (turned_back(points[n : n + per], add, sub) for n in range(0, len(points), per))
    first = next(parts)
    sum = _each(add, first, next(parts))
    y11 = _each(add, first, next(parts))
    down, fifth = _each(add, sum, next(parts)), next(parts)
    y22 = _each(add, down, fifth)
    y12 = _each(add, _each(add, sum, fifth), next(parts))
    y21 = _each(sub, down, next(parts))
    return [one + other for one, other in (*zip(y11, y12, strict=True), *zip(y21, y22, strict=True))]


def _quadrants(a: Matrix) -> list[Matrix]:
    half = len(a) // 2
    return [[row[x : x + half] for row in a[y : y + half]] for y in (0, half) for x in (0, half)]


def _each(operation: Operation, a: Matrix, b: Matrix) -> Matrix:
    return [[operation(x, y) for x, y in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]
