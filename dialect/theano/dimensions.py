"""Common parts of the dialect's operators: dimensions declared to be 1, and axes to reduce."""

from __future__ import annotations

from itertools import zip_longest

from ..ir.sizes import Dim, Given, Shape, same_size


def is_broadcastable(dim: Dim) -> bool:
    """Test whether a size was declared to be 1; a size that is 1 at run time only does not count."""
    return same_size(dim, 1) and not isinstance(dim, Given)


def aligned(*shapes: Shape) -> list[tuple[Dim, ...]]:
    """The sizes that meet on each axis: the shapes aligned on the right, shorter ones filled with 1."""
    return list(zip_longest(*map(reversed, shapes), fillvalue=1))[::-1]


def joined(*sizes: Dim) -> Dim:
    """The size of the result where these meet: a known one that does not stretch, before one that is not known, before 1."""
    strict = [d for d in sizes if not is_broadcastable(d)]
    return next((d for d in strict if isinstance(d, int)), strict[0] if strict else 1)


def axes_exist(axis: tuple[int, ...] | None, rank: int) -> bool:
    return all(-rank <= a < rank for a in axis or ())


def are_distinct(axis: tuple[int, ...] | None, rank: int) -> bool:
    return axis is None or len({a % rank for a in axis}) == len(axis)


def reduced(axis: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """The axes to reduce, in order: all of them where `axis` is absent."""
    return tuple(range(rank)) if axis is None else tuple(sorted(a % rank for a in axis))
