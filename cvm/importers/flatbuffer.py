"""Reads and writes flatbuffers by a table of their schema's fields. Every offset that is read
is checked: a damaged file is a `Damaged`, never a crash.

A schema maps the name of a table to its fields in the order of their slots, each `name:kind` or
`name:kind=default`. A kind is a number (`i8` ... `u64`, `f32`, `bool`), `str`, the name of a table,
`table` (of a union, whose schema the reader gives later), `-` (not read), or one of these in
brackets, a vector.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

import cvm
from cvm.importers import unreadable

NUMBERS = {
    "i8": "<i1",
    "u8": "<u1",
    "i16": "<i2",
    "u16": "<u2",
    "i32": "<i4",
    "u32": "<u4",
    "i64": "<i8",
    "u64": "<u8",
    "f32": "<f4",
    "f64": "<f8",
    "bool": "<u1",
}
SIZE_OF_OFFSET = 4

Schema = Mapping[str, str]


class Damaged(ValueError):
    """The bytes are no flatbuffer of the schema."""


def contents(model: object, name: str) -> tuple[str, bytes]:
    """The name and the bytes of a model: of a file, or given as they are."""
    if isinstance(model, bytes):
        return name, model
    if not isinstance(model, (str, PathLike)):
        raise cvm.Error(f"expected the path of a model or its bytes, got {type(model).__name__}")
    try:
        return str(model), Path(model).read_bytes()
    except (OSError, ValueError) as e:
        unreadable(str(model), e)


@lru_cache(maxsize=256)
def fields(text: str) -> dict[str, tuple[int, str, float]]:
    """The slot, the kind and the default of each field."""
    slots: dict[str, tuple[int, str, float]] = {}
    for slot, entry in enumerate(text.split()):
        name, _, kind = entry.partition(":")
        kind, _, default = kind.partition("=")
        slots[name] = slot, kind, float(default or 0)
    return slots


@dataclass(frozen=True, eq=False)
class Flatbuffer:
    """The bytes of a file, and its schema."""

    data: memoryview
    schema: Schema

    def numbers(self, kind: str, at: int, count: int) -> np.ndarray:
        dtype = np.dtype(NUMBERS[kind])
        if at < 0 or at + count * dtype.itemsize > len(self.data):
            raise Damaged(
                f"it refers to bytes up to {at + count * dtype.itemsize} of {len(self.data)}"
            )
        return np.frombuffer(self.data, dtype, count, at)

    def number(self, kind: str, at: int) -> Any:
        return self.numbers(kind, at, 1)[0].item()

    def value(self, kind: str, at: int) -> Any:
        if kind in NUMBERS:
            number = self.number(kind, at)
            return bool(number) if kind == "bool" else number
        at += self.number("u32", at)
        if not kind.startswith("[") and kind != "str":
            return Table(self, at, kind)
        count, kind = self.number("u32", at), "u8" if kind == "str" else kind[1:-1]
        at += SIZE_OF_OFFSET
        if kind in NUMBERS:
            return self.numbers(kind, at, count)
        self.numbers("u32", at, count)
        return [self.value(kind, at + SIZE_OF_OFFSET * n) for n in range(count)]


class Table:
    """A table of a flatbuffer; its fields are attributes. A field that is absent is its default, an
    empty vector, or None.
    """

    def __init__(self, file: Flatbuffer, position: int, kind: str) -> None:
        self._file, self._position, self._kind = file, position, kind

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        file = self._file
        slot, kind, default = fields(file.schema[self._kind])[name]
        vtable, entry = self._position - file.number("i32", self._position), 4 + 2 * slot
        at = file.number("u16", vtable + entry) if entry < file.number("u16", vtable) else 0
        value = file.value(kind, self._position + at) if at else absent(kind, default)
        if kind == "str" and value is not None:
            value = bytes(value).decode("utf-8", "replace")
        self.__dict__[name] = value
        return value


def absent(kind: str, default: float) -> Any:
    if kind.startswith("["):
        return np.zeros(0, NUMBERS[kind[1:-1]]) if kind[1:-1] in NUMBERS else []
    if kind not in NUMBERS:
        return None
    return bool(default) if kind == "bool" else default if kind == "f32" else int(default)


def options(table: Table | None, kind: str, schema: Schema) -> Table:
    """The table of a union, read as the one of this name; one without fields where it is absent."""
    if table is None:
        return Table(Flatbuffer(memoryview(b"\4\0\4\0\4\0\0\0"), schema), 4, kind)
    return Table(table._file, table._position, kind)


def root(data: bytes, identifier: bytes, schema: Schema, name: str) -> Table:
    if len(data) < 8 or data[4:8] != identifier:
        raise Damaged(f"it does not have the identifier {identifier.decode()!r} at byte 4")
    file = Flatbuffer(memoryview(data), schema)
    return Table(file, file.number("u32", 0), name)


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
