"""Operators of StableHLO that move elements, make them, or pass them on."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import Dim, Size
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, I1, ElementType
from cvm.importers.graph.elementwise import ufunc
from cvm.importers.graph.movement import at_step, cut, joined, reshaped as reshape, stacked
from cvm.importers.graph.rules import Because, Ints, Items, Known, Unsupported, static

from .importer import At, choose, rule, scalar_like, spread
from .text import array


@rule("constant", "chlo.constant")
def constant(at: At) -> np.ndarray:
    value = at.attribute("value")
    return value if isinstance(value, np.ndarray) else array(value, at.operation.result_types[0])


@rule("iota")
def iota(at: At) -> Node:
    return counted(at, at.type.shape, at.ints("iota_dimension", "dim")[0])


@rule("dynamic_iota")
def dynamic_iota(at: At, shape: Ints) -> Node:
    return counted(at, shape, at.ints("iota_dimension", "dim")[0])


def counted(at: At, shape: Sequence[Dim], axis: int) -> Node:
    at.demand(1, f"iota_dimension in [0, {len(shape)})", 0 <= axis < len(shape), axis)
    n, element = shape[axis], at.element
    if isinstance(n, int):
        row = at.node(np.arange(n).astype(element.dtype))
    else:
        row = at.apply("builtin.iota_like", at.like((n,)), axis=0).cast(element)
    return spread(at, row.dimshuffle([0 if a == axis else "x" for a in range(len(shape))]), shape)


@rule("broadcast_in_dim", "broadcast")
def broadcast_in_dim(at: At, x: Known) -> Known:
    stated = at.type.shape
    if isinstance(x, np.ndarray) and x.dtype == object:
        return x.reshape(stated)  # type: ignore[arg-type]
    if at.op == "broadcast":
        rank = len(at.ints("broadcast_sizes", "sizes"))
        return broadcasted(
            at,
            at.node(x),
            stated,
            range(rank, rank + x.ndim if isinstance(x, np.ndarray) else rank + x.rank),
        )
    return broadcasted(at, at.node(x), stated, at.ints("broadcast_dimensions", "dims"))


@rule("dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(at: At, x: Node, shape: Ints) -> Node:
    return broadcasted(at, x, shape, at.ints("broadcast_dimensions", "dims"))


def broadcasted(at: At, x: Node, shape: Sequence[Dim], dims: Sequence[int]) -> Node:
    if at.lift and not len(shape):
        return x
    at.demand(2, f"{x.rank} broadcast_dimensions", len(dims) == x.rank, len(dims))
    inside = all(0 <= d < len(shape) for d in dims)
    at.demand(3, f"broadcast_dimensions in [0, {len(shape)})", inside, [*dims])
    at.demand(4, "broadcast_dimensions that differ", len({*dims}) == len(dims), [*dims])
    for n, d in zip(x.shape, dims, strict=True):
        fits = not (isinstance(n, int) and isinstance(m := shape[d], int)) or n in (1, m)
        at.demand(5, f"1 or the size of dimension {d}, {shape[d]}", fits, n)
    y = x.dimshuffle([dims.index(d) if d in dims else "x" for d in range(len(shape))])
    return spread(at, y, shape)


@rule("reshape")
def reshaped(at: At, x: Known) -> Known:
    if isinstance(x, np.ndarray) and x.dtype == object:
        return x.reshape(at.type.shape)  # type: ignore[arg-type]
    return to_shape(at, at.node(x), at.type.shape)


@rule("dynamic_reshape", "chlo.dynamic_reshape")
def dynamic_reshape(at: At, x: Node, shape: Ints) -> Node:
    return to_shape(at, x, shape)


def to_shape(at: At, x: Node, shape: Sequence[Dim]) -> Node:
    if at.lift and not len(shape):
        return x
    known = [*x.shape, *shape]
    if not any(isinstance(n, Size) for n in known):
        sizes = [prod(n for n in s if isinstance(n, int)) for s in (x.shape, shape)]
        at.demand(
            2, f"as many elements as the operand's {sizes[0]}", sizes[0] == sizes[1], sizes[1]
        )
    return reshape(at, x, shape)


@rule("transpose")
def transpose(at: At, x: Node) -> Node:
    axes = at.ints("permutation", "dims")
    at.demand(2, f"a permutation of {x.rank} dimensions", sorted(axes) == [*range(x.rank)], [*axes])
    return x.dimshuffle(axes)


@rule("reverse")
def reverse(at: At, x: Node) -> Node:
    axes = at.ints("dimensions", "dims")
    at.demand(2, f"dimensions in [0, {x.rank}), each once", _distinct(axes, x.rank), [*axes])
    return flipped(x, axes)


def flipped(x: Node, axes: Sequence[int]) -> Node:
    if not axes or 0 in x.shape:
        return x
    sizes = static(x, "what is reversed")
    begin = tuple(n - 1 if a in axes else 0 for a, n in enumerate(sizes))
    end = tuple(-n - 1 if a in axes else n for a, n in enumerate(sizes))
    strides = tuple(-1 if a in axes else 1 for a in range(x.rank))
    return x.apply("cvm.slice", begin=begin, end=end, strides=strides)


def _distinct(axes: Sequence[int], rank: int) -> bool:
    return all(0 <= a < rank for a in axes) and len({*axes}) == len(axes)


@rule("slice")
def slices(at: At, x: Node) -> Node:
    if at.operation.lists:
        ranges = [(*r, 1) if len(r) == 2 else r for r in at.operation.lists[0]]
        begin, end, strides = zip(*ranges, strict=True) if ranges else ((), (), ())
    else:
        begin, end, strides = (at.ints(n) for n in ("start_indices", "limit_indices", "strides"))
    return part(at, x, begin, end, strides)


@rule("real_dynamic_slice")
def real_dynamic_slice(at: At, x: Node, begin: Ints, end: Ints, strides: Ints) -> Node:
    return part(at, x, begin, end, strides)


def part(at: At, x: Node, begin: Sequence[Any], end: Sequence[Any], strides: Sequence[Any]) -> Node:
    at.demand(
        2,
        f"{x.rank} of each",
        len(begin) == len(end) == len(strides) == x.rank,
        f"{len(begin)}, {len(end)} and {len(strides)}",
    )
    if any(isinstance(n, Size) for n in (*begin, *end, *strides)):
        raise Unsupported("a slice of unknown size")
    for n, b, e in zip(x.shape, begin, end, strict=True):
        inside = 0 <= b <= e and not (isinstance(n, int) and e > n)
        at.demand(3, f"0 <= start_indices <= limit_indices <= {n}", inside, f"{b} and {e}")
    at.demand(4, "0 < strides", all(s > 0 for s in strides), [*strides])
    return cut(at, x, begin, end, strides) if x.rank else x


@rule("concatenate")
def concatenate(at: At, *xs: Known) -> Known:
    (axis,) = at.ints("dimension", "dim")
    if any(isinstance(x, np.ndarray) and x.dtype == object for x in xs) and all(
        isinstance(x, np.ndarray) for x in xs
    ):
        return np.concatenate([x.astype(object) for x in xs])  # type: ignore[union-attr]
    nodes = [at.node(x) for x in xs]
    at.demand(3, "operands", bool(nodes), "none")
    at.demand(4, f"dimension in [0, {nodes[0].rank})", 0 <= axis < nodes[0].rank, axis)
    return joined(at, nodes, axis)


@rule("pad")
def pad(at: At, x: Node, value: Node) -> Node:
    low = at.ints("edge_padding_low", "low")
    high = at.ints("edge_padding_high", "high")
    return padded(at, x, value, low, high, at.ints("interior_padding", "interior"))


@rule("dynamic_pad")
def dynamic_pad(at: At, x: Node, value: Node, low: Ints, high: Ints, interior: Ints) -> Node:
    if any(isinstance(n, Size) for n in (*low, *high, *interior)):
        raise Unsupported("a border of unknown size")
    return padded(at, x, value, low, high, interior)  # type: ignore[arg-type]


def padded(
    at: At, x: Node, value: Node, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> Node:
    """The elements with a value around and between them; fewer elements where a number is
    negative.
    """
    at.demand(
        2,
        f"{x.rank} of each",
        len(low) == len(high) == len(interior) == x.rank,
        f"{len(low)}, {len(high)} and {len(interior)}",
    )
    at.demand(3, "0 <= interior_padding", min(interior, default=0) >= 0, [*interior])
    if not any((*low, *high, *interior)):
        return x
    found = [x]
    constant = at.importer.builder.constants.get(value.value)
    zero = constant is not None and not constant.tobytes().strip(b"\0")
    if not zero:
        found.append(spread(at, at.node(np.array(True)), x.shape))  # where elements are
    for k, y in enumerate(found):
        if any(interior) and 0 not in y.shape:
            sizes = static(y, "what is padded between its elements")
            wide = [n + (n - 1) * i for n, i in zip(sizes, interior, strict=True)]
            y = y.apply(
                "builtin.strided_scatter_like",
                at.like(wide),
                axes=tuple(range(y.rank)),
                strides=tuple(i + 1 for i in interior),
            )
        found[k] = y.apply("builtin.pad", before=tuple(low), after=tuple(high))
    return found[0] if zero else choose(found[1], found[0], value)


@rule("bitcast_convert")
def bitcast_convert(at: At, x: Node) -> Node:
    return bits_as(at, x, at.element)


def bits_as(at: At, x: Node, to: ElementType) -> Node:
    """The bits of elements as those of another type; what has fewer is along a new last axis, the
    lowest first.
    """
    at.demand(
        2,
        "two complex types, or none",
        (x.element.kind == "complex") == (to.kind == "complex"),
        f"{x.element} and {to}",
    )
    if x.element is to:
        return x
    width, bits = (1 if e is I1 else e.dtype.itemsize * 8 for e in (x.element, to))
    if width < bits and x.shape[-1:] != (bits // width,):
        at.demand(1, f"a last dimension of {bits // width}", False, [*x.shape])
    if to.kind == "complex":  # the bits of both parts one after the other
        parts = stacked(at, [x.scalar("real"), x.scalar("imag")], x.rank)
        pair = bits_as(at, parts, ELEMENT_TYPES[f"f{bits // 2}"])
        real, imaginary = (at_step(at, pair, pair.rank - 1, k) for k in range(2))
        return real.scalar("complex", imaginary)
    if width == bits:
        return x.apply("builtin.bitcast", dtype=to)
    word = x if x.element is I1 else unsigned_bits(x, width)
    element = ELEMENT_TYPES[f"ui{max(width, bits)}"]
    places = at.node(
        np.arange(max(width, bits) // min(width, bits)).astype(element.dtype) * min(width, bits)
    )
    if width < bits:
        terms = ufunc("left_shift", word.cast(element), places)
        return unsigned_bits(terms.sum((x.rank - 1,), dtype=element, acc_dtype=element), bits, to)
    shifted = ufunc("right_shift", word.with_ones((x.rank,)), places)
    if to is I1:
        return ufunc(
            "not_equal",
            ufunc("bitwise_and", shifted, scalar_like(shifted, 1)),
            scalar_like(shifted, 0),
        )
    return unsigned_bits(shifted.cast(ELEMENT_TYPES[f"ui{bits}"]), bits, to)


def unsigned_bits(x: Node, bits: int, to: ElementType | None = None) -> Node:
    """The bits of numbers as unsigned integers, or as another type of this width."""
    to = to or ELEMENT_TYPES[f"ui{bits}"]
    return x if x.element is to else x.apply("builtin.bitcast", dtype=to)


@rule("get_dimension_size")
def get_dimension_size(at: At, x: Node) -> np.ndarray:
    (axis,) = at.ints("dimension", "dim")
    at.demand(1, f"dimension in [0, {x.rank})", 0 <= axis < x.rank, axis)
    n = x.shape[axis]
    return np.array(n, at.element.dtype if isinstance(n, int) else object)


@rule("tuple")
def tuple_(at: At, *known: Known) -> Items:
    return Items(known)


@rule("get_tuple_element")
def get_tuple_element(at: At, items: Items) -> Any:
    index = at.operation.lists[0][0] if at.operation.lists else at.ints("index")[0]
    at.demand(1, f"index in [0, {len(items)})", 0 <= index < len(items), index)
    return [items[index]]


@rule("optimization_barrier")
def optimization_barrier(at: At, *known: Known) -> list[Known]:
    return [*known]


@rule("func.call", "call")
def call(at: At, *known: Known) -> list[Any]:
    words = [*at.operation.words, str(at.attribute("callee", default=""))]
    return at.called(next(w for w in words if w.startswith("@")), known)


@rule("composite")
def composite(at: At, *known: Known) -> list[Any]:
    """The function that it is composed of, inlined."""
    return at.called(str(at.attribute("decomposition")), known)


# calls of XLA whose result is their operand on one device
PASSED = {
    "@Sharding",
    "@SPMDFullToShardShape",
    "@SPMDShardToFullShape",
    "@annotate_device_placement",
}


@rule("custom_call")
def custom_call(at: At, *known: Known) -> list[Known]:
    words = [
        *at.operation.words,
        "@" + str(at.attribute("call_target_name", default="")).removeprefix("@"),
    ]
    name = next(w for w in words if w.startswith("@"))
    if name == "@shape_assertion":  # sizes are checked by the program itself
        return []
    if name in PASSED and len(known) == 1:
        return [*known]
    raise Because(f"nothing is known of {name}")
