"""ONNX's operators that choose, order and place elements by values."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import product
from cvm.importers.exactness import Exactness
from cvm.importers.graph.elementwise import number
from cvm.importers.graph.indexing import (
    coordinates,
    element_places,
    gathered,
    gathered_at,
    largest,
    one_hot,
    scattered,
)
from cvm.importers.graph.movement import filled, reshaped
from cvm.importers.graph.reductions import total
from cvm.importers.graph.rules import Array, Ints, Known, known_size, numbers, real_axes, static

from .elements import I64
from .exactness import ORDERED
from .importer import At
from .rules import rule

rule("Gather", symbolic=lambda at, x, indices: np.take(x, indices.astype(np.int64), at["axis"]))(
    lambda at, x, known: gathered(at, x, known, at.axis(x))
)
rule("GatherElements")(lambda at, x, indices: gathered(at, x, indices, at.axis(x), elements=True))


rule("GatherND")(lambda at, x, indices: gathered_at(at, x, indices, at["batch_dims"] or 0))
rule("ScatterND")(
    lambda at, x, indices, updates: updated(at, x, updates, coordinates(at, x, indices))
)
rule("ScatterElements", "Scatter")(
    lambda at, x, indices, updates: updated(
        at, x, updates, element_places(at, indices.cast(I64), at.axis(x))
    )
)
SCATTERED = {
    None: None,
    "none": None,
    "add": "add",
    "mul": "mul",
    "max": "maximum",
    "min": "minimum",
}


def updated(at: At, x: Node, updates: Node, places: list[Node]) -> Node:
    combined = SCATTERED[at["reduction"]]
    y = scattered(at, x, updates, places, combined)
    if combined in ("maximum", "minimum") and x.element.kind == "float":
        at.rule_exactness = ORDERED
    return y


@rule("ArgMax", "ArgMin")
def extreme(at: At, x: Node) -> Known:
    axis = at.axis(x)
    indices = at.apply(f"builtin.{at.op.lower()}", x, axis=axis, last=bool(at["select_last_index"]))
    return indices.with_ones((axis,)) if at["keepdims"] else indices


@rule("TopK")
def top_k(at: At, x: Node, k: Array | None = None) -> Any:
    axis, count = at.axis(x), at["k"] if k is None else int(k.reshape(()))
    return largest(at, x, count, axis, at["largest"] != 0)


@rule("OneHot")
def one_hot_rule(at: At, indices: Node, depth: Array, values: Node) -> Known:
    return one_hot(at, indices, depth, values, at["axis"])


@rule("CumSum", "CumProd")
def cumulative(at: At, x: Node, axis: Array) -> Known:
    (along,) = real_axes((axis.reshape(()),), x.rank)
    flags = {name: bool(at[name]) for name in ("exclusive", "reverse")}
    return at.apply(
        "builtin.cumulative",
        x,
        axis=along,
        scalar_op={"CumSum": "add", "CumProd": "mul"}[at.op],
        **flags,
    )


@rule("Compress")
def compress(at: At, x: Node, condition: Array) -> Known:
    """By a condition that is a constant."""
    if at["axis"] is None:
        x = flat(at, x)
    return gathered(at, x, np.flatnonzero(condition), at.axis(x))


def flat(at: At, x: Node) -> Node:
    return reshaped(at, x, (product(x.shape),))


@rule("NonZero")
def non_zero(at: At, x: Array) -> Known:
    """NonZero of constants: the number of elements is part of the result's type."""
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@rule("Unique")
def unique(at: At, x: Array) -> Any:
    """Unique of constants: the number of elements is part of the result's type."""
    parts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=at["axis"]
    )
    values, first, inverse, counts = parts
    inverse = inverse.reshape(-1)
    if not at["sorted"]:
        order = np.argsort(first)
        values = np.take(values, order, at["axis"] or 0)
        inverse, first, counts = np.argsort(order)[inverse], first[order], counts[order]
    return [values, *(a.astype(np.int64) for a in (first, inverse, counts))]


@rule("TensorScatter")
def tensor_scatter(at: At, x: Node, updates: Node, starts: Node | None = None) -> Known:
    axis = at.axis(x)
    places = [at.apply("builtin.iota_like", updates, axis=j) for j in range(x.rank)]
    if starts is not None:
        places[axis] = places[axis] + starts.dimshuffle([0, *["x"] * (x.rank - 1)])
    if at["mode"] == "circular":
        places[axis] = places[axis].scalar(
            "mod", number(places[axis], *static(x, "a ring", (axis,)))
        )
    return at.apply("builtin.scatter", x, updates, *places, axes=tuple(range(x.rank)))


@rule("MaxUnpool")
def max_unpool(at: At, x: Node, indices: Node, shape: Array | None = None) -> Known:
    kernel, rank = at["kernel_shape"], x.rank - 2
    strides, pads = at["strides"] or [1] * rank, at["pads"] or [0] * 2 * rank
    sizes = static(x, "what is unpooled")
    spans = zip(sizes[2:], strides, pads[:rank], pads[rank:], kernel, strict=True)
    inferred = (*sizes[:2], *((n - 1) * s - before - after + k for n, s, before, after, k in spans))
    whole = inferred if shape is None else tuple(map(int, shape))
    zeros = at.node(filled((int(np.prod(inferred)),), np.zeros((), x.element.dtype)))
    y = at.apply("builtin.scatter", zeros, flat(at, x), flat(at, indices), axes=(0,))
    y = at.apply("cvm.reshape", y, target_shape=inferred)
    more = tuple(m - n for n, m in zip(inferred, whole, strict=True))
    return at.apply("builtin.pad", y, before=(0,) * x.rank, after=more) if any(more) else y


@rule("Col2Im")
def col2im(at: At, x: Node, image: Ints, block: Ints) -> Known:
    """Each element of the image is the sum of the elements of blocks that lie on it."""
    sizes, kernel = ([known_size(n, "an image") for n in given] for given in (image, block))
    rank = len(sizes)
    strides, dilations = (list(at[n] or [1] * rank) for n in ("strides", "dilations"))
    pads = list(at["pads"] or [0] * 2 * rank)
    given = (*sizes, *kernel, *strides, *dilations)
    if not len(kernel) == len(strides) == len(dilations) == len(pads) / 2 == rank > 0:
        raise ValueError(f"sizes {sizes}, blocks {kernel}, strides, dilations and pads differ")
    if min(given) < 1 or min(pads) < 0:
        raise ValueError(f"sizes {sizes} in blocks {kernel} of strides {strides}, pads {pads}")
    places, inside = np.zeros((1, 1), np.int64), np.ones((1, 1), np.int64)
    axes = zip(sizes, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    for n, k, stride, dilation, before, after in axes:
        count = (n + before + after - dilation * (k - 1) - 1) // stride + 1
        if count < 1:
            raise ValueError(f"blocks of {k} elements in {n}, strides {strides}, pads {pads}")
        numbers(places.size * k * count)
        at_axis = np.arange(k)[:, None] * dilation + np.arange(count) * stride - before
        spread = np.ones((k, count), np.int64)
        inside = np.kron(inside, spread) * np.tile((at_axis >= 0) & (at_axis < n), inside.shape)
        places = np.kron(places * n, spread) + np.tile(at_axis, places.shape)
    rows, columns = places.shape
    channels, count = static(x, "columns", (1, 2)) if x.rank == 3 else (-1, 0)
    if channels % rows or count != columns:
        raise ValueError(f"columns of shape {x.shape}, expected (N, C * {rows}, {columns})")
    if rank != 2 and max(dilations) > 1:
        at.rule_exactness = Exactness(bound="unlike onnxruntime, which misplaces dilated blocks")
    sources = np.flatnonzero(inside)
    sources = sources[np.argsort(places.reshape(-1)[sources], kind="stable")]
    on = places.reshape(-1)[sources]
    order = np.arange(on.size) - np.searchsorted(on, on)
    depth = int(order.max(initial=0)) + 1
    numbers(prod(sizes) * depth)
    table = np.full((prod(sizes), depth), rows * columns)  # the zero after the elements
    table[on, order] = sources
    flat = reshaped(at, x, (x.shape[0], channels // rows, rows * columns))
    flat = at.apply("builtin.pad", flat, before=(0, 0, 0), after=(0, 0, 1))
    parts = at.apply("builtin.gather", flat, table, axes=(2,), mode="clip")
    return at.apply("builtin.reshape", total(parts, (3,)), split=((-1,), (-1,), tuple(sizes)))
