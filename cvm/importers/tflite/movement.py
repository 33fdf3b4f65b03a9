"""Operators that move elements, and those that compute shapes and indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import I32
from cvm.importers.exactness import EXACT, Exactness
from cvm.importers.graph import movement as moves
from cvm.importers.graph.indexing import (
    coordinates,
    gathered,
    gathered_at,
    largest,
    one_hot as one_hot_of,
    scattered,
)
from cvm.importers.graph.resize import Sampling, resample, stretches
from cvm.importers.graph.rules import Array, known_size, numbers, real_axes, static

from .arithmetic import activated
from .quantization import at_i32, rescaled
from .rules import FINITE, ROUNDED, At, Ints, Known, Unsupported, rule, same_scale
from .schema import ELEMENTS, TYPES


def place(axis: int, rank: int) -> int:
    return real_axes((axis,), rank)[0]


ONE_OF_OURS: dict[str, Callable[..., Any]] = {
    "BROADCAST_TO": lambda at, x, shape: moves.broadcast(at, x, shape),
    "FILL": lambda at, shape, value: moves.broadcast(at, value, shape),
    "PACK": lambda at, *xs: moves.stacked(at, xs, place(at["axis"], xs[0].rank + 1)),
    "RANK": lambda at, x: np.array(x.rank, np.int32),
    "RESHAPE": lambda at, x, shape=None: moves.reshaped(
        at, x, at["new_shape"].tolist() if shape is None else shape
    ),
    "SHAPE": lambda at, x: np.array(static(x, "a shape"), ELEMENTS[TYPES[at["out_type"]]].dtype),
    "SQUEEZE": lambda at, x: at.apply("cvm.squeeze", x, axes=real_axes(at["squeeze_dims"], x.rank)),
    "TRANSPOSE": lambda at, x, axes: x.dimshuffle(real_axes(axes, x.rank)),
    "ZEROS_LIKE": lambda at, x: moves.filled(static(x, "zeros"), np.zeros((), x.element.dtype)),
}
for name, function in ONE_OF_OURS.items():
    rule(name)(function)
rule("GATHER_ND")(lambda at, x, indices: gathered_at(at, x, indices))


@rule("DENSIFY")
def densify(at: At, x: Array) -> Known:
    """Put its elements in their places as the file is read."""
    return x


@rule("EXPAND_DIMS")
def expand_dims(at: At, x: Node, axes: Array) -> Known:
    inserted = axes.reshape(-1).tolist()
    return x.with_ones(sorted(real_axes(inserted, x.rank + len(inserted))))


@rule("RANGE")
def range_(at: At, start: Array, limit: Array, delta: Array) -> Known:
    return moves.counted(start, limit, delta)


@rule("TILE")
def tile(at: At, x: Node, repeats: Ints) -> Known:
    return moves.repeated(at, x, repeats)


@rule("CUMSUM", floats=ROUNDED)
def cumulative_sum(at: At, x: Node, axis: Array) -> Known:
    flags = {name: bool(at[name]) for name in ("exclusive", "reverse")}
    along = place(axis.reshape(()).item(), x.rank)
    return at.apply("builtin.cumulative", x, axis=along, scalar_op="add", **flags)


SEVERAL = Exactness("its ui8 numbers have one scale", "within 1")


@rule("CONCATENATION", exact=SEVERAL)
def concatenate(at: At, *xs: Node) -> Known:
    """Rescale operands of other scales."""
    quantised = at.y.is_quantised
    parts = [rescaled(at, x, at.input(n), at.y) if quantised else x for n, x in enumerate(xs)]
    at.rule_exactness = (
        EXACT if xs == tuple(parts) or at.y.type != "UINT8" else Exactness(bound=SEVERAL.bound)
    )
    y = moves.joined(at, parts, place(at["axis"], parts[0].rank))
    return y if quantised else activated(at, y)


@rule("UNPACK")
def unpack(at: At, x: Node) -> Any:
    axis = place(at["axis"], x.rank)
    return [moves.at_step(at, x, axis, k) for k in range(static(x, "what is unpacked", (axis,))[0])]


@rule("SPLIT")
def split(at: At, axis: Array, x: Node) -> Any:
    along, count = place(axis.item(), x.rank), at["num_splits"]
    (n,) = static(x, "what is split", (along,))
    if count < 1 or n % count:
        raise ValueError(f"{n} elements in {count} parts")
    return moves.pieces(at, x, along, [n // count] * count)


@rule("SPLIT_V")
def split_v(at: At, x: Node, sizes: Ints, axis: Array) -> Any:
    along = place(axis.item(), x.rank)
    remainder = static(x, "what is split", (along,))[0] - sum(n for n in sizes if n >= 0)
    return moves.pieces(at, x, along, [remainder if n < 0 else n for n in sizes])


@rule("SLICE")
def slice_(at: At, x: Node, begin: Ints, size: Ints) -> Known:
    end = [moves.FAR if n == -1 else b + n for b, n in zip(begin, size, strict=True)]
    return moves.cut(at, x, begin, end, [1] * x.rank)


@rule("STRIDED_SLICE")
def strided_slice(at: At, x: Node, begin: Ints, end: Ints, strides: Ints) -> Known:
    if at["offset"]:
        raise Unsupported("an end that is an offset")

    def masked(n: int, name: str) -> bool:
        return bool(at[f"{name}_mask"] >> n & 1)

    cuts: list[tuple[int, int, int]] = []
    shape: list[int | str] = []
    for n, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        axis = len(cuts)
        if masked(n, "ellipsis"):
            span = x.rank - axis - sum(not masked(m, "new_axis") for m in range(n + 1, len(begin)))
            shape += range(axis, axis + span)
            cuts += [(0, moves.FAR, 1)] * span
        elif masked(n, "new_axis"):
            shape.append("x")
        else:
            size = known_size(x.shape[axis], "an axis that is sliced")
            if masked(n, "shrink_axis"):
                first += size if first < 0 else 0
                cuts.append((first, first + 1, 1))
            else:
                shape.append(axis)
                ends = None if masked(n, "begin") else first, None if masked(n, "end") else last
                start, stop, _ = slice(*ends, step).indices(size)
                cuts.append(
                    (start if start >= 0 else -moves.FAR, stop if stop >= 0 else -moves.FAR, step)
                )
    trailing = range(len(cuts), x.rank)
    cuts += [(0, moves.FAR, 1)] * len(trailing)
    return moves.cut(at, x, *zip(*cuts, strict=True)).dimshuffle([*shape, *trailing])


@rule("PAD", "PADV2")
def pad(at: At, x: Node, pads: Array, value: Node | None = None) -> Known:
    """With the number that stands for zero."""
    same_scale(at)
    before, after = pads.T.tolist()
    if value is not None and value.rank:
        value = at.apply("cvm.squeeze", value)
    return moves.with_border(at, x, before, after, zero(at, x) if value is None else value)


def zero(at: At, x: Node) -> Node:
    return at.node(np.array(at.y.zero_point if at.y.is_quantised else 0, x.element.dtype))


@rule("MIRROR_PAD")
def mirror_pad(at: At, x: Node, pads: Array) -> Known:
    edge = at["mode"]  # 1 is SYMMETRIC, which repeats the element at the edge
    for axis, sides in enumerate(pads.tolist()):
        if any(sides) and not all(
            0 <= s < static(x, "an axis with a border", (axis,))[0] + edge for s in sides
        ):
            raise ValueError(f"a border of {sides} of {x.shape[axis]} elements")
    before, after = pads.T.tolist()
    return moves.bordered(at, x, before, after, "symmetric" if edge else "reflect")


@rule("GATHER")
def gather(at: At, x: Node, indices: Known) -> Known:
    if at["batch_dims"]:
        raise Unsupported("batch_dims")
    return gathered(at, x, indices, place(at["axis"], x.rank))


@rule("SCATTER_ND", floats=ROUNDED)
def scatter_nd(at: At, indices: Node, updates: Node, shape: Ints) -> Known:
    zeros = at.node(moves.filled(shape, np.zeros((), updates.element.dtype)))
    return scattered(at, zeros, updates, coordinates(at, zeros, indices), "add")


@rule("ARG_MAX", "ARG_MIN", floats=FINITE)
def extreme(at: At, x: Node, axis: Array) -> Known:
    return at.apply(
        f"builtin.{at.op.lower().replace('_', '')}", x, axis=place(axis.item(), x.rank)
    ).cast(at.y.element)


@rule("TOPK_V2", floats=FINITE)
def top_k(at: At, x: Node, k: Array) -> Any:
    values, places = largest(at, x, int(k.reshape(())), place(-1, x.rank))
    return [values, places.cast(at.outputs[1].element)]


@rule("REVERSE_V2")
def reverse(at: At, x: Node, axes: Ints) -> Known:
    back = real_axes(axes, x.rank)
    bounds = (
        [(-1, -moves.FAR, -1)[k] if j in back else (0, moves.FAR, 1)[k] for j in range(x.rank)]
        for k in range(3)
    )
    return moves.cut(at, x, *bounds)


@rule("ONE_HOT")
def one_hot(at: At, indices: Node, depth: Array, on: Node, off: Node) -> Known:
    values = at.apply("cvm.concatenate", off.dimshuffle(["x"]), on.dimshuffle(["x"]), axis=0)
    return one_hot_of(at, indices, depth, values, at["axis"])


@rule("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def blocks(at: At, x: Node) -> Known:
    n, h, w, c = static(x, "blocks")
    b, deeper = at["block_size"], at.op == "SPACE_TO_DEPTH"
    if b < 1 or (h % b or w % b if deeper else c % (b * b)):
        raise ValueError(f"blocks of {b} in {(h, w, c)}")
    split = (n, h // b, b, w // b, b, c) if deeper else (n, h, w, b, b, c // (b * b))
    to = (n, h // b, w // b, c * b * b) if deeper else (n, h * b, w * b, c // (b * b))
    return rearranged(at, x, split, (0, 1, 3, 2, 4, 5), to)


def rearranged(
    at: At, x: Node, split: Sequence[int], order: Sequence[int], to: Sequence[int]
) -> Node:
    parts = at.apply("cvm.reshape", x, target_shape=tuple(split)).dimshuffle(order)
    return at.apply("cvm.reshape", parts, target_shape=tuple(to))


@rule("SPACE_TO_BATCH_ND")
def space_to_batch(at: At, x: Node, block: Ints, pads: Array) -> Known:
    k = len(block)
    before, after = np.pad(pads, ((1, x.rank - 1 - k), (0, 0))).T.tolist()
    x = moves.with_border(at, x, before, after, zero(at, x))
    batch, *shape = static(x, "blocks")
    counts, trailing = [d // b for d, b in zip(shape, block, strict=False)], shape[k:]
    split = [batch, *chain(*zip(counts, block, strict=True)), *trailing]
    order = [*range(2, 2 * k + 1, 2), 0, *range(1, 2 * k, 2), *range(2 * k + 1, len(split))]
    return rearranged(at, x, split, order, (batch * math.prod(block), *counts, *trailing))


@rule("BATCH_TO_SPACE_ND")
def batch_to_space(at: At, x: Node, block: Ints, crops: Array) -> Known:
    batch, *shape = static(x, "blocks")
    k, images = len(block), batch // math.prod(block)
    order = [k, *chain(*((k + 1 + j, j) for j in range(k))), *range(2 * k + 1, k + 1 + len(shape))]
    to = (images, *(d * b for d, b in zip(shape, block, strict=False)), *shape[k:])
    whole = rearranged(at, x, (*block, images, *shape), order, to)
    before, after = np.pad(crops, ((1, x.rank - 1 - k), (0, 0))).T.tolist()
    return moves.cut(
        at, whole, before, [n - a for n, a in zip(to, after, strict=True)], [1] * x.rank
    )


# Resizing


def resizes(at: At, x: Node, size: Sequence[int]) -> Iterator[tuple[int, int, int, int, int]]:
    """Rows and columns: the axis, its sizes before and after, and two of which the quotient is the
    scale.
    """
    for axis, n, m in zip((1, 2), static(x, "an axis that is resized", (1, 2)), size, strict=True):
        corners = at["align_corners"] and m > 1
        yield axis, n, m, n - corners, m - corners


@rule("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(at: At, x: Node, size: Ints) -> Known:
    for axis, n, m, over, under in resizes(at, x, size):
        places = numbers(m).astype(np.float32) + np.float32(0.5 * at["half_pixel_centers"])
        places = places * (np.float32(over) / np.float32(under))
        places = np.floor(places + np.float32(0.5)) if at["align_corners"] else np.floor(places)
        x = along(at, x, np.clip(places.astype(np.int64), 0, n - 1), axis)
    return x


def along(at: At, x: Node, places: np.ndarray, axis: int) -> Node:
    return at.apply("builtin.gather", x, at.node(places), axes=(axis,), mode="clip")


@rule("RESIZE_BILINEAR", floats=ROUNDED)
def resize_bilinear(at: At, x: Node, size: Ints) -> Known:
    """Weigh quantized numbers with 10 bits."""
    if not at.x.is_quantised:
        mode = (
            "align_corners"
            if at["align_corners"]
            else "half_pixel"
            if at["half_pixel_centers"]
            else "asymmetric"
        )
        sizes = (x.shape[0], *size, x.shape[3])
        factors = stretches(x.shape, sizes)
        return resample(at, x, range(4), sizes, factors, Sampling("linear", mode, ""))
    unit = 1 << 10
    parts = [x.cast(I32)]
    for axis, n, m, over, under in resizes(at, x, size):
        scale = (unit * over + under // 2) // under
        places = numbers(m) * scale + (scale // 2 - unit // 2 if at["half_pixel_centers"] else 0)
        low = np.maximum(np.where(places < 0, -(-places // unit), places // unit), 0)
        high = np.minimum(np.where(places + unit - 1 < 0, 0, (places + unit - 1) // unit), n - 1)
        weight = places - unit * low
        order = ["x" if j != axis else 0 for j in range(4)]
        parts = [
            along(at, part, place, axis) * at.node(w.astype(np.int32)).dimshuffle(order)
            for part in parts
            for place, w in ((low, unit - weight), (high, weight))
        ]
    total = parts[0] + parts[1] + parts[2] + parts[3]
    half, whole = (at_i32(total, v) for v in (1 << 19, 1 << 20))
    nudged = total.scalar("gt", at_i32(total, 0)).scalar("switch", total + half, total - half)
    return at.apply("dali.div", nudged, whole).cast(x.element)
