"""Functions that emitted IR calls where processors have an instruction of their own: defined for the processor at hand.

`complete` puts a definition in place of each declaration, by the processor's features, and in plain IR where it has none.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_DECLARED = re.compile(r"^declare <(\d+) x i32> @pairdot\.v\1i32\(.*\)$", re.MULTILINE)
_INTRINSICS = {4: ("sse2", "llvm.x86.sse2.pmadd.wd"), 8: ("avx2", "llvm.x86.avx2.pmadd.wd")}


def complete(text: str, features: Collection[str]) -> str:
    """The module with every such function defined."""
    return _DECLARED.sub(lambda match: _pairdot(int(match[1]), features), text)


def _pairdot(lanes: int, features: Collection[str]) -> str:
    """The sums of the products of signed 16-bit halves, for each i32 of two vectors."""
    wide, halves = f"<{lanes} x i32>", f"<{2 * lanes} x i16>"
    feature, name = _INTRINSICS.get(lanes, ("", ""))
    head = f"define internal {wide} @pairdot.v{lanes}i32({wide} %a, {wide} %b) alwaysinline nounwind {{"
    if feature in features:
        body = [
            f"  %x = bitcast {wide} %a to {halves}",
            f"  %y = bitcast {wide} %b to {halves}",
            f"  %r = call {wide} @{name}({halves} %x, {halves} %y)",
        ]
        declared = [f"declare {wide} @{name}({halves}, {halves})"]
    else:
        sixteen = "splat (i32 16)"
        body = [line for v in "ab" for line in (
            f"  %{v}u = shl {wide} %{v}, {sixteen}",
            f"  %{v}l = ashr {wide} %{v}u, {sixteen}",
            f"  %{v}h = ashr {wide} %{v}, {sixteen}",
        )]  # fmt: skip
        body += [f"  %l = mul {wide} %al, %bl", f"  %h = mul {wide} %ah, %bh", f"  %r = add {wide} %l, %h"]
        declared = []
    return "\n".join([*declared, head, *body, f"  ret {wide} %r", "}"])
