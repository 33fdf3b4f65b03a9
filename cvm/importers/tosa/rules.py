"""The operators of TOSA's integer profile, each as operations of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, I8, I16, I32, I64, ElementType, TensorType
from cvm.importers.exactness import ANY, EXACT, Exactness
from cvm.importers.graph import importer as graph
from cvm.importers.graph.elementwise import number, ufunc
from cvm.importers.graph.rules import Array, Because, ImportRule, Ints, Known, Unsupported, table

from .schema import ELEMENTS, Graph, Tensor

UNSIGNED = {e: ELEMENT_TYPES[f"u{e.name}"] for e in (I8, I16, I32, I64)}
UNSIGNED_DTYPE = {e.dtype: u.dtype for e, u in UNSIGNED.items()}
DOUBLE = 3  # of the enumeration RoundingMode; the others round once
MAX_RANK = 6  # of the specification's level 8K

REFUSED = {
    **dict.fromkeys(("COND_IF", "WHILE_LOOP"), "control flow is not imported"),
    **dict.fromkeys(("VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE"), "variables are not imported"),
    **dict.fromkeys(
        [
            "CEIL",
            "COS",
            "ERF",
            "EXP",
            "FFT2D",
            "FLOOR",
            "LOG",
            "POW",
            "RECIPROCAL",
            "REDUCE_PRODUCT",
            "RFFT2D",
            "RSQRT",
            "SIGMOID",
            "SIN",
            "TANH",
        ],
        "it computes on floats",
    ),
    "CONV3D": "quant.conv2d has two dimensions of space",
    "CUSTOM": "the specification does not say what it computes",
}
RULES: dict[str, ImportRule] = {}
rule = table(RULES)
STAYS = Exactness(
    "no number leaves its type, beyond which the result is unpredictable", sums=(ANY,)
)
INSIDE = Exactness("its indices are inside the tensor, which a call checks")
EXACTNESS = {
    **dict.fromkeys(
        (
            "ADD",
            "SUB",
            "MUL",
            "INTDIV",
            "ABS",
            "NEGATE",
            "LOGICAL_LEFT_SHIFT",
            "CONV2D",
            "DEPTHWISE_CONV2D",
            "TRANSPOSE_CONV2D",
            "MATMUL",
            "REDUCE_SUM",
            "AVG_POOL2D",
            "RESCALE",
            "RESIZE",
            "TABLE",
        ),
        STAYS,
    ),
    **dict.fromkeys(("GATHER", "SCATTER"), INSIDE),
}


@dataclass
class At(graph.At):
    """An operator of a graph while it is imported."""

    model: Graph
    attributes: Mapping[str, Any]
    rules, refused = RULES, REFUSED

    def __getitem__(self, name: str) -> Any:
        value = self.attributes[name]
        rank = len(self.tensor(0).shape)
        if name in ("axis", "perms") and not all(0 <= n < rank for n in np.ravel(value)):
            raise ValueError(f"{name} {value} of {rank} dimensions")
        return tuple(map(int, value)) if isinstance(value, (np.ndarray, tuple, list)) else value

    def run(self) -> Any:
        names = (*self.graph_node.inputs, *self.graph_node.outputs) if self.op in RULES else ()
        types = {self.model.tensors[n].type for n in names}
        if refused := types - ELEMENTS.keys() | types & {"FP32"}:
            raise Unsupported(f"a tensor of type {min(refused)}")
        ranks = {len(self.model.tensors[n].shape) for n in names}
        if max(ranks, default=0) > MAX_RANK or (
            len(ranks) > 1 and (self.op in UFUNCS or self.op.endswith("_SHIFT"))
        ):
            raise ValueError(
                f"ranks {sorted(ranks)}, which are to be the same and at most {MAX_RANK}"
            )
        result = super().run()
        if (
            isinstance(result, Node)
            and result.array_type.key != TensorType(self.tensor(-1).shape, self.result).key
        ):
            raise Because(f"its result is {result.array_type}, the model says otherwise")
        return result

    def exactness(self) -> Exactness:
        return EXACTNESS.get(self.op, EXACT)

    def tensor(self, n: int) -> Tensor:
        """An operand, or by -1 the result."""
        return self.model.tensors[(*self.graph_node.inputs, self.graph_node.outputs[0])[n]]

    @property
    def result(self) -> ElementType:
        return ELEMENTS[self.tensor(-1).type]

    def pads(
        self, name: str, kernel: Any = (), dilation: Any = (1, 1)
    ) -> tuple[int, int, int, int]:
        """PT, PL, PB, PR of TOSA's top, bottom, left and right; a window of this kernel is to end
        where the padded input does.
        """
        top, bottom, left, right = self[name]
        sizes = (
            n + m
            for n, m in zip(self.tensor(0).shape[1:], (top + bottom, left + right), strict=False)
        )
        if any(
            (n - 1 - (k - 1) * d) % s
            for n, k, d, s in zip(sizes, kernel, dilation, self["stride"], strict=False)
        ):
            raise ValueError("a stride that leaves a rest of the input")
        return top, left, bottom, right


# Elementwise

UFUNCS = {
    "ADD": "add",
    "SUB": "subtract",
    "MAXIMUM": "maximum",
    "MINIMUM": "minimum",
    "ABS": "absolute",
    "BITWISE_AND": "bitwise_and",
    "BITWISE_OR": "bitwise_or",
    "BITWISE_XOR": "bitwise_xor",
    "BITWISE_NOT": "invert",
    "LOGICAL_AND": "logical_and",
    "LOGICAL_OR": "logical_or",
    "LOGICAL_XOR": "logical_xor",
    "LOGICAL_NOT": "logical_not",
    "LOGICAL_LEFT_SHIFT": "left_shift",
    "EQUAL": "equal",
    "GREATER": "greater",
    "GREATER_EQUAL": "greater_equal",
}


def alone(x: Node) -> Node:
    """The only element of a tensor."""
    return x.dimshuffle([])


@rule("LOGICAL_RIGHT_SHIFT")
def logical_right_shift(at: At, x: Node, by: Node) -> Node:
    unsigned = UNSIGNED[x.element]
    return ufunc("right_shift", x.cast(unsigned), by.cast(unsigned)).cast(x.element)


@rule("ARITHMETIC_RIGHT_SHIFT")
def arithmetic_right_shift(at: At, x: Node, by: Node) -> Node:
    shifted = ufunc("right_shift", x, by)
    if not at["round"]:
        return shifted
    before = ufunc(
        "right_shift", x, ufunc("maximum", ufunc("subtract", by, number(by, 1)), number(by, 0))
    )
    one_bit = ufunc("minimum", by, number(by, 1))  # nothing is rounded where nothing is shifted
    return ufunc("add", shifted, ufunc("bitwise_and", before, one_bit))


@rule("INTDIV")
def intdiv(at: At, a: Node, b: Node) -> Node:
    """Rounded toward zero."""
    wide = [n.cast(I64) for n in (a, b)]
    quotient = ufunc("floor_divide", *(ufunc("absolute", n) for n in wide))
    return ufunc("multiply", quotient, ufunc("multiply", *(ufunc("sign", n) for n in wide))).cast(
        I32
    )


@rule("MUL")
def mul(at: At, a: Node, b: Node, shift: Array) -> Node:
    if not (by := int(shift.reshape(-1)[0]) if a.element is I32 else 0):
        return ufunc("multiply", a.cast(I32), b.cast(I32))
    product = ufunc("multiply", a.cast(I64), b.cast(I64))
    return ufunc(
        "right_shift", ufunc("add", product, number(product, 1 << (by - 1))), number(product, by)
    ).cast(I32)


@rule("NEGATE")
def negate(at: At, x: Node, x_zero: Array, y_zero: Array) -> Node:
    wide = ufunc("subtract", number(x.cast(I32), zero(x_zero) + zero(y_zero)), x.cast(I32))
    return clipped(wide, *x.element.limits).cast(x.element)


def clipped(x: Node, low: int, high: int) -> Node:
    return ufunc("minimum", ufunc("maximum", x, number(x, low)), number(x, high))


@rule("CLAMP")
def clamp(at: At, x: Node) -> Node:
    ends = (at[n] for n in ("min_val", "max_val"))  # bytes in a flatbuffer
    return clipped(
        x,
        *(
            n if isinstance(n, int) else np.array(n, np.uint8).view(x.element.dtype).item()
            for n in ends
        ),
    )


def zero(point: Array, unsigned: bool = False) -> int:
    """A zero point as a number; only numbers of 8 bits have one, and unsigned ones of 16 the
    middle.
    """
    values = point.reshape(-1)
    number = int(values.view(UNSIGNED_DTYPE[values.dtype])[0]) if unsigned else int(values[0])
    if (
        number
        and values.dtype.itemsize != 1
        and not (unsigned and values.dtype.itemsize == 2 and number == 1 << 15)
    ):
        raise ValueError(f"a zero point {number} of numbers of {8 * values.dtype.itemsize} bits")
    return number


def zero_points(at: At, *points: Known) -> list[Node]:
    """The zero points of two factors; those that are constants are checked."""
    for p in points:
        if isinstance(p, np.ndarray):
            zero(p)
    return [alone(at.node(p)) for p in points]


@rule("CAST")
def cast(at: At, x: Node) -> Node:
    if x.element is at.result:
        raise ValueError(f"a conversion of {x.element} to itself")
    return x.cast(at.result)


@rule("RESCALE")
def rescale(at: At, x: Node, multiplier: Node, shift: Node, x_zero: Array, y_zero: Array) -> Node:
    to, signs = at.result, (at["input_unsigned"], at["output_unsigned"])
    if all(signs) or (any(signs) and max(x.element.bits, to.bits) > 16):
        raise ValueError("unsigned numbers on both sides, or beside 32 bits")
    if (at["scale32"] and x.element is I64) or (
        not at["scale32"] and at["rounding_mode"] == DOUBLE
    ):
        raise ValueError("scale32 is for fewer than 48 bits, and double rounding for scale32")
    types = [at.tensor(n).type for n in (0, 3, 4, -1)]
    if types[0] != types[1] or types[2] != types[3]:
        raise ValueError(
            f"zero points of types {types[1]} and {types[2]} for {types[0]} and {types[3]}"
        )
    zeros = [zero(point, unsigned) for point, unsigned in zip((x_zero, y_zero), signs, strict=True)]
    x = x.cast(UNSIGNED[x.element]) if signs[0] else x
    element = UNSIGNED[to] if signs[1] else to
    rows = [n.cast(I32) if at["per_channel"] else alone(n.cast(I32)) for n in (multiplier, shift)]
    rounding = "tosa_double" if at["rounding_mode"] == DOUBLE else "single"
    zero_points = {"input_zero_point": zeros[0], "zero_point": zeros[1]}
    return at.apply(
        "quant.requantize", x, *rows, to=element, rounding=rounding, **zero_points
    ).cast(to)


# Contractions and windows


@rule("CONV2D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D")
def convolution(at: At, x: Node, w: Node, bias: Node, x_zero: Known, w_zero: Known) -> Node:
    zeros = zero_points(at, x_zero, w_zero)
    channels = w.shape[2] * w.shape[3] if at.op == "DEPTHWISE_CONV2D" else w.shape[0]
    if bias.array_type.size == 1 != channels:  # one for all channels
        bias = at.apply("cvm.tile", bias, reps=(channels,))
    if at.op == "TRANSPOSE_CONV2D":
        attributes = {"padding": tuple(-n for n in at.pads("out_pad"))}
    else:
        kernel = w.shape[:2] if at.op == "DEPTHWISE_CONV2D" else w.shape[1:3]
        attributes = {"padding": at.pads("pad", kernel, at["dilation"]), "dilation": at["dilation"]}
    return at.apply(f"quant.{at.op.lower()}", x, w, *zeros, bias, stride=at["stride"], **attributes)


def pooling(at: At) -> dict[str, Any]:
    return {
        "pool_size": at["kernel"],
        "padding": at.pads("pad", at["kernel"]),
        "stride": at["stride"],
    }


@rule("AVG_POOL2D")
def avg_pool2d(at: At, x: Node, x_zero: Array, y_zero: Array) -> Node:
    attributes = {**pooling(at), "rounding": "tosa"}
    return at.apply(
        "quant.avg_pool2d", x, input_zero_point=zero(x_zero), zero_point=zero(y_zero), **attributes
    )


@rule("RESIZE")
def resize(at: At, x: Node, scale: Ints, offset: Ints, border: Ints) -> Node:
    mode = {1: "nearest", 2: "bilinear"}[at["mode"]]
    return at.apply("quant.resize2d", x, mode=mode, scale=scale, offset=offset, border=border)


# Movement


@rule("REVERSE")
def reverse(at: At, x: Node) -> Node:
    axis, whole = at["axis"], [*x.shape]
    begin = tuple(n - 1 if a == axis else 0 for a, n in enumerate(whole))
    end = tuple(-n - 1 if a == axis else n for a, n in enumerate(whole))
    return at.apply(
        "cvm.slice",
        x,
        begin=begin,
        end=end,
        strides=tuple(-1 if a == axis else 1 for a in range(x.rank)),
    )


@rule("SLICE")
def slices(at: At, x: Node, begin: Ints, size: Ints) -> Node:
    end = tuple(b + n for b, n in zip(begin, size, strict=True))
    if not all(0 <= b < e <= n for b, e, n in zip(begin, end, at.tensor(0).shape, strict=True)):
        raise ValueError(f"elements {begin} to {end} of {x.shape}")
    return at.apply("cvm.slice", x, begin=begin, end=end, strides=(1,) * x.rank)


def rows(indices: Node) -> Node:
    """For each of the indices, the batch that it is of."""
    shape: Any = indices.shape  # sizes of TOSA are known
    return indices.constant(np.indices(shape, np.int32)[0])


def data(at: At) -> Array:
    """A constant of the graph."""
    if (array := at.tensor(-1).data) is None:
        raise Unsupported("a constant without elements")
    return array


REDUCTIONS = {"REDUCE_ALL": "all", "REDUCE_ANY": "any", "REDUCE_MAX": "max", "REDUCE_MIN": "min"}
SINGLE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(UFUNCS, lambda at, *xs: ufunc(UFUNCS[at.op], *xs)),
    **dict.fromkeys(
        REDUCTIONS,
        lambda at, x: x.reduce(REDUCTIONS[at.op], (at["axis"],)).with_ones((at["axis"],)),
    ),
    "ARGMAX": lambda at, x: at.apply("builtin.argmax", x, axis=at["axis"]).cast(I32),
    "CLZ": lambda at, x: at.apply("quant.leading_zeros", x),
    "CONCAT": lambda at, x, *more: (
        at.apply("cvm.concatenate", x, *more, axis=at["axis"]) if more else x
    ),
    "CONST": data,
    "CONST_SHAPE": data,
    "GATHER": lambda at, x, indices: at.apply(
        "builtin.gather", x, rows(indices), indices, axes=(0, 1)
    ),
    "IDENTITY": lambda at, x: x,
    "MATMUL": lambda at, a, b, *known: at.apply(
        "quant.batch_matmul", a, b, *zero_points(at, *known)
    ),
    "MAX_POOL2D": lambda at, x: at.apply("quant.max_pool2d", x, **pooling(at)),
    "PAD": lambda at, x, pads, value: at.apply(
        "quant.pad", x, alone(value), before=pads[::2], after=pads[1::2]
    ),
    "REDUCE_SUM": lambda at, x: x.sum(
        (at["axis"],), dtype=x.element, acc_dtype=x.element
    ).with_ones((at["axis"],)),
    "RESHAPE": lambda at, x, shape: at.apply("cvm.reshape", x, target_shape=shape),
    "SCATTER": lambda at, x, indices, new: at.apply(
        "builtin.scatter", x, new, rows(indices), indices, axes=(0, 1)
    ),
    "SELECT": lambda at, condition, a, b: condition.scalar("switch", a, b),
    "TABLE": lambda at, x, table: at.apply("quant.table", x, table, interpolate=x.element is I16),
    "TILE": lambda at, x, repeats: at.apply("cvm.tile", x, reps=repeats),
    "TRANSPOSE": lambda at, x: at.apply("cvm.transpose", x, axes=at["perms"]),
}  # operators of one operation
for name, function in SINGLE.items():
    rule(name)(function)
