"""Models of one operator of TensorFlow Lite each, with random parameters, and seeded inputs;
`--record` records LiteRT's outputs.

python tests/support/tflite_cases.py --record        rewrites tests/models/tflite/expected.json (needs ai-edge-litert)
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[1] / "models" / "tflite"
if __name__ == "__main__":
    sys.path[:0] = [str(FOLDER.parents[2]), str(FOLDER.parents[1] / "support")]

from cvm.importers.tflite.writer import Operator, Tensor, model  # noqa: E402

EXPECTED = FOLDER / "expected.json"
INPUTS = 100  # of each published model
SAMPLES = 4  # of each operator
OFTEN = (
    "DIV",
    "L2_NORMALIZATION",
    "LOG_SOFTMAX",
    "LSTM",
    "SUM",
)  # of which there are as many as of published models
Case = Callable[["Draw"], bytes]
CASES: dict[str, Case] = {}


class Draw:
    """Random tensors of a case."""

    def __init__(self, name: str) -> None:
        self.random = np.random.default_rng(
            int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
        )

    def scale(self, low: float = 0.005, high: float = 0.1) -> float:
        return float(np.float32(np.exp(self.random.uniform(np.log(low), np.log(high)))))

    def zero(self, type: str) -> int:
        return {
            "INT8": int(self.random.integers(-100, 100)),
            "UINT8": int(self.random.integers(30, 220)),
        }.get(type, 0)

    def q(
        self,
        shape: Sequence[int],
        type: str = "INT8",
        scale: float | None = None,
        zero: int | None = None,
    ) -> Tensor:
        given = self.scale(*((1e-4, 1e-3) if type == "INT16" else ())) if scale is None else scale
        return Tensor(shape, type, given, self.zero(type) if zero is None else zero)

    def weights(
        self,
        shape: Sequence[int],
        type: str = "INT8",
        scale: Any = None,
        axis: int = 0,
        zero: int = 0,
    ) -> Tensor:
        low, high = {"INT8": (-127, 128), "UINT8": (0, 256), "INT16": (-3000, 3000)}.get(
            type, (-20000, 20000)
        )
        return Tensor(shape, type, scale, zero, axis, self.random.integers(low, high, shape))

    def scales(self, n: int) -> list[float]:
        return [self.scale(0.002, 0.02) for _ in range(n)]


def constant(values: Any) -> Tensor:
    array = np.array(values)
    return Tensor(array.shape, "INT32", data=array)


def case(name: str) -> Callable[[Case], Case]:
    def enter(function: Case) -> Case:
        CASES[name] = function
        return function

    return enter


def one(
    op: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], version: int = 1, **options: Any
) -> bytes:
    """A model of an operator; its inputs without data are the model's."""
    tensors = [*inputs, *outputs]
    given = [n for n, t in enumerate(inputs) if t.data is None and not t.variable]
    node = Operator(op, range(len(inputs)), range(len(inputs), len(tensors)), options, version)
    return model(tensors, [node], given, node.outputs)


def unary(
    op: str,
    type: str,
    version: int = 1,
    x: tuple[float, float] = (0.005, 0.1),
    y: Any = None,
    zero: int | None = None,
    **options: Any,
) -> None:
    shape = (1, 4096 if type == "INT16" else 256)

    @case(
        f"{op} "
        f"{type}{' ' + str(options) if options else ''}{' ' + str(x[0]) if x[0] == x[1] else ''}"
    )
    def build(d: Draw) -> bytes:
        limits = (1e-4, 1e-3) if type == "INT16" and x == (0.005, 0.1) else x
        given = d.q(shape, type, d.scale(*limits), zero)
        return one(
            op,
            [given],
            [d.q(shape, type) if y is None else Tensor(shape, type, *y)],
            version,
            **options,
        )


for _type in ("INT8", "UINT8"):
    unary("LOGISTIC", _type, 2, (0.02, 0.1), (1 / 256, -128 if _type == "INT8" else 0))
    unary("TANH", _type, 2, (0.02, 0.1), (1 / 128, 0 if _type == "INT8" else 128))
    unary("HARD_SWISH", _type, x=(0.02, 0.1), y=(0.07, 3 if _type == "INT8" else 100))
    unary("LEAKY_RELU", _type, 2, alpha=0.13)
    unary("RELU", _type, 2)
    unary("RELU6", _type, 2)
    unary("RELU_N1_TO_1", _type)
    unary("RELU_0_TO_1", _type)
unary("ABS", "INT8", 2)
unary("EXP", "INT8", 2, (0.01, 0.02))
unary("LOG", "INT8", 2)
unary("GELU", "INT8", approximate=False)
unary("GELU", "INT8", approximate=True)
unary("RSQRT", "INT8", 2, (0.01, 0.05), zero=-128)
unary("LEAKY_RELU", "INT16", 2, alpha=0.2)
unary("RELU", "INT16", 3)
unary("RELU6", "INT16", 3)
unary("ABS", "INT16", 3)
for _op in ("LOGISTIC", "TANH"):
    unary(_op, "INT16", 3, (1 / 4096, 1 / 4096), (1 / 32768, 0))
    unary(_op, "INT16", 3, (1e-4, 1e-3), (1 / 32768, 0))


def binary(
    op: str,
    type: str,
    version: int = 2,
    shape: Sequence[int] = (3, 1, 5),
    same: bool = False,
    **options: Any,
) -> None:
    @case(f"{op} {type} {list(shape)}{' ' + str(options) if options else ''}")
    def build(d: Draw) -> bytes:
        a, b, y = (
            d.q((2, 3, 4, 5), type),
            d.q(shape, type),
            d.q((2, 3, 4, 5), type, d.scale(0.05, 0.2) if type != "INT16" else None),
        )
        if same:
            b.scale = y.scale = a.scale
            b.zero_point = y.zero_point = a.zero_point
        if op in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
            y = Tensor((2, 3, 4, 5), "BOOL")
        return one(op, [a, b], [y], version, **options)


EXACT_ON_FLOATS = {
    1: (
        "ABS",
        "NEG",
        "SQUARE",
        "SQRT",
        "FLOOR",
        "SIGN",
        "RELU",
        "RELU6",
        "RELU_N1_TO_1",
        "RELU_0_TO_1",
        "LEAKY_RELU",
    ),
    2: (
        "ADD",
        "SUB",
        "MUL",
        "DIV",
        "FLOOR_DIV",
        "SQUARED_DIFFERENCE",
        "MAXIMUM",
        "MINIMUM",
        "PRELU",
        "ADD_N",
    ),
}  # by the number of operands


def of_floats(op: str, count: int) -> None:
    @case(f"{op} FLOAT32")
    def build(d: Draw) -> bytes:
        shape = (4, 5, 6)
        given = [Tensor(shape, "FLOAT32") for _ in range(count)]
        if op == "PRELU":
            given[1] = Tensor((1, 1, 6), "FLOAT32", data=d.random.standard_normal((1, 1, 6)))
        return one(
            op,
            given,
            [Tensor(shape, "FLOAT32")],
            2 if op == "SQUARED_DIFFERENCE" else 1,
            **({"alpha": 0.3} if op == "LEAKY_RELU" else {}),
        )


for _count, _ops in EXACT_ON_FLOATS.items():
    for _op in _ops:
        of_floats(_op, _count)
for _type in ("INT8", "UINT8"):
    for _op in ("ADD", "SUB", "MUL"):
        binary(_op, _type)
        binary(_op, _type, shape=(2, 3, 4, 5), activation=1)
        binary(_op, _type, activation=3)
    for _op in ("MAXIMUM", "MINIMUM"):
        binary(_op, _type, same=True)
    for _op in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
        binary(_op, _type)
binary("SQUARED_DIFFERENCE", "INT8")
binary("ADD", "INT16", 4, pot_scale_int16=False)
binary("SUB", "INT16", 3, pot_scale_int16=False)
binary("MUL", "INT16", 3)


@case("PRELU INT8")
def prelu(d: Draw) -> bytes:
    alpha = d.weights((1, 1, 3), scale=d.scale(), zero=5)
    return one("PRELU", [d.q((1, 4, 4, 3)), alpha], [d.q((1, 4, 4, 3))])


def conv(
    op: str,
    type: str = "INT8",
    padding: int = 0,
    stride: int = 2,
    activation: int = 0,
    dilation: int = 1,
    several: bool = True,
    groups: int = 1,
) -> None:
    @case(
        f"{op} {type} {padding} {stride} {activation} {dilation} "
        f"{'channels' if several else 'tensor'} {groups}"
    )
    def build(d: Draw) -> bytes:
        ci, co, deep = 4, 8, op == "DEPTHWISE_CONV_2D"
        x, scales = d.q((1, 9, 10, ci), type), d.scales(co if several else 1)
        zero = 100 if type == "UINT8" else 0
        shape = (1, 3, 3, co) if deep else (co, 3, 3, ci // groups)
        w = d.weights(
            shape, "UINT8" if zero else "INT8", scales, 3 if deep and several else 0, zero
        )
        b = d.weights(
            (co,), "INT64" if type == "INT16" else "INT32", [float(x.scale) * s for s in scales]
        )
        sizes = [
            -(-n // stride) if padding == 0 else (n - dilation * 2 - 1) // stride + 1
            for n in (9, 10)
        ]
        y = d.q(
            (1, *sizes, co), type, d.scale(1e-3, 1e-2) if type == "INT16" else d.scale(0.05, 0.2)
        )
        how = {
            "padding": padding,
            "stride_w": stride,
            "stride_h": stride,
            "dilation_w": dilation,
            "dilation_h": dilation,
        }
        more = {"depth_multiplier": co // ci} if deep else {}
        return one(op, [x, w, b], [y], 3, activation=activation, **how, **more)


for _op in ("CONV_2D", "DEPTHWISE_CONV_2D"):
    conv(_op)
    conv(_op, padding=1, stride=1, activation=3)
    conv(_op, stride=1, dilation=2, activation=1)
    conv(_op, several=False)
    conv(_op, "UINT8", several=False)
    conv(_op, "INT16")
conv("CONV_2D", groups=2)


def dense(type: str, several: bool, version: int, activation: int = 0) -> None:
    @case(f"FULLY_CONNECTED {type} {'channels' if several else 'tensor'} {activation}")
    def build(d: Draw) -> bytes:
        x, scales, zero = (
            d.q((3, 20), type),
            d.scales(7 if several else 1),
            100 if type == "UINT8" else 0,
        )
        w = d.weights((7, 20), "UINT8" if zero else "INT8", scales, zero=zero)
        b = d.weights(
            (7,), "INT64" if type == "INT16" else "INT32", [float(x.scale) * s for s in scales]
        )
        y = d.q((3, 7), type, d.scale(1e-3, 1e-2) if type == "INT16" else d.scale(0.02, 0.1))
        return one("FULLY_CONNECTED", [x, w, b], [y], version, activation=activation)


dense("INT8", False, 4)
dense("INT8", False, 4, activation=1)
dense("INT8", True, 12)
dense("UINT8", False, 1)
dense("INT16", False, 7)
dense("INT16", True, 12)


def transposed(padding: int, size: tuple[int, int]) -> None:
    @case(f"TRANSPOSE_CONV {padding}")
    def build(d: Draw) -> bytes:
        x, scales = d.q((1, 4, 5, 3)), d.scales(6)
        w, b = (
            d.weights((6, 3, 3, 3), scale=scales),
            d.weights((6,), "INT32", [float(x.scale) * s for s in scales]),
        )
        y = d.q((1, *size, 6), scale=d.scale(0.05, 0.2))
        return one(
            "TRANSPOSE_CONV",
            [constant([1, *size, 6]), w, x, b],
            [y],
            3,
            padding=padding,
            stride_w=2,
            stride_h=2,
        )


transposed(0, (8, 10))
transposed(1, (9, 11))


@case("BATCH_MATMUL")
def batch_matmul(d: Draw) -> bytes:
    return one(
        "BATCH_MATMUL", [d.q((2, 4, 5)), d.q((2, 6, 5))], [d.q((2, 4, 6), scale=0.2)], 2, adj_y=True
    )


def pool(op: str, type: str, padding: int, activation: int = 0) -> None:
    @case(f"{op} {type} {padding} {activation}")
    def build(d: Draw) -> bytes:
        x = d.q((1, 9, 10, 3), type)
        y = Tensor((1, 5, 5, 3) if padding == 0 else (1, 4, 4, 3), type, x.scale, x.zero_point)
        how = {
            "padding": padding,
            "stride_w": 2,
            "stride_h": 2,
            "filter_width": 3,
            "filter_height": 3,
        }
        return one(op, [x], [y], 2, activation=activation, **how)


for _op in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
    for _type in ("INT8", "UINT8", "INT16"):
        pool(_op, _type, 0)
    pool(_op, "INT8", 1, activation=1)


def reduction(
    op: str, type: str, axes: Sequence[int], same: bool = False, keep: bool = True
) -> None:
    @case(f"{op} {type} {list(axes)} {same}")
    def build(d: Draw) -> bytes:
        x = d.q((2, 5, 6, 7), type)
        shape = [1 if k in axes else n for k, n in enumerate(x.shape) if keep or k not in axes]
        y = Tensor(shape, type, x.scale, x.zero_point) if same else d.q(shape, type)
        return one(op, [x, constant(list(axes))], [y], 2, keep_dims=keep)


for _type in ("INT8", "UINT8", "INT16"):
    reduction("MEAN", _type, (1, 2))
    reduction("MEAN", _type, (3,), keep=False)
    reduction("MEAN", _type, (0, 1, 2, 3), keep=False)
    reduction("MEAN", _type, (2,), same=True)
    reduction("REDUCE_MAX", _type, (1, 2), same=True)


def choice_of_floats(
    op: str,
    shape: Sequence[int],
    out: Sequence[int],
    *axes: int,
    index: str = "FLOAT32",
    **options: Any,
) -> None:
    @case(f"{op} FLOAT32")
    def build(d: Draw) -> bytes:
        more = [constant(list(axes) if len(axes) > 1 else axes[0])] if axes else []
        return one(op, [Tensor(shape, "FLOAT32"), *more], [Tensor(out, index)], 2, **options)


choice_of_floats(
    "MAX_POOL_2D",
    (1, 5, 6, 3),
    (1, 3, 3, 3),
    padding=0,
    stride_w=2,
    stride_h=2,
    filter_width=3,
    filter_height=3,
)
for _op in ("REDUCE_MAX", "REDUCE_MIN"):
    choice_of_floats(_op, (2, 5, 6, 3), (2, 1, 1, 3), 1, 2, keep_dims=True)
for _op in ("ARG_MAX", "ARG_MIN"):
    choice_of_floats(_op, (5, 6), (5,), 1, index="INT32", output_type=2)
for _axes in ((1, 2), (3,)):
    reduction("SUM", "UINT8", _axes, keep=_axes == (1, 2))


@case(
    "SUM INT8"
)  # of numbers that are the same with and without a sign: 2.3.0 takes all to have none
def sum_of_i8(d: Draw) -> bytes:
    x, y = Tensor((2, 5, 6, 7), "INT8", 0.02), Tensor((2, 5, 6), "INT8", 0.3, 3)
    nodes = [Operator("RELU", [0], [1], {}, 2), Operator("SUM", [1, 2], [3], {}, 2)]
    return model([x, x, constant([3]), y], nodes, [0], [3])


def by_rows(
    op: str,
    type: str,
    scale: float,
    zero: int,
    of: float | None = None,
    shape: Sequence[int] = (2, 3, 17),
) -> None:
    @case(f"{op} {type} {list(shape)} {of}")
    def build(d: Draw) -> bytes:
        x = d.q(shape, type, d.scale(0.02, 0.3) if of is None else of)
        return one(op, [x], [Tensor(shape, type, scale, zero)], 2)


for _type, _high in (("INT8", 127), ("UINT8", 255)):
    for _of in (None, 0.001, 0.2, 2.0):
        by_rows("LOG_SOFTMAX", _type, 16 / 256, _high, _of)
    by_rows("LOG_SOFTMAX", _type, 16 / 256, _high, 0.01, (3, 700))
    for _shape in ((2, 3, 17), (5, 1), (7, 2), (2, 4, 900)):
        by_rows("L2_NORMALIZATION", _type, 1 / 128, _high - 127, None, _shape)


def division(
    type: str, shape: Sequence[int], scales: Sequence[float], least: int, activation: int = 0
) -> None:
    @case(f"DIV {type} {list(shape)} {list(scales)} {least} {activation}")
    def build(d: Draw) -> bytes:
        a, b, y = (
            d.q(s, type, n)
            for s, n in zip(((2, 3, 4, 5), shape, (2, 3, 4, 5)), scales, strict=True)
        )
        above, below = (
            [
                Tensor((1,), type, t.scale, t.zero_point, data=np.full(1, t.zero_point + n)),
                Tensor(t.shape, type, t.scale, t.zero_point),
            ]
            for t, n in ((a, least), (b, 3))
        )
        nodes = [Operator("MAXIMUM", [0, 2], [3], {}, 2), Operator("MAXIMUM", [1, 4], [5], {}, 2)]
        return model(
            [a, b, *above, *below, y],
            [*nodes, Operator("DIV", [3, 5], [6], {"activation": activation}, 2)],
            [0, 1],
            [6],
        )


for _type in ("INT8", "UINT8"):
    division(_type, (2, 3, 4, 5), (0.02, 0.05, 0.1), 16)
    division(_type, (4, 1), (0.1, 0.02, 0.03), -400, 1)


def softmax(type: str, to: str, beta: float) -> None:
    @case(f"SOFTMAX {type} {to} {beta}")
    def build(d: Draw) -> bytes:
        x = d.q((3, 17), type, None if type == "INT16" else d.scale(0.02, 0.3))
        y = (
            Tensor((3, 17), to, 1 / 256, {"INT8": -128}.get(to, 0))
            if to != "INT16"
            else Tensor((3, 17), to, 1 / 32768, 0)
        )
        return one("SOFTMAX", [x], [y], 2, beta=beta)


softmax("INT8", "INT8", 1.0)
softmax("INT8", "INT8", 0.7)
softmax("INT8", "INT16", 1.0)
softmax("UINT8", "UINT8", 1.0)
softmax("INT16", "INT16", 1.0)


def conversion(op: str, type: str, to: str, version: int = 2) -> None:
    @case(f"{op} {type} {to}")
    def build(d: Draw) -> bytes:
        x, y = (Tensor((1, 256), t) if t == "FLOAT32" else d.q((1, 256), t) for t in (type, to))
        return one(op, [x], [y], version)


for _type, _to in (
    ("INT8", "INT8"),
    ("UINT8", "INT8"),
    ("INT16", "INT8"),
    ("INT8", "INT16"),
    ("FLOAT32", "INT16"),
):
    conversion("QUANTIZE", _type, _to)
conversion("QUANTIZE", "FLOAT32", "INT8", 1)
conversion("DEQUANTIZE", "INT8", "FLOAT32")
conversion("DEQUANTIZE", "INT16", "FLOAT32", 3)


def moved(
    op: str,
    shape: Sequence[int],
    to: Sequence[int],
    *constants: Any,
    version: int = 2,
    **options: Any,
) -> None:
    @case(f"{op} {list(shape)}{' ' + str(options) if options else ''}")
    def build(d: Draw) -> bytes:
        x = d.q(shape)
        return one(
            op,
            [x, *map(constant, constants)],
            [Tensor(to, "INT8", x.scale, x.zero_point)],
            version,
            **options,
        )


moved("PAD", (1, 3, 4, 2), (1, 5, 7, 2), [[0, 0], [1, 1], [2, 1], [0, 0]])
moved("MIRROR_PAD", (3, 4), (5, 8), [[1, 1], [2, 2]], mode=0)
moved("MIRROR_PAD", (3, 4), (5, 8), [[1, 1], [2, 2]], mode=1)
moved("TRANSPOSE", (2, 3, 4), (4, 2, 3), [2, 0, 1])
moved("RESHAPE", (2, 3, 4), (6, 4), [6, -1], version=1, new_shape=[6, -1])
moved("SPACE_TO_DEPTH", (1, 4, 6, 3), (1, 2, 3, 12), block_size=2)
moved("DEPTH_TO_SPACE", (1, 2, 3, 12), (1, 4, 6, 3), version=1, block_size=2)
moved("SPACE_TO_BATCH_ND", (1, 4, 6, 3), (4, 3, 4, 3), [2, 2], [[1, 1], [0, 2]])
moved("BATCH_TO_SPACE_ND", (4, 3, 4, 3), (1, 5, 6, 3), [2, 2], [[0, 1], [2, 0]])
moved(
    "STRIDED_SLICE",
    (5, 6, 7),
    (2, 7),
    [1, 2, 0],
    [4, 3, 0],
    [2, 1, 1],
    end_mask=4,
    shrink_axis_mask=2,
)
moved(
    "STRIDED_SLICE",
    (5, 6, 7),
    (5, 6, 1, 3),
    [0, 0, 1],
    [0, 0, 7],
    [1, 1, 2],
    ellipsis_mask=1,
    new_axis_mask=2,
)
moved("SLICE", (5, 6), (2, 3), [1, 2], [2, 3])
moved("TILE", (2, 3), (4, 9), [2, 3])
moved("EXPAND_DIMS", (2, 3), (2, 1, 3), 1, version=1)
moved("SQUEEZE", (2, 1, 3, 1), (2, 3, 1), version=1, squeeze_dims=[1])
moved("GATHER", (5, 6), (5, 3), [0, 5, 2], axis=1)
moved("REVERSE_V2", (5, 6), (5, 6), [1])
moved("BROADCAST_TO", (1, 3), (4, 3), [4, 3])
for _op in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
    moved(_op, (1, 4, 5, 3), (1, 9, 11, 3), [9, 11])
    moved(_op, (1, 4, 5, 3), (1, 9, 11, 3), [9, 11], align_corners=True)
    moved(_op, (1, 4, 5, 3), (1, 9, 11, 3), [9, 11], half_pixel_centers=True)


@case("ARG_MAX")
def arg_max(d: Draw) -> bytes:
    return one("ARG_MAX", [d.q((5, 6)), constant(1)], [Tensor((5,), "INT32")], 2, output_type=2)


@case("PACK")
def pack(d: Draw) -> bytes:
    x = d.q((5, 6))
    a, y = (Tensor(s, "INT8", x.scale, x.zero_point) for s in ((5, 6), (5, 2, 6)))
    return one("PACK", [x, a], [y], 2, values_count=2, axis=1)


@case("SPLIT")
def split(d: Draw) -> bytes:
    x = d.q((5, 6))
    return one(
        "SPLIT",
        [constant(1), x],
        [Tensor((5, 3), "INT8", x.scale, x.zero_point) for _ in range(2)],
        2,
        num_splits=2,
    )


@case("SPLIT_V")
def split_v(d: Draw) -> bytes:
    x = d.q((5, 6))
    parts = [Tensor((5, n), "INT8", x.scale, x.zero_point) for n in (2, 4)]
    return one("SPLIT_V", [x, constant([2, -1]), constant(1)], parts, 2, num_splits=2)


@case("UNPACK")
def unpack(d: Draw) -> bytes:
    x = d.q((5, 2, 6))
    return one(
        "UNPACK",
        [x],
        [Tensor((5, 6), "INT8", x.scale, x.zero_point) for _ in range(2)],
        2,
        num=2,
        axis=1,
    )


def svdf(rank: int) -> None:
    @case(f"SVDF {rank}")
    def build(d: Draw) -> bytes:
        x, w, t = d.q((1, 12)), d.weights((8, 12), scale=0.01), d.weights((8, 5), "INT16", 0.0005)
        b, state = (
            d.weights((8 // rank,), "INT32", 1e-6),
            Tensor((1, 40), "INT16", 0.0004, variable=True, name="state"),
        )
        return one(
            "SVDF",
            [x, w, t, b, state],
            [Tensor((1, 8 // rank), "INT8", 0.02, -128)],
            3,
            rank=rank,
            activation=1,
        )


svdf(1)
svdf(2)


def lstm(
    steps: int,
    time_major: bool = True,
    coupled: bool = False,
    peephole: bool = False,
    cells: int = 6,
    projection: int = 0,
    clip: float = 0.0,
    cell_scale: int = -11,
) -> None:
    @case(
        f"LSTM {steps} {time_major} {coupled} {peephole} {cells} {projection} {clip} {cell_scale}"
    )
    def build(d: Draw) -> bytes:
        batch, width, outputs = 2, 5, projection or cells
        gates = range(1 if coupled else 0, 4)
        x = d.q((steps, batch, width) if time_major else (batch, steps, width), scale=0.02)
        h = Tensor(
            (batch, outputs), "INT8", 0.01, 7 if projection else -4, variable=True, name="state_h"
        )
        c = Tensor((batch, cells), "INT16", 2.0**cell_scale, variable=True, name="state_c")
        hidden, y = (
            Tensor((), "INT8", 0.008 if projection else 0.01, -20 if projection else -4),
            Tensor((*x.shape[:2], outputs), "INT8", h.scale, h.zero_point),
        )
        tensors = [x, h, c, hidden, y]
        numbers = [0, *[-1] * 17, 1, 2, *[-1] * 4]

        def put(n: int, t: Tensor) -> None:
            numbers[n] = len(tensors)
            tensors.append(t)

        for k in gates:
            put(1 + k, d.weights((cells, width), scale=d.scale(0.004, 0.02)))
            put(5 + k, d.weights((cells, outputs), scale=d.scale(0.004, 0.02)))
            put(12 + k, d.weights((cells,), "INT32", 1e-4))
            if peephole and k != 2:
                put((9, 10, 0, 11)[k], d.weights((cells,), "INT16", d.scale(0.0001, 0.0003)))
        if projection:
            put(16, d.weights((outputs, cells), scale=0.004))
            put(17, d.weights((outputs,), "INT32", 1e-4))
        options = {
            "activation": 4,
            "time_major": time_major,
            "cell_clip": clip,
            "proj_clip": clip / 10,
        }
        node = Operator(
            "UNIDIRECTIONAL_SEQUENCE_LSTM", numbers, [4], options, 3, {"intermediates": [3] * 5}
        )
        return model(tensors, [node], [0], [4])


lstm(1)
lstm(3, time_major=False)
lstm(9)
lstm(6, coupled=True)
lstm(6, peephole=True)
lstm(6, projection=4, cell_scale=-10)
lstm(5, projection=6, peephole=True)
lstm(6, clip=0.9, projection=3, cell_scale=-12)
lstm(6, time_major=False, coupled=True, peephole=True, cell_scale=-9)


def models() -> Iterator[tuple[str, bytes, int]]:
    """The name, the bytes and the number of inputs of every model."""
    for path in sorted(FOLDER.glob("*.tflite")):
        yield path.name, path.read_bytes(), INPUTS
    for name, build in CASES.items():
        yield name, build(Draw(name)), INPUTS if name.startswith(OFTEN) else SAMPLES


def inputs(
    name: str, details: Sequence[tuple[Sequence[int], np.dtype]], count: int
) -> list[list[np.ndarray]]:
    """Seeded inputs of a model: arrays of all numbers of the type."""
    random = Draw(f"inputs of {name}").random

    def draw(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        if dtype.kind == "f":
            return (random.standard_normal(shape) * 2).astype(dtype)
        return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)

    return [[draw(*d) for d in details] for _ in range(count)]


def digest(outputs: Sequence[Sequence[np.ndarray]]) -> str:
    found = hashlib.sha256()
    for row in outputs:
        for a in row:
            found.update(np.ascontiguousarray(a).tobytes())
    return found.hexdigest()


def of_litert(name: str, data: bytes, count: int, kind: str = "BUILTIN_REF") -> str:
    """The digest of LiteRT's outputs, call by call."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # type: ignore[import-not-found]

    it = Interpreter(
        model_content=data,
        experimental_op_resolver_type=getattr(OpResolverType, kind),
        num_threads=1,
    )
    it.allocate_tensors()
    given, made = it.get_input_details(), it.get_output_details()
    rows: list[list[np.ndarray]] = []
    for sample in inputs(name, [(d["shape"], np.dtype(d["dtype"])) for d in given], count):
        for d, a in zip(given, sample, strict=True):
            it.set_tensor(d["index"], a)
        it.invoke()
        rows.append([it.get_tensor(d["index"]).copy() for d in made])
    return digest(rows)


def main() -> None:
    from importlib.metadata import version

    found: dict[str, Any] = {"ai-edge-litert": version("ai-edge-litert")}
    for name, data, count in models():
        found[name] = of_litert(name, data, count)
    if "--record" in sys.argv:
        EXPECTED.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
