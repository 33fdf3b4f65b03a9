"""Random TOSA graphs, one for each integer operator and a rescaled one for the contractions, and
Arm's reference model to run them.

python tests/support/tosa_graphs.py 1000        how many of so many programs agree with tosa_reference_model
python tests/support/tosa_graphs.py --texts     rewrites tests/models/tosa/texts.json: what tosa-opt prints of each operator's graph
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2])]

import cvm  # noqa: E402
from cvm.importers.tosa.schema import ELEMENTS, Graph, Operator, Tensor  # noqa: E402
from cvm.importers.tosa.writer import write  # noqa: E402

MODEL = shutil.which("tosa_reference_model") or shutil.which(
    "tosa_reference_model", path=str(Path(sys.executable).parent)
)
DTYPE = {"INT8": 3, "INT16": 4, "INT32": 5, "INT48": 6}
BITS = {"BOOL": 1, "INT4": 4, "INT8": 8, "INT16": 16, "INT32": 32, "INT48": 48}


class Case:
    """A graph while it is made: `feed` are its inputs' elements."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random, self.graph, self.feed = random, Graph(), {}

    def size(self, low: int = 1, high: int = 5) -> int:
        return int(self.random.integers(low, high + 1))

    def choice(self, *values: Any) -> Any:
        return values[int(self.random.integers(len(values)))]

    def numbers(self, type: str, shape: tuple[int, ...]) -> np.ndarray:
        bits = BITS[type]
        if type == "BOOL":
            return self.random.random(shape) < 0.5
        low = -(1 << (bits - 1)) + (type == "INT4")  # TOSA has no -8
        found = self.random.integers(low, 1 << (bits - 1), shape)
        return np.where(self.random.random(shape) < 0.1, low, found).astype(ELEMENTS[type].dtype)

    def tensor(self, type: str, shape: tuple[int, ...], data: np.ndarray | None = None) -> str:
        name = f"t{len(self.graph.tensors)}"
        self.graph.tensors[name] = Tensor(name, tuple(shape), type, data)
        return name

    def input(self, type: str, shape: tuple[int, ...], data: np.ndarray | None = None) -> str:
        name = self.tensor(type, shape)
        self.feed[name] = (
            self.numbers(type, shape) if data is None else data.astype(ELEMENTS[type].dtype)
        )
        self.graph.inputs += (name,)
        return name

    def constant(self, type: str, data: Any) -> str:
        array = np.asarray(data).astype(ELEMENTS[type].dtype)
        name = self.tensor(type, array.shape, array)
        self.graph.operators.append(
            Operator("CONST_SHAPE" if type == "SHAPE" else "CONST", {}, (), (name,))
        )
        return name

    def shape(self, *values: int) -> str:
        return self.constant("SHAPE", np.array(values, np.int64))

    def add(
        self, op: str, inputs: tuple[str, ...], type: str, shape: tuple[int, ...], **attributes: Any
    ) -> str:
        name = self.tensor(type, shape)
        self.graph.operators.append(Operator(op, attributes, inputs, (name,)))
        self.graph.outputs = (name,)
        return name

    def zero(self, type: str) -> str:
        """A zero point, which only i8 has."""
        return self.constant(type, [int(self.random.integers(-128, 128)) if type == "INT8" else 0])

    def rescaled(self, x: str, spread: int) -> str:
        """The accumulators, of magnitudes below `spread`, as i8 or i16."""
        t = self.graph.tensors[x]
        wide, channels = t.type == "INT48", t.shape[-1] if self.random.random() < 0.5 else 1
        to = self.choice("INT8", "INT16")
        multiplier = self.random.integers(
            1 << (14 if wide else 30), 1 << (15 if wide else 31), channels
        )
        scale = {"INT8": 7, "INT16": 15}[to] - spread.bit_length()
        shift = np.clip((15 if wide else 31) - scale + self.random.integers(-2, 2, channels), 2, 62)
        rounding = 1 if wide else self.choice(1, 3)
        zero = self.constant(to, [int(self.random.integers(-128, 128)) if to == "INT8" else 0])
        inputs = (
            x,
            self.constant("INT16" if wide else "INT32", multiplier),
            self.constant("INT8", shift),
            self.constant(t.type, [0]),
            zero,
        )
        return self.add(
            "RESCALE",
            inputs,
            to,
            t.shape,
            scale32=not wide,
            rounding_mode=rounding,
            per_channel=channels > 1 or t.shape[-1] == 1,
            input_unsigned=False,
            output_unsigned=False,
        )


Made = Callable[[Case], None]
CASES: dict[str, Made] = {}


def case(name: str) -> Callable[[Made], Made]:
    def enter(made: Made) -> Made:
        CASES[name] = made
        return made

    return enter


FACTORS = (("INT8", "INT8", "INT32"), ("INT8", "INT4", "INT32"), ("INT16", "INT8", "INT48"))


def convolution(c: Case, op: str) -> None:
    x, w, acc = c.choice(*FACTORS)
    n, ic, oc, kernel = c.size(1, 2), c.size(1, 6), c.size(1, 6), (c.size(1, 3), c.size(1, 3))
    dilation, stride = (c.size(1, 2), c.size(1, 2)), (c.size(1, 2), c.size(1, 2))
    pads = [c.size(0, 1) for _ in range(4)]
    size = []
    for a in (0, 1):  # what the windows reach has to be a multiple of the stride
        extent = dilation[a] * (kernel[a] - 1) + 1
        size.append(max(1, extent - pads[2 * a] - pads[2 * a + 1]))
        size[a] += (
            stride[a] * c.size(0, 3)
            + (-(size[a] - 1 + pads[2 * a] + pads[2 * a + 1] - extent + 1)) % stride[a]
        )
    out = [
        (size[a] - 1 + pads[2 * a] + pads[2 * a + 1] - dilation[a] * (kernel[a] - 1)) // stride[a]
        + 1
        for a in (0, 1)
    ]
    given = {
        "pad": pads,
        "stride": stride,
        "dilation": dilation,
        "local_bound": False,
        "acc_type": DTYPE[acc],
    }
    if op == "DEPTHWISE_CONV2D":
        shape, oc = (*kernel, ic, m := c.size(1, 2)), ic * m
    else:
        shape = (oc, *kernel, ic)
    kernels = c.constant(w, c.numbers(w, shape))
    bias = c.constant(acc, c.random.integers(-1000, 1000, oc if c.size(0, 1) else 1))
    zeros = c.zero(x), c.constant(w, [0]) if w == "INT4" else c.zero(w)
    if x == "INT16":
        zeros = c.zero(x), c.constant(w, [0])
    y = c.add(op, (c.input(x, (n, *size, ic)), kernels, bias, *zeros), acc, (n, *out, oc), **given)
    if c.random.random() < 0.6:
        c.rescaled(y, kernel[0] * kernel[1] * ic << (BITS[x] + BITS[w]))


CASES["CONV2D"] = lambda c: convolution(c, "CONV2D")
CASES["DEPTHWISE_CONV2D"] = lambda c: convolution(c, "DEPTHWISE_CONV2D")


@case("TRANSPOSE_CONV2D")
def transpose_conv2d(c: Case) -> None:
    x, w, acc = c.choice(*FACTORS)
    n, ic, oc, kernel, size = (
        c.size(1, 2),
        c.size(1, 4),
        c.size(1, 4),
        (c.size(1, 3), c.size(1, 3)),
        (c.size(1, 4), c.size(1, 4)),
    )
    stride = c.size(1, 3), c.size(1, 3)
    pads = [int(c.random.integers(-kernel[a // 2] + 1, 3)) for a in range(4)]
    out = [(size[a] - 1) * stride[a] + kernel[a] + pads[2 * a] + pads[2 * a + 1] for a in (0, 1)]
    if min(out) < 1:
        pads, out = [0] * 4, [(size[a] - 1) * stride[a] + kernel[a] for a in (0, 1)]
    zeros = (
        (c.zero(x), c.zero(w)) if (x, w) == ("INT8", "INT8") else (c.zero(x), c.constant(w, [0]))
    )
    inputs = (
        c.input(x, (n, *size, ic)),
        c.constant(w, c.numbers(w, (oc, *kernel, ic))),
        c.constant(acc, c.random.integers(-99, 99, oc)),
        *zeros,
    )
    y = c.add(
        "TRANSPOSE_CONV2D",
        inputs,
        acc,
        (n, *out, oc),
        out_pad=pads,
        stride=stride,
        local_bound=False,
        acc_type=DTYPE[acc],
    )
    if c.random.random() < 0.5:
        c.rescaled(y, kernel[0] * kernel[1] * ic << (BITS[x] + BITS[w]))


@case("MATMUL")
def matmul(c: Case) -> None:
    type, acc = c.choice(("INT8", "INT32"), ("INT16", "INT48"))
    n, m, k, j = (c.size() for _ in range(4))
    inputs = c.input(type, (n, m, k)), c.input(type, (n, k, j)), c.zero(type), c.zero(type)
    y = c.add("MATMUL", inputs, acc, (n, m, j))
    if c.random.random() < 0.5:
        c.rescaled(y, k << (2 * BITS[type]))


def pool(c: Case, op: str) -> None:
    type = c.choice("INT8", "INT16")
    n, ch, kernel = c.size(1, 2), c.size(), (c.size(1, 3), c.size(1, 3))
    stride, pads = (c.size(1, 2), c.size(1, 2)), [c.size(0, kernel[a // 2] - 1) for a in range(4)]
    size = [max(1, kernel[a] - pads[2 * a] - pads[2 * a + 1]) for a in (0, 1)]
    out = []
    for a in (0, 1):
        reach = size[a] + pads[2 * a] + pads[2 * a + 1] - kernel[a]
        size[a] += -reach % stride[a] + stride[a] * c.size(0, 3)
        out.append((size[a] + pads[2 * a] + pads[2 * a + 1] - kernel[a]) // stride[a] + 1)
    x = c.input(type, (n, *size, ch))
    more = {"acc_type": DTYPE["INT32"]} if op == "AVG_POOL2D" else {"nan_mode": 1}
    zeros = (c.zero(type), c.zero(type)) if op == "AVG_POOL2D" else ()
    c.add(op, (x, *zeros), type, (n, *out, ch), kernel=kernel, stride=stride, pad=pads, **more)


CASES["AVG_POOL2D"] = lambda c: pool(c, "AVG_POOL2D")
CASES["MAX_POOL2D"] = lambda c: pool(c, "MAX_POOL2D")


@case("RESCALE")
def rescale(c: Case) -> None:
    x, to = c.choice("INT8", "INT16", "INT32", "INT48"), c.choice("INT8", "INT16", "INT32")
    narrow = x in ("INT8", "INT16") and to in ("INT8", "INT16")
    unsigned = c.choice((False, False), (True, False), (False, True)) if narrow else (False, False)
    shape = tuple(c.size() for _ in range(c.size(1, 4)))
    wide = x == "INT48" or bool(c.size(0, 3) == 0)
    channels = shape[-1] if c.size(0, 1) else 1
    most = min(BITS[x] - 1, 40)
    values = np.right_shift(c.numbers(x, shape).astype(np.int64), BITS[x] - 1 - most)
    zero = [int(c.random.integers(-128, 128)) if x == "INT8" else 0]
    top = {"INT8": 7, "INT16": 15, "INT32": 30}[to]
    shift = np.clip(
        (14 if wide else 30) + most - top + c.random.integers(1, 3, channels), max(2, most + 2), 62
    )
    rounding = 1 if wide else c.choice(1, 3)
    out_zero = int(c.random.integers(-128, 128)) if to == "INT8" else 0
    low = 14 if wide else 30
    inputs = (
        c.input(x, shape, values),
        c.constant(
            "INT16" if wide else "INT32", c.random.integers(1 << low, 1 << (low + 1), channels)
        ),
        c.constant("INT8", shift),
        c.constant(x, zero),
        c.constant(to, [out_zero]),
    )
    c.add(
        "RESCALE",
        inputs,
        to,
        shape,
        scale32=not wide,
        rounding_mode=rounding,
        per_channel=channels > 1 or shape[-1] == 1,
        input_unsigned=unsigned[0],
        output_unsigned=unsigned[1],
    )


@case("TABLE")
def table(c: Case) -> None:
    shape = tuple(c.size() for _ in range(c.size(1, 4)))
    if c.size(0, 1):
        c.add(
            "TABLE",
            (c.input("INT8", shape), c.constant("INT8", c.numbers("INT8", (256,)))),
            "INT8",
            shape,
        )
        return
    entries = np.clip(np.cumsum(c.random.integers(-200, 201, 513)), -32768, 32767)
    c.add("TABLE", (c.input("INT16", shape), c.constant("INT16", entries)), "INT32", shape)


@case("RESIZE")
def resize(c: Case) -> None:
    type, mode = c.choice("INT8", "INT16"), c.choice(1, 2)
    n, h, w, ch = (c.size(1, 4) for _ in range(4))
    while True:
        scale = [c.size(1, 6) for _ in range(4)]
        offset = [int(c.random.integers(-u, u)) for u in scale[::2]]
        border = [int(c.random.integers(-u, u)) for u in scale[::2]]
        reach = [(m - 1) * scale[2 * a] - offset[a] + border[a] for a, m in enumerate((h, w))]
        if all(r >= 0 and r % s == 0 for r, s in zip(reach, scale[1::2], strict=True)):
            break
    out = [r // s + 1 for r, s in zip(reach, scale[1::2], strict=True)]
    to = type if mode == 1 else {"INT8": "INT32", "INT16": "INT48"}[type]
    inputs = c.input(type, (n, h, w, ch)), c.shape(*scale), c.shape(*offset), c.shape(*border)
    c.add("RESIZE", inputs, to, (n, *out, ch), mode=mode)


def binary(c: Case, op: str, types: tuple[str, ...], to: str = "", **attributes: Any) -> None:
    type = c.choice(*types)
    shape = tuple(c.size() for _ in range(c.size(1, 4)))
    shapes = [tuple(1 if c.random.random() < 0.2 else n for n in shape) for _ in range(2)]
    arrays = [c.numbers(type, s) for s in shapes]
    if op in ("ADD", "SUB", "MUL"):
        arrays = [
            a.astype(np.int64) >> (1 if op != "MUL" or type != "INT32" else 16) for a in arrays
        ]
    if "SHIFT" in op:
        arrays[1] = c.random.integers(0, BITS[type], shapes[1])
    if op == "INTDIV":
        arrays[1] = np.where(arrays[1] == 0, 1, arrays[1])
    out = np.broadcast_shapes(*shapes)
    inputs = tuple(c.input(type, s, a) for s, a in zip(shapes, arrays, strict=True))
    if op == "MUL":
        by = c.size(0, 8) if type == "INT32" else 0
        inputs, to = (*inputs, c.constant("INT8", [by])), "INT32"
    c.add(op, inputs, to or type, out, **attributes)


ALL = ("INT8", "INT16", "INT32")
for name in ("ADD", "SUB", "INTDIV"):
    CASES[name] = lambda c, name=name: binary(c, name, ("INT32",))
for name in ("MAXIMUM", "MINIMUM"):
    CASES[name] = lambda c, name=name: binary(c, name, ("INT32",), nan_mode=1)
for name in (
    "BITWISE_AND",
    "BITWISE_OR",
    "BITWISE_XOR",
    "LOGICAL_LEFT_SHIFT",
    "LOGICAL_RIGHT_SHIFT",
):
    CASES[name] = lambda c, name=name: binary(c, name, ALL)
for name in ("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_XOR"):
    CASES[name] = lambda c, name=name: binary(c, name, ("BOOL",))
for name in ("EQUAL", "GREATER", "GREATER_EQUAL"):
    CASES[name] = lambda c, name=name: binary(c, name, ("INT32",), "BOOL")
CASES["MUL"] = lambda c: binary(c, "MUL", ALL)
CASES["ARITHMETIC_RIGHT_SHIFT"] = lambda c: binary(
    c, "ARITHMETIC_RIGHT_SHIFT", ALL, round=bool(c.size(0, 1))
)


def unary(c: Case, op: str, types: tuple[str, ...], **attributes: Any) -> None:
    type = c.choice(*types)
    shape = tuple(c.size() for _ in range(c.size(1, 4)))
    x = c.input(
        type,
        shape,
        np.maximum(c.numbers(type, shape), -((1 << (BITS[type] - 1)) - 1))
        if op in ("ABS", "NEGATE")
        else None,
    )
    zeros = (c.zero(type), c.zero(type)) if op == "NEGATE" else ()
    c.add(op, (x, *zeros), type, shape, **attributes)


CASES["ABS"] = lambda c: unary(c, "ABS", ("INT32",))
CASES["CLZ"] = lambda c: unary(c, "CLZ", ("INT32",))
CASES["BITWISE_NOT"] = lambda c: unary(c, "BITWISE_NOT", ALL)
CASES["LOGICAL_NOT"] = lambda c: unary(c, "LOGICAL_NOT", ("BOOL",))
CASES["NEGATE"] = lambda c: unary(c, "NEGATE", ALL)
CASES["IDENTITY"] = lambda c: unary(c, "IDENTITY", ALL)


@case("CLAMP")
def clamp(c: Case) -> None:
    type = c.choice("INT8", "INT16")
    ends = np.sort(c.numbers(type, (2,)))
    low, high = (np.frombuffer(e.tobytes(), np.uint8) for e in ends)
    shape = tuple(c.size() for _ in range(3))
    c.add("CLAMP", (c.input(type, shape),), type, shape, min_val=low, max_val=high, nan_mode=1)


@case("SELECT")
def select(c: Case) -> None:
    type, shape = c.choice(*ALL, "BOOL"), tuple(c.size() for _ in range(3))
    c.add(
        "SELECT", (c.input("BOOL", shape), c.input(type, shape), c.input(type, shape)), type, shape
    )


@case("CAST")
def cast(c: Case) -> None:
    shape = tuple(c.size() for _ in range(3))
    type, to = c.choice(
        ("BOOL", "INT8"),
        ("BOOL", "INT32"),
        ("INT8", "BOOL"),
        ("INT8", "INT16"),
        ("INT16", "INT8"),
        ("INT32", "INT8"),
        ("INT8", "INT32"),
        ("INT32", "INT16"),
        ("INT32", "BOOL"),
    )
    c.add("CAST", (c.input(type, shape),), to, shape)


def reduction(c: Case, op: str, type: str, **attributes: Any) -> None:
    shape = tuple(c.size() for _ in range(c.size(1, 4)))
    axis = c.size(0, len(shape) - 1)
    data = c.numbers(type, shape)
    x = c.input(type, shape, data >> 8 if op == "REDUCE_SUM" else data)
    c.add(
        op,
        (x,),
        type,
        tuple(1 if a == axis else n for a, n in enumerate(shape)),
        axis=axis,
        **attributes,
    )


for name in ("REDUCE_ALL", "REDUCE_ANY"):
    CASES[name] = lambda c, name=name: reduction(c, name, "BOOL")
for name in ("REDUCE_MAX", "REDUCE_MIN"):
    CASES[name] = lambda c, name=name: reduction(c, name, c.choice(*ALL), nan_mode=1)
CASES["REDUCE_SUM"] = lambda c: reduction(c, "REDUCE_SUM", "INT32")


@case("ARGMAX")
def argmax(c: Case) -> None:
    shape = tuple(c.size() for _ in range(c.size(1, 4)))
    axis = c.size(0, len(shape) - 1)
    c.add(
        "ARGMAX",
        (c.input(c.choice("INT8", "INT16"), shape),),
        "INT32",
        shape[:axis] + shape[axis + 1 :],
        axis=axis,
        nan_mode=1,
    )


@case("CONCAT")
def concat(c: Case) -> None:
    type, shape = c.choice(*ALL), [c.size() for _ in range(c.size(1, 4))]
    axis, sizes = c.size(0, len(shape) - 1), [c.size() for _ in range(c.size(1, 3))]
    inputs = tuple(c.input(type, (*shape[:axis], n, *shape[axis + 1 :])) for n in sizes)
    c.add("CONCAT", inputs, type, (*shape[:axis], sum(sizes), *shape[axis + 1 :]), axis=axis)


@case("PAD")
def pad(c: Case) -> None:
    type, shape = c.choice(*ALL), tuple(c.size() for _ in range(c.size(1, 4)))
    around = [c.size(0, 2) for _ in range(2 * len(shape))]
    out = tuple(n + around[2 * a] + around[2 * a + 1] for a, n in enumerate(shape))
    c.add(
        "PAD",
        (c.input(type, shape), c.shape(*around), c.constant(type, c.numbers(type, (1,)))),
        type,
        out,
    )


@case("RESHAPE")
def reshape(c: Case) -> None:
    type, (a, b, d) = c.choice(*ALL), (c.size(), c.size(), c.size())
    c.add("RESHAPE", (c.input(type, (a, b, d)), c.shape(b, a * d)), type, (b, a * d))


@case("REVERSE")
def reverse(c: Case) -> None:
    type, shape = c.choice(*ALL), tuple(c.size() for _ in range(c.size(1, 4)))
    c.add("REVERSE", (c.input(type, shape),), type, shape, axis=c.size(0, len(shape) - 1))


@case("SLICE")
def slices(c: Case) -> None:
    type, shape = c.choice(*ALL), tuple(c.size() for _ in range(c.size(1, 4)))
    begin = [c.size(0, n - 1) for n in shape]
    out = tuple(c.size(1, n - b) for n, b in zip(shape, begin, strict=True))
    c.add("SLICE", (c.input(type, shape), c.shape(*begin), c.shape(*out)), type, out)


@case("TILE")
def tile(c: Case) -> None:
    type, shape = c.choice(*ALL), tuple(c.size(1, 3) for _ in range(c.size(1, 4)))
    reps = [c.size(1, 3) for _ in shape]
    c.add(
        "TILE",
        (c.input(type, shape), c.shape(*reps)),
        type,
        tuple(n * r for n, r in zip(shape, reps, strict=True)),
    )


@case("TRANSPOSE")
def transpose(c: Case) -> None:
    type, shape = c.choice(*ALL), tuple(c.size() for _ in range(c.size(1, 4)))
    perms = [int(p) for p in c.random.permutation(len(shape))]
    c.add("TRANSPOSE", (c.input(type, shape),), type, tuple(shape[p] for p in perms), perms=perms)


@case("GATHER")
def gather(c: Case) -> None:
    type, (n, k, w, ch) = c.choice(*ALL), (c.size(), c.size(), c.size(), c.size())
    c.add(
        "GATHER",
        (c.input(type, (n, k, ch)), c.input("INT32", (n, w), c.random.integers(0, k, (n, w)))),
        type,
        (n, w, ch),
    )


@case("SCATTER")
def scatter(c: Case) -> None:
    type, (n, k, ch) = c.choice(*ALL), (c.size(), c.size(), c.size())
    w = c.size(1, k)
    places = np.array([c.random.permutation(k)[:w] for _ in range(n)])
    inputs = c.input(type, (n, k, ch)), c.input("INT32", (n, w), places), c.input(type, (n, w, ch))
    c.add("SCATTER", inputs, type, (n, k, ch))


def make(seed: int) -> tuple[str, Case]:
    """A random graph: the operators in turns."""
    name = list(CASES)[seed % len(CASES)]
    made = Case(np.random.default_rng(seed))
    CASES[name](made)
    return name, made


def by_reference_model(made: Case, folder: Path) -> np.ndarray | None:
    """The result by Arm's reference model; None where it finds the graph unpredictable."""
    (out,) = made.graph.outputs
    return reference_model(write(made.graph), made.feed, out, folder)


def reference_model(
    data: bytes, feed: dict[str, np.ndarray], out: str, folder: Path
) -> np.ndarray | None:
    """The result of a file; None where it is unpredictable."""
    (folder / "graph.tosa").write_bytes(data)
    for name, array in feed.items():
        np.save(folder / f"{name}.npy", array)
    (folder / f"{out}.npy").unlink(missing_ok=True)
    command = [
        str(MODEL),
        "--tosa_file=graph.tosa",
        f"--flatbuffer_dir={folder}",
        f"--output_dir={folder}",
        f"--ifm_name={','.join(feed)}",
        f"--ifm_file={','.join(f'{n}.npy' for n in feed)}",
        f"--ofm_name={out}",
        f"--ofm_file={out}.npy",
        "--tosa_level=NONE",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        by_reference_model.said = done.stdout + done.stderr  # type: ignore[attr-defined]
        return None
    return np.load(folder / f"{out}.npy")


OTHER = {"INT8": "INT16", "INT16": "INT8", "INT32": "INT8", "BOOL": "INT8", "INT48": "INT32"}
SPOILED: dict[str, dict[str, Any]] = {
    "axis": {"axis": 7},
    "a negative axis": {"axis": -1},
    "stride": {"stride": (0, 1)},
    "dilation": {"dilation": (0, 1)},
    "pad": {"pad": (-1, 0, 0, 0)},
    "pad beyond the kernel": {"kernel": (1, 1), "pad": (9, 9, 9, 9)},
    "kernel": {"kernel": (0, 1)},
    "perms": {"perms": (0, 0)},
    "mode": {"mode": 9},
    "both unsigned": {"input_unsigned": True, "output_unsigned": True},
}  # attributes, by the rule that they break


def spoiled(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """The graph with its last operator breaking one rule of the specification, by the rule."""
    *before, last = graph.operators
    (out,), result = last.outputs, graph.tensors[last.outputs[0]]

    def retyped(name: str, **changes: Any) -> Graph:
        return replace(
            graph, tensors={**graph.tensors, name: replace(graph.tensors[name], **changes)}
        )

    yield "rank of the result", retyped(out, shape=(*result.shape, 1))
    if result.shape:
        yield "shape of the result", retyped(out, shape=(*result.shape[:-1], result.shape[-1] + 1))
    if last.op != "CAST":
        yield "type of the result", retyped(out, type=OTHER[result.type])
    for rule, attributes in SPOILED.items():
        if (
            attributes.keys() <= last.attributes.keys()
            and len(last.attributes.get("perms", (1, 2))) > 1
        ):
            broken = replace(last, attributes={**last.attributes, **attributes})
            yield rule, replace(graph, operators=[*before, broken])
    if len(last.inputs) > 1:
        yield (
            "too few operands",
            replace(graph, operators=[*before, replace(last, inputs=last.inputs[:-1])]),
        )
    for n, name in enumerate(last.inputs):
        found = graph.tensors[name]
        if found.data is not None and found.type == "SHAPE":
            yield f"operand {n} too large", retyped(name, data=found.data + 1000)
            yield f"operand {n} negative", retyped(name, data=-found.data - 5)
        is_zero = last.op not in ("MUL", "PAD") and (last.op != "RESCALE" or n >= 3)
        if (
            found.data is not None
            and found.data.size == 1
            and found.type in ("INT16", "INT32")
            and is_zero
        ):
            yield f"zero point of {found.type}", retyped(name, data=np.full_like(found.data, 3))


TEXTS = Path(__file__).parents[1] / "models" / "tosa" / "texts.json"


def text_of(graph: Graph, folder: Path, *options: str) -> str:
    """The graph as `tosa-opt` prints it."""
    (file := folder / "g.tosa").write_bytes(write(graph))
    (empty := folder / "empty.mlir").write_text("module {}\n", "utf-8")
    command = [
        str(Path(str(MODEL)).with_name("tosa-opt")),
        str(empty),
        f"--tosa-deserialize=tosa-flatbuffer-filename={file}",
    ]
    printed = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=True
    ).stdout
    return printed.partition("WARNING:")[0]


def main() -> int:
    if sys.argv[1] == "--texts":
        with tempfile.TemporaryDirectory() as folder:
            found = {
                name: text_of(make(seed)[1].graph, Path(folder)) for seed, name in enumerate(CASES)
            }
        TEXTS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        return 0
    count, outcome = int(sys.argv[1]), Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(count):
            name, made = make(seed)
            wanted = by_reference_model(made, Path(folder))
            if wanted is None:
                outcome["unpredictable", name] += 1
                print(seed, name, getattr(by_reference_model, "said", "")[:200])
                continue
            try:
                found = cvm.compile(cvm.from_tosa(write(made.graph)))(*made.feed.values())
                same = (
                    found.astype(wanted.dtype).tobytes() == wanted.tobytes()
                    and found.shape == wanted.shape
                )
            except cvm.Error as e:
                same = False
                print(seed, name, e, [n.message for n in e.diagnostics[0].notes])
            outcome["equal" if same else "differs", name] += 1
            if not same:
                print(seed, name, "differs")
    for kind in ("equal", "differs", "unpredictable"):
        print(kind, sum(n for (k, _), n in outcome.items() if k == kind))
    return 0


if __name__ == "__main__":
    sys.exit(main())
