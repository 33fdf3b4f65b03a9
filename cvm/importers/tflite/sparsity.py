"""Sparse constants of .tflite files, whose elements are put in their places as the file is read.

A tensor of sparse storage is a tree, a level for each axis in an order of its own. A dense level
has all places of its axis, a compressed one those that it lists below each node of the level
before. An axis may be cut into blocks, which are further levels.
"""

import numpy as np

from cvm.dialect.support.limits import LIMITS, excess
from cvm.importers.flatbuffer import Damaged, Table, options

from .schema import SCHEMA

# of numbers, by their place in a union
VECTORS = ("", "Int32Vector", "Uint16Vector", "Uint8Vector")


def in_place(sparsity: Table, shape: tuple[int, ...], elements: np.ndarray) -> np.ndarray:
    """The array of this shape in which elements that were stored are at their places, and zeros
    elsewhere.

    Raises:
        Damaged: The storage does not describe an array of this shape and number of elements.
    """
    order, blocks, levels = sparsity.traversal_order, sparsity.block_map, sparsity.dim_metadata
    rank, count = len(shape), int(np.prod(shape, dtype=object))
    if (bytes := count * elements.itemsize) > (limits := LIMITS.get()).constant_bytes:
        raise Damaged(excess("constant_bytes", bytes, limits))
    axes = [*range(rank), *(int(n) for n in blocks)]
    if sorted(order) != [*range(len(axes))] or len(levels) != len(axes) or max(axes) >= rank:
        raise Damaged(f"a sparse tensor of shape {shape} has {len(levels)} levels of {len(order)}")
    sizes, steps = [*shape, *(0 for _ in blocks)], [count // max(count, 1)] * len(axes)
    for axis in reversed(range(rank - 1)):
        steps[axis] = steps[axis + 1] * shape[axis + 1]
    for n, level in zip(order, levels, strict=True):
        if n >= rank and level.dense_size > 0 and not sizes[axes[n]] % level.dense_size:
            steps[n], sizes[n] = steps[axes[n]], level.dense_size
            sizes[axes[n]] //= level.dense_size
            steps[axes[n]] *= level.dense_size
    at = np.zeros(1, np.int64)
    for n, level in zip(order, levels, strict=True):
        if not level.format:
            repeats, places = np.full(len(at), sizes[n]), np.arange(sizes[n])
            if level.dense_size != sizes[n] or len(at) * sizes[n] > count:
                raise Damaged(f"a sparse tensor of shape {shape} has {level.dense_size} places")
            places = np.tile(places, len(at))
        else:
            ends, places = (
                options(of, VECTORS[kind], SCHEMA).values.astype(np.int64)
                if 0 < kind < len(VECTORS)
                else np.zeros(0, np.int64)
                for of, kind in (
                    (level.array_segments, level.array_segments_type),
                    (level.array_indices, level.array_indices_type),
                )
            )
            repeats = np.diff(ends)
            if (
                len(repeats) != len(at)
                or (repeats < 0).any()
                or (ends[0], ends[-1]) != (0, len(places))
                or not ((places >= 0) & (places < sizes[n])).all()
            ):
                raise Damaged(f"a sparse tensor of shape {shape} lists places beyond it")
        at = np.repeat(at, repeats) + places * steps[n]
    if at.shape != elements.shape:
        raise Damaged(f"a sparse tensor of {len(at)} elements has {elements.size}")
    array = np.zeros(count, elements.dtype)
    array[at] = elements
    return array.reshape(shape)
