"""ONNX's operators that move elements without looking at them, and those that compute with
shapes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import Dim, Size, product, same_size
from cvm.importers.exactness import Exactness
from cvm.importers.graph.elementwise import number
from cvm.importers.graph.movement import (
    FAR,
    bordered,
    broadcast,
    counted,
    counted_from,
    cut,
    filled,
    joined,
    part_of_sizes,
    pieces,
    repeated,
    repeated_of_sizes,
    reshaped,
    with_border,
)
from cvm.importers.graph.rules import (
    Array,
    Ints,
    Known,
    Unsupported,
    aligned,
    known_size,
    real_axes,
    static,
)

from .elements import I64, element_of, to_array
from .importer import At
from .rules import rule

# Constants and shapes


@rule("Constant")
def constant(at: At) -> Known:
    if at["value"] is not None:
        return to_array(at["value"])
    for key, dtype in (
        ("value_float", "f4"),
        ("value_int", "i8"),
        ("value_floats", "f4"),
        ("value_ints", "i8"),
    ):
        if at[key] is not None:
            return np.array(at[key], dtype)
    raise Unsupported("a sparse constant, or one of strings,")


@rule("Shape", symbolic=lambda at, x: np.array(x.shape, np.int64)[at["start"] or 0 : at["end"]])
def shape(at: At, x: Known) -> Known:
    sizes = tuple(x.shape)[at["start"] or 0 : at["end"]]
    return np.array(sizes, np.int64 if all(isinstance(n, int) for n in sizes) else object)


@rule("Size", symbolic=lambda at, x: np.array(x.size))
def size(at: At, x: Known) -> Known:
    n = product(tuple(x.shape))
    return np.array(n, np.int64 if isinstance(n, int) else object)


@rule("ConstantOfShape")
def constant_of_shape(at: At, shape: Ints) -> Known:
    value = np.zeros(1, np.float32) if at["value"] is None else to_array(at["value"])
    if all(isinstance(n, int) for n in shape):
        return filled(tuple(int(n) for n in shape), value.reshape(()))
    return at.like(shape).scalar("second", at.node(value.reshape(())))


@rule("Range", symbolic=lambda at, a, b, c: symbolic_range(at, a, b, c))
def range_(at: At, start: Array, limit: Array, delta: Array) -> Known:
    """Range of known sizes, each number the sum of the one before and the step."""
    return counted(start, limit, delta)


def symbolic_range(at: At, start: Array, limit: Array, delta: Array) -> Known:
    first, step, n = start.item(), delta.item(), limit.item()
    if not isinstance(step, int) or step < 1:
        raise Unsupported("a range by a size that is not known")
    numbers = counted_from(at, 0, (n - first + step - 1) // step)
    numbers = numbers * step if step != 1 else numbers
    return numbers if same_size(first, 0) else numbers + at.node(np.array(first, object))


@rule("EyeLike")
def eye_like(at: At, x: Node) -> Known:
    rows, columns = static(x, "an identity matrix")
    element = x.element if at["dtype"] is None else element_of(at["dtype"])
    return np.eye(rows, columns, at["k"]).astype(element.dtype)


# Other shapes


@rule(
    "Reshape", symbolic=lambda at, x, *shape: x.reshape([int(n) for n in (*shape, at["shape"])[0]])
)
def reshape(at: At, x: Node, shape: Ints | None = None) -> Known:
    """Sizes that are not known are kept, split off or merged."""
    target: list[Dim] = list(at["shape"] if shape is None else shape)
    if not at["allowzero"]:
        target = [x.shape[n] if same_size(m, 0) else m for n, m in enumerate(target)]
    return reshaped(at, x, target)


@rule("Flatten")
def flatten(at: At, x: Node) -> Node:
    axis = at["axis"] + (x.rank if at["axis"] < 0 else 0)
    return reshaped(at, x, (product(x.shape[:axis]), product(x.shape[axis:])))


def given_axes(at: At, axes: object) -> tuple[Any, ...] | None:
    listed = at["axes"] if axes is None else np.asarray(axes).reshape(-1).tolist()
    return None if listed is None else tuple(listed)


@rule("Squeeze", symbolic=lambda at, x, axes=None: np.squeeze(x, given_axes(at, axes)))
def squeeze(at: At, x: Node, axes: Array | None = None) -> Known:
    dims = given_axes(at, axes)
    if axes is not None and dims == ():
        at.rule_exactness = Exactness(
            bound="unlike onnxruntime, which takes no axes for all of them"
        )
    return (
        at.apply("cvm.squeeze", x, axes=() if dims is None else real_axes(dims, x.rank))
        if dims != ()
        else x
    )


@rule("Unsqueeze", symbolic=lambda at, x, axes=None: np.expand_dims(x, given_axes(at, axes) or ()))
def unsqueeze(at: At, x: Node, axes: Array | None = None) -> Known:
    inserted = given_axes(at, axes) or ()
    return x.with_ones(sorted(real_axes(inserted, x.rank + len(inserted))))


@rule("Expand", symbolic=lambda at, x, shape: np.broadcast_to(x, [int(n) for n in shape]))
def expand(at: At, x: Node, shape: Ints) -> Known:
    """Sizes that are not known may be those of the model's inputs, and sums of them."""
    rank = max(x.rank, len(shape))
    (value,) = aligned(x.dimshuffle([*["x"] * (rank - x.rank), *range(x.rank)]))
    target = (*(1,) * (rank - len(shape)), *shape)
    joined = [n if same_size(m, 1) else m for n, m in zip(value.shape, target, strict=True)]
    if all(same_size(n, m) for n, m in zip(joined, value.shape, strict=True)):
        return value
    return broadcast(at, value, joined)


rule("Transpose")(lambda at, x: x.dimshuffle(at["perm"] or range(x.rank)[::-1]))


# Parts and pieces together


@rule("Concat", symbolic=lambda at, *xs: np.concatenate([x.astype(object) for x in xs], at["axis"]))
def concatenate(at: At, *xs: Node) -> Known:
    return joined(at, xs, (1 if at["axis"] is None else at["axis"]) % xs[0].rank)


def cut_sizes(at: At, x: Array, *bounds: object) -> Array:
    starts, ends, axes, steps = cuts(at, x.ndim, *bounds)
    where = dict(zip(axes, map(slice, starts, ends, steps), strict=True))
    return x[tuple(where.get(j, slice(None)) for j in range(x.ndim))]


def cuts(
    at: At, rank: int, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> Any:
    """The begins, ends, axes and steps of a Slice."""
    first = list(at["starts"] if starts is None else starts)
    last = list(at["ends"] if ends is None else ends)
    along = (
        (at["axes"] if starts is None else axes) or range(len(first))
        if axes is None
        else list(axes)
    )
    by = [1] * len(first) if steps is None else list(steps)
    if not len(first) == len(last) == len(along) == len(by):
        raise ValueError("starts, ends, axes and steps differ in length")
    return first, last, real_axes(along, rank), by


@rule("Slice", symbolic=cut_sizes)
def slice_(
    at: At,
    x: Node,
    starts: Ints | None = None,
    ends: Ints | None = None,
    axes: Ints | None = None,
    steps: Ints | None = None,
) -> Known:
    """Between bounds of unknown sizes, a call fails where these are beyond the axis."""
    bounds = [[0, FAR, 1] for _ in range(x.rank)]
    parts = zip(*cuts(at, x.rank, starts, ends, axes, steps), strict=True)
    for first, last, axis, step in parts:
        if is_part_of_sizes(x, axis, first, last, step):
            x = part_of_sizes(at, x, axis, first, last)
            continue
        begin, by = bound(at, x, axis, first, step), known_size(step, "a step")
        if by < 0 and isinstance(last, int) and last in (2**31 - 1, 2**63 - 1):
            at.rule_exactness = Exactness(
                bound="unlike onnxruntime, which slices backward to INT_MAX as to the beginning"
            )
        if by < 0 and begin < -1:  # what is beyond the first element begins at it
            if isinstance(size := x.shape[axis], int):
                begin = max(begin, -size)
            elif at.rule_exactness is None:
                at.rule_exactness = Exactness(
                    f"axis {axis} has at least {min(-begin, FAR)} elements"
                )
        bounds[axis] = [begin, bound(at, x, axis, last, step), by]
    return cut(at, x, *([max(-FAR, min(FAR, f[k])) for f in bounds] for k in range(3)))


def is_part_of_sizes(x: Node, axis: int, first: Dim, last: Dim, step: Dim) -> bool:
    """Test whether a slice takes the elements between two sizes, of which one is not known and
    neither is that of the axis.
    """
    n = x.shape[axis]
    if not same_size(step, 1) or not (isinstance(first, Size) or isinstance(last, Size)):
        return False
    if any(isinstance(b, int) and not 0 <= b <= LARGE for b in (first, last)):
        return False
    return not any(isinstance(b - n, int) for b in (first, last) if isinstance(b, Size))


LARGE = 2**31 - 2  # a bound beyond is the end of the axis


def bound(at: At, x: Node, axis: int, n: Dim, step: Dim) -> int:
    """A bound as a number: of sizes, one that is the whole axis or counts from its end."""
    if isinstance(n, int):
        if isinstance(size := x.shape[axis], int) and n < -size:  # beyond the first element
            return -FAR if isinstance(step, int) and step < 0 else 0
        return n
    if isinstance(left := n - x.shape[axis], int):
        return FAR if left >= 0 else left
    raise Unsupported("a bound that depends on unknown sizes")


def split_sizes(at: At, x: Array, parts: Any = None) -> Any:
    ends = (
        np.cumsum([int(n) for n in parts])[:-1] if parts is not None else len(at.graph_node.outputs)
    )
    return list(np.split(x, ends))


@rule("Split", symbolic=split_sizes)
def split(at: At, x: Node, parts: Ints | None = None) -> Any:
    axis = real_axes((at["axis"],), x.rank)[0]
    sizes = parts if parts is not None else at["split"]
    if sizes is None and at["num_outputs"] not in (None, len(at.graph_node.outputs)):
        raise ValueError(
            f"num_outputs is {at['num_outputs']}, of {len(at.graph_node.outputs)} outputs"
        )
    if sizes is None:
        whole, count = static(x, "an axis that is split", (axis,))[0], len(at.graph_node.outputs)
        part_size = -(-whole // count)
        sizes = [min(part_size, whole - min(k * part_size, whole)) for k in range(count)]
    return pieces(at, x, axis, sizes)


@rule("Tile", until=6)
def tile_by_axis(at: At, x: Node, tiles: Array, axis: Array) -> Known:
    reps = [1] * x.rank
    reps[int(axis)] = int(tiles)
    return repeated(at, x, reps)


@rule("Tile", since=6)
def tile(at: At, x: Node, repeats: Ints) -> Known:
    if not all(isinstance(n, int) for n in repeats):
        return repeated_of_sizes(at, x, repeats)
    return repeated(at, x, [known_size(n, "a number of repetitions") for n in repeats])


@rule("Pad")
def pad(
    at: At, x: Node, pads: Ints | None = None, value: Node | None = None, axes: Array | None = None
) -> Known:
    """The value within a border; where the border is negative, less of it. A call fails where an
    axis of unknown size would be mirrored twice.
    """
    sizes: list[Dim] = [*((at["pads"] or at["paddings"] or []) if pads is None else pads)]
    along = real_axes(axes.reshape(-1).tolist(), x.rank) if axes is not None else range(x.rank)
    if len(sizes) != 2 * len(along):
        raise ValueError(f"it has {len(sizes)} pads for {len(along)} axes")
    before: list[Dim] = [0] * x.rank
    after: list[Dim] = [0] * x.rank
    for axis, first, last in zip(along, sizes[: len(along)], sizes[len(along) :], strict=True):
        before[axis], after[axis] = first, last
    if value is None and at["value"] is not None:
        value = number(x, at["value"])
    known = [[n for n in side if isinstance(n, int)] for side in (before, after)]
    if at["mode"] != "constant" or [before, after] != known:
        one = value if value is None or value.rank == 0 else at.apply("cvm.squeeze", value)
        return bordered(at, x, before, after, at["mode"], one)
    if value is None:
        return at.apply("builtin.pad", x, before=tuple(before), after=tuple(after))
    return with_border(
        at, x, known[0], known[1], value if value.rank == 0 else at.apply("cvm.squeeze", value)
    )


@rule("DepthToSpace")
def depth_to_space(at: At, x: Node) -> Known:
    b = at["blocksize"]
    if isinstance(c := x.shape[1], Size):
        raise Unsupported("channels of unknown number")
    blocks, order = (b, b, c // b**2), (0, 3, 4, 1, 5, 2)
    if at["mode"] == "CRD":
        blocks, order = (c // b**2, b, b), (0, 1, 4, 2, 5, 3)
    y = at.apply("builtin.reshape", x, split=((-1,), blocks, (-1,), (-1,))).dimshuffle(order)
    return at.apply("builtin.reshape", y, merge=(1, 1, 2, 2))


@rule("SpaceToDepth")
def space_to_depth(at: At, x: Node) -> Known:
    b = at["blocksize"]
    order = (0, 1, 3, 5, 2, 4) if at["mode"] == "CRD" else (0, 3, 5, 1, 2, 4)
    y = at.apply("builtin.reshape", x, split=((-1,), (-1,), (-1, b), (-1, b))).dimshuffle(order)
    return at.apply("builtin.reshape", y, merge=(1, 3, 1, 1))


@rule("Trilu")
def trilu(at: At, x: Node, k: Array | None = None) -> Known:
    offset = 0 if k is None else int(k.reshape(()))
    rows, columns = (at.apply("builtin.iota_like", x, axis=x.rank - 2 + j) for j in (0, 1))
    distance = columns - rows
    mask = distance.scalar("ge" if at["upper"] else "le", number(distance, offset))
    return mask.scalar("switch", x, number(x, 0))


@rule("ReverseSequence")
def reverse_sequence(at: At, x: Node, lengths: Node) -> Known:
    time, batch = at["time_axis"], at["batch_axis"]
    indices = [at.apply("builtin.iota_like", x, axis=j) for j in range(x.rank)]
    t, n = (
        indices[time],
        lengths.cast(I64).dimshuffle([0 if j == batch else "x" for j in range(x.rank)]),
    )
    indices[time] = t.scalar("lt", n).scalar("switch", n - t - 1, t)
    return at.apply("builtin.gather", x, *indices, axes=tuple(range(x.rank)))


@rule("CenterCropPad")
def center_crop_pad(at: At, x: Node, shape: Ints) -> Known:
    axes = real_axes(at["axes"], x.rank) if at["axes"] is not None else range(x.rank)
    before, after = [0] * x.rank, [0] * x.rank
    for axis, size in zip(axes, shape, strict=True):
        more = known_size(size, "a size") - static(x, "what is cut", (axis,))[0]
        before[axis] = more // 2 if more >= 0 else -(-more // 2)
        after[axis] = more - before[axis]
    return at.apply("builtin.pad", x, before=tuple(before), after=tuple(after))
