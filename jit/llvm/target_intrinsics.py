"""Functions that emitted IR calls where processors have an instruction of their own: defined for the processor at hand.

`complete` puts a definition in place of each declaration, by the processor's features, and in plain IR where it has none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...lowering.processor import DOT_PRODUCTS, DotProduct
from .ir_builder import STATUS, Declaration, IRBuilder, Value, returned
from .scalar_functions import HALVES, WORDS

NAMES = tuple(WORDS)
_WAYS = {"quadsum": ("quadsum", "quadsum_ss")}  # instructions that define a function, where there is more than one


def define(declared: Declaration, features: Collection[str], called: set[str]) -> str:
    """The definition for vectors of so many words, by an instruction of the processor if it has one."""
    has = {(d.function, d.vector_bytes // 4): d for d in DOT_PRODUCTS if d.is_in(features)}
    return _defined(declared.stem, declared.result.lanes, has, called)


def _defined(
    name: str, lanes: int, has: Mapping[tuple[str, int], DotProduct], called: set[str], prefix: str = ""
) -> str:
    """One of them, for vectors of so many words; what it calls is added to what is called."""
    wide = f"<{lanes} x i32>"
    product = has.get((name, lanes))
    if name == "quadsum" and product is None and ("quadsum_ss", lanes) in has:
        signed = f"{prefix}of_signed."
        before = [_defined("quadsum_ss", lanes, has, called, signed)]
        return "\n".join([*before, _of_signed(f"{prefix}quadsum.v{lanes}i32", f"{signed}quadsum_ss.v{lanes}i32", wide)])
    before = []
    operands, row = WORDS[name]
    if product is None and any(
        (f, lanes >> n) in has for f in _WAYS.get(name, (name,)) for n in range(1, lanes.bit_length())
    ):
        before = [_defined(name, lanes // 2, has, called, f"{prefix}half.")]
        body = _by_halves(f"@{prefix}half.{name}.v{lanes // 2}i32", lanes, operands)
    elif product is not None:
        parts, result = (f"<{32 // bits * lanes} x i{bits}>" for bits in (product.operand_bits, product.result_bits))
        types = {"a": parts, "b": parts, "c": result}
        called.add(f"declare {result} @{product.llvm}({', '.join(types[o] for o in product.operands)})")
        given_parts = ", ".join(f"{types[o]} %{o}.parts" for o in product.operands)
        body = _on_parts(f"call {result} @{product.llvm}({given_parts})", operands, wide, types, result)
    elif name in HALVES:
        halves = f"<{2 * lanes} x i16>"
        body = _on_parts(
            f"{HALVES[name]} {halves} %a.parts, %b.parts", operands, wide, {"a": halves, "b": halves}, halves
        )
    else:
        b, type = IRBuilder(), STATUS.of(lanes)
        b.do(returned(b.spell(row, [Value(f"%{v}", type) for v in operands], type)))
        body = [b.body()]
    parameters = ", ".join(f"{wide} %{v}" for v in operands)
    head = f"define internal {wide} @{prefix}{name}.v{lanes}i32({parameters}) alwaysinline nounwind {{"
    return "\n".join([*before, head, *body, "}"])


def _of_signed(name: str, function: str, wide: str) -> str:
    """Products of unsigned bytes by those of signed ones: 128 of an unsigned byte is less -128 of a signed one."""
    return f"""define internal {wide} @{name}({wide} %a, {wide} %b, {wide} %c) alwaysinline nounwind {{
  %low = and {wide} %a, splat (i32 {0x7F7F7F7F})
  %high = and {wide} %a, splat (i32 {-0x7F7F7F80})
  %sum = call {wide} @{function}({wide} %low, {wide} %b, {wide} %c)
  %less = call {wide} @{function}({wide} %high, {wide} %b, {wide} zeroinitializer)
  %r = sub {wide} %sum, %less
  ret {wide} %r
}}"""


def _on_parts(instruction: str, operands: str, wide: str, types: Mapping[str, str], result: str) -> list[str]:
    """An instruction on the operands seen as vectors of parts."""
    casts = [f"%{o}.parts = bitcast {wide} %{o} to {types[o]}" for o in operands]
    return [*casts, f"%r.parts = {instruction}", f"%r = bitcast {result} %r.parts to {wide}", f"ret {wide} %r"]


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
    return [*lines, f"%r = shufflevector {half} %r0, {half} %r1, {wide} <{', '.join(ends)}>", f"ret {wide} %r"]
