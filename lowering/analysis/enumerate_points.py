"""Decide conditions on indices by enumeration: every window contains a point inside the input.

for every p in 0..4 there is a k in 0..3 with  0 <= 2 p + k - 1 < 7
"""

from collections.abc import Iterable, Mapping
from math import prod

import numpy as np

from ...dialect.kernel_ir.expressions import Apply, Const, Expr, Index, conjunction
from ...dialect.kernel_ir.traverse import walk
from .evaluate_expressions import Evaluation

# points enumerated at most, all indices together; bounds compile time (by hand)
MAX_POINTS = 1 << 18


def window_reaches_input(condition: Expr, over: tuple[Index, ...]) -> bool:
    """Test whether, for all values of other indices, a condition holds for some of `over`; False if
    undecided.
    """
    return all(
        _part_holds(indices, tests, over)
        for indices, tests in conditions_by_index(conjunction(condition))
    )


def conditions_by_index(tests: Iterable[Expr]) -> list[tuple[set[Index], list[Expr]]]:
    """The conditions in groups without a common index, which are independent, each with its
    indices.
    """
    parts: list[tuple[set[Index], list[Expr]]] = []
    for test in tests:
        indices = {n for n in walk(test) if isinstance(n, Index)}
        met = [p for p in parts if p[0] & indices]
        parts = [p for p in parts if not p[0] & indices]
        parts.append((indices.union(*(p[0] for p in met)), [test, *(t for p in met for t in p[1])]))
    return parts


def _part_holds(indices: set[Index], tests: list[Expr], over: tuple[Index, ...]) -> bool:
    order = [*(i for i in indices if i not in over), *(i for i in over if i in indices)]
    extents = {i: i.extent for i in order if isinstance(i.extent, int)}
    plain = all(isinstance(n, (Index, Const, Apply)) for t in tests for n in walk(t))
    if (
        not plain
        or len(extents) < len(order)
        or prod(extents.values()) > MAX_POINTS
        or 0 in extents.values()
    ):
        return False
    return bool(
        points_where(tests, extents).any(tuple(n for n, i in enumerate(order) if i in over)).all()
    )


def points_where(tests: Iterable[Expr], extents: Mapping[Index, int]) -> np.ndarray:
    """The product of the conditions' values, numbers being weights, at all points of the indices,
    an axis for each.
    """
    shape = tuple(extents.values())
    points: dict[Expr, np.ndarray] = {
        i: np.arange(n).reshape([-1 if a == at else 1 for a in range(len(shape))])
        for at, (i, n) in enumerate(extents.items())
    }
    holds = np.broadcast_to(True, shape)
    for test in tests:
        holds = holds * np.broadcast_to(Evaluation().values(test, points), shape)
    return holds
