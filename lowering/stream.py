"""Large results past the caches:  y[i] = f(x[i])  =>  y[i] = f(x[i]) streaming

A store that streams does not read its cache line first, which saves a third of the traffic of a copy. It pays where a
result is larger than the caches, written once by vectors and not read by the kernel.
"""

from __future__ import annotations

from dataclasses import replace

from ..dialect.index import Tensor
from ..dialect.loops import Block, For, If, Kernel, Statement, Store
from ..dialect.types import product
from .accesses import depends, reads, stride
from .affine import affine

LARGE = 1 << 24  # bytes
ALIGNED = 16  # bytes: an access that streams is aligned


def stream(kernel: Kernel) -> Kernel:
    read = {r.tensor for r in reads(kernel.body)}
    results = kernel.parameters[len(kernel.parameters) - kernel.results :]
    large = {t for t in results if t not in read and _is_large(t)}
    return kernel.with_body(_block(kernel.body, large, None)) if large else kernel


def _is_large(t: Tensor) -> bool:
    size = product(t.shape)
    return isinstance(size, int) and size * t.element.bytes >= LARGE


def _block(block: Block, large: set[Tensor], lane: For | None) -> Block:
    return tuple(_statement(s, large, lane) for s in block)


def _statement(s: Statement, large: set[Tensor], lane: For | None) -> Statement:
    match s:
        case For():
            return replace(s, body=_block(s.body, large, s if s.kind == "vector" else lane))
        case If(condition, then, otherwise):
            return If(condition, _block(then, large, lane), _block(otherwise, large, lane))
        case Store(tensor, at, _) if tensor in large and lane is not None:
            return replace(s, streaming=stride(tensor, at, lane.index) == 1 and _aligned(s, lane))
    return s


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
