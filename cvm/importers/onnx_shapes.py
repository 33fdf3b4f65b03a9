"""Operators of ONNX that rearrange, choose and give shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cvm.dialect.ir.sizes import Size
from cvm.dialect.ir.types import BY_DTYPE

from .onnx_rules import Attributes, Importer, Unsupported, integers, known, rule, static


@rule("Shape")
def shape_of(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    found = static(given[0], "the shape of a value")
    return np.array(found[attributes.get("start", 0) : attributes.get("end")], np.int64)


@rule("Constant")
def constant(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    import onnx

    if "value" in attributes:
        return onnx.numpy_helper.to_array(attributes["value"])
    for key, dtype in (
        ("value_float", np.float32),
        ("value_int", np.int64),
        ("value_floats", np.float32),
        ("value_ints", np.int64),
    ):
        if key in attributes:
            return np.array(attributes[key], dtype)
    raise Unsupported("a constant of this kind")


@rule("Reshape")
def reshape(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    wanted = integers(given[1], "a shape")
    if isinstance(given[0], np.ndarray):
        kept = [given[0].shape[n] if m == 0 and not attributes.get("allowzero", 0) else m for n, m in enumerate(wanted)]
        return given[0].reshape(kept)
    x = to.node(given[0])
    if 0 in wanted and not attributes.get("allowzero", 0):
        kept = [x.shape[n] if m == 0 else m for n, m in enumerate(wanted)]
        open = [n for n, m in enumerate(kept) if isinstance(m, Size)]
        if len(open) == 1 and -1 not in kept:
            kept[open[0]] = -1
        wanted = tuple(m if isinstance(m, int) else -2 for m in kept)
        if -2 in wanted:
            raise Unsupported("a shape of several unknown sizes")
    return to.apply("cvm.reshape", x, target_shape=wanted)


@rule("Flatten")
def flatten(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    x = to.node(given[0])
    axis = attributes.get("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    columns = [n for n in x.shape[axis:] if isinstance(n, int)]
    if len(columns) == x.rank - axis:
        return to.apply("cvm.reshape", x, target_shape=(-1, int(np.prod(columns, dtype=np.int64))))
    rows = static(x, "flattening", range(axis))
    return to.apply("cvm.reshape", x, target_shape=(int(np.prod(rows, dtype=np.int64)), -1))


@rule("Squeeze", "Unsqueeze")
def ones(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    axes = integers(given[1], "axes") if len(given) > 1 and given[1] is not None else tuple(attributes.get("axes", ()))
    if attributes["op_type"] == "Unsqueeze":
        if isinstance(given[0], np.ndarray):
            return np.expand_dims(given[0], axes)
        x = to.node(given[0])
        rank = x.rank + len(axes)
        placed = {a % rank for a in axes if -rank <= a < rank}
        if len(placed) < len(axes):
            raise ValueError(f"expected axes of {rank} dimensions, each once, got {list(axes)}")
        return x.with_ones(sorted(placed))
    if isinstance(given[0], np.ndarray):
        return np.squeeze(given[0], axes or None)
    return to.apply("cvm.squeeze", given[0], axes=axes)


@rule("Transpose")
def transpose(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    return to.apply("cvm.transpose", given[0], axes=tuple(attributes.get("perm", ())))


@rule("Concat")
def concatenate(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    if all(isinstance(x, np.ndarray) for x in given):
        return np.concatenate(given, attributes["axis"])
    nodes = [to.node(x) for x in given]
    return to.apply("cvm.concatenate", *nodes, axis=attributes["axis"] % nodes[0].rank)


@rule("Slice")
def slice_(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    old: list[Any] = [attributes.get(k, ()) for k in ("starts", "ends", "axes")]
    starts, ends = (integers(v, "a bound") for v in given[1:3]) if len(given) > 2 else map(tuple, old[:2])
    rank = given[0].ndim if isinstance(given[0], np.ndarray) else given[0].rank
    axes = (
        integers(given[3], "axes") if len(given) > 3 and given[3] is not None else tuple(old[2] or range(len(starts)))
    )
    steps = integers(given[4], "steps") if len(given) > 4 and given[4] is not None else (1,) * len(starts)
    cuts = {a % rank: cut for a, *cut in zip(axes, starts, ends, steps, strict=True)}
    if isinstance(given[0], np.ndarray):
        return given[0][tuple(slice(*cuts[j]) if j in cuts else slice(None) for j in range(rank))]
    far = 2**40
    whole = [cuts.get(j, [0, far, 1]) for j in range(rank)]
    begin, end, strides = (tuple(max(-far, min(far, w[k])) for w in whole) for k in range(3))
    return to.apply("cvm.slice", given[0], begin=begin, end=end, strides=strides)


@rule("Gather")
def gather(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    axis = attributes.get("axis", 0)
    if isinstance(given[0], np.ndarray) and isinstance(given[1], np.ndarray):
        return np.asarray(np.take(given[0], given[1], axis))
    x, indices = to.node(given[0]), given[1]
    (n,) = static(x, "gathering", (axis,))
    if isinstance(indices, np.ndarray):
        indices = np.where(indices < 0, indices + n, indices).astype(np.int32)
    else:
        indices = indices.scalar("lt", 0).scalar("switch", indices + n, indices)
        indices = indices.cast(BY_DTYPE[np.dtype(np.int32)])
    return to.apply("cvm.take", x, indices, axis=axis)


@rule("Pad")
def pad(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    if attributes.get("mode", b"constant") != b"constant" or (
        len(given) > 2 and given[2] is not None and np.any(known(given[2], "a border") != 0)
    ):
        raise Unsupported("a border that is not 0")
    pads = integers(given[1], "a border") if len(given) > 1 else tuple(attributes["pads"])
    x = to.node(given[0])
    return to.apply("builtin.pad", x, before=pads[: x.rank], after=pads[x.rank :])
