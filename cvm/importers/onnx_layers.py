"""Operators of ONNX that are layers of networks: convolutions, pooling, products, normalisation, reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cvm.dialect.program.builder import Node

from .onnx_rules import Attributes, Importer, Known, Unsupported, aligned, integers, known, rule, static


@rule("Conv")
def conv(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    x, w = to.node(given[0]), to.node(given[1])
    if w.rank != 4:
        raise Unsupported(f"{w.rank - 2} spatial dimensions, not 2")
    kernel = static(w, "a kernel", (2, 3))
    dilation = tuple(attributes.get("dilations", (1, 1)))
    x, padding = _padded(to, x, [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)], attributes)
    return to.apply(
        "cvm.conv2d",
        x,
        w,
        *given[2:3],
        padding=padding,
        stride=tuple(attributes.get("strides", (1, 1))),
        dilation=dilation,
        groups=attributes.get("group", 1),
    )


def _padded(
    to: Importer, x: Node, extents: Sequence[int], attributes: Attributes, symmetric: bool = True
) -> tuple[Node, tuple[int, int]]:
    """The image and the padding that is the same on both sides; what is more on one side is put around the image."""
    kind = attributes.get("auto_pad", b"NOTSET").decode()
    if kind.startswith("SAME"):
        strides = attributes.get("strides", (1, 1))
        sizes = static(x, "padding SAME", (2, 3))
        whole = [max((-(-n // s) - 1) * s + e - n, 0) for n, s, e in zip(sizes, strides, extents, strict=True)]
        small, large = [p // 2 for p in whole], [p - p // 2 for p in whole]
        before, after = (small, large) if kind == "SAME_UPPER" else (large, small)
    elif kind in ("NOTSET", "VALID"):
        pads = list(attributes.get("pads", (0, 0, 0, 0))) if kind == "NOTSET" else [0] * 4
        before, after = pads[:2], pads[2:]
    else:
        raise Unsupported(f"auto_pad {kind}")
    if before == after:
        return x, (before[0], before[1])
    if not symmetric:
        raise Unsupported(f"padding by {before} before and {after} after")
    return to.apply("builtin.pad", x, before=(0, 0, *before), after=(0, 0, *after)), (0, 0)


@rule("MaxPool")
def max_pool(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    size = tuple(attributes["kernel_shape"])
    if len(size) != 2 or any(d != 1 for d in attributes.get("dilations", ())):
        raise Unsupported("windows that are not plain rectangles")
    x, padding = _padded(to, to.node(given[0]), size, attributes, symmetric=False)
    strides = tuple(attributes.get("strides", (1, 1)))
    ceil_mode = bool(attributes.get("ceil_mode", 0))
    return to.apply("cvm.max_pool2d", x, pool_size=size, padding=padding, strides=strides, ceil_mode=ceil_mode)


@rule("AveragePool")
def average_pool(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    """The sums by a convolution of each channel with ones, over how many elements each is of."""
    x, size = to.node(given[0]), tuple(attributes["kernel_shape"])
    if len(size) != 2 or attributes.get("ceil_mode", 0) or any(d != 1 for d in attributes.get("dilations", ())):
        raise Unsupported("windows that are not plain rectangles, or reach beyond the padding")
    channels, rows, columns = static(x, "an average over windows", (1, 2, 3))
    strides = tuple(attributes.get("strides", (1, 1)))

    def sums(image: Known, groups: int) -> Node:
        padded, padding = _padded(to, to.node(image), size, attributes)
        ones = np.ones((groups, 1, *size), np.float32)
        return to.apply(
            "cvm.conv2d", padded, ones.astype(x.element.dtype), padding=padding, stride=strides, groups=groups
        )

    total = sums(x, channels)
    if attributes.get("count_include_pad", 0):
        return total / float(np.prod(size))
    return total / sums(np.ones((1, 1, rows, columns), x.element.dtype), 1)


@rule("GlobalAveragePool")
def global_average_pool(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    x = to.node(given[0])
    return mean(x, range(2, x.rank)).with_ones(range(2, x.rank))


def mean(x: Node, over: Sequence[int]) -> Node:
    count = float(np.prod(static(x, "a mean", over)))
    return x.sum(tuple(over), dtype=x.element) / count


@rule("GlobalMaxPool")
def global_max_pool(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    x = to.node(given[0])
    return to.apply("cvm.max", x, axes=tuple(range(2, x.rank)), keepdims=True)


@rule("Gemm")
def gemm(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    a, b = to.node(given[0]), to.node(given[1])
    a = to.apply("cvm.transpose", a) if attributes.get("transA", 0) else a
    b = b if attributes.get("transB", 0) else to.apply("cvm.transpose", b)
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    added = to.node(given[2]) if len(given) > 2 and given[2] is not None else None
    if added is not None and alpha == beta == 1 and added.rank == 1 and added.shape == b.shape[:1]:
        return to.apply("cvm.dense", a, b, added)
    y = to.apply("cvm.dense", a, b)
    y = y if alpha == 1 else y * float(alpha)
    if added is None:
        return y
    y, added = aligned(to, y, added if beta == 1 else added * float(beta))
    return y + added


@rule("MatMul")
def matmul(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    a, b = to.node(given[0]), to.node(given[1])
    if b.rank != 2 or a.rank < 2:
        raise Unsupported(f"a product of {a.array_type} and {b.array_type}: the second one is a matrix")
    rows = a if a.rank == 2 else to.apply("cvm.reshape", a, target_shape=(-1, *static(b, "a matrix", (0,))))
    y = to.apply("cvm.dense", rows, to.apply("cvm.transpose", b))
    if a.rank == 2:
        return y
    return to.apply(
        "cvm.reshape", y, target_shape=(*static(a, "a product", range(a.rank - 1)), *static(b, "a matrix", (1,)))
    )


@rule("BatchNormalization")
def batch_normalization(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    x = to.node(given[0])
    scale, shift, mean, variance = (known(v, "a statistic").astype(np.float64) for v in given[1:5])
    factor = scale / np.sqrt(variance + attributes.get("epsilon", 1e-5))
    of_channel = (-1, *(1,) * (x.rank - 2))
    by, plus = (v.reshape(of_channel).astype(x.element.dtype) for v in (factor, shift - mean * factor))
    x, by_node = aligned(to, x, by)
    y, plus_node = aligned(to, x * by_node, plus)
    return y + plus_node


@rule("Softmax", "LogSoftmax")
def softmax(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    x = to.node(given[0])
    axis = attributes.get("axis", -1) % x.rank
    below = x - to.apply("cvm.max", x, axes=(axis,), keepdims=True)
    powers = below.scalar("exp")
    whole = powers.sum((axis,), dtype=x.element).with_ones((axis,))
    return powers / whole if attributes["op_type"] == "Softmax" else below - whole.scalar("log")


@rule("ReduceSum", "ReduceMean", "ReduceMax")
def reduction(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    x = to.node(given[0])
    axes = integers(given[1], "axes") if len(given) > 1 and given[1] is not None else attributes.get("axes", ())
    if not axes and attributes.get("noop_with_empty_axes", 0):
        return x
    over = sorted({a % x.rank for a in axes}) if axes else list(range(x.rank))
    kind = attributes["op_type"]
    y = mean(x, over) if kind == "ReduceMean" else x.reduce("sum" if kind == "ReduceSum" else "max", over)
    y = y if y.element is x.element else y.cast(x.element)
    return y.with_ones(over) if attributes.get("keepdims", 1) else y
