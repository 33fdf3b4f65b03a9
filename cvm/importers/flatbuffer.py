"""Reads flatbuffers by a table of their schema's fields. Every offset is checked: a damaged file is
a `Damaged`, never a crash.

A schema maps the name of a table to its fields in the order of their slots, each `name:kind` or
`name:kind=default`. A kind is a number (`i8` ... `u64`, `f32`, `bool`), `str`, the name of a table,
`table` (of a union, whose schema the reader gives later), `-` (not read), or one of these in
brackets, a vector.
"""

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


def contents(model: Any, name: str) -> tuple[str, bytes]:
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
