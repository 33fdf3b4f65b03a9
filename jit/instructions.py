"""Functions that emitted IR calls where processors have an instruction of their own: defined for the processor at hand.

`complete` puts a definition in place of each declaration, by the processor's features, and in plain IR where it has none.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from .spelling import INSTRUCTIONS, WORDS

_DECLARED = re.compile(rf"^declare <(\d+) x i32> @({'|'.join(WORDS)})\.v\1i32\(.*\)$", re.MULTILINE)

# by lanes: the feature, the instruction, and the bits of what it takes and gives
_INTRINSICS = {
    ("pairdot", 4): ("sse2", "llvm.x86.sse2.pmadd.wd", 16, 32),
    ("pairdot", 8): ("avx2", "llvm.x86.avx2.pmadd.wd", 16, 32),
    ("bytepairs", 4): ("ssse3", "llvm.x86.ssse3.pmadd.ub.sw.128", 8, 16),
    ("bytepairs", 8): ("avx2", "llvm.x86.avx2.pmadd.ub.sw", 8, 16),
}


def complete(text: str, features: Collection[str]) -> str:
    """The module with every such function defined."""
    return _DECLARED.sub(lambda match: _defined(match[2], int(match[1]), features), text)


def _defined(name: str, lanes: int, features: Collection[str]) -> str:
    """One of them, for vectors of so many words."""
    wide = f"<{lanes} x i32>"
    feature, instruction, taken, given = _INTRINSICS.get((name, lanes), ("", "", 0, 0))
    declared: list[str] = []
    if feature in features:
        parts, result = (f"<{32 // bits * lanes} x i{bits}>" for bits in (taken, given))
        declared = [f"declare {result} @{instruction}({parts}, {parts})"]
        body = _on_parts(f"call {result} @{instruction}({parts} %x, {parts} %y)", wide, parts, result)
    elif name == "addhalves":
        halves = f"<{2 * lanes} x i16>"
        body = _on_parts(f"add {halves} %x, %y", wide, halves, halves)
    else:
        body = _plain(name, lanes)
    head = f"define internal {wide} @{name}.v{lanes}i32({wide} %a, {wide} %b) alwaysinline nounwind {{"
    return "\n".join([*declared, head, *(f"  {line}" for line in body), f"  ret {wide} %r", "}"])


def _on_parts(instruction: str, wide: str, parts: str, result: str) -> list[str]:
    """An instruction on the operands seen as vectors of parts."""
    casts = [f"%x = bitcast {wide} %a to {parts}", f"%y = bitcast {wide} %b to {parts}"]
    return [*casts, f"%z = {instruction}", f"%r = bitcast {result} %z to {wide}"]


def _plain(name: str, lanes: int) -> list[str]:
    """The instructions for one word, on vectors."""
    row = INSTRUCTIONS[name, "int"]
    names = [*(f"%v{n}" for n in range(len(row) - 1)), "%r"]
    lines: list[str] = []
    for name, template in zip(names, row, strict=True):
        numbers = re.sub(r"(?<![\w{])-?\d+(?![\w}])", r"splat (i32_ \g<0>)", template)
        typed = re.sub(r"\bi(32|1)\b", rf"<{lanes} x i\1>", numbers).replace("i32_", "i32")
        lines.append(f"{name} = {typed.format(*names, a='%a', b='%b')}")
    return lines
