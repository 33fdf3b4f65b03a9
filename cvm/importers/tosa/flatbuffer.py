"""TOSA graphs from flatbuffers."""

from typing import Any

import numpy as np

from cvm.importers.flatbuffer import Damaged, fields, options, root

from .schema import (
    ATTRIBUTES,
    ELEMENTS,
    OPERATORS,
    SCHEMA,
    TYPES,
    Graph,
    Operator,
    Tensor,
    unpacked,
)


def read(data: bytes) -> Graph:
    """The main graph of a file; raises Damaged where it is none."""
    regions = root(data, b"TOSA", SCHEMA, "TosaGraph").regions
    blocks = regions[0].blocks if regions else []
    if not blocks:
        raise Damaged("it has no graph")
    block = blocks[0]  # the others are bodies of control flow, whose operators are refused
    graph = Graph(inputs=_names(block.inputs), outputs=_names(block.outputs))
    for t in block.tensors:
        _add(graph, t.name, tuple(map(int, t.shape)), t.type, t.data)
    for t in block.shapes:
        _add(graph, t.name, (t.rank,), TYPES.index("SHAPE"), t.data)
    for o in block.operators:
        op = OPERATORS[o.op] if o.op < len(OPERATORS) else f"operator number {o.op}"
        attributes = {}
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
        held = len(data) or shape == (0,)  # the shape of rank 0
        array = unpacked(data, kind, shape) if held and kind in ELEMENTS else None
    except ValueError as e:
        raise Damaged(f"tensor {name!r} has {e}") from None
    graph.tensors[name] = Tensor(name, shape, kind, array)
