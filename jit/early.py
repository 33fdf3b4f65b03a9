"""What memory is asked for before it is read, since processors foresee one row that is read to its end, but not

- rows side by side:  for r { for j vector { for u in 0..8 unrolled { acc = acc + x[r * 8 + u, j] } } }: the next eight are;
- the next row while this one is read again:  for i { for k { ... x[i, k] ... }; for j { ... x[i, j] ... } }: the second
  loop, which finds its row in the cache, asks for the next one.

Of large arrays, whose rows are no less than a page, and no more than the cache holds until it is their turn.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..dialect.index import Const, Index, Read, Tensor
from ..dialect.loops import Block, For, Kernel, statements
from ..lowering.accesses import reads, stride
from ..lowering.affine import affine
from ..lowering.movement.stream import is_large

PAGE, LINE = 1 << 12, 1 << 6  # bytes
CACHE = 1 << 18  # bytes, which are kept until it is their turn


def asked_for(kernel: Kernel) -> dict[int, int]:
    """The reads, by id, that ask for an element further on, and how much further."""
    found: dict[int, int] = {}
    for s in statements(kernel.body):
        if isinstance(s, For):
            found.update(_next_rows(s))
            found.update(_side_by_side(s))
    return found


def _side_by_side(s: For) -> Iterator[tuple[int, int]]:
    """Reads that an unrolled loop moves by rows, where this loop goes on from the last of them."""
    for lanes in s.body:
        if not isinstance(lanes, For) or lanes.kind != "vector":
            continue
        length = affine(lanes.end) - affine(lanes.start)
        for turn in lanes.body:
            if not isinstance(turn, For) or turn.kind != "unrolled":
                continue
            assert isinstance(turn.start, Const) and isinstance(turn.end, Const)
            count = turn.end.value - turn.start.value
            for r, step in _apart(turn.body, turn.index):
                near = bool(length.terms) or length.constant * count * r.tensor.element.bytes <= CACHE
                if near and stride(r.tensor, r.indices, s.index) == step * count:
                    yield id(r), step * count


def _next_rows(s: For) -> Iterator[tuple[int, int]]:
    """Reads of rows that a loop before this one has read in the same turn; of all of a row, or nearly."""
    loops: dict[Tensor, int] = {}
    for inner in s.body:
        if isinstance(inner, For):
            turns = _turns(inner)
            found = {r.tensor: (r, step) for r, step in reversed([*_apart((inner,), s.index)]) if 2 * turns > step}
            for tensor, (first, step) in found.items():
                if loops.get(tensor) == 1 and step * tensor.element.bytes <= CACHE:
                    yield id(first), step
                loops[tensor] = loops.get(tensor, 0) + 1


def _turns(s: For) -> int:
    """How often what stands in a loop, or in the loop that is in it, runs; 0 where that is not known."""
    length = affine(s.end) - affine(s.start)
    inner = next((b for b in s.body if isinstance(b, For)), None)
    return 0 if length.terms else length.constant * (1 if inner is None else _turns(inner))


def _apart(block: Block, index: Index) -> Iterator[tuple[Read, int]]:
    """The reads of large arrays that an index moves by a page or more."""
    for r in reads(block):
        step = stride(r.tensor, r.indices, index) if is_large(r.tensor) else None
        if step is not None and step * r.tensor.element.bytes >= PAGE:
            yield r, step
