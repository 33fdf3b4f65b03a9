"""Writes .tflite models, of tensors and operators in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cvm.importers.flatbuffer import Writer

from .schema import OPERATORS, OPTION_TYPES, SCHEMA, TYPES

CODES: dict[str, str] = dict(
    zip(
        TYPES,
        ("f4", "f2", "i4", "u1", "i8", "S", "?", "i2", "c8", "i1", "f8", "c16", "u8"),
        strict=False,
    )
)


@dataclass
class Tensor:
    """A tensor of a model to be written; one with data is a constant. A size of -1 is unknown."""

    shape: Sequence[int]
    type: str = "INT8"
    scale: float | Sequence[float] | None = None
    zero_point: int | Sequence[int] = 0
    axis: int = 0
    data: np.ndarray | None = None
    variable: bool = False
    name: str = ""
    sparsity: Mapping[str, Any] | None = None  # of `data`, whose elements are those stored


@dataclass
class Operator:
    """An operator, with the numbers of its tensors."""

    op: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    more: Mapping[str, Any] = field(default_factory=dict)


def model(
    tensors: Sequence[Tensor],
    operators: Sequence[Operator],
    inputs: Sequence[int],
    outputs: Sequence[int],
) -> bytes:
    """The bytes of a model with one graph."""
    buffers = [{}]
    written = []
    for n, t in enumerate(tensors):
        row = {
            "shape": [abs(n) for n in t.shape],
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
        if -1 in t.shape:
            row["shape_signature"] = list(t.shape)
        if t.sparsity is not None:
            row["sparsity"] = t.sparsity
        if t.variable:
            row["is_variable"] = True
        written.append(row)
    codes = []
    nodes = []
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
