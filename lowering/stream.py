"""Large results past the caches:  y[i] = f(x[i])  =>  y[i] = f(x[i]) streaming

A store that streams does not read its cache line first, which saves a third of the traffic of a copy. It pays where a
result is larger than the caches, written once by vectors and not read by the kernel.
"""

from __future__ import annotations

from dataclasses import replace

from ..dialect.index import Tensor
from ..dialect.loops import Block, For, Kernel, Statement, Store, rewrite_block
from ..dialect.types import product
from .accesses import depends, reads, stride
from .affine import affine

LARGE = 1 << 24  # bytes
ALIGNED = 16  # bytes: an access that streams is aligned


def stream(kernel: Kernel) -> Kernel:
    read = {r.tensor for r in reads(kernel.body)}
    results = kernel.parameters[len(kernel.parameters) - kernel.results :]
    large = {t for t in results if t not in read and is_large(t)}
    return kernel.with_body(_streamed(kernel.body, large, None)) if large else kernel


def is_large(t: Tensor) -> bool:
    size = product(t.shape)
    return isinstance(size, int) and size * t.element.bytes >= LARGE


def _streamed(block: Block, large: set[Tensor], lane: For | None) -> Block:
    def change(s: Statement) -> Block | None:
        match s:
            case For(kind="vector"):
                return (replace(s, body=_streamed(s.body, large, s)),)
            case Store(tensor, at, _) if tensor in large and lane is not None:
                return (replace(s, streaming=stride(tensor, at, lane.index) == 1 and _aligned(s, lane)),)
        return None

    return rewrite_block(block, change)


def _aligned(s: Store, lane: For) -> bool:
    """Whether every vector begins at a multiple of 16 bytes, the array doing so."""
    element = s.tensor.element.bytes
    start = affine(lane.start)
    terms = [start.constant, *(f for _, f in start.terms.values()), lane.width]
    if any(t * element % ALIGNED for t in terms):
        return False
    step = 1
    for e, d in zip(reversed(s.indices), reversed(s.tensor.shape), strict=True):
        others = affine(e).without(lane.index) if depends(e, {lane.index}) else affine(e)
        factors = [others.constant, *(f for _, f in others.terms.values())]
        if any(f * step * element % ALIGNED for f in factors) or not isinstance(d, int):
            return False
        step *= d
    return True
