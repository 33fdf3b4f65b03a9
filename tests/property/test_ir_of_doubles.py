"""The hand-written IR for doubles has no poison and no undefined behavior: it is interpreted."""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import tiers
from cvm.jit.llvm.ir_files import read_ir

WORD = 1 << 64
EDGES = [0x0, 0x1, 0xFFFFFFFFFFFFF, 0x10000000000000, 0x3FF0000000000000, 0x3FF0000000000001]
EDGES += [0x3FEFFFFFFFFFFFFF, 0x4340000000000001, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000]
EDGES += [0x7FF0000000000001, 0x7FF8000000000000, 0x8000000000000, 0x3CA0000000000001]
DEFINE = re.compile(r"^define \w* ?i64 @(\w+)\(([^)]*)\)[^{]*{\n(.*?)^}", re.MULTILINE | re.DOTALL)
ORDERED = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
BITS: dict[str, Callable[[int, int], int]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}


class Undefined(Exception):
    """A program that LLVM gives no meaning."""


def signed(x: int) -> int:
    return x - WORD if x >> 63 else x


def double(x: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", x))[0]


def word(x: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", x))[0]


class Machine:
    """Functions of IR over words of 64 bits; None stands for poison."""

    def __init__(self, text: str) -> None:
        lines = re.sub(r" *;.*", "", text)
        self.functions = {
            name: (re.findall(r"%[\w.]+", parameters), self.blocks(body))
            for name, parameters, body in DEFINE.findall(lines)
        }

    def blocks(self, body: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        label = "entry"
        for line in filter(None, map(str.strip, body.splitlines())):
            if line.endswith(":"):
                label = line[:-1]
            else:
                found.setdefault(label, []).append(line)
        return found

    def call(self, name: str, *arguments: Any) -> Any:
        names, blocks = self.functions[name]
        values: dict[str, Any] = dict(zip(names, arguments, strict=True))
        before, label = "", next(iter(blocks))
        while True:
            for line in blocks[label]:
                if line.startswith("ret "):
                    return self.certain(self.value(line.split()[-1], values))
                if line.startswith("br "):
                    before, label = label, self.target(line, values)
                    break
                result, _, text = line.partition(" = ")
                values[result] = self.computed(text, values, before)

    def certain(self, value: Any) -> Any:
        if value is None:
            raise Undefined
        return value

    def value(self, text: str, values: dict[str, Any]) -> Any:
        if text.startswith("%"):
            return values[text]
        if text in ("true", "false"):
            return int(text == "true")
        return int(text.removeprefix("u0x"), 16 if text.startswith("u0x") else 10) % WORD

    def target(self, line: str, values: dict[str, Any]) -> str:
        labels = re.findall(r"label %([\w.]+)", line)
        if len(labels) == 1:
            return labels[0]
        condition = self.certain(self.value(line.split()[2].rstrip(","), values))
        return labels[not condition]

    def computed(self, text: str, values: dict[str, Any], before: str) -> Any:
        name, rest = text.split(" ", 1)
        if name == "phi":
            arms = re.findall(r"\[ ([^,]+), %([\w.]+) \]", rest)
            return next(self.value(v, values) for v, label in arms if label == before)
        if name == "call":
            callee, given = re.fullmatch(r"\w+ @([\w.]+)\((.*)\)", rest).groups()  # type: ignore[union-attr]
            operands = [self.value(a.split()[-1], values) for a in given.split(", ")]
            if callee == "llvm.ctlz.i64":
                return None if operands[0] is None else 64 - operands[0].bit_length()
            return self.call(callee, *operands)
        if name == "select":
            condition, *arms = (part.split()[-1] for part in rest.split(", "))
            chosen = arms[not self.certain(self.value(condition, values))]
            return self.value(chosen, values)
        if name in ("zext", "bitcast"):
            source, operand = rest.split()[:2]
            if (x := self.value(operand, values)) is None or name == "zext":
                return x
            return word(x) if source == "double" else double(x)
        *kind, first, second = rest.replace(",", "").split()
        return self.binary(name, kind, self.value(first, values), self.value(second, values))

    def binary(self, name: str, kind: list[str], a: Any, b: Any) -> Any:
        if name == "urem" and not self.certain(b):
            raise Undefined
        if a is None or b is None:
            return None
        width = 1 if kind[-1] == "i1" else 64
        match name:
            case "shl" | "lshr":
                return None if b >= width else (a << b if name == "shl" else a >> b) % WORD
            case "urem":
                return a % b
            case "fadd" | "fmul":
                with np.errstate(all="ignore"):
                    x, y = np.float64(a), np.float64(b)
                    return float(x + y if name == "fadd" else x * y)
            case "icmp":
                if kind[0] in ("eq", "ne"):
                    return int((a == b) == (kind[0] == "eq"))
                a, b = (signed(a), signed(b)) if kind[0][0] == "s" else (a, b)
                return int(ORDERED[kind[0][1:]](a, b))
        return BITS[name](a, b) % (1 << width)


def fma(a: float, b: float, c: float) -> float | None:
    """The exact sum, rounded once; None where an operand or the result is special."""
    if not all(map(math.isfinite, (a, b, c))):
        return None
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact) if exact else None
    except OverflowError:
        return None


def sqrt(a: float) -> float | None:
    return math.sqrt(a) if a >= 0 else None


def fmod(a: float, b: float) -> float | None:
    return math.fmod(a, b) if math.isfinite(a) and b and b == b else None


@pytest.mark.parametrize(("function", "operands"), [(fma, 3), (fmod, 2), (sqrt, 1)])
def test_nothing_is_undefined(function: Callable[..., float | None], operands: int) -> None:
    name = function.__name__
    machine = Machine(read_ir("llvm/double_parts.ll") + read_ir(f"llvm/{name}_of_doubles.ll"))
    random = np.random.default_rng(0)
    compared = 0
    for _ in range(5_000 if tiers.everything else 500):
        near = random.integers(0, 1 << 64, operands, np.uint64)
        middle = 0x3FF + random.integers(-60, 60, operands)
        words = [
            [int(x), EDGES[int(x) % len(EDGES)] | int(x) >> 63 << 63, int(m) << 52 | int(x) >> 12][
                k
            ]
            for x, m, k in zip(near, middle, random.integers(0, 3, operands), strict=True)
        ]
        found = machine.call(f"{name}_of_doubles", *words)
        if (expected := function(*map(double, words))) is not None:
            assert found == word(expected), [hex(w) for w in words]
            compared += 1
    assert compared > 100


@pytest.mark.parametrize(
    "body", ["%y = shl i64 %x, 64\n  ret i64 %y", "%y = urem i64 1, 0\n  ret i64 0"]
)
def test_what_is_undefined_is_found(body: str) -> None:
    with pytest.raises(Undefined):
        Machine(f"define i64 @f(i64 %x) {{\n  {body}\n}}\n").call("f", 1)
