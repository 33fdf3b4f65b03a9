"""Axes that are read by groups as two axes:

    for g in 0..4 { for c in 0..16 { ... x[g * 16 + c] ... } }  =>  for g in 0..4 { for c in 0..16 { ... x[g, c] ... } }

where x has 64 elements there: the same elements in the same order, so a parameter's storage stays what it was.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.ir.sizes import Dim, Shape
from ...dialect.notation.expressions import Apply, Const, Expr, Index, Read, Tensor
from ...dialect.notation.loops import Kernel, map_expressions
from ...dialect.notation.traverse import rewrite
from ..analysis.accesses import reads, stores


def delinearize(kernel: Kernel) -> Kernel:
    found: dict[Tensor, list[tuple[Expr, ...]]] = {}
    for r in reads(kernel.body):
        found.setdefault(r.tensor, []).append(r.indices)
    for s in stores(kernel.body):
        found.pop(s.tensor, None)
    axes = {t: a for t, places in found.items() if t in kernel.parameters and (a := _axis(t.shape, places)) is not None}
    if not axes:
        return kernel
    made = {t: replace(t, shape=_cut(t.shape, axis, *parts)) for t, (axis, parts) in axes.items()}

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.tensor in axes:
            axis = axes[e.tensor][0]
            at = tuple(rewrite(i, change) for i in e.indices)
            pair = _pair(at[axis])
            assert pair is not None
            return made[e.tensor][_cut(at, axis, *pair)]
        return None

    body = map_expressions(kernel.body, lambda e: rewrite(e, change))
    return replace(kernel, body=body, parameters=tuple(made.get(p, p) for p in kernel.parameters))


def _axis(shape: Shape, places: list[tuple[Expr, ...]]) -> tuple[int, tuple[int, int]] | None:
    """The axis that all accesses go over by groups, and how many groups of how many elements there are."""
    for axis, size in enumerate(shape):
        sizes = {_extents(at[axis], size) for at in places}
        if len(sizes) == 1 and (parts := sizes.pop()) is not None:
            return axis, parts
    return None


def _extents(e: Expr, size: Dim) -> tuple[int, int] | None:
    match _pair(e):
        case (Index(extent=int(count)), Index(extent=int(each))) if isinstance(size, int) and count * each == size:
            return count, each
    return None


def _pair(e: Expr) -> tuple[Index, Index] | None:
    """g and c of g * n + c, where c has n values."""
    match e:
        case Apply("add", (Apply("mul", (Index() as g, Const(n)), _), Index(extent=int(each)) as c), _) if each == n:
            return g, c
    return None


def _cut(items: tuple, axis: int, *parts: object) -> tuple:
    return (*items[:axis], *parts, *items[axis + 1 :])
