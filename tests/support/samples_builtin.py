"""Random operators that take sizes from another operand, and those that move elements by sizes that
need not be known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cvm.dialect.builtin import (
    along_axis,
    gather_scatter,
    insert_slice,
    pad_slice_reshape,
    run_kernel,
    shape_like,
    sliding_window,
    tree_ensemble,
    view_bitcast,
)
from cvm.dialect.spec.operator import OPERATORS, Operator
from cvm.dialect.types.tensor_types import BY_DTYPE
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
    return cls(
        i32s(random, n), np.zeros(like, np.float32), axes, begin[: between(random, 0, 9)], strides
    )


@sample(shape_like.BroadcastLike, shape_like.SumLike)
def repeated(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    large = shape(random, between(random, 0, 4))
    small = tuple(
        1 if random.random() < 0.4 else d
        for d in large[between(random, 0, len(large)) if flag(random) else 0 :]
    )
    n, m = (small, large) if cls is shape_like.BroadcastLike else (large, small)
    return cls(random.integers(-9, 10, n).astype(random.choice(["f4", "i8"])), np.zeros(m, bool))


@sample(pad_slice_reshape.Pad)
def pad(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random)
    before = tuple(between(random, -2, 3) for _ in n)
    after = tuple(max(-d - b, between(random, -2, 3)) for d, b in zip(n, before, strict=True))
    return cls(i32s(random, n), before, after)


@sample(pad_slice_reshape.Reshape)
def regroup(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    split: list[tuple[int, ...]] = []
    n: list[int] = []
    for _ in range(between(random, 0, 3)):
        sizes = [
            between(random, 0 if random.random() < 0.05 else 1, 3)
            for _ in range(between(random, 0, 3))
        ]
        n.append(int(np.prod(sizes)))
        if sizes and flag(random) and 0 not in sizes:
            sizes[between(random, 0, len(sizes) - 1)] = -1
        split.append(tuple(sizes))
    count = sum(map(len, split))
    cuts = sorted(between(random, 0, count) for _ in range(between(random, 0, 3)))
    merge = tuple(b - a for a, b in zip([0, *cuts], [*cuts, count], strict=True))
    return cls(i32s(random, tuple(n)), tuple(split), merge if flag(random) else None)


@sample(pad_slice_reshape.Part)
def part(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    whole: Any = SAMPLES["cvm.concatenate"](random)
    return cls(whole.reference(), whole.xs, whole.axis, between(random, 0, len(whole.xs) - 1))


@sample(pad_slice_reshape.AddAt)
def add_at(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    """Samples of small integers, whose sums are exact in every order."""
    like = positive(random, between(random, 1, 3))
    axis, m = between(random, 0, len(like) - 1), shape(random, between(random, 0, 2))
    n = (*like[:axis], *m, *like[axis + 1 :])
    x = random.integers(-9, 10, n).astype(random.choice(["f4", "f8", "i4"]))
    return cls(x, positions(random, like[axis], m), np.zeros(like, bool), axis)


def numbers(
    random: np.random.Generator, n: tuple[int, ...], kinds: str = "f4 f8 i4 i8 u1"
) -> np.ndarray:
    """Small integers of some type, so that sums are exact and elements are equal often."""
    return random.integers(0, 9, n).astype(random.choice(kinds.split()))


@sample(gather_scatter.IotaLike)
def iota_like(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random, between(random, 1, 4))
    return cls(np.zeros(n, np.float32), between(random, 0, len(n) - 1))


@sample(gather_scatter.Gather, gather_scatter.Scatter)
def indexed(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    """Places counted from both ends; clipped ones lie outside, too."""
    n = positive(random, between(random, 1, 4))
    axes = tuple(sorted(int(a) for a in random.permutation(len(n))[: between(random, 1, len(n))]))
    u, clip = shape(random, between(random, 0, 2)), flag(random)
    far = 3 if clip else 0
    kind = random.choice(["i4", "i8", "i1"])
    indices = tuple(random.integers(-n[a] - far, n[a] + far, u).astype(kind) for a in axes)
    mode = "clip" if clip else "raise"
    x = numbers(random, n)
    if cls is gather_scatter.Gather:
        return cls(x, indices, axes, mode)
    gather = gather_scatter.Gather(x, indices, axes, mode)
    updates = random.integers(0, 9, gather.reference().shape).astype(x.dtype)
    combined = random.choice(
        ["", "add", "maximum", "minimum", *(["mul"] if x.dtype.kind != "f" else [])]
    )
    return cls(x, updates, indices, axes, str(combined) or None, mode)


@sample(insert_slice.ExtractSlice, insert_slice.InsertSlice)
def slices(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    """Slices whose beginnings are attributes, counted from both ends, or operands."""
    n = positive(random, between(random, 1, 3))
    computed = tuple(a for a in range(len(n)) if flag(random))
    strides = tuple(between(random, 1, 2) for _ in n)
    m = tuple(between(random, 1, (size - 1) // s + 1) for size, s in zip(n, strides, strict=True))
    if cls is insert_slice.ExtractSlice:
        strides = (1,) * len(n)
    rooms = (size - (k - 1) * s for size, k, s in zip(n, m, strides, strict=True))
    begin = [between(random, 0, room - 1) for room in rooms]
    starts = tuple(np.array(begin[a], np.int64) for a in computed)
    x = numbers(random, n, "f8 i4 i8 u1")
    if cls is insert_slice.ExtractSlice:
        return cls(x, starts, computed, tuple(m[a] for a in computed))
    signed = tuple(b - size if flag(random) else b for b, size in zip(begin, n, strict=True))
    updates = random.integers(0, 9, m).astype(x.dtype)
    return cls(x, updates, starts, computed, signed, strides)


@sample(along_axis.Argsort)
def argsort(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    x = with_nan(random, numbers(random, shape(random, between(random, 1, 3), 9)))
    return cls(x, between(random, 0, x.ndim - 1), flag(random))


@sample(OPERATORS["builtin.argmax"], OPERATORS["builtin.argmin"])
def extreme(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    x = with_nan(random, numbers(random, positive(random, between(random, 1, 3))))
    return cls(x, between(random, 0, x.ndim - 1), flag(random))


def with_nan(random: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return (
        np.where(random.random(x.shape) < 0.1, x.dtype.type(np.nan), x)
        if x.dtype.kind == "f"
        else x
    )


@sample(along_axis.Cumulative)
def cumulative(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    """Sums of floats are exact; products are of integers."""
    x = numbers(random, shape(random, between(random, 1, 3), 9))
    names = ["add", "add", *(("maximum", "minimum", "mul") if x.dtype.kind != "f" else ())]
    return cls(
        x, between(random, 0, x.ndim - 1), str(random.choice(names)), flag(random), flag(random)
    )


@sample(sliding_window.Windows)
def window(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = positive(random, between(random, 1, 3))
    axes = tuple(int(a) for a in random.permutation(len(n))[: between(random, 0, min(2, len(n)))])
    before = tuple(between(random, -1, 2) for _ in axes)
    after = tuple(
        max(between(random, -1, 2), 1 - n[a] - b) for a, b in zip(axes, before, strict=True)
    )
    sizes, dilations, strides = [], [], []
    for a, b, e in zip(axes, before, after, strict=True):
        sizes.append(between(random, 1, min(3, n[a] + b + e)))
        most = (n[a] + b + e - 1) // (sizes[-1] - 1) if sizes[-1] > 1 else 3
        dilations.append(between(random, 1, min(3, most)))
        strides.append(between(random, 1, 3))
    fill = float(random.choice([0.0, 2.0]))
    return cls(
        numbers(random, n),
        axes,
        tuple(sizes),
        tuple(strides),
        tuple(dilations),
        before,
        after,
        fill,
    )


@sample(view_bitcast.Bitcast)
def bits(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    """Patterns of all kinds but those of NaN, whose bits arithmetic may change."""
    kinds = {8: "i1 u1", 16: "i2 u2 f2", 32: "i4 u4 f4", 64: "i8 u8 f8"}[
        int(random.choice([8, 16, 32, 64]))
    ].split()
    source, target = (np.dtype(str(random.choice(kinds))) for _ in range(2))
    raw = random.integers(0, 2**32, (64,), np.uint32).view(source)[: between(random, 0, 9)]
    return cls(
        np.where(np.isnan(raw), source.type(1), raw) if source.kind == "f" else raw,
        BY_DTYPE[target],
    )


@sample(tree_ensemble.TreeEnsemble)
def trees(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    """Random graphs, whose nodes lead anywhere, NaN among the features, and few trees or many."""
    nodes, features, width = (between(random, 1, 9) for _ in range(3))
    dtype = random.choice(["f4", "f8"])
    x = random.integers(-2, 3, (between(random, 0, 20), features)).astype(dtype)
    x[random.random(x.shape) < 0.1] = np.nan
    links = random.integers(-1, max(nodes, features) + 1, (nodes, 3)).astype(np.int32)
    stays = random.random(nodes) < 0.3
    links[stays, 1:] = np.arange(nodes)[stays, None]
    return cls(
        x,
        random.integers(-2, 3, nodes).astype(dtype),
        links,
        random.integers(-1, nodes + 1, (between(random, 0, 20), 2)).astype(np.int32),
        random.normal(size=(nodes, width)).astype(random.choice(["f4", "f8"])),
        width + between(random, 0, 3),
        between(random, 0, 6),
        str(random.choice(tree_ensemble.REDUCED)),
    )


KERNELS = (
    """
    kernel @reversed(%x: tensor<?N x i32>) -> (%y: tensor<[2*?N] x i32>) {
      for %i in 0..?N {
        %y[?N - 1 - %i] = %x[%i]
        %y[?N + %i] = %x[%i] ^ 7
      }
    }
    """,
    """
    kernel @summed(%x: tensor<?N x i32>) -> (%y: tensor<?N x i32> view of %x) {
      for %i in 1..?N {
        if %y[%i] > 0 {
          %y[%i] = %y[%i - 1] + %y[%i]
        }
      }
    }
    """,
)


@sample(run_kernel.RunKernel)
def kernel(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    return cls((i32s(random, shape(random, 1)),), str(random.choice(KERNELS)))
