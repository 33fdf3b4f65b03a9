"""Instructions of LLVM IR in order, with fresh names, and the words they are made of: types, numbers, sizes."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ...dialect.ir.sizes import Dim
from ...dialect.ir.types import I1, ElementType
from .scalar_functions import INSTRUCTIONS

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
    """Whether the text of a value is a literal."""
    return not text.startswith("%")


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
            results.append(self.add(instruction.format(*results, t="i64", m="i1", a=a, b=divisor, z="0")))
        if is_number(b):
            return results[-1]
        return self.add(f"select i1 {self.add(f'icmp eq i64 {b}, 0')}, i64 0, i64 {results[-1]}")
