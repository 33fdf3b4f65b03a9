"""Functions that emitted IR calls where processors have an instruction of their own: defined for the processor at hand.

`complete` puts a definition in place of each declaration, by the processor's features, and in plain IR where it has none.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from .scalar_functions import HALVES, WORDS, Row

DECLARED = re.compile(rf"^declare <(\d+) x i32> @({'|'.join(WORDS)})\.v\1i32\(.*\)$", re.MULTILINE)

QUADS = "quads"  # one of several features, by `has_quads`

# by lanes: the feature, the instruction, its operands in their order, and the bits of what it takes and gives
_INTRINSICS = {
    ("pairdot", 4): ("sse2", "llvm.x86.sse2.pmadd.wd", "ab", 16, 32),
    ("pairdot", 8): ("avx2", "llvm.x86.avx2.pmadd.wd", "ab", 16, 32),
    ("bytepairs", 4): ("ssse3", "llvm.x86.ssse3.pmadd.ub.sw.128", "ab", 8, 16),
    ("bytepairs", 8): ("avx2", "llvm.x86.avx2.pmadd.ub.sw", "ab", 8, 16),
    ("quadsum", 4): (QUADS, "llvm.x86.avx512.vpdpbusd.128", "cab", 32, 32),
    ("quadsum", 8): (QUADS, "llvm.x86.avx512.vpdpbusd.256", "cab", 32, 32),
}


def has_quads(features: Collection[str]) -> bool:
    """Whether the products of four bytes and a sum, modulo 2^32, are added by one instruction."""
    return "avxvnni" in features or {"avx512vnni", "avx512vl"} <= set(features)


def complete(text: str, features: Collection[str]) -> str:
    """The module with every such function defined."""
    called: set[str] = set()
    features = {*features, QUADS} if has_quads(features) else features
    made = DECLARED.sub(lambda match: _defined(match[2], int(match[1]), features, called), text)
    return "\n".join([made, *sorted(called)])


def _defined(name: str, lanes: int, features: Collection[str], called: set[str]) -> str:
    """One of them, for vectors of so many words; what it calls is added to what is called."""
    wide = f"<{lanes} x i32>"
    feature, instruction, order, taken, given = _INTRINSICS.get((name, lanes), ("", "", "", 0, 0))
    halved = _INTRINSICS.get((name, lanes // 2), ("",))[0] in features
    before: list[str] = []
    operands, row = WORDS[name]
    if halved and feature not in features:
        half = f"{name}.v{lanes // 2}i32"
        before = [_defined(name, lanes // 2, features, called).replace(f"@{half}", f"@half.{half}")]
        body = _by_halves(f"@half.{half}", lanes, operands)
    elif feature in features:
        parts, result = (f"<{32 // bits * lanes} x i{bits}>" for bits in (taken, given))
        called.add(f"declare {result} @{instruction}({', '.join(parts for _ in order)})")
        given_parts = ", ".join(f"{parts} %{o}.parts" for o in order)
        body = _on_parts(f"call {result} @{instruction}({given_parts})", operands, wide, parts, result)
    elif name in HALVES:
        halves = f"<{2 * lanes} x i16>"
        body = _on_parts(f"{HALVES[name]} {halves} %a.parts, %b.parts", operands, wide, halves, halves)
    else:
        body = _plain(row, lanes)
    parameters = ", ".join(f"{wide} %{v}" for v in operands)
    head = f"define internal {wide} @{name}.v{lanes}i32({parameters}) alwaysinline nounwind {{"
    return "\n".join([*before, head, *(f"  {line}" for line in body), f"  ret {wide} %r", "}"])


def _on_parts(instruction: str, operands: str, wide: str, parts: str, result: str) -> list[str]:
    """An instruction on the operands seen as vectors of parts."""
    casts = [f"%{o}.parts = bitcast {wide} %{o} to {parts}" for o in operands]
    return [*casts, f"%r.parts = {instruction}", f"%r = bitcast {result} %r.parts to {wide}"]


def _by_halves(function: str, lanes: int, operands: str) -> list[str]:
    """A function on the two halves of vectors."""
    wide, half = f"<{lanes} x i32>", f"<{lanes // 2} x i32>"
    ends = [", ".join(f"i32 {n}" for n in range(first, first + lanes // 2)) for first in (0, lanes // 2)]
    lines = [
        f"%{v}{n} = shufflevector {wide} %{v}, {wide} poison, {half} <{end}>"
        for v in operands
        for n, end in enumerate(ends)
    ]
    for n in (0, 1):
        lines.append(f"%r{n} = call {half} {function}({', '.join(f'{half} %{v}{n}' for v in operands)})")
    return [*lines, f"%r = shufflevector {half} %r0, {half} %r1, {wide} <{', '.join(ends)}>"]


def _plain(row: Row, lanes: int) -> list[str]:
    """The instructions for one word, on vectors."""
    names = [*(f"%v{n}" for n in range(len(row) - 1)), "%r"]
    lines: list[str] = []
    for name, template in zip(names, row, strict=True):
        numbers = re.sub(r"(?<![\w{])-?\d+(?![\w}])", r"splat (i32_ \g<0>)", template)
        typed = re.sub(r"\bi(32|1)\b", rf"<{lanes} x i\1>", numbers).replace("i32_", "i32")
        lines.append(f"{name} = {typed.format(*names, a='%a', b='%b', c='%c')}")
    return lines
