"""Products of matrices and tensors, convolutions and pooling, that several formats share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import F32, F64, I32

from .elementwise import number
from .importer import At
from .movement import FAR, reshaped, with_border
from .reductions import extreme, total
from .rules import Array, known_size, numbers, static

FAST = (F32, F64, I32)  # what the cvm dialect's layers take


def contract(a: Node, b: Node, left: str, right: str, to: str) -> Node:
    """The sum over the axes that are not in the result of the products of two values, whose axes
    have letters.
    """
    letters = to + "".join(c for c in dict.fromkeys(left + right) if c not in to)
    x, y = (
        n.dimshuffle([by.index(c) if c in by else "x" for c in letters])
        for n, by in ((a, left), (b, right))
    )
    return total(x * y, tuple(range(len(to), len(letters))))


def matmul(at: At, a: Node, b: Node) -> Node:
    """The product, as NumPy's, of matrices, vectors and stacks of them."""
    if not a.rank or not b.rank:
        raise ValueError("a factor has no axes")
    left, right = (
        (a.with_ones((0,)) if a.rank == 1 else a),
        (b.with_ones((1,)) if b.rank == 1 else b),
    )
    if right.rank == 2 and left.element in FAST:
        k = right.shape[0]
        rows = (
            left if left.rank == 2 else reshaped(at, left, (-1, k)) if isinstance(k, int) else None
        )
        if rows is not None:
            y = at.apply("cvm.dense", rows, right.dimshuffle((1, 0)))
            y = y if left.rank == 2 else reshaped(at, y, (*left.shape[:-1], right.shape[1]))
            return dropped(y, a, b)
    batch = max(left.rank, right.rank) - 2
    names = "abcdefghijklmn"[:batch]
    of_a, of_b = (names[batch - (n.rank - 2) :] for n in (left, right))
    return dropped(contract(left, right, of_a + "yz", of_b + "zx", names + "yx"), a, b)


def dropped(y: Node, a: Node, b: Node) -> Node:
    """Without the axes that vectors were given."""
    gone = {y.rank - 2} if a.rank == 1 else set()
    gone |= {y.rank - 1} if b.rank == 1 else set()
    return y.dimshuffle([j for j in range(y.rank) if j not in gone])


class Window(NamedTuple):
    """Steps of a kernel along the spatial axes, and the padding of these before and after."""

    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]


def same_padding(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """The padding of each axis by which windows begin at every so many-th element."""
    along = zip(sizes, kernel, strides, dilations, strict=True)
    return [max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0) for n, k, s, d in along]


def halves(whole: Sequence[int], kind: str = "SAME_UPPER") -> tuple[list[int], list[int]]:
    """The padding before and after; of an odd number, SAME_UPPER has the larger half after."""
    small, large = [p // 2 for p in whole], [p - p // 2 for p in whole]
    return (small, large) if kind == "SAME_UPPER" else (large, small)


def convolution(at: At, x: Node, w: Node, b: Node | None, window: Window, groups: int) -> Node:
    if (rank := w.rank - 2) == 1:
        x, w = x.with_ones((2,)), w.with_ones((2,))
        window = Window(*([n, *of_axis] for n, of_axis in zip((1, 1, 0, 0), window, strict=True)))
        return convolution(at, x, w, b, window, groups).dimshuffle((0, 1, 3))
    if rank != 2 or x.element not in FAST:
        return general_convolution(at, x, w, b, window, groups)
    strides, dilations, before, after = map(tuple, window)
    if before != after or max(before) > 4096:
        x = at.apply("builtin.pad", x, before=(0, 0, *before), after=(0, 0, *after))
        before = (0, 0)
    attributes = {"padding": before, "stride": strides, "dilation": dilations, "groups": groups}
    return at.apply("cvm.conv2d", x, w, *(() if b is None else (b,)), **attributes)


def general_convolution(
    at: At, x: Node, w: Node, b: Node | None, window: Window, groups: int
) -> Node:
    """Windows times kernels, summed."""
    rank, kernel = w.rank - 2, static(w, "a kernel", range(2, w.rank))
    channels = known_size(x.shape[1], "channels")
    if (
        channels % groups
        or known_size(w.shape[0], "channels") % groups
        or channels // groups != w.shape[1]
    ):
        raise ValueError(f"{channels} channels in {groups} groups, kernels of {w.shape[1]}")
    y = windows(at, x, kernel, window)
    y = at.apply(
        "builtin.reshape", y, split=((-1,), (groups, channels // groups), *([(-1,)] * (y.rank - 2)))
    )
    kernels = at.apply("builtin.reshape", w, split=((groups, -1), *[(-1,)] * (rank + 1)))
    out, inside = "pqrstu"[:rank], "klmjih"[:rank]
    sums = contract(y, kernels, f"ngc{out}{inside}", f"goc{inside}", f"ngo{out}")
    sums = at.apply("builtin.reshape", sums, merge=(1, 2, *[1] * rank))
    return sums if b is None else sums + b.dimshuffle(["x", 0, *["x"] * rank])


def windows(at: At, x: Node, kernel: Sequence[int], window: Window, fill: float = 0.0) -> Node:
    attributes = {
        name: tuple(value) for name, value in {"sizes": kernel, **window._asdict()}.items()
    }
    return at.apply(
        "builtin.windows", x, axes=tuple(range(2, 2 + len(kernel))), **attributes, fill=fill
    )


def positions(sizes: Sequence[int], kernel: Sequence[int], window: Window) -> Iterator[Array]:
    """The places in windows along each axis, counted from the first element: a row for a window."""
    for n, k, stride, dilation, before, after in zip(sizes, kernel, *window, strict=True):
        starts = numbers((n + before + after - dilation * (k - 1) - 1) // stride + 1)
        yield starts[:, None] * stride - before + np.arange(k) * dilation


def kernel_spans(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """The elements along each axis from the first to the last of a window."""
    return [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]


def transposed_convolution(
    at: At, x: Node, w: Node, b: Node | None, window: Window, more: Sequence[int], groups: int
) -> Node:
    """A convolution of the value, moved apart by the strides, with the kernels turned round; `more`
    is added after each axis of the result.
    """
    rank, sizes = w.rank - 2, x.shape[2:]
    strides, dilations, before, after = window
    spans = kernel_spans(static(w, "a kernel", range(2, w.rank)), dilations)
    apart = (
        at.apply(
            "builtin.strided_scatter_like",
            x,
            at.like((1, 1, *((n - 1) * s + 1 for n, s in zip(sizes, strides, strict=True)))),
            axes=tuple(range(2, x.rank)),
            strides=tuple(strides),
        )
        if max(strides) > 1
        else x
    )
    edges = [
        (e - 1 - p, e - 1 - q + m) for e, p, q, m in zip(spans, before, after, more, strict=True)
    ]
    apart = at.apply(
        "builtin.pad",
        apart,
        before=(0, 0, *(e for e, _ in edges)),
        after=(0, 0, *(e for _, e in edges)),
    )
    kernels = at.apply("builtin.reshape", w, split=((groups, -1), *[(-1,)] * (rank + 1)))
    kernels = kernels.dimshuffle((0, 2, 1, *range(3, rank + 3)))
    kernels = at.apply("builtin.reshape", kernels, merge=(2, *[1] * (rank + 1)))
    far = (0, 0), (FAR, FAR), (1, 1)
    begin, end, step = (
        (*f, *(value,) * rank) for f, value in zip(far, (-1, -FAR, -1), strict=True)
    )
    kernels = at.apply("cvm.slice", kernels, begin=begin, end=end, strides=step)
    return convolution(
        at, apart, kernels, b, Window([1] * rank, dilations, [0] * rank, [0] * rank), groups
    )


def least(x: Node) -> float:
    """The number that no element of a type is below."""
    return -np.inf if x.element.kind == "float" else float(x.element.limits[0])


def max_pool(at: At, x: Node, kernel: Sequence[int], window: Window) -> Node:
    """The largest element of each window."""
    strides, dilations, before, after = window
    plain = len(kernel) == 2 and before == after and set(dilations) == {1} and x.element in FAST
    if (
        plain
        and all(k > p >= 0 for k, p in zip(kernel, before, strict=True))
        and max(*kernel, *strides) <= 4096
    ):
        attributes = {
            "pool_size": tuple(kernel),
            "padding": tuple(before),
            "strides": tuple(strides),
        }
        return at.apply("cvm.max_pool2d", x, **attributes)
    patches = windows(at, x, kernel, window, least(x))
    return extreme(patches, tuple(range(x.rank, patches.rank)), "max")


def average_pool(
    at: At,
    x: Node,
    kernel: Sequence[int],
    window: Window,
    padding: tuple[Sequence[int], Sequence[int]] | None = None,
) -> Node:
    """The mean of each window's elements; those of the padding count where `padding` is given."""
    patches = windows(at, x, kernel, window)
    within = tuple(range(x.rank, patches.rank))
    if not any(window.before) and not any(a > 0 for a in window.after):
        return total(patches, within) / float(np.prod(kernel))
    sizes = x.shape[2:]
    if not all(isinstance(n, int) for n in sizes):
        return total(patches, within) / inside(at, x, kernel, window, padding)
    sizes = static(x, "an average at the edge", range(2, x.rank))
    count: Array = np.ones((), np.int64)
    first, last = padding or ([0] * len(kernel), [0] * len(kernel))
    for j, row in enumerate(positions(sizes, kernel, window)):
        low, high = -first[j], sizes[j] + last[j]
        count = count[..., None] * ((row >= low) & (row < high)).sum(1)
    return total(patches, within) / at.node(count.astype(x.element.dtype)).dimshuffle(
        ["x", "x", *range(len(kernel))]
    )


def inside(
    at: At,
    x: Node,
    kernel: Sequence[int],
    window: Window,
    padding: tuple[Sequence[int], Sequence[int]] | None,
) -> Node:
    """The elements of each window, counted where sizes are unknown; `padding` has some, too."""
    ones = at.like((1, 1, *x.shape[2:])).scalar("second", number(x, 1))
    before, after = padding or ([0] * len(kernel), [0] * len(kernel))
    ones = with_border(at, ones, (0, 0, *before), (0, 0, *after), number(x, 1))
    left = [n - m for n, m in zip(window.before, before, strict=True)]
    right = [n - m for n, m in zip(window.after, after, strict=True)]
    patches = windows(at, ones, kernel, window._replace(before=left, after=right))
    return total(patches, tuple(range(x.rank, patches.rank)))
