"""Random operators that take sizes from another operand, and those that move elements by sizes that need not be known."""

from __future__ import annotations

from typing import Any

import numpy as np
from cvm.dialect.builtin import data_movement, shape_like
from cvm.dialect.spec.op import Operator
from samples import SAMPLES, between, flag, i32s, positions, positive, sample, shape


@sample(shape_like.ReshapeLike)
def reshape_like(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    reshape: Any = SAMPLES["cvm.reshape"](random)
    return cls(reshape.x, np.zeros(reshape.reference().shape, np.float32))


@sample(shape_like.StridedScatterLike, shape_like.StridedSliceLike)
def apart(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    """Elements beyond the ends among them."""
    n = shape(random, between(random, 0, 3))
    axes = tuple(int(j) for j in random.permutation(len(n))[: between(random, 0, len(n))])
    like = tuple(between(random, 0, 8) if j in axes or flag(random) else d for j, d in enumerate(n))
    if flag(random):
        n, like = like, n
    begin = tuple(int(b) for b in random.integers(-9, 9, len(axes)))
    strides = tuple(int(s) for s in random.choice([-3, -2, -1, 1, 2, 3], len(axes)))
    return cls(i32s(random, n), np.zeros(like, np.float32), axes, begin[: between(random, 0, 9)], strides)


@sample(shape_like.BroadcastLike, shape_like.SumLike)
def repeated(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    large = shape(random, between(random, 0, 4))
    small = tuple(
        1 if random.random() < 0.4 else d for d in large[between(random, 0, len(large)) if flag(random) else 0 :]
    )
    n, m = (small, large) if cls is shape_like.BroadcastLike else (large, small)
    return cls(random.integers(-9, 10, n).astype(random.choice(["f4", "i8"])), np.zeros(m, bool))


@sample(data_movement.Pad)
def pad(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random)
    before = tuple(between(random, -2, 3) for _ in n)
    after = tuple(max(-d - b, between(random, -2, 3)) for d, b in zip(n, before, strict=True))
    return cls(i32s(random, n), before, after)


@sample(data_movement.Reshape)
def regroup(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    split: list[tuple[int, ...]] = []
    n: list[int] = []
    for _ in range(between(random, 0, 3)):
        sizes = [between(random, 0 if random.random() < 0.05 else 1, 3) for _ in range(between(random, 0, 3))]
        n.append(int(np.prod(sizes)))
        if sizes and flag(random) and 0 not in sizes:
            sizes[between(random, 0, len(sizes) - 1)] = -1
        split.append(tuple(sizes))
    count = sum(map(len, split))
    cuts = sorted(between(random, 0, count) for _ in range(between(random, 0, 3)))
    merge = tuple(b - a for a, b in zip([0, *cuts], [*cuts, count], strict=True))
    return cls(i32s(random, tuple(n)), tuple(split), merge if flag(random) else None)


@sample(data_movement.Part)
def part(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    whole: Any = SAMPLES["cvm.concatenate"](random)
    return cls(whole.reference(), whole.xs, whole.axis, between(random, 0, len(whole.xs) - 1))


@sample(data_movement.AddAt)
def add_at(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    """Samples of small integers, whose sums are exact in every order."""
    like = positive(random, between(random, 1, 3))
    axis, m = between(random, 0, len(like) - 1), shape(random, between(random, 0, 2))
    n = (*like[:axis], *m, *like[axis + 1 :])
    x = random.integers(-9, 10, n).astype(random.choice(["f4", "f8", "i4"]))
    return cls(x, positions(random, like[axis], m), np.zeros(like, bool), axis)
