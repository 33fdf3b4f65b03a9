"""TOSA graphs from flatbuffers, and to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.importers.flatbuffer import Damaged, fields, options, root

from .graph import ATTRIBUTES, ELEMENTS, OPERATORS, SCHEMA, TYPES, Graph, Operator, Tensor, packed, unpacked

IDENTIFIER = b"TOSA"
VERSION = {"_major": 1, "_minor": 1, "_patch": 0, "_draft": True}


def read(data: bytes) -> Graph:
    """The main graph of a file; raises Damaged where it is none."""
    regions = root(data, IDENTIFIER, SCHEMA, "TosaGraph").regions
    blocks = regions[0].blocks if regions else []
    if not blocks:
        raise Damaged("it has no graph")
    if len(regions) > 1 or len(blocks) > 1:
        raise Damaged("it has several graphs: control flow is not imported")
    (block,) = blocks
    graph = Graph(inputs=_names(block.inputs), outputs=_names(block.outputs))
    for t in block.tensors:
        _add(graph, t.name, tuple(map(int, t.shape)), t.type, t.data)
    for t in block.shapes:
        _add(graph, t.name, (t.rank,), TYPES.index("SHAPE"), t.data)
    for o in block.operators:
        op = OPERATORS[o.op] if o.op < len(OPERATORS) else f"operator number {o.op}"
        attributes: dict[str, Any] = {}
        if op in ATTRIBUTES:
            table = options(o.attribute, op, SCHEMA)
            attributes = {name: getattr(table, name) for name in fields(ATTRIBUTES[op])}
        graph.operators.append(Operator(op, attributes, _names(o.inputs), _names(o.outputs)))
    return graph


def _names(names: list[Any]) -> tuple[str, ...]:
    return tuple(bytes(n).decode("utf-8", "replace") for n in names)


def _add(graph: Graph, name: str, shape: tuple[int, ...], type: int, data: np.ndarray) -> None:
    kind = TYPES[type] if type < len(TYPES) else f"type number {type}"
    if any(n < 0 for n in shape):
        raise Damaged(f"tensor {name!r} has shape {shape}")
    try:
        found = unpacked(data, kind, shape) if len(data) and kind in ELEMENTS else None
    except ValueError as e:
        raise Damaged(f"tensor {name!r} has {e}") from None
    graph.tensors[name] = Tensor(name, shape, kind, found)


def write(graph: Graph) -> bytes:
    """The file of a graph, by the `flatbuffers` package."""
    from flatbuffers import Builder  # pyright: ignore[reportMissingImports]

    builder = Builder(4096)

    def vector(value: Any, kind: str) -> int:
        if kind == "[str]":
            return offsets([builder.CreateString(s) for s in value])
        if not kind[1:-1].islower():
            return offsets([table(kind[1:-1], v) for v in value])
        array = np.asarray(value, "<u1" if kind == "[u8]" else "<i4")
        builder.StartVector(array.itemsize, len(array), 8)
        for n in reversed(array.tolist()):
            (builder.PrependUint8 if kind == "[u8]" else builder.PrependInt32)(n)
        return builder.EndVector()

    def offsets(found: list[int]) -> int:
        builder.StartVector(4, len(found), 4)
        for offset in reversed(found):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()

    numbers: dict[str, Any] = {"bool": builder.PrependBoolSlot, "u8": builder.PrependUint8Slot, "u32": builder.PrependUint32Slot,
               "i32": builder.PrependInt32Slot}  # fmt: skip

    def table(name: str, values: dict[str, Any]) -> int:
        slots = fields(SCHEMA[name]) if name in SCHEMA else {}
        made: dict[str, Any] = {}
        for key, value in values.items():
            kind = slots[key][1]
            made[key] = (
                value if kind in (*numbers, "table", "-")
                else builder.CreateString(value) if kind == "str"
                else vector(value, kind)
            )  # fmt: skip
        builder.StartObject(len(slots))
        for key, value in made.items():
            slot, kind, _ = slots[key]
            if kind in numbers:
                numbers[kind](slot, value, None)  # written also where it is the schema's default
            else:
                builder.PrependUOffsetTRelativeSlot(slot, value, 0)
        return builder.EndObject()

    operators = []
    for o in graph.operators:
        number = OPERATORS.index(o.op)
        operators.append({
            "op": number, "attribute_type": number, "attribute": table(o.op, o.attributes), "inputs": o.inputs,
            "outputs": o.outputs,
        })  # fmt: skip
    shapes = [t for t in graph.tensors.values() if t.type == "SHAPE"]
    tensors = [t for t in graph.tensors.values() if t.type != "SHAPE"]

    def data(t: Tensor) -> dict[str, Any]:
        return {} if t.data is None else {"data": np.frombuffer(packed(t.data, t.type), np.uint8)}

    block = {
        "name": "main",
        "operators": operators,
        "tensors": [{"name": t.name, "shape": t.shape, "type": TYPES.index(t.type), **data(t)} for t in tensors],
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "shapes": [{"name": t.name, "rank": len(t.data if t.data is not None else ()), **data(t)} for t in shapes],
    }
    found = table("TosaGraph", {"version": table("Version", VERSION), "regions": [{"name": "main", "blocks": [block]}]})
    builder.Finish(found, IDENTIFIER)
    return bytes(builder.Output())
