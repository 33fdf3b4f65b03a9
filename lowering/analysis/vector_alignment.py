"""Stores of vector loops: whether vectors may overlap or begin anywhere, and whether they fill
whole cache lines.
"""

from ...dialect.kernel_ir.expressions import Misalignment
from ...dialect.kernel_ir.loops import Alloc, Assert, For, Let, Prefetch, Store, is_rare
from ...dialect.kernel_ir.traverse import walk
from ..processor import processor
from .accesses import allocated, reads, stores
from .lane_offsets import period


def overlaps(s: For) -> bool:
    """Test whether elements may be computed twice: nothing that is written is read."""
    read = {r.tensor for r in reads(s.body)}
    own = allocated(s.body)
    return not any(t.tensor in read for t in stores(s.body) if t.tensor not in own)


def can_shift(s: For) -> bool:
    """Test whether the vectors of a long loop may begin anywhere, elements being computed twice, to
    one value.
    """
    if s.kind != "vector" or not all(
        isinstance(b, (Let, Store, Alloc, Assert, Prefetch)) or is_rare(b) for b in s.body
    ):
        return False
    length = s.length
    if not length.terms and length.constant < least_length(s):
        return False
    return overlaps(s) and period(reads(s.body), s.index) == 1


def least_length(s: For) -> int:
    """The elements of a loop that is worth aligning and reaches the first cache line that begins in
    it.
    """
    line = processor().line_bytes
    element = min((t.tensor.element.bytes for t in stores(s.body)), default=line)
    return max(processor().tuning.align_vectors * s.width, line // element)


def begins_lines(s: For, store: Store) -> bool:
    """Test whether a loop is to write whole cache lines: its bounds contain the array's
    misalignment.
    """
    places = (s.start, *store.indices)
    if s.kind != "vector":
        return False
    return any(
        isinstance(e, Misalignment) and e.tensor is store.tensor
        for place in places
        for e in walk(place)
    )


def left_over(s: For) -> int:
    """The remainder of a vector loop's constant extent by its width."""
    length = s.length
    return 0 if length.terms or s.kind != "vector" else length.constant % s.width
