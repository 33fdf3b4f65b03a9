"""Common parts of the dialect's operators: dimensions declared to be 1, and axes to reduce."""

from ..kernel_ir.expressions import ZERO, Expr, Index
from ..spec.broadcasting import aligned, all_equal
from ..types.sizes import Dim, Given, Shape, certainly, same_size


def is_broadcastable(dim: Dim) -> bool:
    """Test whether a size was declared to be 1; a size that is 1 at run time only does not
    count.
    """
    return same_size(dim, 1) and not isinstance(dim, Given)


def joined(*sizes: Dim) -> Dim:
    """The size of the result where these meet: a known one that does not stretch, before one that
    is not known, before 1.
    """
    strict = [d for d in sizes if not is_broadcastable(d)]
    return next((d for d in strict if isinstance(d, int)), strict[0] if strict else 1)


def axes_exist(axis: tuple[int, ...] | None, rank: int) -> bool:
    return all(-rank <= a < rank for a in axis or ())


def are_distinct(axis: tuple[int, ...] | None, rank: int) -> bool:
    return axis is None or len({a % rank for a in axis}) == len(axis)


def reduced(axis: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """The axes to reduce, in order: all of them where `axis` is absent."""
    return tuple(range(rank)) if axis is None else tuple(sorted(a % rank for a in axis))


def sizes_agree(*shapes: Shape) -> bool:
    """Test whether sizes of one axis are equal, or declared to be 1; raises Undecided for unknown
    sizes.
    """
    strict = ([d for d in sizes if not is_broadcastable(d)] for sizes in aligned(*shapes))
    return all_equal((sizes[0], d) for sizes in strict for d in sizes[1:])


def first_clash(*shapes: Shape) -> tuple[Dim, ...]:
    """The first sizes that meet and differ; raises LookupError where none do."""
    for sizes in aligned(*shapes):
        strict = [d for d in sizes if not is_broadcastable(d)]
        if any(certainly(lambda d=d, first=strict[0]: d != first) for d in strict[1:]):
            return sizes
    raise LookupError


def source(at: tuple[Index, ...], shape: Shape) -> tuple[Expr, ...]:
    """The place where an operand is read for the result's element at these indices."""
    return tuple(
        ZERO if is_broadcastable(n) else i
        for i, n in zip(at[len(at) - len(shape) :], shape, strict=True)
    )
