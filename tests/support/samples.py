"""Random valid operators over arrays, a generator for each: shapes, attributes and values that its
constraints admit.

`SAMPLES[name](random)` gives an operator of that name over arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cvm.dialect.cvm import (
    elementwise,
    nn,
    reduce,
    reshape,
    slice,
    take_where,
    transpose_tile_concatenate,
    vision,
)
from cvm.dialect.spec.operator import OPERATORS, Operator

Sample = Callable[[np.random.Generator], Operator[np.ndarray]]
SAMPLES: dict[str, Sample] = {}


def sample(
    *classes: type[Operator[Any]],
) -> Callable[[Callable[..., Operator[np.ndarray]]], Sample]:
    """Enters a generator of (random, class) for each of the operators."""

    def enter(generate: Callable[..., Operator[np.ndarray]]) -> Sample:
        for cls in classes:
            SAMPLES[cls.name] = lambda random, cls=cls: generate(random, cls)
        return generate

    return enter


EDGES = np.array([0, 1, -1, 2, -2, 127, -128, 2**31 - 1, -(2**31), 2**30, -(2**31) + 1], np.int32)


def shape(random: np.random.Generator, rank: int | None = None, most: int = 4) -> tuple[int, ...]:
    """A small shape; now and then a size of it is 0."""
    rank = int(random.integers(0, 5)) if rank is None else rank
    least = 0 if random.random() < 0.1 else 1
    return tuple(int(n) for n in random.integers(least, most + 1, rank))


def i32s(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Elements of all magnitudes, the edges of the type among them."""
    magnitude = random.integers(0, 32, shape)
    values = np.right_shift(random.integers(-(2**31), 2**31, shape), magnitude)
    return np.where(random.random(shape) < 0.15, random.choice(EDGES, shape), values).astype(
        np.int32
    )


def flag(random: np.random.Generator) -> bool:
    return bool(random.random() < 0.5)


def between(random: np.random.Generator, low: int, high: int) -> int:
    """An integer in [low, high]."""
    return int(random.integers(low, high + 1))


# reduce


@sample(reduce.Sum, reduce.Max)
def reduction(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    rank = between(random, 0, 4)
    n = shape(random, rank) if cls is reduce.Sum else tuple(map(int, random.integers(1, 5, rank)))
    chosen = random.permutation(rank)[: between(random, 0, rank)]
    axes = tuple(int(j) - rank * flag(random) for j in chosen)
    return cls(i32s(random, n), axes, keepdims=flag(random), exclude=flag(random))


# broadcast


@sample(*(OPERATORS[f"cvm.broadcast_{n}"] for n in ("add", "sub", "mul", "div", "max", "greater")))
def broadcasting(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random)

    def operand() -> np.ndarray:
        kept = n[between(random, 0, len(n)) if flag(random) else 0 :]
        return i32s(random, tuple(1 if random.random() < 0.3 else d for d in kept))

    return cls(operand(), operand())


# elementwise


@sample(OPERATORS["cvm.abs"], elementwise.CvmPrecision, OPERATORS["cvm.negative"], nn.Relu)
def unary(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    return cls(i32s(random, shape(random)))


@sample(OPERATORS["cvm.elemwise_add"], OPERATORS["cvm.elemwise_sub"])
def binary(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random)
    return cls(i32s(random, n), i32s(random, n))


@sample(elementwise.Clip)
def clip(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    a_min, a_max = sorted({max(int(v), -(2**31) + 1) for v in i32s(random, (8,))} | {0, 1})[:2]
    return cls(i32s(random, shape(random)), a_min, a_max)


@sample(elementwise.CvmClip)
def cvm_clip(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    return cls(i32s(random, shape(random)), between(random, 1, 32))


@sample(elementwise.CvmRightShift, elementwise.CvmLeftShift)
def shift(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    x = i32s(random, shape(random))
    return cls(x, between(random, 1, 32), random.choice([1, 31, 32, between(random, 1, 32)]).item())


# nn


def pair(random: np.random.Generator, low: int, high: int) -> tuple[int, int]:
    return between(random, low, high), between(random, low, high)


@sample(nn.Conv2d)
def conv2d(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    groups, ic, opg = (between(random, 1, 2) for _ in range(3))
    padding, stride, dilation, kernel = (
        pair(random, 0, 2),
        pair(random, 1, 3),
        pair(random, 1, 2),
        pair(random, 1, 3),
    )
    least = (
        max(d * (k - 1) + 1 - 2 * p, 1) for d, k, p in zip(dilation, kernel, padding, strict=True)
    )
    rows, columns = (n + between(random, 0, 3) for n in least)
    x = i32s(random, (between(random, 1, 2), ic * groups, rows, columns))
    w = i32s(random, (opg * groups, ic, *kernel))
    b = i32s(random, (opg * groups,)) if flag(random) else None
    return cls(x, w, b, padding, stride, dilation, groups)


@sample(nn.Dense)
def dense(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    m, n, k = shape(random, 3)
    return cls(
        i32s(random, (m, k)), i32s(random, (n, k)), i32s(random, (n,)) if flag(random) else None
    )


@sample(nn.MaxPool2d)
def max_pool2d(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    padding = pair(random, 0, 2) if flag(random) else between(random, 0, 2)
    pads = (padding, padding) if isinstance(padding, int) else padding
    pool_size = tuple(between(random, p + 1, p + 3) for p in pads)
    least = (max(s - 2 * p, 1) for s, p in zip(pool_size, pads, strict=True))
    rows, columns = (n + between(random, 0, 3) for n in least)
    x = i32s(random, (*shape(random, 2, 2), rows, columns))
    return cls(x, pool_size, padding, pair(random, 1, 4), flag(random))


@sample(nn.Upsampling)
def upsampling(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    return cls(i32s(random, shape(random, 4, 3)), between(random, 1, 3))


# transform, views


def positive(
    random: np.random.Generator, rank: int | None = None, most: int = 4
) -> tuple[int, ...]:
    """A small shape without zeros."""
    return tuple(max(1, n) for n in shape(random, rank, most))


def axes_among(random: np.random.Generator, candidates: list[int], rank: int) -> tuple[int, ...]:
    """One or more of the axes in any order, counted from either end."""
    count = between(random, 1, len(candidates))
    return tuple(int(j) - rank * flag(random) for j in random.permutation(candidates)[:count])


@sample(transpose_tile_concatenate.Repeat)
def repeat(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random, between(random, 1, 4))
    return cls(i32s(random, n), between(random, 0, len(n) - 1), between(random, 1, 3))


@sample(transpose_tile_concatenate.Tile)
def tile(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    return cls(
        i32s(random, shape(random, most=3)),
        tuple(random.integers(1, 4, between(random, 1, 3)).tolist()),
    )


@sample(transpose_tile_concatenate.Concatenate)
def concatenate(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random, between(random, 1, 4))
    axis = between(random, 0, len(n) - 1)
    along = random.integers(0, 4, between(random, 1, 6)).tolist()
    return cls(tuple(i32s(random, (*n[:axis], a, *n[axis + 1 :])) for a in along), axis)


@sample(transpose_tile_concatenate.Transpose)
def transpose(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random)
    axes = tuple(int(j) - len(n) * flag(random) for j in random.permutation(len(n)))
    return cls(i32s(random, n), axes if flag(random) else ())


@sample(reshape.Flatten)
def flatten(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    return cls(i32s(random, shape(random)))


@sample(reshape.ExpandDims)
def expand_dims(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random)
    return cls(i32s(random, n), between(random, -len(n) - 1, len(n)), between(random, 0, 3))


@sample(reshape.Reshape)
def reshaped(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    factors = random.choice([1, 2, 3], between(random, 0, 5)).tolist()

    def grouped() -> list[int]:
        """The factors multiplied in runs, with a 1 here and there."""
        cuts = sorted(between(random, 0, len(factors)) for _ in range(between(random, 0, 3)))
        return [
            int(np.prod(factors[a:b]))
            for a, b in zip([0, *cuts], [*cuts, len(factors)], strict=True)
        ]

    n = grouped()
    random.shuffle(factors)
    m = grouped()
    if flag(random):
        m[between(random, 0, len(m) - 1)] = -1
    return cls(i32s(random, tuple(n)), tuple(m))


@sample(reshape.Squeeze)
def squeeze(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = tuple(1 if random.random() < 0.4 else d for d in shape(random))
    ones = [j for j, d in enumerate(n) if d == 1]
    return cls(i32s(random, n), axes_among(random, ones, len(n)) if ones else ())


# slice


@sample(slice.Slice)
def slicing(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = positive(random, between(random, 0, 3))
    while True:
        begin, end, strides = (list[int](), list[int](), list[int]())
        for d in n:
            begin.append(between(random, -d - 2, d + 2) if flag(random) else between(random, -d, d))
            end.append(
                between(random, -d - 2, d + 2)
                if random.random() < 0.9
                else int(random.choice([-1, 1])) * 10**20
            )
            strides.append(int(random.choice([-3, -2, -1, 1, 2, 3])))
        for given in (begin, end, strides):
            del given[between(random, 0, 2 * len(n)) :]
        if all(selected(d, begin[j:], end[j:], strides[j:]) for j, d in enumerate(n)):
            return cls(i32s(random, n), tuple(begin), tuple(end), tuple(strides))


def selected(n: int, begin: list[int], end: list[int], strides: list[int]) -> range:
    """The elements of n that the first entries of begin, end and strides select."""
    stride = strides[0] if strides else 1
    low, high = (0, n) if stride > 0 else (-1, n - 1)
    given = (begin[0] if begin else 0, end[0] if end else n)
    first, stop = (min(max(v + n if v < 0 else v, low), high) for v in given)
    return range(first, stop, stride)


@sample(slice.SliceLike)
def slice_like(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random)
    m = tuple(between(random, 0 if d == 0 or flag(random) else 1, d) for d in n)
    if n and flag(random):
        axes = axes_among(random, list(range(len(n))), len(n))
        reached = max(j % len(n) for j in axes) + 1
        kept = m[: between(random, reached, len(n))]
        named = {j % len(n) for j in axes}
        like = (
            *(d if j in named else between(random, 0, 5) for j, d in enumerate(kept)),
            *shape(random, 1 if flag(random) else 0),
        )
        return cls(i32s(random, n), i32s(random, like), axes)
    return cls(i32s(random, n), i32s(random, m))


# select


def positions(random: np.random.Generator, n: int, shape: tuple[int, ...]) -> np.ndarray:
    """Indices into n elements, some of them outside."""
    return np.where(
        random.random(shape) < 0.2, i32s(random, shape), random.integers(-2, n + 2, shape)
    ).astype(np.int32)


@sample(take_where.Take)
def take(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n, m = positive(random), shape(random, between(random, 0, 2))
    if n and random.random() < 0.7:
        axis = between(random, -len(n), len(n) - 1)
        return cls(i32s(random, n), positions(random, n[axis], m), axis)
    return cls(i32s(random, n), positions(random, int(np.prod(n)), m))


@sample(take_where.CvmLut)
def cvm_lut(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = positive(random)
    return cls(i32s(random, n), positions(random, int(np.prod(n)), shape(random)))


@sample(take_where.Where)
def where(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random)
    m = n[:1] if flag(random) else n
    return cls(
        i32s(random, m) * random.integers(0, 2, m, np.int32), i32s(random, n), i32s(random, n)
    )


# vision


@sample(vision.GetValidCount)
def get_valid_count(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    x = i32s(random, (*shape(random, 2, 5), between(random, 2, 7)))
    return cls(x, random.choice([0, 5, -100, 2**31 - 1, -(2**31) - 1, 10**12]).item())


@sample(vision.NonMaxSuppression)
def non_max_suppression(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    batches, rows = shape(random, 2, 8)
    identity, score = (
        random.integers(-1, 3, (batches, rows, 1)),
        random.integers(0, 5, (batches, rows, 1)),
    )
    if random.random() < 0.2:
        corners = i32s(random, (batches, rows, 4))  # of any magnitude: differences and areas wrap
    else:
        near = random.integers(0, 6, (batches, rows, 2))
        corners = np.concatenate([near, near + random.integers(-1, 8, near.shape)], 2)
    return cls(
        np.concatenate([identity, score, corners], 2, dtype=np.int32),
        random.integers(-2, rows + 3, batches, np.int32),
        iou_threshold=random.choice([1, 20, 50, 100, 101, 10**12]).item(),
        max_output_size=between(random, -1, 6),
        force_suppress=flag(random),
        top_k=between(random, -1, 9),
    )
