"""Writes TOSA graphs as flatbuffers, by the importer's table of the schema."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.importers.flatbuffer import Writer

from .schema import ELEMENTS, OPERATORS, SCHEMA, TYPES, Graph, Tensor

VERSION = {"_major": 1, "_minor": 1, "_patch": 0, "_draft": True}


def write(graph: Graph) -> bytes:
    """The file of a graph."""
    operators = [
        {
            "op": OPERATORS.index(o.op),
            "attribute_type": OPERATORS.index(o.op),
            "inputs": o.inputs,
            "outputs": o.outputs,
            **({"attribute": (o.op, o.attributes)} if o.op in SCHEMA else {}),
        }
        for o in graph.operators
    ]

    def data(t: Tensor) -> dict[str, Any]:
        return {} if t.data is None else {"data": np.frombuffer(packed(t.data, t.type), np.uint8)}

    all_of_them = graph.tensors.values()
    tensors = [t for t in all_of_them if t.type != "SHAPE"]
    shapes = [t for t in all_of_them if t.type == "SHAPE"]
    block = {
        "name": "main",
        "operators": operators,
        "tensors": [
            {"name": t.name, "shape": t.shape, "type": TYPES.index(t.type), **data(t)}
            for t in tensors
        ],
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "shapes": [
            {"name": t.name, "rank": 0 if t.data is None else len(t.data), **data(t)}
            for t in shapes
        ],
    }
    region = {"name": "main", "blocks": [block]}
    return Writer(b"TOSA", SCHEMA).file(
        "TosaGraph", {"version": ("Version", VERSION), "regions": [region]}
    )


def packed(array: np.ndarray, type: str) -> bytes:
    """The bytes of a constant in a file."""
    if type == "INT4":
        even = np.resize(np.append(array.reshape(-1) & 15, [0]), -(-array.size // 2) * 2).astype(
            np.uint8
        )
        return (even[::2] | even[1::2] << 4).tobytes()
    if type == "INT48":
        return (
            np.ascontiguousarray(array, np.int64)
            .reshape(-1)
            .view(np.uint8)
            .reshape(-1, 8)[:, :6]
            .tobytes()
        )
    return np.ascontiguousarray(array, ELEMENTS[type].dtype).tobytes()
