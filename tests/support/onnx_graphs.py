"""Random ONNX nodes and small graphs on special values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from special_values import moderate_values, special_values

FLOATS = ("f4", "f4", "f4", "f8", "f2")
INTS = ("i4", "i8", "i4", "i8", "i1", "u1", "i2", "u2", "u4", "u8")
BYTES = ("i1", "u1")
TYPES = {"float": "f4", "double": "f8", "float16": "f2", "bool": "?"}
TYPES |= {f"{u}int{8 * n}": f"{u or 'i'}{n}" for u in ("", "u") for n in (1, 2, 4, 8)}
NUMBERS = (*FLOATS, *INTS)
ALL = (*NUMBERS, "?")
OPSETS = (11, 13, 17, 18, 21, 22, 23)


Tame = Callable[
    [np.ndarray, int], np.ndarray
]  # of an array and its number: what fulfills a condition


class Draw:
    """Random choices of a case; calm ones have moderate values only."""

    def __init__(self, seed: int, tame: Tame | None = None) -> None:
        self.random = np.random.default_rng(seed)
        self.opset, self.calm = self.pick(OPSETS), self.chance(0.3)
        self.tame, self.drawn = tame, 0

    def chance(self, p: float = 0.5) -> bool:
        return bool(self.random.random() < p)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.random.integers(len(items)))]

    def int(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def ints(self, low: int, high: int, count: int) -> list[int]:
        return [self.int(low, high) for _ in range(count)]

    def shape(self, low: int = 0, high: int = 4, least: int = 0) -> tuple[int, ...]:
        """Sizes, of which few are 0; some are long enough for vectors and their rest."""
        rank = self.int(low, high)
        sizes = [self.pick((1, 1, 2, 3, 3, 4, 5, 7)) for _ in range(rank)]
        if rank and self.chance(0.3):
            sizes[self.int(0, rank - 1)] = self.pick((9, 17, 35))
        if rank and least == 0 and self.chance(0.04):
            sizes[self.int(0, rank - 1)] = 0
        return tuple(sizes)

    def array(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Special values among others, as far as a condition allows them."""
        values = moderate_values if self.calm else special_values
        array, number = values(self.random, shape, dtype), self.drawn
        self.drawn += 1
        return array if self.tame is None else np.asarray(self.tame(array, number), array.dtype)


@dataclass
class Node:
    """An operator with its inputs; those numbered in `constants` are initializers."""

    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: Sequence[int] = ()
    outputs: int = 1
    domain: str = ""


Maker = Callable[[Draw, str], Node]
MAKERS: dict[str, Maker] = {}


def makes(*names: str) -> Callable[[Maker], Maker]:
    def enter(maker: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(names, maker))
        return maker

    return enter


def takes(d: Draw, op: str, attribute: str) -> bool:
    return attribute in onnx.defs.get_schema(op, d.opset).attributes


def types(d: Draw, op: str, among: Sequence[str] = ALL) -> Sequence[str]:
    """The types of an operator's first operand, of those that have kernels."""
    schema = onnx.defs.get_schema(op, d.opset)
    allowed = onnx_types(schema, schema.inputs[0].type_str)
    return [t for t in among if t in allowed] or [t for t in ALL if t in allowed]


def onnx_types(schema: Any, name: str) -> set[str]:
    said = next(
        (c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == name), [name]
    )
    names = {f"tensor({n})": t for n, t in TYPES.items()}
    return {names[n] for n in said if n in names}


UNARY = [
    "Abs",
    "Acos",
    "Asin",
    "Atan",
    "BitwiseNot",
    "Ceil",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Not",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Celu",
    "Shrink",
    "Size",
    "Shape",
]
BINARY = [
    "Add",
    "And",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Mod",
    "Mul",
    "Or",
    "PRelu",
    "Pow",
    "Sub",
    "Xor",
]


@makes(*UNARY)
def unary(d: Draw, op: str) -> Node:
    attributes = {}
    if op == "IsInf" and d.chance():
        attributes = {"detect_negative": d.int(0, 1), "detect_positive": d.int(0, 1)}
    if op in ("ThresholdedRelu", "Elu", "LeakyRelu") and d.chance():
        attributes = {"alpha": d.pick((0.0, 1.0, 0.3, 2.0))}
    return Node([d.array(d.shape(), d.pick(types(d, op)))], attributes)


def broadcastable(d: Draw, shape: Sequence[int]) -> tuple[int, ...]:
    kept = [1 if d.chance(0.25) else n for n in shape]
    return tuple(kept[d.int(0, len(kept)) if d.chance(0.3) and kept else 0 :])


@makes(*BINARY)
def binary(d: Draw, op: str) -> Node:
    shape, dtype = d.shape(), d.pick(types(d, op))
    a, b = d.array(shape, dtype), d.array(broadcastable(d, shape), dtype)
    if op not in ("PRelu", "Pow") and d.chance(0.3):
        a, b = b, a
    attributes: dict[str, Any] = {}
    if op in ("Div", "Mod") and a.dtype.kind in "iu":
        b = np.where(b == 0, 1, b).astype(dtype)
        b = np.where(b.astype(np.int64) == -1, 2, b).astype(dtype) if b.dtype.kind == "i" else b
    if op == "Mod" and (a.dtype.kind == "f" or d.chance()):
        attributes["fmod"] = 1
    if op == "BitShift":
        attributes["direction"] = d.pick(("LEFT", "RIGHT"))
        b = (b % (8 * b.itemsize)).astype(dtype)
    return Node([a, b], attributes, [1] if d.chance(0.2) else [])


@makes("Max", "Min", "Sum", "Mean")
def variadic(d: Draw, op: str) -> Node:
    shape, dtype = d.shape(), d.pick(types(d, op, NUMBERS))
    return Node([d.array(broadcastable(d, shape), dtype) for _ in range(d.int(1, 3))])


@makes("Where")
def where(d: Draw, op: str) -> Node:
    shape, dtype = d.shape(), d.pick(types(d, op, ALL))
    arrays = [d.array(broadcastable(d, shape), t) for t in ("?", dtype, dtype)]
    return Node(arrays)


@makes("Clip")
def clip(d: Draw, op: str) -> Node:
    x = d.array(d.shape(), d.pick(types(d, op, NUMBERS)))
    limits = [d.array((), x.dtype) if d.chance(0.7) else None for _ in range(2)]
    if limits[0] is not None and limits[1] is not None and d.chance(0.8):
        limits = sorted(limits)  # type: ignore[type-var]
    return Node([x, *limits], {}, [1, 2] if d.chance() else [])


@makes("Cast", "CastLike")
def cast(d: Draw, op: str) -> Node:
    x, to = d.array(d.shape(), d.pick(types(d, op, ALL))), np.dtype(d.pick(ALL))
    if op == "CastLike":
        return Node([x, d.array((1,), to)])
    return Node([x], {"to": helper.np_dtype_to_tensor_dtype(to)})


@makes("Dropout")
def dropout(d: Draw, op: str) -> Node:
    return Node([d.array(d.shape(), d.pick(types(d, op, FLOATS)))], outputs=d.int(1, 2))


REDUCTIONS = [
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
]


@makes(*REDUCTIONS)
def reduction(d: Draw, op: str) -> Node:
    x = d.array(d.shape(0, 4), d.pick(types(d, op, NUMBERS)))
    attributes: dict[str, Any] = {"keepdims": d.int(0, 1)} if d.chance(0.7) else {}
    axes = [a - x.ndim * d.int(0, 1) for a in range(x.ndim) if d.chance()]
    if takes(d, op, "axes"):
        return Node([x], {**attributes, **({"axes": axes} if axes else {})})
    if d.chance(0.3):
        attributes["noop_with_empty_axes"] = d.int(0, 1)
    return Node([x, np.array(axes, np.int64)] if axes or d.chance(0.2) else [x], attributes, [1])


@makes("ArgMax", "ArgMin")
def arg(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1), d.pick(types(d, op, NUMBERS)))
    attributes = {"axis": d.int(-x.ndim, x.ndim - 1), "keepdims": d.int(0, 1)}
    if takes(d, op, "select_last_index"):
        attributes["select_last_index"] = d.int(0, 1)
    return Node([x], attributes)


@makes("Concat")
def concat(d: Draw, op: str) -> Node:
    shape, dtype = list(d.shape(1)), d.pick(types(d, op, ALL))
    axis, arrays = d.int(0, len(shape) - 1), []
    for _ in range(d.int(1, 3)):
        shape[axis] = d.pick((1, 2, 5, 0, 3))
        arrays.append(d.array(shape, dtype))
    return Node(arrays, {"axis": axis - len(shape) * d.int(0, 1)})


@makes("Expand")
def expand(d: Draw, op: str) -> Node:
    shape = d.shape()
    x = d.array(broadcastable(d, shape), d.pick(types(d, op, ALL)))
    return Node([x, np.array(shape, np.int64)], {}, [1])


@makes("Flatten")
def flatten(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1), d.pick(types(d, op, ALL)))
    return Node([x], {"axis": d.int(-x.ndim, x.ndim)})


def indices(d: Draw, size: int, shape: Sequence[int]) -> np.ndarray:
    return d.random.integers(-size, max(size, 1), shape).astype(d.pick(("i4", "i8")))


@makes("Gather")
def gather(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 3, 1), d.pick(types(d, op, ALL)))
    axis = d.int(0, x.ndim - 1)
    at = indices(d, x.shape[axis], d.shape(0, 2))
    return Node([x, at], {"axis": axis - x.ndim * d.int(0, 1)}, [1] if d.chance() else [])


@makes("GatherElements")
def gather_elements(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 3, 1), d.pick(types(d, op, ALL)))
    axis = d.int(0, x.ndim - 1)
    shape = [d.int(1, n) for n in x.shape]
    shape[axis] = d.int(1, 6)
    return Node([x, indices(d, x.shape[axis], shape)], {"axis": axis - x.ndim * d.int(0, 1)})


def coordinates(d: Draw, x: np.ndarray, batch: int = 0) -> np.ndarray:
    count = d.int(1, x.ndim - batch)
    shape = (*x.shape[:batch], *d.shape(0, 2, 1))
    parts = [d.random.integers(-n, n, shape) for n in x.shape[batch : batch + count]]
    return np.stack(parts, -1).astype(np.int64)


@makes("GatherND")
def gather_nd(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 4, 1), d.pick(types(d, op, ALL)))
    batch = d.int(0, x.ndim - 1) if d.opset >= 12 and d.chance() else 0
    at = coordinates(d, x, batch)
    return Node([x, at], {"batch_dims": batch} if batch else {})


@makes("ScatterElements")
def scatter_elements(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 3, 1), d.pick(types(d, op, ALL)))
    axis = d.int(0, x.ndim - 1)
    shape = [d.int(1, n) for n in x.shape]
    at = indices(d, x.shape[axis], shape)
    attributes: dict[str, Any] = {"axis": axis - x.ndim * d.int(0, 1)}
    if takes(d, op, "reduction") and d.chance():
        attributes["reduction"] = d.pick(("add", "mul", "none", *("max", "min") * (d.opset >= 18)))
    else:
        order = np.argsort(d.random.random(x.shape), axis)  # each place once
        at = order[tuple(map(slice, shape))].astype("i8")
    return Node([x, at, d.array(shape, x.dtype)], attributes)


@makes("ScatterND")
def scatter_nd(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 3, 1), d.pick(types(d, op, ALL)))
    at = coordinates(d, x)
    attributes: dict[str, Any] = {}
    if takes(d, op, "reduction") and d.chance():
        attributes["reduction"] = d.pick(("add", "mul", "none", *("max", "min") * (d.opset >= 18)))
    if attributes.get("reduction", "none") == "none":
        at = at.reshape(-1, at.shape[-1])
        _, first = np.unique(at % x.shape[: at.shape[-1]], axis=0, return_index=True)
        at = at[first]
    shape = (*at.shape[:-1], *x.shape[at.shape[-1] :])
    return Node([x, at, d.array(shape, x.dtype)], attributes)


@makes("DepthToSpace", "SpaceToDepth")
def depth(d: Draw, op: str) -> Node:
    b, (n, c, h, w) = d.int(1, 3), d.ints(1, 3, 4)
    shape = (n, c * b * b, h, w) if op == "DepthToSpace" else (n, c, h * b, w * b)
    attributes: dict[str, Any] = {"blocksize": b}
    if op == "DepthToSpace" and d.chance():
        attributes["mode"] = d.pick(("DCR", "CRD"))
    return Node([d.array(shape, d.pick(types(d, op, ALL)))], attributes)


@makes("Col2Im")
def columns(d: Draw, op: str) -> Node:
    d.opset = max(d.opset, 18)
    rank = d.int(1, 3)
    kernel, strides, dilations = d.ints(1, 3, rank), d.ints(1, 3, rank), d.ints(1, 2, rank)
    before, after, counts = d.ints(0, 2, rank), d.ints(0, 2, rank), d.ints(1, 4, rank)
    sizes = [
        max(1, (c - 1) * s + t * (k - 1) + 1 - p - q)
        for c, s, t, k, p, q in zip(counts, strides, dilations, kernel, before, after, strict=True)
    ]
    counts = [
        (n + p + q - t * (k - 1) - 1) // s + 1
        for n, s, t, k, p, q in zip(sizes, strides, dilations, kernel, before, after, strict=True)
    ]
    x = d.array((d.int(1, 3), d.int(1, 2) * int(np.prod(kernel)), int(np.prod(counts))), "f4")
    attributes = {"strides": strides, "dilations": dilations, "pads": [*before, *after]}
    return Node([x, np.array(sizes), np.array(kernel)], attributes, [1, 2])


@makes("EyeLike")
def eye(d: Draw, op: str) -> Node:
    x = d.array(d.ints(1, 6, 2), d.pick(types(d, op, ALL)))
    to = {"dtype": helper.np_dtype_to_tensor_dtype(np.dtype(d.pick(ALL)))} if d.chance() else {}
    return Node([x], {"k": d.int(-7, 7), **to})


@makes("OneHot")
def one_hot(d: Draw, op: str) -> Node:
    count = d.int(1, 6)
    at = d.random.integers(-count - 2, count + 2, d.shape(1, 2)).astype(d.pick(("i4", "i8", "f4")))
    values = d.array((2,), d.pick(NUMBERS))
    return Node(
        [at, np.array(d.pick((count, [count])), np.int64), values],
        {"axis": d.int(-1, at.ndim)},
        [1],
    )


@makes("Pad")
def pad(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 4, 1), d.pick(types(d, op, NUMBERS)))
    mode = d.pick(("constant", "constant", "reflect", "edge", *("wrap",) * (d.opset >= 19)))
    axes = [a for a in range(x.ndim) if d.chance(0.7)] if d.opset >= 18 and d.chance() else None
    along = range(x.ndim) if axes is None else axes
    most = {a: min(x.shape[a] - 1, 4) if mode in ("reflect", "wrap") else 4 for a in along}
    low = {a: -(x.shape[a] // 2) if d.chance(0.3) else 0 for a in along}
    pads = [d.int(low[a], most[a]) for _ in range(2) for a in along]
    value = d.array((), x.dtype) if d.chance() else None
    inputs: list[Any] = [x, np.array(pads, np.int64)]
    if mode == "constant" or axes is not None:
        inputs.append(value if mode == "constant" else None)
    if axes is not None:
        inputs.append(np.array(axes, np.int64))
    return Node(inputs, {"mode": mode}, [1, 2, 3])


@makes("Range")
def range_(d: Draw, op: str) -> Node:
    dtype, step = d.pick(("f4", "f8", "i2", "i4", "i8")), d.pick((1, 2, 3, -1, -2, 0.1, 0.3, 0.7))
    step = step if dtype in ("f4", "f8") or abs(step) >= 1 else 1
    start = d.int(-5, 5)
    limit = start + step * d.pick((0, 3, 7.5, -2, 10))
    return Node([np.array(v, dtype) for v in (start, limit, step)], {}, [0, 1, 2])


@makes("Reshape")
def reshape(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1), d.pick(types(d, op, ALL)))
    target = list(d.random.permutation(x.shape)) if d.chance() else [-1]
    if d.chance(0.3) and 0 not in x.shape:
        target = [0, *target[1:]] if target[0] == x.shape[0] else target
    return Node([x, np.array(target, np.int64)], {}, [1])


@makes("ReverseSequence")
def reverse_sequence(d: Draw, op: str) -> Node:
    shape = d.shape(2, 4, 1)
    time = d.int(0, 1)
    lengths = d.random.integers(1, shape[time] + 1, shape[1 - time]).astype(np.int64)
    return Node(
        [d.array(shape, d.pick(types(d, op, ALL))), lengths],
        {"time_axis": time, "batch_axis": 1 - time},
    )


@makes("Slice")
def slice_(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 3), d.pick(types(d, op, ALL)))
    axes = [a for a in range(x.ndim) if d.chance(0.8)] or [0]
    far = (2**31 - 1, -(2**31), 2**63 - 1, -(2**63) + 1)

    def place(n: int) -> int:
        return d.pick(far) if d.chance(0.15) else d.int(-n - 7, n + 7)

    bounds = [[place(x.shape[a]) for a in axes] for _ in range(2)]
    steps = [d.pick((1, 1, 2, 3, -1, -2, -3, 5, *far[2:] * (d.chance(0.2)))) for _ in axes]
    axes = [a - x.ndim * d.int(0, 1) for a in axes]
    return Node([x, *(np.array(v, np.int64) for v in (*bounds, axes, steps))], {}, [1, 2, 3, 4])


@makes("Split")
def split(d: Draw, op: str) -> Node:
    shape = list(d.shape(1))
    axis, count = d.int(0, len(shape) - 1), d.int(1, 3)
    sizes = d.ints(0, 4, count) if d.chance() else None
    shape[axis] = sum(sizes) if sizes is not None else count * d.int(1, 3)
    x, attributes = (
        d.array(shape, d.pick(types(d, op, ALL))),
        {"axis": axis - len(shape) * d.int(0, 1)},
    )
    if takes(d, op, "split"):
        return Node([x], {**attributes, **({"split": sizes} if sizes else {})}, (), count)
    if sizes is None and d.opset >= 18:
        attributes["num_outputs"] = count
    return Node(
        [x, *([np.array(sizes, np.int64)] if sizes is not None else [])], attributes, [1], count
    )


@makes("Squeeze", "Unsqueeze")
def squeeze(d: Draw, op: str) -> Node:
    x = d.array(d.shape(), d.pick(types(d, op, ALL)))
    if op == "Squeeze":
        axes = [a - x.ndim * d.int(0, 1) for a, n in enumerate(x.shape) if n == 1 and d.chance(0.7)]
    else:
        rank = x.ndim + d.int(1, 2)
        axes = [int(a) - rank * d.int(0, 1) for a in d.random.permutation(rank)[: rank - x.ndim]]
    if takes(d, op, "axes"):
        return Node([x], {"axes": axes} if axes else {})
    return Node([x, np.array(axes, np.int64)], {}, [1])


@makes("Tile")
def tile(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 3), d.pick(types(d, op, ALL)))
    return Node([x, np.array(d.ints(0, 3, x.ndim), np.int64)], {}, [1])


@makes("TopK")
def top_k(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 3, 1), d.pick(("f4", "f8", "i4", "i8")))
    axis = d.int(-x.ndim, x.ndim - 1)
    k = np.array([d.int(0 if d.chance(0.1) else 1, x.shape[axis])], np.int64)
    return Node([x, k], {"axis": axis, "largest": d.int(0, 1), "sorted": 1}, [1], 2)


@makes("Transpose")
def transpose(d: Draw, op: str) -> Node:
    x = d.array(d.shape(), d.pick(types(d, op, ALL)))
    return Node(
        [x], {"perm": d.random.permutation(x.ndim).tolist()} if x.ndim and d.chance(0.8) else {}
    )


@makes("Trilu")
def trilu(d: Draw, op: str) -> Node:
    x = d.array(d.shape(2), d.pick(types(d, op, ALL)))
    k = [np.array(d.int(-6, 6), np.int64)] if d.chance(0.7) else []
    return Node([x, *k], {"upper": d.int(0, 1)}, [1])


@makes("Compress")
def compress(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 3, 1), d.pick(types(d, op, ALL)))
    axis = {"axis": d.int(-x.ndim, x.ndim - 1)} if d.chance(0.7) else {}
    n = x.shape[axis["axis"]] if axis else x.size
    return Node([x, d.random.random(d.int(1, n)) < 0.6], axis, [1])


@makes("CumSum")
def cumsum(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 3), d.pick(("f4", "f8", "i4", "i8")))
    axis = np.array(d.int(-x.ndim, x.ndim - 1), np.int64)
    return Node([x, axis], {"exclusive": d.int(0, 1), "reverse": d.int(0, 1)}, [1])


@makes("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def softmax(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 4), d.pick(types(d, op, FLOATS)))
    return Node([x], {"axis": d.int(-x.ndim, x.ndim - 1)})


def window(d: Draw, spatial: Sequence[int], ceil: bool = True, most: int = 4) -> dict[str, Any]:
    rank = len(spatial)
    kernel = [d.int(1, min(n, most)) for n in spatial]
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if d.chance(0.7):
        attributes["strides"] = d.ints(1, 3, rank)
    if d.chance(0.4):
        attributes["dilations"] = d.ints(1, 2, rank)
    kind = d.pick(("", "", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
    if kind:
        attributes["auto_pad"] = kind
    if kind in ("", "NOTSET") and d.chance(0.7):
        attributes["pads"] = [d.int(0, k - 1) for _ in range(2) for k in kernel]
    if ceil and d.chance(0.3):
        attributes["ceil_mode"] = 1
    return attributes


@makes("MaxPool", "AveragePool", "LpPool")
def pool(d: Draw, op: str) -> Node:
    spatial = d.ints(1, 9, d.int(1, 3))
    x = d.array(
        (*d.ints(1, 3, 2), *spatial), d.pick(types(d, op, ("f4", "f4", "f8", *BYTES, "f2")))
    )
    attributes = window(d, spatial, takes(d, op, "ceil_mode"))
    if not takes(d, op, "dilations"):
        attributes.pop("dilations", None)
    if op == "AveragePool" and d.chance():
        attributes["count_include_pad"] = d.int(0, 1)
    outputs = 1
    if op == "MaxPool" and d.chance(0.3):
        outputs, attributes["storage_order"] = 2, d.int(0, 1)
    return Node([x], attributes, (), outputs)


@makes("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def global_pool(d: Draw, op: str) -> Node:
    return Node(
        [d.array((*d.ints(1, 3, 2), *d.ints(1, 9, d.int(1, 3))), d.pick(types(d, op, FLOATS)))]
    )


@makes("Conv")
def conv(d: Draw, op: str) -> Node:
    spatial, groups = d.ints(3, 9, d.int(1, 2)), d.int(1, 2)
    attributes, channels = {**window(d, spatial, False, 3), "group": groups}, d.int(1, 2)
    x = d.array((d.int(1, 2), channels * groups, *spatial), "f4")
    w = d.array((groups * d.int(1, 2), channels, *attributes["kernel_shape"]), "f4")
    return Node([x, w], attributes)


@makes("MatMul", "MatMulInteger", "Gemm")
def matmul(d: Draw, op: str) -> Node:
    m, k, n = d.ints(1, 9, 3)
    batch = () if op == "Gemm" or d.chance(0.6) else tuple(d.ints(1, 3, d.int(1, 2)))
    if op == "MatMulInteger":
        a, b = d.array((*batch, m, k), d.pick(BYTES)), d.array((k, n), d.pick(BYTES))
        zeros = [d.array((), a.dtype), d.array((), b.dtype)] if d.chance() else []
        return Node([a, b, *zeros], {}, [1] if d.chance() else [])
    dtype = d.pick(("f4", "f8", "i4", "i8", "u4", "u8"))
    b = d.array((k, n) if d.chance() or op == "Gemm" else (*broadcastable(d, batch), k, n), dtype)
    c = [d.array(broadcastable(d, (m, n)), dtype)] if op == "Gemm" and d.chance() else []
    return Node([d.array((*batch, m, k), dtype), b, *c])


@makes("ConvInteger")
def conv_integer(d: Draw, op: str) -> Node:
    spatial = d.ints(3, 9, d.int(1, 2))
    attributes, channels = window(d, spatial, False, 3), d.int(1, 3)
    x = d.array((d.int(1, 2), channels, *spatial), "u1")
    w = d.array((d.int(1, 3), channels, *attributes["kernel_shape"]), d.pick(BYTES))
    zeros = [d.array((), x.dtype), d.array((), w.dtype)] if d.chance() else []
    return Node([x, w, *zeros], attributes, [1, 3])


def scale(d: Draw, shape: Sequence[int] = ()) -> np.ndarray:
    return np.exp(d.random.uniform(-6, 2, shape)).astype(np.float32)


@makes("QuantizeLinear", "DequantizeLinear")
def quantize(d: Draw, op: str) -> Node:
    shape, dtype = d.shape(1), d.pick(BYTES)
    axis = d.int(0, len(shape) - 1)
    row = (shape[axis],) if d.chance(0.4) and d.opset >= 13 else ()
    s = scale(d, row)
    x = d.array(shape, "f4" if op == "QuantizeLinear" else dtype)
    zero = [d.array(row, dtype)] if d.chance(0.8) or x.dtype != np.uint8 else []
    return Node(
        [x, s, *zero], {"axis": axis} if d.opset >= 13 else {}, [1, 2] if d.chance() else []
    )


@makes("DynamicQuantizeLinear")
def dynamic(d: Draw, op: str) -> Node:
    return Node([d.array(d.shape(1, 3, 1), "f4")], outputs=3)


@makes("QLinearMatMul")
def qlinear_matmul(d: Draw, op: str) -> Node:
    m, k, n = d.ints(1, 9, 3)
    t = d.pick(BYTES)
    a, b = d.array((m, k), t), d.array((k, n), t)
    zeros = [d.array((), t) for _ in range(3)]
    arrays = [a, scale(d), zeros[0], b, scale(d), zeros[1], scale(d), zeros[2]]
    return Node(arrays, {}, [*range(1, 8)])


@makes("QLinearConv")
def qlinear_conv(d: Draw, op: str) -> Node:
    spatial = d.ints(3, 9, d.int(1, 2))
    attributes, channels, out = window(d, spatial, False, 3), d.int(1, 3), d.int(1, 3)
    t = d.pick(BYTES)
    x, w = (
        d.array((1, channels, *spatial), t),
        d.array((out, channels, *attributes["kernel_shape"]), t),
    )
    zeros = [d.array((), t), np.zeros((), t) if t == "i1" else d.array((), t), d.array((), t)]
    row = (out,) if d.chance() else ()
    bias = [d.random.integers(-9999, 9999, out).astype(np.int32)] if d.chance() else []
    arrays = [x, scale(d), zeros[0], w, scale(d, row), zeros[1], scale(d), zeros[2], *bias]
    return Node(arrays, attributes, [*range(1, 9)])


@makes("QLinearAdd", "QLinearMul", "QLinearLeakyRelu", "QLinearGlobalAveragePool")
def of_microsoft(d: Draw, op: str) -> Node:
    two, is_pool = op in ("QLinearAdd", "QLinearMul"), op.endswith("Pool")
    t = d.pick(BYTES)
    shape = tuple(d.ints(1, 9, 4)) if is_pool else d.shape(1, 3, 1)
    arrays: list[Any] = []
    for n in range(2 if two else 1):
        x = d.array(broadcastable(d, shape) if n else shape, t)
        arrays += [x, scale(d), d.array((), t)]
    constants = [n for n in range(len(arrays) + 2) if n not in (0, 3)]
    constants += [3] * (not two)
    attributes = {"alpha": d.pick((0.1, 0.3))} if op.endswith("Relu") else {}
    return Node([*arrays, scale(d), d.array((), t)], attributes, constants, 1, "com.microsoft")


@makes("QGemm")
def qgemm(d: Draw, op: str) -> Node:
    (m, k, n), t = d.ints(1, 9, 3), d.pick(BYTES)
    bias = d.random.integers(-9999, 9999, n).astype(np.int32) if d.chance() else None
    a, b = d.array((m, k), t), d.array((n, k), t)
    zero_b = np.zeros((), t) if t == "i1" else d.array((), t)
    arrays = [a, scale(d), d.array((), t), b, scale(d), zero_b, bias, scale(d), d.array((), t)]
    return Node(arrays, {"transB": 1}, [*range(1, 9)], 1, "com.microsoft")


@makes("Resize", "Upsample")
def resize(d: Draw, op: str) -> Node:
    x = d.array(
        (*d.ints(1, 2, 2), *d.ints(1, 10, d.int(1, 2))), d.pick(("f4", "f4", "i4", "i1", "u1"))
    )
    mode = d.pick(("nearest", "linear", "nearest"))
    scales = [
        1.0,
        1.0,
        *(d.pick((0.5, 0.7, 1.0, 1.4, 2.0, 2.6, 3.0, 0.3, 0.9, 1.1)) for _ in x.shape[2:]),
    ]
    if op == "Upsample":
        d.opset = 9
        scales = [max(1.0, s) for s in scales]
        return Node([x, np.array(scales, "f4")], {"mode": mode}, [1])
    transform = d.pick(
        ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel")
    )
    if d.chance(0.1):
        transform = "tf_half_pixel_for_nn" if d.opset < 13 else "tf_crop_and_resize"
    if d.opset >= 19 and d.chance(0.1):
        transform = "half_pixel_symmetric"
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transform}
    if mode == "nearest":
        attributes["nearest_mode"] = d.pick(
            ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        )
    none = np.zeros(0, "f4")
    if transform == "tf_crop_and_resize":
        low, high = (d.random.random(x.ndim) * 1.2 - 0.1 for _ in range(2))
        none = np.concatenate([np.zeros(2), low[2:], np.ones(2), high[2:]]).astype("f4")
        attributes["extrapolation_value"] = 3.0
    if d.chance(0.6):
        return Node([x, none, np.array(scales, "f4")], attributes, [1, 2])
    sizes = [*x.shape[:2], *d.ints(1, 12, x.ndim - 2)]
    return Node(
        [x, none, np.zeros(0, "f4") if d.opset < 13 else None, np.array(sizes, np.int64)],
        attributes,
        [1, 2, 3],
    )


@makes("AffineGrid")
def affine_grid(d: Draw, op: str) -> Node:
    rank, d.opset = d.int(2, 3), max(d.opset, 20)
    theta = d.array((2, rank, rank + 1), "f4")
    size = np.array([2, 1, *d.ints(1, 4, rank)], np.int64)
    return Node([theta, size], {"align_corners": d.int(0, 1)}, [1])


@makes("ConstantOfShape")
def constant_of_shape(d: Draw, op: str) -> Node:
    value = {"value": numpy_helper.from_array(d.array((1,), d.pick(ALL)))} if d.chance(0.8) else {}
    return Node([np.array(d.shape(), np.int64)], value, [0])


@makes("Unique")
def unique(d: Draw, op: str) -> Node:
    x = d.array(d.shape(1, 2, 1), d.pick(("f4", "i8", "i1")))
    axis = {"axis": d.int(-x.ndim, x.ndim - 1)} if d.chance() else {}
    return Node([x], {"sorted": d.int(0, 1), **axis}, [0], 4)


@makes("NonZero")
def non_zero(d: Draw, op: str) -> Node:
    return Node([d.array(d.shape(1), d.pick(types(d, op, ALL)))], {}, [0])


@makes("MaxUnpool")
def max_unpool(d: Draw, op: str) -> Node:
    n, c, h, w = d.ints(1, 3, 4)
    x = d.array((n, c, h, w), "f4")
    at = d.random.permutation(n * c * 4 * h * w)[: x.size].reshape(x.shape).astype(np.int64)
    return Node([x, at], {"kernel_shape": [2, 2], "strides": [2, 2]})


@makes("Einsum")
def einsum(d: Draw, op: str) -> Node:
    i, j, k = d.ints(1, 5, 3)
    dtype = d.pick(("f4", "f8", "i4", "i8"))
    shapes = {
        "ij,jk->ik": ((i, j), (j, k)),
        "ij->ji": ((i, j),),
        "ij->i": ((i, j),),
        "ii->i": ((i, i),),
    }
    equation = d.pick(list(shapes))
    return Node([d.array(s, dtype) for s in shapes[equation]], {"equation": equation})


FIRST = {  # opsets
    s.name: s.since_version
    for s in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda s: -s.since_version)
    if not s.domain
}
AFTER = {
    "f": (
        "Relu",
        "Abs",
        "Neg",
        "Floor",
        "Ceil",
        "Identity",
        "Sign",
        "Round",
        "Transpose",
        "Clip",
        "Cast",
        "Add",
        "Mul",
    ),
    "i": ("Abs", "Neg", "Identity", "Transpose", "Cast", "Add", "Mul"),
}


@dataclass
class Case:
    """A model, the values of its inputs, and the names of its operators."""

    model: onnx.ModelProto
    feed: dict[str, np.ndarray]
    ops: list[str]
    calm: bool

    def __str__(self) -> str:
        lines = [onnx.printer.to_text(self.model.graph)]
        return "\n".join(lines + [f"{k} = {v.tolist()!r} {v.dtype}" for k, v in self.feed.items()])


def case(seed: int, ops: Sequence[str] = (), tame: Tame | None = None) -> Case:
    """A random node, or a chain of up to three."""
    d = Draw(seed, tame)
    op = d.pick(list(ops) or sorted(MAKERS))
    d.opset = max(d.opset, FIRST.get(op, 0))
    made = MAKERS[op](d, op)
    names = ["" if a is None else f"x{k}" for k, a in enumerate(made.inputs)]
    while names and not names[-1]:
        names.pop()
    arrays = {n: np.asarray(a) for n, a in zip(names, made.inputs, strict=False) if n}
    constants = {
        n: a for k, n in enumerate(names) if k in made.constants and n for a in [arrays[n]]
    }
    outputs = [f"y{k}" for k in range(made.outputs)]
    nodes = [helper.make_node(op, names, outputs, domain=made.domain, **made.attributes)]
    first = next(iter(arrays.values()))
    quantised = helper.np_dtype_to_tensor_dtype(first.dtype)
    kind = "f" if first.dtype.kind == "f" else "i"
    is_alone = made.domain != "" or d.chance(0.8)
    chain = [] if is_alone else [d.pick(AFTER[kind]) for _ in range(d.int(1, 2))]
    for n, after in enumerate(chain):
        more, attributes = [], {}
        if after == "Cast":
            attributes["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(d.pick(ALL)))
        elif after in ("Add", "Mul"):
            more = [f"c{n}"]
            constants[f"c{n}"] = arrays[f"c{n}"] = d.array((), next(iter(arrays.values())).dtype)
        nodes.append(helper.make_node(after, [outputs[0], *more], [f"z{n}"], **attributes))
        outputs[0] = f"z{n}"
    feed = {n: a for n, a in arrays.items() if n not in constants}
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feed.items()
        ],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    opsets = [helper.make_opsetid("", d.opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    inferred = onnx.shape_inference.infer_shapes(model).graph.output
    for output, known in zip(model.graph.output, inferred, strict=True):  # whatever its shape
        kind = known.type.tensor_type.elem_type if not made.domain else quantised
        output.type.tensor_type.elem_type = kind
    return Case(model, feed, [op, *chain], d.calm)
