"""Plan memory: the order of kernels, and the place of every array (TVM's storage rewrite, XLA's buffer assignment).

Intermediate arrays share one workspace. Arrays of known size with disjoint lifetimes share its bytes; arrays of unknown
size follow them, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from ...dialect.ir.diagnostics import Span
from ...dialect.ir.sizes import Dim, product
from ...dialect.notation.index import Tensor
from ...dialect.notation.loops import Alloc, Kernel, Store, statements
from ..analysis.interval_arithmetic import Interval

ALIGNMENT = 64  # bytes: a cache line, and any vector


@dataclass(frozen=True, eq=False)
class Plan:
    """A function as a back end receives it: kernels in order, and storage.

    Every array of the kernels is an argument, a constant, a result or a place in the workspace: `home` maps it to the
    array whose storage it uses, itself if it has its own. `offsets` are bytes from the workspace's start. `ranges` has
    the intervals of integer arrays; an array without one may hold any value. `requirements` are the messages and places
    of the checks that kernels may fail, in program order.
    """

    name: str
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    constants: dict[Tensor, np.ndarray]
    kernels: tuple[Kernel, ...]
    home: dict[Tensor, Tensor]
    offsets: dict[Tensor, Dim]
    workspace: Dim
    ranges: Mapping[Tensor, Interval] = field(default_factory=dict)
    requirements: tuple[tuple[str, Span], ...] = ()


def make_plan(
    name: str,
    arguments: tuple[Tensor, ...],
    results: tuple[Tensor, ...],
    constants: dict[Tensor, np.ndarray],
    kernels: tuple[Kernel, ...],
    views: dict[Tensor, Tensor],
    ranges: Mapping[Tensor, Interval] = MappingProxyType({}),
    requirements: tuple[tuple[str, Span], ...] = (),
) -> Plan:
    """Place every array. `views` maps a view to the tensor it is a view of."""
    home = {t: viewed(t, views) for t in {*views, *(p for k in kernels for p in k.parameters)}}
    own = set(results)
    for result in results:  # a result that is a view: the viewed intermediate takes the result's storage
        root = home.get(result, result)
        if root is not result and root not in own:
            home.update({t: result for t, r in home.items() if r is root})
    placed = {*arguments, *constants, *results}
    first: dict[Tensor, int] = {}
    last: dict[Tensor, int] = {}
    for n, kernel in enumerate(kernels):
        for p in kernel.parameters:
            root = home[p]
            if root not in placed:
                first.setdefault(root, n)
                last[root] = n
        for scratch in scratch_buffers(kernel):
            home[scratch] = scratch
            first[scratch] = last[scratch] = n
    offsets, workspace = _pack(first, last)
    return Plan(name, arguments, results, constants, kernels, home, offsets, workspace, ranges, requirements)


def scratch_buffers(kernel: Kernel) -> list[Tensor]:
    """The buffers of a kernel that are too large for registers and the stack."""
    return [s.tensor for s in statements(kernel.body) if isinstance(s, Alloc) and s.tensor.space == "heap"]


def written(kernel: Kernel) -> set[Tensor]:
    return {s.tensor for s in statements(kernel.body) if isinstance(s, Store)}


def viewed(tensor: Tensor, views: Mapping[Tensor, Tensor]) -> Tensor:
    """The tensor at the end of a chain of views; itself if it is no view."""
    while tensor in views:
        tensor = views[tensor]
    return tensor


def _bytes(tensor: Tensor) -> Dim:
    size = product(tensor.shape) * tensor.element.bytes
    return (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


def _pack(first: dict[Tensor, int], last: dict[Tensor, int]) -> tuple[dict[Tensor, Dim], Dim]:
    """Offsets for arrays with lifetimes [first, last]: largest first, each at the lowest offset free throughout its
    lifetime.
    """
    offsets: dict[Tensor, Dim] = {}
    known = [(size, t) for t in first if isinstance(size := _bytes(t), int)]
    placed: list[tuple[int, int, Tensor]] = []
    for size, t in sorted(known, key=lambda pair: -pair[0]):
        at = 0
        for start, end, other in sorted(placed, key=lambda p: p[0]):
            alive = first[other] <= last[t] and first[t] <= last[other]
            if alive and start < at + size and at < end:
                at = end
        offsets[t] = at
        placed.append((at, at + size, t))
    top: Dim = max((end for _, end, _ in placed), default=0)
    for t in first:
        if t not in offsets:
            offsets[t] = top
            top = top + _bytes(t)
    return offsets, top
