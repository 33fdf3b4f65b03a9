"""Expand the channels of a grouped nest into an axis of groups and one of channels, where that
makes it a contraction.

    for g { for c { ... x[g * 16 + c] ... } }  =>  for g { for c { ... x[g, c] ... } }

Legal where all accesses go by the same groups: the same elements in the same order, so storage
stays.
"""

from dataclasses import replace
from typing import TypeVar

from ...dialect.kernel_ir.expressions import Apply, Const, Expr, Index, Tensor
from ...dialect.kernel_ir.loops import Kernel, redirect
from ...dialect.types.sizes import Dim, Shape
from ..analysis.accesses import accesses
from ..contraction.match_contraction import match_contraction
from ..contraction.split_groups import split_groups
from ..passes import gpu_pass

T = TypeVar("T")


@gpu_pass
def expand_channel_groups(kernel: Kernel) -> Kernel:
    groups = split_groups(kernel)
    expanded = _delinearized(
        kernel if groups is None or groups.whole is not True else groups.kernel
    )
    return (
        expanded
        if match_contraction(kernel) is None and match_contraction(expanded) is not None
        else kernel
    )


def _delinearized(kernel: Kernel) -> Kernel:
    """The kernel with two axes for those of its parameters that are read by groups."""
    read, stored = accesses(kernel.body)
    only_read = {
        t: places for t, places in read.items() if t in kernel.parameters and t not in stored
    }
    if not (
        axes := {
            t: a for t, places in only_read.items() if (a := _axis(t.shape, places)) is not None
        }
    ):
        return kernel
    tensors = {
        t: replace(t, shape=_cut(t.shape, axis, *parts)) for t, (axis, parts) in axes.items()
    }

    def target(tensor: Tensor, at: tuple[Expr, ...]) -> tuple[Tensor, tuple[Expr, ...]] | None:
        if tensor not in axes:
            return None
        axis, _ = axes[tensor]
        pair = _pair(at[axis])
        assert pair is not None
        return tensors[tensor], _cut(at, axis, *pair)

    parameters = tuple(tensors.get(p, p) for p in kernel.parameters)
    return replace(kernel, body=redirect(kernel.body, target), parameters=parameters)


def _axis(shape: Shape, places: list[tuple[Expr, ...]]) -> tuple[int, tuple[int, int]] | None:
    """The axis that all accesses go over by groups, and how many groups of how many elements there
    are.
    """
    for axis, size in enumerate(shape):
        sizes = {_extents(at[axis], size) for at in places}
        if len(sizes) == 1 and (parts := sizes.pop()) is not None:
            return axis, parts
    return None


def _extents(e: Expr, size: Dim) -> tuple[int, int] | None:
    match _pair(e):
        case (Index(extent=int(count)), Index(extent=int(each))) if (
            isinstance(size, int) and count * each == size
        ):
            return count, each
        case _:
            return None


def _pair(e: Expr) -> tuple[Index, Index] | None:
    """g and c of g * n + c, where c has n values."""
    match e:
        case Apply(
            "add", (Apply("mul", (Index() as g, Const(n)), _), Index(extent=int(each)) as c), _
        ) if each == n:
            return g, c
        case _:
            return None


def _cut(items: tuple[T, ...], axis: int, *parts: T) -> tuple[T, ...]:
    return (*items[:axis], *parts, *items[axis + 1 :])
