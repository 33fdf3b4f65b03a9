"""The registers of all threads that run together: one array for each, viewed under the type of an
instruction's operand.
"""

import re
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from .ptx import Entry, Unsupported
from .ptx_types import Array, dtype

Active: TypeAlias = (
    slice | Array
)  # the threads that execute: ascending numbers, a slice where they are neighbors


class Registers:
    """Values by thread. A thread's number is its block's (of those that run together) times
    threads, plus its own.
    """

    def __init__(
        self, entry: Entry, blocks: int, threads: int, grid: int, arguments: Mapping[str, int]
    ) -> None:
        self.entry = entry
        self.count = blocks * threads
        self.threads = threads
        self.lanes = np.arange(self.count, dtype=np.int64)
        self.arguments = arguments  # and the addresses of tables
        self.held: dict[str, Array] = {}
        thread = self.lanes % threads
        block = self.lanes // threads
        special = {
            "%tid.x": thread,
            "%ctaid.x": block,
            "%ntid.x": threads,
            "%nctaid.x": grid,
            "%laneid": thread % 32,
            "%warpid": thread // 32,
        }
        self.special = {
            n: np.array(np.broadcast_to(np.asarray(v, np.uint32), self.count))
            for n, v in special.items()
        }
        for name, value in (("tid", 0), ("ctaid", 0), ("ntid", 1), ("nctaid", 1)):
            for axis in "yz":
                self.special[f"%{name}.{axis}"] = np.full(self.count, value, np.uint32)

    def register(self, name: str) -> Array:
        if name not in self.held:
            declared = self.entry.registers
            if (type := declared.get(name) or declared.get(name.rstrip("0123456789"))) is None:
                raise Unsupported(f"the register {name}")
            kind = dtype(type)
            self.held[name] = np.zeros(
                self.count, kind if kind.kind == "b" else f"u{kind.itemsize}"
            )
        return self.held[name]

    def source(self, operand: str, kind: np.dtype) -> Array:
        """An operand's values as this type: the low bytes of a register that is wider."""
        if operand in self.special:
            return (
                self.special[operand].view(kind)
                if kind.itemsize == 4
                else self.special[operand].astype(kind)
            )
        if operand.startswith("%"):
            held = self.register(operand)
            if held.dtype.itemsize < kind.itemsize:
                raise Unsupported(f"{operand} as {kind}")
            return held.view(kind)[:: held.dtype.itemsize // kind.itemsize]
        return np.broadcast_to(self.number(operand, kind), self.count)

    def target(self, operand: str, kind: np.dtype) -> Array:
        """The destination of a result: a wider register is extended by the type's sign."""
        if operand == "_":
            return np.zeros(self.count, kind)
        held = self.register(operand)
        if held.dtype.itemsize < kind.itemsize:
            raise Unsupported(f"{kind} to {operand}")
        if kind.kind == "b" or held.dtype.itemsize == kind.itemsize:
            return held.view(kind)
        return held.view(
            f"{kind.kind}{held.dtype.itemsize}" if kind.kind in "iu" else f"u{held.dtype.itemsize}"
        )

    def number(self, text: str, kind: np.dtype) -> Array:
        """A literal or the address of a variable."""
        if match := re.fullmatch(r"0([fFdD])([0-9A-Fa-f]+)", text):
            single = match[1] in "fF"
            bits = np.array(int(match[2], 16), np.uint32 if single else np.uint64)
            if kind.kind != "f":
                return bits.view(kind)
            return bits.view(np.float32 if single else np.float64).astype(kind)
        if text in self.entry.shared or text in self.entry.local:
            value = (self.entry.shared.get(text) or self.entry.local[text])[0]
        elif text in self.entry.tables:
            value = self.arguments[text]
        else:
            value = int(text.rstrip("U"), 0)
        if kind.kind == "f":
            return np.array(value, f"u{kind.itemsize}").view(kind)
        if kind.kind == "b":
            return np.array(value != 0)
        return np.array(value & (1 << 8 * kind.itemsize) - 1, f"u{kind.itemsize}").view(kind)

    def address(self, operand: str) -> tuple[Array, np.uint64]:
        """The base and the offset of `[base+offset]`."""
        base, _, offset = operand.strip("[]").replace(" ", "").partition("+")
        number = np.uint64(int(offset or 0) & (1 << 64) - 1)
        if base.startswith("%") and base not in self.special:
            return self.register(base), number
        return np.broadcast_to(self.number(base, np.dtype(np.uint64)), self.count), number

    def active(self, numbers: Array) -> Active | None:
        """Select threads by number: a slice if they are consecutive, None if there are none."""
        if not len(numbers):
            return None
        if int(numbers[-1]) - int(numbers[0]) + 1 == len(numbers):
            return slice(int(numbers[0]), int(numbers[-1]) + 1)
        return numbers
