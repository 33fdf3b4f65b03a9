"""Writes flatbuffers by an importer's table of their schema, and .tflite models of one operator, or
a few.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cvm.importers.flatbuffer import NUMBERS, fields
from cvm.importers.tflite.schema import OPERATORS, SCHEMA, TYPES

OPTION_TYPES = {
    "CONV_2D": 1,
    "DEPTHWISE_CONV_2D": 2,
    "AVERAGE_POOL_2D": 5,
    "MAX_POOL_2D": 5,
    "SVDF": 6,
    "FULLY_CONNECTED": 8,
    "SOFTMAX": 9,
    "CONCATENATION": 10,
    "ADD": 11,
    "L2_NORMALIZATION": 12,
    "RESIZE_BILINEAR": 15,
    "RESHAPE": 17,
    "SPACE_TO_DEPTH": 19,
    "MUL": 21,
    "GATHER": 23,
    "MEAN": 27,
    "SUM": 27,
    "REDUCE_MAX": 27,
    "REDUCE_MIN": 27,
    "REDUCE_PROD": 27,
    "REDUCE_ANY": 27,
    "REDUCE_ALL": 27,
    "SUB": 28,
    "DIV": 29,
    "SQUEEZE": 30,
    "STRIDED_SLICE": 32,
    "SPLIT": 35,
    "CAST": 37,
    "ARG_MAX": 40,
    "TRANSPOSE_CONV": 49,
    "SHAPE": 55,
    "ARG_MIN": 57,
    "PACK": 59,
    "ONE_HOT": 61,
    "UNPACK": 64,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 71,
    "RESIZE_NEAREST_NEIGHBOR": 74,
    "LEAKY_RELU": 75,
    "MIRROR_PAD": 77,
    "SPLIT_V": 79,
    "DEPTH_TO_SPACE": 94,
    "BATCH_MATMUL": 101,
    "CUMSUM": 102,
    "VAR_HANDLE": 111,
    "GELU": 116,
    "CALL_ONCE": 103,
}
CODES = dict(
    zip(
        TYPES,
        ("f4", "f2", "i4", "u1", "i8", "S", "?", "i2", "c8", "i1", "f8", "c16", "u8"),
        strict=False,
    )
)


@dataclass
class Tensor:
    """A tensor of a model to be written; one with data is a constant."""

    shape: Sequence[int]
    type: str = "INT8"
    scale: float | Sequence[float] | None = None
    zero_point: int | Sequence[int] = 0
    axis: int = 0
    data: np.ndarray | None = None
    variable: bool = False
    name: str = ""


@dataclass
class Operator:
    """An operator, with the numbers of its tensors."""

    op: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    more: Mapping[str, Any] = field(default_factory=dict)


class Writer:
    """Bytes of a flatbuffer, each table before those to which it refers; every field takes eight
    bytes.
    """

    def __init__(self, identifier: bytes, schema: Mapping[str, str]) -> None:
        self.data, self.schema = bytearray(b"\0\0\0\0" + identifier), schema

    def align(self, to: int, after: int = 0) -> None:
        while (len(self.data) + after) % to:
            self.data.append(0)

    def table(self, kind: str, values: Mapping[str, Any]) -> int:
        declared = fields(self.schema[kind])
        slots = 1 + max((declared[name][0] for name in values), default=-1)
        self.align(8)
        vtable = len(self.data)
        offsets = [0] * slots
        for n, name in enumerate(values):
            offsets[declared[name][0]] = 8 + 8 * n
        self.data += struct.pack(f"<{2 + slots}H", 4 + 2 * slots, 8 + 8 * len(values), *offsets)
        self.align(8)
        at = len(self.data)
        self.data += struct.pack("<i", at - vtable) + bytes(4 + 8 * len(values))
        for n, (name, value) in enumerate(values.items()):
            self.put(at + 8 + 8 * n, declared[name][1], value)
        return at

    def put(self, at: int, kind: str, value: Any) -> None:
        if kind in NUMBERS:
            found = np.array(value, NUMBERS[kind]).tobytes()
            self.data[at : at + len(found)] = found
            return
        if kind == "[str]":
            start = self.vector(at, len(value))
            for n, v in enumerate(value):
                self.put(start + 4 * n, "str", v)
        elif kind == "str" or kind[1:-1] in NUMBERS:
            array = (
                np.frombuffer(value.encode(), "u1")
                if kind == "str"
                else np.asarray(value, NUMBERS[kind[1:-1]])
            )
            self.align(16, after=4)
            self.refer(at, len(self.data))
            self.data += struct.pack("<I", array.size) + array.tobytes() + b"\0"
        elif kind.startswith("["):
            start = self.vector(at, len(value))
            for n, v in enumerate(value):
                self.refer(start + 4 * n, self.table(kind[1:-1], v))
        else:
            name, inner = value if kind in ("table", "-") else (kind, value)
            self.refer(at, self.table(name, inner))

    def vector(self, at: int, count: int) -> int:
        """Begin a vector of offsets, to which the bytes at a place refer."""
        self.align(4)
        self.refer(at, len(self.data))
        self.data += struct.pack("<I", count) + bytes(4 * count)
        return len(self.data) - 4 * count

    def refer(self, at: int, to: int) -> None:
        self.data[at : at + 4] = struct.pack("<I", to - at)

    def file(self, kind: str, values: Mapping[str, Any]) -> bytes:
        """The file whose root is a table."""
        self.refer(0, self.table(kind, values))
        return bytes(self.data)


def model(
    tensors: Sequence[Tensor],
    operators: Sequence[Operator],
    inputs: Sequence[int],
    outputs: Sequence[int],
) -> bytes:
    """The bytes of a model with one graph."""
    buffers: list[dict[str, Any]] = [{}]
    written: list[dict[str, Any]] = []
    for n, t in enumerate(tensors):
        row: dict[str, Any] = {
            "shape": list(t.shape),
            "type": TYPES.index(t.type),
            "name": t.name or f"t{n}",
            "buffer": 0,
        }
        if t.data is not None:
            row["buffer"] = len(buffers)
            buffers.append(
                {"data": np.frombuffer(np.ascontiguousarray(t.data, CODES[t.type]).tobytes(), "u1")}
            )
        if t.scale is not None:
            scale = np.atleast_1d(np.array(t.scale, "f4"))
            zeros = np.broadcast_to(np.array(t.zero_point, "i8"), scale.shape)
            row["quantization"] = {
                "scale": scale,
                "zero_point": zeros,
                "quantized_dimension": t.axis,
            }
        if t.variable:
            row["is_variable"] = True
        written.append(row)
    codes: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    for n, o in enumerate(operators):
        code = OPERATORS.index(o.op)
        codes.append(
            {"deprecated_builtin_code": min(code, 127), "version": o.version, "builtin_code": code}
        )
        row = {"opcode_index": n, "inputs": list(o.inputs), "outputs": list(o.outputs), **o.more}
        if o.op in OPTION_TYPES:
            row |= {
                "builtin_options_type": OPTION_TYPES[o.op],
                "builtin_options": (o.op, o.options),
            }
        nodes.append(row)
    graph = {
        "tensors": written,
        "inputs": list(inputs),
        "outputs": list(outputs),
        "operators": nodes,
        "name": "main",
    }
    root = {"version": 3, "operator_codes": codes, "subgraphs": [graph], "buffers": buffers}
    return Writer(b"TFL3", SCHEMA).file("Model", root)
