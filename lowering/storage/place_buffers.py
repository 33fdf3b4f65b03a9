"""Place the buffers of a plan: the offset of every intermediate array in one workspace (XLA: buffer
assignment).

    t: tensor<8xi32>, u: tensor<4xi32>, t last read before u is written
    =>  t at byte 0, u at byte 0

Legal always; pays by memory. Arrays of known size with disjoint lifetimes share bytes; arrays of
unknown size follow them, one after the other.
"""

from collections.abc import Mapping
from dataclasses import replace

from ...dialect.kernel_ir.execution_plan import Plan, scratch_buffers
from ...dialect.kernel_ir.expressions import Tensor
from ...dialect.types.sizes import Dim
from ..passes import plan_pass

ALIGNMENT = 64  # bytes: a cache line, and any vector


@plan_pass
def place_buffers(plan: Plan) -> Plan:
    """The plan with the offset of every array that is no argument, constant or result."""
    placed = {*plan.arguments, *plan.constants, *plan.results}
    first: dict[Tensor, int] = {}
    last: dict[Tensor, int] = {}
    for n, kernel in enumerate(plan.kernels):
        for p in kernel.parameters:
            if (root := plan.home[p]) not in placed:
                first.setdefault(root, n)
                last[root] = n
        for scratch in scratch_buffers(kernel):
            first[scratch] = last[scratch] = n
    offsets, workspace = packed(first, last)
    return replace(plan, offsets=offsets, workspace=workspace)


def packed(
    first: Mapping[Tensor, int], last: Mapping[Tensor, int], alignment: int = ALIGNMENT
) -> tuple[dict[Tensor, Dim], Dim]:
    """Offsets for arrays with lifetimes [first, last], and the bytes of all: largest first, each at
    the lowest offset free throughout.
    """
    offsets: dict[Tensor, Dim] = {}
    sizes = {t: (t.bytes + (alignment - 1)) // alignment * alignment for t in first}
    known = [(size, t) for t, size in sizes.items() if isinstance(size, int)]
    placed: list[tuple[int, int, Tensor]] = []
    for size, t in sorted(known, key=lambda pair: -pair[0]):
        at = 0
        for start, end, other in sorted(placed, key=lambda p: p[0]):
            if (
                first[other] <= last[t]
                and first[t] <= last[other]
                and start < at + size
                and at < end
            ):
                at = end
        offsets[t] = at
        placed.append((at, at + size, t))
    top: Dim = max((end for _, end, _ in placed), default=0)
    for t in first:
        if t not in offsets:
            offsets[t] = top
            top = top + sizes[t]
    return offsets, top
