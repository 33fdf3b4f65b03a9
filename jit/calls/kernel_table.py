"""The call of a kernel from a Python function: where its program's pointers, sizes and numbers come
from, and what it gives back; as a table for machine code, or done in Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from . import vectorcall_ir as layout

LARGEST = 1 << 40  # sizes and integers up to this have index arithmetic without overflow
# how the values of an argument of integers are limited
ANY, SMALL, WIDE = range(3)


def cells_of(dtype: np.dtype[Any]) -> int:
    """The cells, of 8 bytes each, that a number takes."""
    return -(-dtype.itemsize // 8)


class ArrayArgument(NamedTuple):
    """An array of a dtype and rank. One that is not contiguous is taken by strides."""

    dtype: np.dtype[Any]
    rank: int
    contiguous: bool
    written: bool


class NumberArgument(NamedTuple):
    """A number of exactly a type, whose value goes to a cell."""

    type: type
    dtype: np.dtype[Any]
    cell: int
    values: int  # ANY, SMALL or WIDE


class Place(NamedTuple):
    """The target of a pointer: the data of an object, an address, or a cell."""

    kind: int
    value: int


OBJECT, ADDRESS, CELL = range(3)


class Measure(NamedTuple):
    """A size or a stride of an object: of an axis, or of all elements (-1).

    `object` is -1 of a known size, which `axis` then is. A stride is shifted by some bits, a size
    has -1 there. It goes to a cell, or, as -1 - place, among the program's sizes.
    """

    object: int
    axis: int
    shift: int
    cell: int


class New(NamedTuple):
    """An array that the call makes: its sizes are in cells from one on."""

    dtype: np.dtype[Any]
    rank: int
    cell: int


class Result(NamedTuple):
    """An object, one that is always the same, the number in a cell, or a tuple of results."""

    kind: int
    value: Any
    dtype: np.dtype[Any] | None = None


class ViewAxis(NamedTuple):
    """An axis of an array of which a view is a result: the axis of the view along it, its step, and
    the cells of its start and its size; of an index, an axis of -1 and its cell.
    """

    axis: int
    step: int
    start: int
    size: int


FIXED, INT, FLOAT, BOOL, SCALAR, TUPLE = range(1, 7)  # kinds of results, after OBJECT
VIEW, COMPLEX = 7, 8  # a view of an array, of a rank and axes, and complex: calls in Python only
PYTHON: dict[np.dtype[Any], int] = {
    np.dtype(np.int64): INT,
    np.dtype(np.float64): FLOAT,
    np.dtype(np.bool_): BOOL,
    np.dtype(np.complex128): COMPLEX,
}


@dataclass(frozen=True)
class KernelCall:
    """A call. The first two cells are the values that an error names."""

    arguments: Sequence[ArrayArgument | NumberArgument]
    places: Sequence[Place]
    measures: Sequence[Measure]
    made: Sequence[New]
    result: Result
    cells: int
    sizes: int
    overlaps: bool  # written arguments share memory with others

    def perform(
        self,
        given: Sequence[object],
        program: Callable[..., int],
        sizing: Callable[..., int] | None,
        allocate: Callable[[int, tuple[int, ...]], np.ndarray],
        report: Callable[[int, int, int], object],
    ) -> Any:
        """A call in Python; `allocate` makes the array of a number."""
        objects = list(given)
        cells, known = np.zeros(self.cells, np.int64), np.zeros(self.sizes + 1, np.int64)
        for a, value in zip(self.arguments, given, strict=True):
            if isinstance(a, NumberArgument):
                cells[a.cell :][: cells_of(a.dtype)].view(a.dtype)[0] = value
        self._measure(objects, cells, known)
        if sizing is not None:
            sizing(self._pointers(objects, cells), known.ctypes.data, None)
            for n, m in enumerate(self.made):
                objects.append(allocate(n, tuple(cells[m.cell : m.cell + m.rank].tolist())))
            self._measure(objects, cells, known)
        if status := program(self._pointers(objects, cells), known.ctypes.data, None):
            report(status, *cells[:2].tolist())
        return _value(self.result, objects, cells)

    def _measure(self, objects: Sequence[Any], cells: np.ndarray, known: np.ndarray) -> None:
        """The sizes and strides of the objects that there are."""
        for m in self.measures:
            if m.object >= len(objects):
                continue
            if m.object < 0:
                value = m.axis
            elif m.axis < 0:
                value = objects[m.object].size
            elif m.shift < 0:
                value = objects[m.object].shape[m.axis]
            else:
                value = objects[m.object].strides[m.axis] >> m.shift
            (known if m.cell < 0 else cells)[m.cell if m.cell >= 0 else -1 - m.cell] = value

    def _pointers(self, objects: Sequence[Any], cells: np.ndarray) -> Any:
        found: list[int] = []
        for kind, value in self.places:
            if kind == OBJECT:
                value = objects[value].ctypes.data if value < len(objects) else 0
            elif kind == CELL:
                value = cells.ctypes.data + cells.itemsize * value
            found.append(value)
        return (ctypes.c_void_p * len(found))(*found)


class KernelTable:
    """A table in memory, which a chain of tables leads to."""

    def __init__(
        self,
        call: KernelCall | None = None,
        program: int = 0,
        sizing: int = 0,
        number: int = 0,
        latest: int = 0,
        report: object = None,
        slow: object = None,
    ) -> None:
        """The addresses of the programs of a version, and of where its number is kept; `report`
        raises the error of a status. Without a call it is the head of a chain, which has the entry
        in Python.
        """
        self.kept: list[Any] = [call, report, slow]
        known = dict.fromkeys(layout.VERSIONED, 0)
        known |= {"positional": -1, "slow": id(slow)}
        if call is not None:
            known |= {
                "positional": len(call.arguments),
                "program": program,
                "sizing": sizing,
                "report": id(report),
                "overlaps": call.overlaps,
                "number": number,
                "latest": latest,
                "cells": call.cells,
                "arguments": self._records([_argument_words(a) for a in call.arguments]),
                "pointers": len(call.places),
                "places": self._records(call.places),
                "lengths": len(call.measures),
                "measures": self._records(call.measures),
                "arrays": len(call.made),
                "made": self._records([(id(m.dtype), m.rank, m.cell) for m in call.made]),
                "sizes": call.sizes,
                "result": self._records([self._result(call.result)]),
            }
        self.words = (ctypes.c_int64 * len(known))(*known.values())

    def _records(self, records: Sequence[Sequence[int]]) -> int:
        words = [word for record in records for word in record]
        self.kept.append((ctypes.c_int64 * len(words))(*words))
        return ctypes.addressof(self.kept[-1])

    def _result(self, r: Result) -> tuple[int, int, int]:
        if r.kind == TUPLE:
            return r.kind, len(r.value), self._records([self._result(part) for part in r.value])
        value = id(r.value) if r.kind == FIXED else r.value
        return r.kind, value, 0 if r.dtype is None else id(r.dtype)

    def follow(self, following: KernelTable) -> None:
        """The next table of the chain."""
        self.words[layout.VERSIONED.index("next")] = ctypes.addressof(following.words)


def _argument_words(a: ArrayArgument | NumberArgument) -> tuple[int, ...]:
    if isinstance(a, NumberArgument):
        return id(a.type), -1, a.cell, a.values, 0, 0, 0
    element = ctypes.c_int64.from_address(id(a.dtype) + layout.ELEMENT).value
    flags = layout.ALIGNED | a.contiguous * layout.CONTIGUOUS | a.written * layout.WRITEABLE
    return (id(a.dtype), a.rank, 0, element, flags | layout.CONTIGUOUS, flags, a.dtype.itemsize)


def _value(r: Result, objects: Sequence[Any], cells: np.ndarray) -> Any:
    if r.kind == TUPLE:
        return tuple(_value(part, objects, cells) for part in r.value)
    if r.kind in (OBJECT, FIXED):
        return objects[r.value] if r.kind == OBJECT else r.value
    if r.kind == VIEW:
        return _view(r.value, objects, cells)
    assert r.dtype is not None
    value = cells[r.value :][: cells_of(r.dtype)].view(r.dtype)[0]
    return value if r.kind == SCALAR else value.item()


def _view(
    value: tuple[Result, int, Sequence[ViewAxis]], objects: Sequence[object], cells: np.ndarray
) -> np.ndarray:
    home, rank, axes = value
    subscript: list[int | slice] = []
    for a in axes:
        start = int(cells[a.start])
        if a.axis < 0:
            subscript.append(start)
            continue
        count = int(cells[a.size])
        end = start + count * a.step
        subscript.append(slice(start, end if end >= 0 else None, a.step) if count else slice(0))
    found: np.ndarray = _value(home, objects, cells)[(*subscript, ...)]
    along = [a.axis for a in axes if a.axis >= 0]
    found = found.transpose(sorted(range(len(along)), key=along.__getitem__))
    return np.expand_dims(found, tuple(n for n in range(rank) if n not in along))
