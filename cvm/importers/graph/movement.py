"""Movements of elements that several formats share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import Dim, Size, product, same_size
from cvm.dialect.types.tensor_types import I8, I16, I32, MAX_SIZE, UI8, UI16

from .elementwise import number
from .importer import At
from .rules import MAX_CONSTANT, Array, Known, Unsupported, known_size, numbers, static

FAR = 1 << 40
OF_SIZES = ("constant", "reflect", "edge")  # the borders that may be of unknown size


def counted(start: Array, limit: Array, delta: Array) -> Array:
    """The numbers from one below another, each the sum of the one before and the step."""
    start, limit, delta = (v.reshape(()) for v in (start, limit, delta))
    if abs(float(limit) - float(start)) / abs(float(delta)) > MAX_CONSTANT:
        raise Unsupported("a range of more than 2^24 numbers")
    count = max(int(np.ceil((limit.item() - start.item()) / delta.item())), 0)
    return np.add.accumulate([start, *[delta] * count], dtype=start.dtype)[:count]


def filled(shape: tuple[int, ...], value: Array) -> Array:
    if np.prod(shape, dtype=object) >= MAX_SIZE:
        raise Unsupported(f"a constant of shape {shape}")
    return np.broadcast_to(value, shape)


def reshaped(at: At, x: Node, target: Sequence[Dim]) -> Node:
    """The elements in another shape, in which one size may be -1."""
    sizes = [n for n in target if not same_size(n, -1)]
    if len(sizes) < len(target) and (missing := quotient(x.shape, sizes)) is not None:
        target = [missing if same_size(n, -1) else n for n in target]
    if len([n for n in target if isinstance(n, Size) or n == -1]) <= 1:
        return at.apply(
            "cvm.reshape", x, target_shape=tuple(-1 if isinstance(n, Size) else n for n in target)
        )
    if any(same_size(n, -1) for n in target):
        raise Unsupported("a size of -1 beside others that are not known")
    y = regrouped(at, x, target)
    return at.apply("builtin.reshape_like", x, at.like(target)) if y is None else y


def factors(shape: Sequence[Dim]) -> tuple[int, list[Size]]:
    """The product of sizes as a number, and sizes that are not known."""
    number, sizes = 1, []
    for n in shape:
        match n:
            case int():
                number *= n
            case Size((((str("*"), *parts), k),), 0):
                more, inner = factors(parts)
                number, sizes = number * k * more, [*sizes, *inner]
            case Size(((atom, k),), 0):
                number, sizes = number * k, [*sizes, Size(((atom, 1),))]
            case _:
                sizes = [*sizes, n]
    return number, sizes


def quotient(shape: Sequence[Dim], divisor: Sequence[Dim]) -> Dim | None:
    """The product of some sizes by that of others, where it can be told now."""
    (number, sizes), (by, divisor_sizes) = factors(shape), factors(divisor)
    for n in divisor_sizes:
        if (at := next((k for k, m in enumerate(sizes) if same_size(n, m)), None)) is None:
            return None
        sizes.pop(at)
    return None if by == 0 or number % by else product((number // by, *sizes))


def equal_products(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return all(isinstance(q, int) and q == 1 for q in (quotient(a, b), quotient(b, a)))


def regrouped(at: At, x: Node, target: Sequence[Dim]) -> Node | None:
    """The reshape as axes that are split and then merged, where the sizes line up so."""
    split: list[tuple[int, ...]] = []
    merge: list[int] = []
    left, right = list(x.shape), list(target)
    while left or right:
        if left and right and same_size(left[0], right[0]):
            split.append((-1,))
            merge.append(1)
            left, right = left[1:], right[1:]
            continue
        cut = next(
            (
                (i, j)
                for total in range(2, len(left) + len(right) + 1)
                for i in range(len(left) + 1)
                if 0 <= (j := total - i) <= len(right)
                and 1 in (i, j)
                and equal_products(left[:i], right[:j])
            ),
            None,
        )
        if cut is None:
            return None
        i, j = cut
        if i == 1:
            sizes = right[:j]
            if sum(isinstance(n, Size) for n in sizes) > 1:
                return None
            split.append(tuple(-1 if isinstance(n, Size) else n for n in sizes))
            merge += [1] * j
        else:
            split += [(-1,)] * i
            merge.append(i)
        left, right = left[i:], right[j:]
    return at.apply("builtin.reshape", x, split=tuple(split), merge=tuple(merge))


def broadcast(at: At, x: Node, shape: Sequence[Dim]) -> Node:
    return (
        at.like(shape).scalar("second", x)
        if all(same_size(n, m) or same_size(n, 1) for n, m in zip(x.shape, shape, strict=True))
        else at.apply("builtin.broadcast_like", x, at.like(shape))
    )


def joined(at: At, xs: Sequence[Node], axis: int) -> Node:
    return at.apply("cvm.concatenate", *xs, axis=axis) if len(xs) > 1 else xs[0]


def stacked(at: At, parts: Sequence[Known], axis: int = 0) -> Node:
    """Values of one shape as slices along a new axis."""
    return joined(at, [at.node(p).with_ones((axis,)) for p in parts], axis)


def cut(at: At, x: Node, begin: Sequence[int], end: Sequence[int], strides: Sequence[int]) -> Node:
    """A slice, which may be empty: of an axis of known size, nothing is left by cutting all of it
    off.
    """
    ranges = [slice(*part) for part in zip(begin, end, strides, strict=True)]
    empty = [
        isinstance(n, int) and not range(n)[part] for n, part in zip(x.shape, ranges, strict=True)
    ]
    if any(empty):
        less = tuple(
            -n if gone and isinstance(n, int) else 0 for n, gone in zip(x.shape, empty, strict=True)
        )
        x = at.apply("builtin.pad", x, before=(0,) * x.rank, after=less)
        if not all(empty[j] or part == slice(0, FAR, 1) for j, part in enumerate(ranges)):
            shape = [
                len(range(n)[part])
                for n, part in zip(static(x, "an empty slice"), ranges, strict=True)
            ]
            return at.node(np.zeros(shape, x.element.dtype))
        return x
    return at.apply("cvm.slice", x, begin=tuple(begin), end=tuple(end), strides=tuple(strides))


def part(at: At, x: Node, axis: int, start: int, stop: int) -> Node:
    """The elements from one place to another along an axis."""
    begin, end = [0] * x.rank, [FAR] * x.rank
    begin[axis], end[axis] = start, stop
    return cut(at, x, begin, end, [1] * x.rank)


def at_step(at: At, x: Node, axis: int, t: int) -> Node:
    """The slice of a value at a place along an axis, without that axis."""
    if isinstance(x.shape[axis], int):
        y = part(at, x, axis, t, t + 1)
    else:
        y = at.apply(
            "builtin.strided_slice_like", x, np.zeros((1,) * x.rank, bool), axes=(axis,), begin=(t,)
        )
    return y.dimshuffle([j for j in range(x.rank) if j != axis])


def counted_from(at: At, first: Dim, n: Dim) -> Node:
    """n numbers from one size on, as i64."""
    numbers = at.apply("builtin.iota_like", at.like((n,)), axis=0)
    return numbers if same_size(first, 0) else numbers + at.node(np.array(first, object))


def part_of_sizes(at: At, x: Node, axis: int, start: Dim, stop: Dim) -> Node:
    """The elements from one place to another along an axis, which are sizes; a call in which they
    lie beyond the axis fails.
    """
    places = counted_from(at, start, stop - start)
    places = places.scalar("lt", 0).scalar("switch", number(places, FAR), places)
    return at.apply("builtin.gather", x, places, axes=(axis,))


def pieces(at: At, x: Node, axis: int, sizes: Sequence[Dim]) -> list[Known]:
    parts: list[Known] = []
    start = 0
    for n in sizes:
        length = known_size(n, "a piece")
        start += length
        if isinstance(whole := x.shape[axis], int) and (length < 0 or start > whole):
            raise ValueError(f"the pieces are longer than the axis, which has {whole} elements")
        parts.append(part(at, x, axis, start - length, start))
    if isinstance(x.shape[axis], int) and start != x.shape[axis]:
        raise ValueError(f"the pieces have {start} of {x.shape[axis]} elements")
    return parts


def bordered_of_size(
    at: At, x: Node, axis: int, b: Dim, a: Dim, mode: str, value: Node | None = None
) -> Node:
    """A border along an axis, one of the three of unknown size; a call in which it would be
    mirrored twice fails.
    """
    n = x.shape[axis]
    first, length = (at.node(np.array(size, object)) for size in (b, n))
    places = counted_from(at, 0, n + b + a) - first
    last = length - 1
    if mode == "constant":
        inside = places.scalar("ge", 0).scalar("and_", places.scalar("lt", length))
        y = at.apply("builtin.gather", x, places, axes=(axis,), mode="clip")
        column = inside.dimshuffle([0 if j == axis else "x" for j in range(x.rank)])
        return column.scalar("switch", y, number(x, 0) if value is None else value.cast(x.element))
    if mode == "edge":
        places = places.scalar("maximum", 0).scalar("minimum", last)
    else:
        places = last - (last - places.scalar("abs_")).scalar("abs_")
        places = places.scalar("lt", 0).scalar("switch", number(places, FAR), places)
    return at.apply("builtin.gather", x, places, axes=(axis,))


def repeated_of_sizes(at: At, x: Node, reps: Sequence[Dim]) -> Node:
    """The value as often along each axis as a size says."""
    for axis, n in enumerate(reps):
        if same_size(n, 1):
            continue
        y, shape = x.with_ones((axis,)), list(x.shape)
        shape.insert(axis, n)
        merge = [1] * x.rank
        merge[axis] = 2
        x = at.apply("builtin.reshape", broadcast(at, y, shape), merge=tuple(merge))
    return x


def repeated(at: At, x: Node, reps: Sequence[int]) -> Known:
    if 0 in reps:
        shape = tuple(n * m for n, m in zip(static(x, "what is repeated"), reps, strict=True))
        return filled(shape, np.zeros((), x.element.dtype))
    return at.apply("cvm.tile", x, reps=tuple(reps)) if reps else x


def with_border(at: At, x: Node, before: Sequence[int], after: Sequence[int], value: Node) -> Node:
    sides = {"before": tuple(before), "after": tuple(after)}
    y = at.apply("builtin.pad", x, **sides)
    constant = at.importer.builder.constants.get(value.value)
    if constant is not None and not np.any(constant != 0) and not np.any(np.signbit(constant)):
        return y
    if x.element in (I8, UI8, I16, UI16, I32) and all(n >= 0 for n in (*before, *after)):
        return at.apply("quant.pad", x, value.cast(x.element), **sides)
    return at.apply("builtin.pad", x.scalar("second", True), **sides).scalar(
        "switch", y, value.cast(x.element)
    )


def bordered(
    at: At,
    x: Node,
    before: Sequence[Dim],
    after: Sequence[Dim],
    mode: str,
    value: Node | None = None,
) -> Node:
    """A border of elements of the value: mirrored, the nearest ones, or from the other end; or, of
    unknown size, of another value.
    """
    computed = any(isinstance(n, Size) for n in (*before, *after))
    # elements that are cut off are not there to be mirrored
    if not computed and min((*before, *after), default=0) < 0:
        first, last = (tuple(min(n, 0) for n in side) for side in (before, after))
        x = at.apply("builtin.pad", x, before=first, after=last)
        before, after = ([max(n, 0) for n in side] for side in (before, after))
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        if same_size(b, 0) and same_size(a, 0):
            continue
        if any(isinstance(n, Size) for n in (x.shape[axis], b, a)) and mode in OF_SIZES:
            x = bordered_of_size(at, x, axis, b, a, mode, value)
        else:
            b, a = known_size(b, "a border"), known_size(a, "a border")
            (n,) = static(x, "an axis with a border", (axis,))
            places = numbers(n + b + a) - b
            if n == 0 or (mode == "reflect" and n == 1 and places.size > 1):
                raise ValueError("nothing is there to fill a border with")
            if mode in ("reflect", "symmetric"):
                period = 2 * n - 2 * (mode == "reflect")
                places = places % max(period, 1)
                places = (
                    np.minimum(places, period - 1 + (mode == "reflect") - places)
                    if period
                    else places
                )
            else:
                places = np.clip(places, 0, n - 1) if mode == "edge" else places % n
            x = at.apply("builtin.gather", x, places, axes=(axis,))
    return x
