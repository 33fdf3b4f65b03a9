"""Reads and writes at indices, and choices of elements, that several formats share."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import I1, I64

from .elementwise import where
from .importer import At
from .movement import part
from .rules import Array, Known, Unsupported, numbers, static


def gathered(at: At, x: Known, indices: Any, axis: int, elements: bool = False) -> Node:
    """Slices of a value along an axis; or an element for each index, the other axes going along."""
    x = at.node(x)
    if elements:
        return at.apply(
            "builtin.gather",
            x,
            *element_places(at, at.node(indices), axis),
            axes=tuple(range(x.rank)),
        )
    if not isinstance(indices, np.ndarray):
        return at.apply("builtin.gather", x, indices, axes=(axis,))
    n = x.shape[axis]
    if isinstance(
        n, int
    ):  # known indices are counted from the front, so that nothing is left to check
        if indices.size and not (indices.min() >= -n and indices.max() < n):
            raise ValueError(f"an index is outside of its axis, which has {n} elements")
        indices = np.where(indices < 0, indices + n, indices).astype(np.int64)
    return at.apply("builtin.gather", x, indices, axes=(axis,), mode="clip")


def element_places(at: At, indices: Node, axis: int) -> list[Node]:
    """The coordinates of an element for each index along an axis, the other axes going along."""
    return [
        indices if j == axis else at.apply("builtin.iota_like", indices, axis=j)
        for j in range(indices.rank)
    ]


def coordinates(at: At, x: Node, indices: Node, batch: int = 0) -> list[Node]:
    """The last axis of indices taken apart, after the places along the first axes."""
    count = static(indices, "the number of coordinates", (indices.rank - 1,))[0]
    if not 0 < batch + count <= x.rank:
        raise ValueError(f"{count} coordinates for {x.rank - batch} axes")
    last = indices.rank - 1
    parts = [part(at, indices, last, k, k + 1).dimshuffle(range(last)) for k in range(count)]
    return [at.apply("builtin.iota_like", parts[0], axis=j) for j in range(batch)] + [
        n.cast(I64) for n in parts
    ]


def gathered_at(at: At, x: Node, indices: Node, batch: int = 0) -> Node:
    """The elements or slices at coordinates, which are along the last axis of the indices."""
    places = coordinates(at, x, indices, batch)
    return at.apply("builtin.gather", x, *places, axes=tuple(range(len(places))))


def scattered(
    at: At, x: Node, updates: Node, places: list[Node], combined: str | None = None
) -> Node:
    """The value with updates at places, written or combined by a scalar operation."""
    if combined is not None and x.element is I1:
        raise Unsupported("a reduction of booleans")
    return at.apply(
        "builtin.scatter", x, updates, *places, axes=tuple(range(len(places))), scalar_op=combined
    )


def largest(at: At, x: Node, count: int, axis: int, descending: bool = True) -> tuple[Node, Node]:
    """The largest elements along an axis, or the smallest, and their places."""
    if isinstance(x.shape[axis], int) and count > x.shape[axis]:
        raise ValueError(f"{count} of {x.shape[axis]} elements are wanted")
    order = at.apply("builtin.argsort", x, axis=axis, descending=descending)
    first = part(at, order, axis, 0, count)
    return gathered(at, x, first, axis, elements=True), first


def one_hot(at: At, indices: Node, depth: Array, values: Node, axis: int) -> Node:
    """The second of two values at each index along a new axis, the first elsewhere."""
    count = int(depth.reshape(()))
    axis += indices.rank + 1 if axis < 0 else 0
    at_end = at.node(numbers(count)).dimshuffle(
        [0 if j == axis else "x" for j in range(indices.rank + 1)]
    )
    positions = indices.cast(I64).with_ones((axis,))
    positions = positions.scalar("lt", 0).scalar("switch", positions + count, positions)
    off, on = (gathered(at, values, np.array(k), 0) for k in (0, 1))
    return where(positions.scalar("eq", at_end), on, off)
