"""Mutations of models by their structure: most mutants are files of the format, so that what lies
behind its reader is attacked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from cvm.importers.flatbuffer import NUMBERS, Damaged, Flatbuffer, Table, Writer, absent, fields
from cvm.importers.tflite import schema as tflite
from cvm.importers.tosa import schema as tosa

from .mutate import mutate_bytes

OFTEN = (1, 1, 1, 2, 3, 6)  # changes of a mutant
EDGES = (
    0,
    1,
    -1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    127,
    128,
    255,
    4097,
    2**15,
    2**31 - 1,
    -(2**31),
    2**32,
    2**62,
    2**63 - 1,
    -(2**63),
)
FRACTIONS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    1e-45,
    1e-38,
    3e38,
    1e300,
    float("inf"),
    float("-inf"),
    float("nan"),
)
TEXTS = (
    "",
    "?",
    "x",
    "N",
    "SAME_UPPER",
    "VALID",
    "linear",
    "none",
    "a\0b",
    "é\u2028",
    "%x",
    "a" * 300,
    "../x",
    "1",
    "ai.onnx.ml",
)
LONGEST = 1 << 14  # bytes of a tensor that is made to fit its shape


def list_changed(
    values: Sequence[Any], chance: random.Random, changed: Callable[[Any], Any], more: Sequence[Any]
) -> list[Any]:
    """A list that is shorter, longer, in another order, or with another element."""
    found = list(values)
    at = chance.randrange(len(found) + 1)
    match chance.randrange(7):
        case 0:
            del found[at : at + chance.choice((1, 1, 2, 64))]
        case 1 if found:
            found.insert(at, chance.choice(found))
        case 2 if len(found) > 1:
            a, b = chance.sample(range(len(found)), 2)
            found[a], found[b] = found[b], found[a]
        case 3 if more:
            found.insert(at, chance.choice(more))
        case 4 if chance.random() < 0.2:
            return []
        case _ if found:
            at = chance.randrange(len(found))
            found[at] = changed(found[at])
    return found


def drawn(kinds: Sequence[str], chance: random.Random) -> str:
    """Draw a kind: one of those that rules read, or by how many there are, or among all alike."""
    often = [
        k
        for k in ("NodeProto", "AttributeProto", "TensorProto", "Dimension", "Tensor", "TosaTensor")
        if k in kinds
    ]
    return chance.choice(chance.choice((often or kinds, kinds, sorted(set(kinds)))))


# ONNX: by the fields of its messages


def mutate_onnx(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """Changed fields of messages, drawn by the kind of message, with parts of another model."""
    import onnx

    model, second = onnx.ModelProto(), onnx.ModelProto()
    model.ParseFromString(data)
    second.ParseFromString(other)
    for _ in range(chance.choice(OFTEN)):
        held = list(messages(model))
        kind = drawn([m.DESCRIPTOR.name for m in held], chance)
        of_kind = [m for m in held if m.DESCRIPTOR.name == kind]
        if kind == "TensorProto" and chance.random() < 0.5:
            reshape_tensor(chance.choice(of_kind), chance)
        elif kind == "NodeProto" and chance.random() < 0.2:
            nest(model.graph, chance)
        else:
            pool = [*held, *messages(second)]
            with suppress(ValueError, TypeError):  # a value that the field does not take
                change_message(chance.choice(of_kind), chance, pool)
    return model.SerializeToString()


def messages(message: Any) -> Iterator[Any]:
    """A message and those inside of it."""
    yield message
    for f, value in message.ListFields():
        if f.message_type is not None:
            for part in value if hasattr(value, "append") else [value]:
                yield from messages(part)


def change_message(message: Any, chance: random.Random, pool: Sequence[Any]) -> None:
    """Change a field, most often one that is set."""
    present, every = [f for f, _ in message.ListFields()], list(message.DESCRIPTOR.fields)
    chosen = chance.choice(present if present and chance.random() < 0.8 else every)
    value = getattr(message, chosen.name)
    if chosen.message_type is not None:
        alike = [m for m in pool if m.DESCRIPTOR is chosen.message_type]
        copied = type(chance.choice(alike))() if alike else None
        if copied is not None:
            copied.CopyFrom(chance.choice(alike))
        if hasattr(value, "append"):
            kept = [type(v).FromString(v.SerializePartialToString()) for v in value]
            changed = list_changed(
                kept,
                chance,
                lambda v: v if copied is None else copied,
                [copied] * (copied is not None),
            )
            message.ClearField(chosen.name)
            value.extend(changed)
        elif copied is not None and chance.random() < 0.6:
            value.CopyFrom(copied)
        else:
            message.ClearField(chosen.name)
        return
    known = [
        v
        for m in pool
        for f, held in m.ListFields()
        if f.cpp_type == chosen.cpp_type
        for v in scalars(held)
    ]
    same = [
        v
        for m in pool
        if m.DESCRIPTOR is message.DESCRIPTOR
        for v in scalars(getattr(m, chosen.name))
    ]
    changed_value = partial(other_scalar, chance=chance, kind=chosen, known=known, same=same)
    if hasattr(value, "append"):
        changed = list_changed(list(value), chance, changed_value, same or [changed_value(None)])
        message.ClearField(chosen.name)
        getattr(message, chosen.name).extend(changed)
    elif chance.random() < 0.1:
        message.ClearField(chosen.name)
    else:
        setattr(message, chosen.name, changed_value(value))


def scalars(value: Any) -> list[Any]:
    return list(value) if hasattr(value, "append") else [value]


def other_scalar(
    value: Any, chance: random.Random, kind: Any, known: Sequence[Any], same: Sequence[Any]
) -> Any:
    """Another value of a field: one that stands elsewhere in the model, or one at an edge of what
    there is.
    """
    if same and chance.random() < 0.5:
        return chance.choice(same)
    if known and chance.random() < 0.4:
        return chance.choice(known)
    if kind.enum_type is not None:
        return chance.choice(kind.enum_type.values).number
    if kind.cpp_type in (kind.CPPTYPE_FLOAT, kind.CPPTYPE_DOUBLE):
        return chance.choice(FRACTIONS)
    if kind.type == kind.TYPE_BYTES:
        return mutate_bytes(value or b"", chance)
    if kind.type == kind.TYPE_STRING:
        return chance.choice(TEXTS)
    return chance.choice((*EDGES, (value or 0) + 1, (value or 0) - 1))


def reshape_tensor(tensor: Any, chance: random.Random) -> None:
    """Give a tensor another shape or type, and as many bytes as that needs."""
    import onnx

    del tensor.dims[:]
    tensor.dims.extend(chance.choice((0, 1, 1, 2, 3, 5)) for _ in range(chance.randrange(5)))
    if chance.random() < 0.5:
        tensor.data_type = chance.choice(onnx.TensorProto.DataType.values())
    for name in (
        "float_data",
        "int32_data",
        "int64_data",
        "double_data",
        "uint64_data",
        "string_data",
    ):
        tensor.ClearField(name)
    with suppress(KeyError, TypeError):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        count = int(np.prod(tensor.dims, dtype=object)) * dtype.itemsize
        tensor.raw_data = chance.choice((bytes(count), chance.randbytes(count), b"\xff" * count))


def nest(graph: Any, chance: random.Random) -> None:
    """Put a node in the branches of an If, or in the body of a Loop."""
    import onnx

    if not len(graph.node):
        return
    node = chance.choice(graph.node)
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    name = f"nested{chance.randrange(1 << 30)}"
    outputs = [onnx.helper.make_empty_tensor_value_info(o) for o in inner.output]
    if chance.random() < 0.6:
        branch = onnx.helper.make_graph([inner], name, [], outputs)
        conditions = [i.name for i in (*graph.input, *graph.initializer)]
        made = onnx.helper.make_node(
            "If",
            [chance.choice(conditions or [name])],
            node.output,
            then_branch=branch,
            else_branch=branch,
        )
        if chance.random() < 0.7:
            graph.initializer.append(
                onnx.helper.make_tensor(name, onnx.TensorProto.BOOL, [], [chance.random() < 0.5])
            )
            made.input[0] = name
    else:
        step, going = (
            onnx.helper.make_tensor_value_info(n, t, [])
            for n, t in ((f"{name}i", 7), (f"{name}c", 9))
        )
        keep = onnx.helper.make_node("Identity", [going.name], [f"{name}o"])
        last = onnx.helper.make_tensor_value_info(f"{name}o", 9, [])
        body = onnx.helper.make_graph([inner, keep], name, [step, going], [last, *outputs])
        times = onnx.helper.make_tensor(
            name, onnx.TensorProto.INT64, [], [chance.choice((0, 1, 2, 3, 100, 2**40, -1))]
        )
        graph.initializer.append(times)
        made = onnx.helper.make_node("Loop", [name, ""], node.output, body=body)
    node.CopyFrom(made)


# Flatbuffers: by the tables of the importer's schema

Row = dict[
    str, Any
]  # of a table: its fields that are present; a union is the name of its table, with the row


@dataclass(frozen=True)
class Format:
    """A flatbuffer's schema, and how its unions and the elements of its tensors are found."""

    identifier: bytes
    root: str
    schema: Mapping[str, str]
    union: Callable[
        [Table, Table], str
    ]  # of an operator of a model: the name of the table with its options
    options: Sequence[str]
    fit: Callable[[Row, random.Random], None]

    def read(self, data: bytes, found: list[tuple[str, int, int]] | None = None) -> Row:
        file = Sites(memoryview(data), self.schema, [] if found is None else found)
        top = Table(file, file.number("u32", 0), self.root)
        return self.row(top, top)

    def row(self, table: Table, top: Table) -> Row:
        made: Row = {}
        for name, (_, kind, default) in fields(self.schema[table._kind]).items():
            if kind == "-" or np.array_equal(value := getattr(table, name), absent(kind, default)):
                continue
            if kind == "table":
                option = self.union(table, top)
                if option in self.schema:
                    made[name] = option, self.row(Table(table._file, value._position, option), top)
            elif isinstance(value, list):
                made[name] = [
                    self.row(v, top)
                    if isinstance(v, Table)
                    else bytes(v).decode("utf-8", "replace")
                    for v in value
                ]
            else:
                made[name] = self.row(value, top) if isinstance(value, Table) else value
        return made

    def write(self, row: Row) -> bytes:
        return Writer(self.identifier, self.schema).file(self.root, row)


@dataclass(frozen=True, eq=False)
class Sites(Flatbuffer):
    """A flatbuffer that notes what is read of it: the kind, the place and how many."""

    found: list[tuple[str, int, int]] = field(default_factory=list)

    def numbers(self, kind: str, at: int, count: int) -> np.ndarray:
        self.found.append((kind, at, count))
        return super().numbers(kind, at, count)


def mutate_flatbuffer(data: bytes, chance: random.Random, other: bytes, format: Format) -> bytes:
    """Changed fields of tables, drawn by the kind of table, with parts of another model; or a
    changed offset, length or number.
    """
    if chance.random() < 0.25:
        return change_sites(data, chance, format)
    try:
        top, second = format.read(data), format.read(other)
    except (Damaged, KeyError):
        return mutate_bytes(data, chance)
    for _ in range(chance.choice(OFTEN)):
        kind = drawn([k for k, _ in rows(top, format.root, format.schema)], chance)
        own = [r for k, r in rows(top, format.root, format.schema) if k == kind]
        pool = [
            r
            for k, r in (
                *rows(top, format.root, format.schema),
                *rows(second, format.root, format.schema),
            )
            if k == kind
        ]
        change_row(chance.choice(own), kind, chance, format, pool)
    if chance.random() < 0.5:
        format.fit(top, chance)
    try:
        return format.write(top)
    except (OverflowError, ValueError):  # a number that was taken from a wider field
        return mutate_bytes(data, chance)


def change_sites(data: bytes, chance: random.Random, format: Format) -> bytes:
    """Overwrite numbers at places where the reader reads some: offsets, lengths of vectors, slots
    of tables, and fields.
    """
    found, sites = bytearray(data), list[tuple[str, int, int]]()
    with suppress(Damaged, KeyError):
        format.read(data, sites)
    for _ in range(chance.choice((1, 1, 2, 3))):
        kind, at, count = chance.choice(sites)
        dtype = np.dtype(NUMBERS[kind])
        at += dtype.itemsize * chance.randrange(max(count, 1))
        if chance.random() < 0.4:
            _, of, _ = chance.choice(sites)
            written = bytes(found[of : of + dtype.itemsize])
        elif kind in ("f32", "f64"):
            with np.errstate(over="ignore"):
                written = np.array(chance.choice(FRACTIONS)).astype(dtype).tobytes()
        else:
            number = chance.choice(
                (*EDGES, chance.randrange(len(data)), -chance.randrange(len(data)))
            )
            written = (number % (1 << 8 * dtype.itemsize)).to_bytes(dtype.itemsize, "little")
        found[at : at + dtype.itemsize] = written
    return bytes(found)


def rows(row: Row, kind: str, schema: Mapping[str, str]) -> Iterator[tuple[str, Row]]:
    """The rows of a table and of those inside of it, with their kinds."""
    yield kind, row
    declared = fields(schema[kind])
    for name, value in row.items():
        inner = declared[name][1]
        if inner == "table":
            yield from rows(value[1], value[0], schema)
        elif isinstance(value, dict):
            yield from rows(value, inner, schema)
        elif isinstance(value, list):
            for part in value:
                if isinstance(part, dict):
                    yield from rows(part, inner[1:-1], schema)


def change_row(
    row: Row, kind: str, chance: random.Random, format: Format, pool: Sequence[Row]
) -> None:
    """Change a field, most often one that is present."""
    declared = {n: k for n, (_, k, _) in fields(format.schema[kind]).items() if k != "-"}
    if not declared:
        return
    name = chance.choice([*(row if row and chance.random() < 0.8 else declared)])
    if (of := declared[name]) == "table":
        if chance.random() < 0.3:
            row.pop(name, None)
        else:
            row[name] = chance.choice(
                [r[name] for r in pool if name in r] or [(chance.choice(format.options), {})]
            )
        return
    same = [r[name] for r in pool if name in r]
    if chance.random() < 0.08:
        row.pop(name, None)
    elif of.startswith("["):
        elements = [v for values in same for v in values]
        changed = partial(other_value, kind=of[1:-1], chance=chance, same=elements)
        made = list_changed(row.get(name, ()), chance, changed, elements or [changed(None)])
        row[name] = np.array(made, NUMBERS[of[1:-1]]) if of[1:-1] in NUMBERS else made
    else:
        row[name] = other_value(row.get(name), of, chance, same)


def other_value(value: Any, kind: str, chance: random.Random, same: Sequence[Any]) -> Any:
    """Another value of a field: one that stands elsewhere in the model, or one at an edge of what
    there is.
    """
    if same and chance.random() < 0.5:
        return chance.choice(same)
    if kind == "str":
        return chance.choice(TEXTS)
    if kind not in NUMBERS:
        return chance.choice(same) if same else {}
    dtype = np.dtype(NUMBERS[kind])
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.array(chance.choice(FRACTIONS)).astype(dtype).item()
    number = chance.choice((*EDGES, chance.randrange(16), int(value or 0) + 1, int(value or 0) - 1))
    return (
        number
        if np.iinfo(dtype).min <= number <= np.iinfo(dtype).max
        else int(np.array(number % (1 << 63)).astype(dtype))
    )


def fit_tflite(model: Row, chance: random.Random) -> None:
    """Give buffers as many bytes as their tensors need."""
    sizes = {
        "FLOAT32": 4,
        "INT32": 4,
        "UINT32": 4,
        "INT64": 8,
        "UINT64": 8,
        "FLOAT64": 8,
        "COMPLEX64": 8,
        "INT16": 2,
        "UINT16": 2,
        "FLOAT16": 2,
        "COMPLEX128": 16,
    }
    buffers = model.get("buffers", [])
    for graph in model.get("subgraphs", []):
        for tensor in graph.get("tensors", []):
            number, type = tensor.get("buffer", 0), int(tensor.get("type", 0))
            if (
                0 < number < len(buffers)
                and "data" in buffers[number]
                and 0 <= type < len(tflite.TYPES)
            ):
                count = int(np.prod(tensor.get("shape", ()), dtype=object)) * sizes.get(
                    tflite.TYPES[type], 1
                )
                resize_data(buffers[number], count, chance)


def fit_tosa(model: Row, chance: random.Random) -> None:
    """Give constants as many bytes as they need."""
    for region in model.get("regions", []):
        for block in region.get("blocks", []):
            for tensor in block.get("tensors", []):
                if "data" in tensor and 0 <= (type := int(tensor.get("type", 0))) < len(tosa.TYPES):
                    element = tosa.ELEMENTS.get(tosa.TYPES[type])
                    count = int(np.prod(tensor.get("shape", ()), dtype=object)) * (
                        element.bytes if element else 1
                    )
                    resize_data(tensor, count, chance)
            for shape in block.get("shapes", []):
                resize_data(shape, 8 * int(shape.get("rank", 0)), chance)


def resize_data(row: Row, count: int, chance: random.Random) -> None:
    data = bytes(row.get("data", b""))
    if len(data) != count and 0 <= count <= LONGEST:
        filled = data + chance.choice((bytes(count), chance.randbytes(count)))
        row["data"] = np.frombuffer(filled[:count], np.uint8)


def option_of_tflite(operator: Table, model: Table) -> str:
    if operator._kind != "Operator" or operator.opcode_index >= len(model.operator_codes):
        return ""
    code = model.operator_codes[operator.opcode_index]
    number = max(code.builtin_code, code.deprecated_builtin_code)
    return tflite.OPERATORS[number] if 0 <= number < len(tflite.OPERATORS) else ""


def option_of_tosa(operator: Table, _: Table) -> str:
    return tosa.OPERATORS[operator.op] if operator.op < len(tosa.OPERATORS) else ""


TFLITE = Format(b"TFL3", "Model", tflite.SCHEMA, option_of_tflite, [*tflite.OPTIONS], fit_tflite)
TOSA = Format(b"TOSA", "TosaGraph", tosa.SCHEMA, option_of_tosa, [*tosa.ATTRIBUTES], fit_tosa)
