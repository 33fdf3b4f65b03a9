"""ONNX's products of matrices and tensors, convolutions and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import Dim, Size, same_size
from cvm.dialect.types.tensor_types import compute_type
from cvm.importers.exactness import Exactness
from cvm.importers.graph.contractions import (
    FAST,
    Window,
    average_pool,
    contract,
    convolution,
    halves,
    kernel_spans,
    least,
    matmul,
    max_pool,
    positions,
    same_padding,
    transposed_convolution,
    windows,
)
from cvm.importers.graph.elementwise import combine, number
from cvm.importers.graph.movement import bordered, part, reshaped
from cvm.importers.graph.reductions import extreme, mean, total
from cvm.importers.graph.rules import Array, Known, Unsupported, numbers, static

from .importer import At
from .rules import rule

# Products

MOST_IN_ORDER = 1024  # elements that are added one by one


@rule("MatMul")
def product(at: At, a: Node, b: Node) -> Known:
    """NumPy's product of matrices, vectors and stacks of them."""
    return matmul(at, a, b)


@rule("Gemm")
def gemm(at: At, a: Node, b: Node, c: Node | None = None) -> Known:
    _ = at["broadcast"]  # which c is in any case
    a = a.dimshuffle((1, 0)) if at["transA"] else a
    rows = b if at["transB"] else b.dimshuffle((1, 0))
    alpha, beta = at["alpha"], at["beta"]
    if a.element not in FAST:
        y = matmul(at, a, rows.dimshuffle((1, 0)))
    elif (
        c is not None
        and alpha == beta == 1
        and c.array_type.key == a.array_type.with_shape(rows.shape[0]).key
    ):
        return at.apply("cvm.dense", a, rows, c)
    else:
        y = at.apply("cvm.dense", a, rows)
    y = y if alpha == 1 else scaled(y, alpha)
    return y if c is None else combine("add", y, c if beta == 1 else scaled(c, beta))


def scaled(x: Node, factor: float) -> Node:
    if x.element.kind == "float":
        return x * float(factor)
    if factor != int(factor):
        raise Unsupported("integers times a fraction")
    return x * x.constant(np.array(int(factor), x.element.dtype))


@rule("Einsum")
def einsum(at: At, *xs: Node) -> Known:
    equation = at["equation"].replace(" ", "")
    sides, _, to = equation.partition("->")
    terms = sides.split(",")
    if len(terms) != len(xs):
        raise ValueError(f"the equation {equation!r} has {len(terms)} terms for {len(xs)} inputs")
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in equation]
    lacking = [x.rank - len(t.replace("...", "")) for x, t in zip(xs, terms, strict=True)]
    wide = max((n for n, t in zip(lacking, terms, strict=True) if "..." in t), default=0)
    more = "".join(free[:wide])
    spelled = [t.replace("...", more[wide - n :]) for n, t in zip(lacking, terms, strict=True)]
    if "->" in equation:
        to = to.replace("...", more)
    else:
        every = "".join(spelled)
        to = more + "".join(sorted(c for c in set(every) if every.count(c) == 1 and c not in more))
    nodes = [diagonal(at, x, t) for x, t in zip(xs, spelled, strict=True)]
    y, by = nodes[0]
    for n, (x, t) in enumerate(nodes[1:], 1):
        later = to + "".join(u for _, u in nodes[n + 1 :])
        remaining = "".join(c for c in dict.fromkeys(by + t) if c in later)
        y, by = contract(y, x, by, t, remaining), remaining
    gone = tuple(j for j, c in enumerate(by) if c not in to)
    y = total(y, gone) if gone else y
    by = "".join(c for c in by if c in to)
    if sorted(by) != sorted(to):
        raise ValueError(f"the equation {equation!r} has an output without an input")
    return y.dimshuffle([by.index(c) for c in to])


def diagonal(at: At, x: Node, by: str) -> tuple[Node, str]:
    """The elements whose places along axes of one letter are the same."""
    for c in dict.fromkeys(by):
        if by.count(c) > 1:
            here = [j for j, d in enumerate(by) if d == c]
            (n,) = {*static(x, "a diagonal", here)}
            x = at.apply(
                "builtin.gather", x, *[numbers(n)] * len(here), axes=tuple(here), mode="clip"
            )
            by = by[: here[0] + 1] + by[here[0] + 1 :].replace(c, "")
    return x, by


# Windows


def spatial(at: At, x: Node, kernel: Sequence[int], sizes: Sequence[Dim] | None = None) -> Window:
    """The window that the attributes say. Axes whose sizes differ from these are padded already."""
    rank = len(kernel)
    if x.rank != rank + 2:
        raise ValueError(f"the kernel has {rank} sizes, the input {x.rank - 2} spatial axes")
    strides, dilations = list(at["strides"] or [1] * rank), list(at["dilations"] or [1] * rank)
    kind = at["auto_pad"] or "NOTSET"
    if kind.startswith("SAME"):
        sides = [
            same_sides(n, k, s, d, kind) if sizes is None or same_size(n, m) else (0, 0)
            for n, m, k, s, d in zip(
                x.shape[2:], (sizes or x.shape)[2:], kernel, strides, dilations, strict=True
            )
        ]
        return Window(strides, dilations, [b for b, _ in sides], [a for _, a in sides])
    pads = list(at["pads"] or [0] * 2 * rank) if kind == "NOTSET" else [0] * 2 * rank
    return Window(strides, dilations, pads[:rank], pads[rank:])


def same_by_size(at: At, x: Node, kernel: Sequence[int], value: float) -> tuple[Node, Window]:
    """The input with a border of the value along axes of unknown size whose padding SAME is another
    for another size, and the window.
    """
    before: list[Dim] = [0] * x.rank
    after: list[Dim] = [0] * x.rank
    rank, kind = len(kernel), at["auto_pad"] or ""
    strides, dilations = at["strides"] or [1] * rank, at["dilations"] or [1] * rank
    for j, k in enumerate(kernel if kind.startswith("SAME") and x.rank == rank + 2 else ()):
        n, reach = x.shape[2 + j], dilations[j] * (k - 1) + 1
        if isinstance(n, Size) and not is_same(n, k, strides[j], dilations[j], kind):
            whole = ((n + (strides[j] - 1)) // strides[j] - 1) * strides[j] + reach
            small = (whole - n) // 2
            large = whole - n - small
            before[2 + j], after[2 + j] = (small, large) if kind == "SAME_UPPER" else (large, small)
    sizes = x.shape
    x = bordered(at, x, before, after, "constant", number(x, value))
    return x, spatial(at, x, kernel, sizes)


def is_same(n: Dim, k: int, stride: int, dilation: int, kind: str) -> bool:
    """Test whether padding SAME can be the same for every size."""
    try:
        same_sides(n, k, stride, dilation, kind)
    except Unsupported:
        return dilation * (k - 1) + 1 < stride
    return True


def same_sides(n: Dim, k: int, stride: int, dilation: int, kind: str) -> tuple[int, int]:
    """The padding SAME of an axis, before and after; of one of unknown size, where that before is
    the same for every size, and that after makes up the last window of any.
    """
    residues = [n] if isinstance(n, int) else [k * dilation * stride + r for r in range(stride)]
    sides = [
        halves(same_padding([m], [k], [stride], [dilation]), kind)
        for m in residues
        if isinstance(m, int)
    ]
    before, after = ([side[j][0] for side in sides] for j in (0, 1))
    if len({*before}) > 1 or (isinstance(n, Size) and dilation * (k - 1) + 1 < stride):
        raise Unsupported("padding SAME of unknown size that is not the same for all sizes")
    return before[0], max(after)


@rule("Conv")
def conv(at: At, x: Node, w: Node, b: Node | None = None) -> Known:
    x, window = same_by_size(at, x, kernel_sizes(at, w), 0)
    if any(n < 0 for n in (*window.before, *window.after)):
        raise Unsupported("negative padding")
    return convolution(at, x, w, b, window, at["group"] or 1)


def kernel_sizes(at: At, w: Node) -> tuple[int, ...]:
    sizes = static(w, "a kernel", range(2, w.rank))
    if at["kernel_shape"] is not None and tuple(at["kernel_shape"]) != sizes:
        raise ValueError(f"kernel_shape is {at['kernel_shape']}, the kernels have {sizes}")
    return sizes


@rule("ConvTranspose")
def conv_transpose(at: At, x: Node, w: Node, b: Node | None = None) -> Known:
    """A convolution of the value, moved apart by the strides, with the kernels turned round."""
    rank, groups = w.rank - 2, at["group"]
    kernel = kernel_sizes(at, w)
    strides, dilations, before, after = spatial(at, x, kernel)
    more = list(at["output_padding"] or [0] * rank)
    spans = kernel_spans(kernel, dilations)
    kind = at["auto_pad"]
    if at["output_shape"] is not None or kind.startswith("SAME"):
        sizes = static(x, "what is transposed", range(2, x.rank))
        full = [s * (n - 1) + m + e for s, n, m, e in zip(strides, sizes, more, spans, strict=True)]
        output_sizes = at["output_shape"] or [n * s for n, s in zip(sizes, strides, strict=True)]
        before, after = halves(
            [f - m for f, m in zip(full, output_sizes[-rank:], strict=True)], kind
        )
    return transposed_convolution(
        at, x, w, b, Window(strides, dilations, before, after), more, groups
    )


# Pooling


def pool_windows(
    at: At, x: Node, kernel: Sequence[int], sizes: Sequence[Dim] | None = None
) -> Window:
    """The window of pooling, which at last reaches beyond the padding where ceil_mode says so."""
    strides, dilations, before, after = spatial(at, x, kernel, sizes)
    if at["auto_pad"].startswith("SAME"):
        along = zip(x.shape[2:], kernel, strides, strict=True)
        known = [(n, k, s) for n, k, s in along if isinstance(n, int)]
        if max(dilations) > 1 or any((-(-n // s) - 1) * s + k < n for n, k, s in known):
            at.rule_exactness = Exactness(
                bound="unlike onnxruntime, whose SAME padding omits dilations and may be negative"
            )
    if at["ceil_mode"]:
        after = list(after)
        for j, n in enumerate(x.shape[2:]):
            if isinstance(n, Size):
                if after[j] + strides[j] > dilations[j] * (kernel[j] - 1) + 1:
                    raise Unsupported("a last window that may begin beyond an axis of unknown size")
                after[j] += strides[j] - 1
                continue
            slack = n + before[j] + after[j] - dilations[j] * (kernel[j] - 1) - 1
            last = -(-slack // strides[j])
            if (
                last * strides[j] >= n + before[j]
            ):  # a window that would begin after the data is none
                last -= 1
            after[j] += last * strides[j] - slack
    return Window(strides, dilations, before, after)


@rule("MaxPool")
def max_pooling(at: At, x: Node) -> Any:
    kernel = at["kernel_shape"]
    if not at.wants(1):
        sizes = x.shape
        x, _ = same_by_size(at, x, kernel, least(x))
        return max_pool(at, x, kernel, pool_windows(at, x, kernel, sizes))
    window = pool_windows(at, x, kernel)
    strides, dilations, before, _ = window
    rank, patches = len(kernel), windows(at, x, kernel, window, least(x))
    within = tuple(range(x.rank, patches.rank))
    flat = (
        at.apply("builtin.reshape", patches, merge=(*[1] * x.rank, rank)) if rank > 1 else patches
    )
    sizes = static(x, "places in what is pooled")
    best = at.apply("builtin.argmax", flat, axis=x.rank)
    first: Array = np.zeros((), np.int64)
    for j, row in enumerate(positions(sizes[2:], kernel, window)):
        inside = ((row >= 0) & (row < sizes[2 + j])).argmax(1)
        first = first[..., None] * kernel[j] + inside
    top = extreme(patches, within, "max")
    fill = at.node(first).dimshuffle(["x", "x", *range(rank)])
    best = top.scalar("eq", number(x, least(x))).scalar(
        "switch", fill, best
    )  # of padding there is none
    order = range(rank) if not at["storage_order"] else range(rank)[::-1]
    place = None
    steps = [int(np.prod(kernel[j + 1 :])) for j in range(rank)]
    for j in order:
        k = at.apply(
            "dali.mod", at.apply("dali.floordiv", best, np.array(steps[j])), np.array(kernel[j])
        )
        coordinate = (
            at.apply("builtin.iota_like", best, axis=2 + j) * strides[j]
            + k * dilations[j]
            - before[j]
        )
        place = coordinate if place is None else place * sizes[2 + j] + coordinate
    channel = at.apply("builtin.iota_like", best, axis=0) * sizes[1] + at.apply(
        "builtin.iota_like", best, axis=1
    )
    assert place is not None
    return [top, channel * int(np.prod(sizes[2:])) + place]


@rule("AveragePool")
def average_pooling(at: At, x: Node) -> Known:
    kernel = at["kernel_shape"]
    window = pool_windows(at, x, kernel)
    padding = spatial(at, x, kernel)[2:] if at["count_include_pad"] else None
    if padding is not None and at["auto_pad"].startswith("SAME"):
        static(x, "counted padding SAME", range(2, x.rank))
    return average_pool(at, x, kernel, window, padding)


@rule("LpPool")
def lp_pool(at: At, x: Node) -> Known:
    kernel = at["kernel_shape"]
    patches = windows(at, x, kernel, pool_windows(at, x, kernel))
    return lp_norm(patches, tuple(range(x.rank, patches.rank)), at["p"])


def lp_norm(x: Node, over: tuple[int, ...], p: int) -> Node:
    wide = x.cast(compute_type(x.element)).scalar("abs_")
    return total(wide.scalar("pow", float(p)), over).scalar("pow", 1 / p).cast(x.element)


def global_average(at: At, x: Node, over: tuple[int, ...]) -> Node:
    """The mean; among integer convolutions summed as onnxruntime does: every fourth element, these
    four sums, then the rest.
    """
    count = int(np.prod([n if isinstance(n, int) else 0 for n in x.shape[2:]]))
    if not 4 <= count <= MOST_IN_ORDER or all(o.op != "ConvInteger" for o in at.importer.operators):
        return mean(at, x, over)
    flat, last = reshaped(at, x, (*x.shape[:2], count)), count % 4
    quads = reduce(add, (part(at, flat, 2, k, k + 4) for k in range(0, count - last, 4)))
    lanes = [part(at, quads, 2, k, k + 1) for k in (0, 2, 1, 3)]
    remainder = (part(at, flat, 2, k, k + 1) for k in range(count - last, count))
    return reduce(add, remainder, (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])).dimshuffle(
        (0, 1)
    ) / float(count)


GLOBAL: dict[str, Callable[[At, Node, tuple[int, ...]], Node]] = {
    "GlobalAveragePool": global_average,
    "GlobalMaxPool": lambda at, x, over: extreme(x, over, "max"),
    "GlobalLpPool": lambda at, x, over: lp_norm(x, over, at["p"]),
}


@rule(*GLOBAL)
def global_pool(at: At, x: Node) -> Known:
    over = tuple(range(2, x.rank))
    return GLOBAL[at.op](at, x, over).with_ones(over)
