"""Shapes that meet: NumPy's broadcasting over known and unknown sizes, and three-valued answers about sizes.

A question about unknown sizes is answered where every call gives the same answer; otherwise `Undecided` is raised, and
the question is asked again when the sizes are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest

from ..ir.sizes import Dim, Given, Shape, Undecided, same_size, smaller
from ..notation.index import ZERO, Expr, Index, Tensor, select

# Answers


def all_of(conditions: Iterable[Callable[[], bool]]) -> bool:
    """Whether all hold: false as soon as one certainly fails, Undecided only if none does and one is open."""
    undecided = False
    for condition in conditions:
        try:
            if not condition():
                return False
        except Undecided:
            undecided = True
    if undecided:
        raise Undecided
    return True


def any_of(conditions: Iterable[Callable[[], bool]]) -> bool:
    """Whether one holds: true as soon as one certainly does, Undecided only if none does and one is open."""
    return not all_of((lambda c=c: not c()) for c in conditions)


def certainly(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except Undecided:
        return False


def is_one(dim: Dim) -> bool:
    """Whether a size is certainly 1."""
    return same_size(dim, 1)


# Shapes


def aligned(*shapes: Shape) -> list[tuple[Dim, ...]]:
    """The sizes that meet on each axis: the shapes aligned on the right, shorter ones filled with 1."""
    return list(zip_longest(*map(reversed, shapes), fillvalue=1))[::-1]


def fits(m: Dim, n: Dim) -> bool:
    """Whether two sizes may meet: they are equal, or one of them is 1."""
    return any_of((lambda: m == n, lambda: m == 1, lambda: n == 1))


def joined(*dims: Dim) -> Dim:
    """The size of the result where these, which fit, meet: the one that is not 1."""
    found, *rest = dims
    for dim in rest:
        found = _join(found, dim)
    return found


def _join(m: Dim, n: Dim) -> Dim:
    if is_one(m) and isinstance(n, Given):
        return n  # it may only have turned out to be 1
    if is_one(n) or same_size(m, n) or certainly(lambda: m != 1):
        return m
    if is_one(m) or certainly(lambda: n != 1):
        return n
    return m * n // smaller(m, n)


def broadcast(*shapes: Shape) -> Shape:
    """The shape of the result of operands of these shapes, which fit."""
    return tuple(joined(*dims) for dims in aligned(*shapes))


def source(at: tuple[Index, ...], operand: Tensor) -> tuple[Expr, ...]:
    """Where an operand is read for the result's element at these indices: repeated along axes where its size is 1."""
    return tuple(_source(i, n) for i, n in zip(at[len(at) - operand.rank :], operand.shape, strict=True))


def _source(index: Index, size: Dim) -> Expr:
    if is_one(size):
        return ZERO
    return index if same_size(size, index.extent) else select(index < size, index, 0)


def repeats(small: Shape, large: Shape) -> bool:
    """Whether a shape can be repeated to another one of no lower rank."""
    met = zip(small, large[len(large) - len(small) :], strict=True)
    return all_of((lambda m=m, n=n: any_of((lambda: m == n, lambda: m == 1))) for m, n in met)


def may_repeat(small: Shape, large: Shape) -> bool:
    """Whether sizes that are not known may turn out to be repeated."""
    met = zip(small, large[len(large) - len(small) :], strict=True)
    return any(not (same_size(m, n) or is_one(m) or certainly(lambda m=m: m != 1)) for m, n in met)
