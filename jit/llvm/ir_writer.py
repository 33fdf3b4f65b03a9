"""Instructions of LLVM IR in order, with fresh names, and the words they are made of: types, numbers, sizes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from ...dialect.ir.sizes import Dim
from ...dialect.ir.types import F64, I1, ElementType
from .scalar_functions import HOLES, INSTRUCTIONS, Call, Row, conversion

PARALLEL = "declare void @parallel(ptr, ptr, i64, i64)"  # runs a loop on the thread pool
_FLOATS = {16: "half", 32: "float", 64: "double"}


def type_text(element: ElementType, lanes: int = 1) -> str:
    if element.kind == "complex":
        raise TypeError("complex elements are split before emission")
    scalar = _FLOATS[element.bits] if element.kind == "float" else f"i{element.bits}"
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def memory_text(element: ElementType, lanes: int = 1) -> str:
    """The type in memory: a bool takes a byte."""
    if element is not I1:
        return type_text(element, lanes)
    return "i8" if lanes == 1 else f"<{lanes} x i8>"


def suffix(element: ElementType, lanes: int) -> str:
    """The type as the names of intrinsics write it."""
    scalar = f"f{element.bits}" if element.kind == "float" else f"i{element.bits}"
    return scalar if lanes == 1 else f"v{lanes}{scalar}"


def number_text(value: object, element: ElementType) -> str:
    if element.kind == "float":
        rounded = float(element.dtype.type(value))
        if element.bits == 16:
            return f"0xH{struct.unpack('<H', struct.pack('<e', rounded))[0]:04X}"
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    if element is I1:
        return "true" if value else "false"
    return str(int(value))  # type: ignore[call-overload]


def is_number(text: str) -> bool:
    """Test whether the text of a value is a literal."""
    return not text.startswith("%")


class Declaration(NamedTuple):
    """A function of another module, or one that is defined later: `result @name(parameters)`."""

    result: str
    name: str
    parameters: tuple[str, ...]

    def __str__(self) -> str:
        return f"declare {self.result} @{self.name}({', '.join(self.parameters)})"

    @classmethod
    def parsed(cls, line: str) -> Declaration | None:
        """The declaration that a line is, if it is one of scalars and vectors."""
        result, _, rest = line.removeprefix("declare ").partition(" @")
        name, _, parameters = rest.removesuffix(")").partition("(")
        return cls(result, name, tuple(parameters.split(", "))) if line.startswith("declare ") else None

    @property
    def stem(self) -> str:
        """The name without the type that follows it."""
        return self.name.partition(".")[0]

    @property
    def lanes(self) -> int:
        """Those of the result; 1 of a scalar."""
        return int(self.result[1:].partition(" ")[0]) if self.result[0] == "<" else 1


class Spelled(NamedTuple):
    """An instruction that lacks its operands and results of earlier ones, and what it calls."""

    template: str
    declaration: Declaration | None


class _Constants(NamedTuple):
    """The type's constants, {k[16]} in a row."""

    type: str  # of an element of vectors; empty for a scalar

    def __getitem__(self, number: object) -> str:  # type: ignore[override]
        return f"splat ({self.type} {number})" if self.type else str(number)


@cache
def words(element: ElementType, lanes: int) -> dict[str, object]:
    """The values of a row's letters."""

    def splat(number: object) -> str:
        text = number_text(number, element)
        return text if lanes == 1 else f"splat ({type_text(element)} {text})"

    ones = splat(True if element is I1 else -1)
    found = {"t": type_text(element, lanes), "m": type_text(I1, lanes), "s": suffix(element, lanes)}
    found["d"] = type_text(F64, lanes)
    constants = _Constants(type_text(element) if lanes > 1 else "")
    return {**found, "z": splat(0), "x": ones, "o": splat(1), "k": constants}


@cache
def spell_row(row: Row, element: ElementType, lanes: int) -> tuple[Spelled, ...]:
    """A row of the spelling of scalar functions, with the words and constants of one type in place."""
    return tuple([_spelled(line, words(element, lanes)) for line in row])


@cache
def spell_conversion(source: ElementType, target: ElementType, lanes: int) -> Spelled | None:
    """The conversion of {a}; None where the bits stay."""
    row = conversion(source, target)
    given = {"f": type_text(source, lanes), "sf": suffix(source, lanes), "zf": words(source, lanes)["z"]}
    return _spelled(row, {**given, **words(target, lanes)}) if row else None


def _spelled(line: str | Call, known: dict[str, object]) -> Spelled:
    def put(text: str) -> str:
        return text.format(*HOLES, a="{a}", b="{b}", c="{c}", **known)

    if isinstance(line, str):
        return Spelled(put(line), None)
    types = tuple([put(type) for type, _ in line.operands])
    declaration = Declaration(put(line.result), put(line.function), types)
    operands = ", ".join([f"{type} {put(o)}" for type, (_, o) in zip(types, line.operands, strict=True)])
    return Spelled(f"call {declaration.result} @{declaration.name}({operands})", declaration)


class IRWriter:
    """One function's instructions."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names = 0
        self.block = "entry"

    def fresh(self) -> str:
        self.names += 1
        return f"%v{self.names}"

    def label(self) -> str:
        self.names += 1
        return f"b{self.names}"

    def add(self, instruction: str) -> str:
        """Appends an instruction that has a value; gives the value's name."""
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def raw(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def start(self, label: str) -> None:
        """Begins a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def text(self) -> str:
        return "\n".join(self.lines)

    def linear(self, operation: str, a: str, b: str) -> str:
        """a + b, a - b or a * b of i64 that do not overflow, computed here where both are numbers."""
        if is_number(a) and is_number(b):
            x, y = int(a), int(b)
            return str(x + y if operation == "add" else x - y if operation == "sub" else x * y)
        if (b == "0" and operation != "mul") or (b == "1" and operation == "mul"):
            return a
        if (a == "0" and operation == "add") or (a == "1" and operation == "mul"):
            return b
        return self.add(f"{operation} nsw i64 {a}, {b}")

    def dim(self, dim: Dim, sizes: Mapping[object, str]) -> str:
        """A size, computed from the sizes that are given."""
        if isinstance(dim, int):
            return str(dim)
        total = str(dim.constant)
        for atom, factor in dim.terms:
            value = sizes[atom] if atom in sizes else self._operation(atom[0], *(self.dim(p, sizes) for p in atom[1:]))
            total = self.linear("add", total, self.linear("mul", value, str(factor)))
        return total

    def _operation(self, operation: str, a: str, b: str) -> str:
        if operation == "*":
            return self.add(f"mul nsw i64 {a}, {b}")
        if operation in ("max", "min"):
            test = self.add(f"icmp {'sgt' if operation == 'max' else 'slt'} i64 {a}, {b}")
            return self.add(f"select i1 {test}, i64 {a}, i64 {b}")
        divisor = b if is_number(b) else self.add(f"select i1 {self.add(f'icmp eq i64 {b}, 0')}, i64 1, i64 {b}")
        results: list[str] = []
        for instruction in INSTRUCTIONS["floordiv", "int"]:
            assert isinstance(instruction, str)
            results.append(self.add(instruction.format(*results, t="i64", m="i1", a=a, b=divisor, z="0")))
        if is_number(b):
            return results[-1]
        return self.add(f"select i1 {self.add(f'icmp eq i64 {b}, 0')}, i64 0, i64 {results[-1]}")
