"""Kernels placed on a GPU:  for i in 0..n { for j in 0..m { y[i, j] = f } }  =>  for t in 0..n*m parallel { y[t // m, t % m] = f }

A kernel of several nests becomes several kernels, since the whole grid only meets between them. The loops of a nest whose
iterations are independent become one parallel loop, the innermost index running fastest, so that neighbouring threads
access neighbouring elements; what has no such loop runs in one thread. Works on the loops of `nests`, before any pass
that is for CPUs.
"""

from __future__ import annotations

from dataclasses import replace

from ..dialect.index import ZERO, Expr, Index, Read, Tensor, unflatten, walk
from ..dialect.loops import Alloc, Block, For, Kernel, Store, expressions, statements, substitute_block
from ..dialect.types import product
from .plan import Plan
from .schedule import schedule

# what comes before: where floats are folded, all that decides the order of folds, as on a CPU
ORDERED = ("unname", "split", "collapse", "borders", "narrow", "lanes")
PLAIN = ("unname", "collapse")


def place_on_gpu(plan: Plan) -> Plan:
    """The plan with kernels of one parallel loop each, or of serial code."""
    plan = schedule(plan, lambda kernel: ORDERED if folds_floats(kernel) else PLAIN)
    kernels = [placed for kernel in plan.kernels for placed in map(parallel, split(kernel))]
    return replace(plan, kernels=tuple(replace(k, name=f"{plan.name}.{n}") for n, k in enumerate(kernels)))


def folds_floats(kernel: Kernel) -> bool:
    """Whether the order of a fold matters."""
    accumulators = {s.tensor for s in statements(kernel.body) if isinstance(s, Alloc) and not s.tensor.shape}
    loops = [s for s in statements(kernel.body) if isinstance(s, For)]
    return any(t.element.kind == "float" and t in accesses(loop.body)[1] for loop in loops for t in accumulators)


def split(kernel: Kernel) -> list[Kernel]:
    """One kernel for each loop of a body that is loops one after the other; its scratch buffers become parameters."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    buffers = [s for s in kernel.body if isinstance(s, Alloc) and s.tensor.space == "heap"]
    if len(loops) + len(buffers) < len(kernel.body) or not loops:
        return [kernel]
    return [with_parameters(kernel, (loop,)) for loop in loops]


def with_parameters(kernel: Kernel, body: Block) -> Kernel:
    """A kernel of this body, its parameters the arrays that the body uses, those it writes last."""
    read, stored = accesses(body)
    own = {s.tensor for s in statements(body) if isinstance(s, Alloc)}
    used = [*kernel.parameters, *(s.tensor for s in kernel.body if isinstance(s, Alloc))]
    given = [t for t in used if t in read and t not in stored and t not in own]
    results = [t for t in used if t in stored and t not in own]
    return replace(kernel, parameters=(*given, *results), body=body, results=len(results))


Accesses = dict[Tensor, list[tuple[Expr, ...]]]


def accesses(block: Block) -> tuple[Accesses, Accesses]:
    """At which indices each array is read, and at which it is written."""
    read: Accesses = {}
    stored: Accesses = {}
    for s in statements(block):
        if isinstance(s, Store):
            stored.setdefault(s.tensor, []).append(s.indices)
        for top in expressions(s):
            for e in walk(top):
                if isinstance(e, Read):
                    read.setdefault(e.tensor, []).append(e.indices)
    return read, stored


def independent(loop: For) -> bool:
    """Whether every iteration has its own part of what the loop writes: one axis of it is indexed by the loop's index."""
    own = {s.tensor for s in statements(loop.body) if isinstance(s, Alloc)}
    if any(t.space == "heap" for t in own):  # one buffer for all iterations
        return False
    read, stored = accesses(loop.body)
    for tensor in stored.keys() - own:
        places = [*stored[tensor], *read.get(tensor, [])]
        if not any(all(at[axis] is loop.index for at in places) for axis in range(tensor.rank)):
            return False
    return True


def parallel(kernel: Kernel) -> Kernel:
    """The outer independent loops of a nest as one."""
    indices: list[Index] = []
    block = kernel.body
    while (
        len(block) == 1
        and isinstance(loop := block[0], For)
        and loop.start is ZERO
        and loop.stop is None
        and independent(loop)
    ):
        indices.append(loop.index)
        block = loop.body
    if not indices:
        return kernel
    if len(indices) == 1:
        return kernel.with_body((For(indices[0], block, kind="parallel"),))
    shape = tuple(i.extent for i in indices)
    thread = Index("t", product(shape))
    places: dict[Expr, Expr] = dict(zip(indices, unflatten(thread, shape), strict=True))
    return kernel.with_body((For(thread, substitute_block(block, places), kind="parallel"),))
