"""Random valid operators over arrays, a generator for each: shapes, attributes and values that its constraints admit.

`SAMPLES[name](random)` gives an operator of that name over arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cvm.dialect.cvm import broadcast, elementwise, nn, reduce
from cvm.dialect.op import Operator

Sample = Callable[[np.random.Generator], Operator[np.ndarray]]
SAMPLES: dict[str, Sample] = {}


def sample(*classes: type[Operator[Any]]) -> Callable[[Callable[..., Operator[np.ndarray]]], Sample]:
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
    return np.where(random.random(shape) < 0.15, random.choice(EDGES, shape), values).astype(np.int32)


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


@sample(
    broadcast.BroadcastAdd,
    broadcast.BroadcastSub,
    broadcast.BroadcastMul,
    broadcast.BroadcastDiv,
    broadcast.BroadcastMax,
    broadcast.BroadcastGreater,
)
def broadcasting(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random)

    def operand() -> np.ndarray:
        kept = n[between(random, 0, len(n)) if flag(random) else 0 :]
        return i32s(random, tuple(1 if random.random() < 0.3 else d for d in kept))

    return cls(operand(), operand())


# elementwise


@sample(elementwise.Abs, elementwise.CvmPrecision, elementwise.Negative, nn.Relu)
def unary(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    return cls(i32s(random, shape(random)))


@sample(elementwise.ElemwiseAdd, elementwise.ElemwiseSub)
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
    padding, stride, dilation, kernel = pair(random, 0, 2), pair(random, 1, 3), pair(random, 1, 2), pair(random, 1, 3)
    least = (max(d * (k - 1) + 1 - 2 * p, 1) for d, k, p in zip(dilation, kernel, padding, strict=True))
    rows, columns = (n + between(random, 0, 3) for n in least)
    x = i32s(random, (between(random, 1, 2), ic * groups, rows, columns))
    w = i32s(random, (opg * groups, ic, *kernel))
    b = i32s(random, (opg * groups,)) if flag(random) else None
    return cls(x, w, b, padding, stride, dilation, groups)


@sample(nn.Dense)
def dense(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    m, n, k = shape(random, 3)
    return cls(i32s(random, (m, k)), i32s(random, (n, k)), i32s(random, (n,)) if flag(random) else None)


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
