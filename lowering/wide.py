"""Elements beside each other by one thread, loaded and stored together, 16 bytes at once:

    for i in 0..1024 { y[i] = f(x[i]) }
    =>  for t in 0..256 parallel {
          alloc pack xs: tensor<4xf32>; alloc pack ys: tensor<4xf32>
          for l in 0..4 vector 4 { xs[l] = x[t * 4 + l] }
          for l in 0..4 { ys[l] = f(xs[l]) }
          for l in 0..4 vector 4 { y[t * 4 + l] = ys[l] }
        }

for straight code whose accesses along its last index are contiguous or do not move. What is left at the end of a single
axis is done one by one.
"""

from __future__ import annotations

from ..dialect.index import Expr, Index, Read, Tensor, as_index, rewrite, substitute, unflatten
from ..dialect.loops import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Let,
    Require,
    Statement,
    Store,
    map_expressions,
    substitute_block,
)
from ..dialect.types import Dim, product
from .accesses import reads, stride
from .affine import key
from .grid import independent_loops

BYTES = 16  # of an access
MOST = 12  # arrays of a kernel


def wide(kernel: Kernel) -> Kernel | None:
    """The kernel by packs, if it is straight code along contiguous memory."""
    indices, block = independent_loops(kernel)
    if not indices or not all(isinstance(s, (Let, Store, Require)) for s in block):
        return None
    *outer, last = indices
    places = _contiguous(block, last)
    if not places or len(places) > MOST:
        return None
    width = BYTES // max(tensor.element.bytes for tensor, _, _ in places)
    even = isinstance(last.extent, int) and last.extent % width == 0
    if width < 2 or not (even or (not outer and _long(last.extent, width))):
        return None
    count: Dim = last.extent // width if even else (last.extent + (width - 1)) // width
    shape = (*(i.extent for i in outer), count)
    thread = Index("t", product(shape))
    *around, pack = unflatten(thread, shape)
    body = _packed(block, places, last, pack, width)
    if not even:
        lane = Index("l", width)
        at = pack * width + lane
        one = (If(at < as_index(last.extent), substitute_block(block, {last: at})),)
        body = (If(pack * width + width <= as_index(last.extent), body, (For(lane, one),)),)
    made = substitute_block(body, dict(zip(outer, around, strict=True)))
    return kernel.with_body((For(thread, made, kind="parallel"),))


def _long(extent: Dim, width: int) -> bool:
    return not isinstance(extent, int) or extent >= 4 * width


Place = tuple[Tensor, tuple[Expr, ...], bool]  # an array, the indices of an access to it, whether it is stored


def _contiguous(block: Block, last: Index) -> list[Place]:
    """The accesses that move with the index, by one element; none at all if one does otherwise."""
    found: list[Place] = []
    stored: set[Tensor] = set()
    for s in block:
        here = [(r.tensor, r.indices, False) for r in reads((s,))]
        if any(tensor in stored for tensor, _, _ in here):
            return []
        if isinstance(s, Store):
            here.append((s.tensor, s.indices, True))
            if s.tensor in stored:
                return []
            stored.add(s.tensor)
        for tensor, at, writes in here:
            step = stride(tensor, at, last)
            if step not in (0, 1) or (writes and step == 0):
                return []
            if step == 1 and not any(t is tensor and w == writes and _same(a, at) for t, a, w in found):
                if at[-1] is not last:
                    return []
                found.append((tensor, at, writes))
    return found


def _same(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return all(key(x) == key(y) for x, y in zip(a, b, strict=True))


def _packed(block: Block, places: list[Place], last: Index, pack: Expr, width: int) -> Block:
    held = [(p, Tensor(p[0].name, (width,), p[0].element, "pack")) for p in places]
    lane = Index("l", width)

    def of(tensor: Tensor, at: tuple[Expr, ...], writes: bool) -> Tensor | None:
        return next((h for (t, a, w), h in held if t is tensor and w == writes and _same(a, at)), None)

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.indices and (found := of(e.tensor, e.indices, False)) is not None:
            return found[lane]
        return None

    body: list[Statement] = []
    for s in map_expressions(block, lambda e: rewrite(e, change)):
        if isinstance(s, Store) and (found := of(s.tensor, s.indices, True)) is not None:
            s = Store(found, (lane,), s.value)
        body.append(s)
    computed = substitute_block(tuple(body), {last: pack * width + lane})
    made: list[Statement] = [Alloc(h) for _, h in held]
    copies: dict[bool, list[Statement]] = {False: [], True: []}
    for (tensor, at, writes), pack_of in held:
        by = Index("l", width)
        there = tuple(substitute(i, {last: pack * width + by}) for i in at)
        copy = Store(tensor, there, pack_of[by]) if writes else Store(pack_of, (by,), Read(tensor, there))
        copies[writes].append(For(by, (copy,), kind="vector", width=width))
    return (*made, *copies[False], For(lane, computed, kind="unrolled"), *copies[True])
