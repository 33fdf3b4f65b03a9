"""Trees of selects between constants as tables that a register holds: of 32 bytes, each lane taking a part of its own.

    select(high, select(low, 4, 3), select(low, 2, 1))  =>  parts of <1, 2, 3, 4>, looked up by what the conditions say

`complete` defines the look-up by the processor's instruction, and in plain IR where it has none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ...dialect.ir.types import F32, F64, ElementType
from ...dialect.notation.expressions import Apply, Const, Expr
from . import ir_builder as ll

ENTRIES = {F32: 8, F64: 4}
NAME = "chosen_parts"
# by how many places they look up at a time: the feature, and the instruction
_PERMUTED = {16: ("avx512f", "llvm.x86.avx512.permvar.sf.512"), 8: ("avx2", "llvm.x86.avx2.permps")}


class Table(NamedTuple):
    """The entries of a table lookup and the conditions that select one, the condition that halves the table first."""

    conditions: tuple[Expr, ...]
    entries: tuple[Const, ...]


def table_of(e: Expr) -> Table | None:
    """The table that a tree of selects is, if it fills a register."""
    found = _tree(e) if isinstance(e, Apply) and e.function == "select" and e.type in ENTRIES else None
    return found if found is not None and len(found.entries) == ENTRIES[e.type] else None


def _tree(e: Expr) -> Table | None:
    match e:
        case Const():
            return Table((), (e,))
        case Apply("select", (condition, then, otherwise), _):
            high, low = _tree(then), _tree(otherwise)
            if high is None or low is None or len(high.entries) != len(low.entries):
                return None
            if all(a is b for a, b in zip(high.conditions, low.conditions, strict=True)):
                return Table((condition, *low.conditions), (*low.entries, *high.entries))
    return None


def look_up(b: ll.IRBuilder, place: list[ll.Value], entries: tuple[Const, ...], type: ElementType) -> ll.Value:
    """One entry for each lane; `place` has the conditions' values, as `Table.conditions`."""
    parts, lanes = type.bytes // 4, place[0].lanes
    wide, words, table_words = ll.ir_type(f"i{type.bits}", lanes), ll.STATUS.of(lanes * parts), ll.STATUS.of(8)

    def constant(n: int) -> ll.Constant:
        return ll.splat_constant(ll.Constant(str(n), wide.of(1)), lanes)

    found: ll.Value | None = None
    for n, condition in enumerate(reversed(place)):
        part = b.once(ll.select(condition, constant(parts << n), ll.Constant("zeroinitializer", wide)))
        found = part if found is None else b.once(ll.binary("or", found, part))
    assert found is not None
    if parts == 2:
        high = b.once(ll.binary("shl", found, constant(32)))
        found = b.once(ll.binary("or", b.once(ll.binary("or", found, high)), constant(1 << 32)))
    scalar = ll.value_type(type)
    numbers = ", ".join(f"{scalar} {ll.number(c.value, type).text}" for c in entries)
    table = ll.Constant(f"<{numbers}>", scalar.of(len(entries)))
    places, held = b.once(ll.cast("bitcast", found, words)), b.once(ll.cast("bitcast", table, table_words))
    chosen = b.call_once(ll.Declaration(words, f"{NAME}.{words.lanes}", (words, table_words)), places, held)
    return b.once(ll.cast("bitcast", chosen, scalar.of(lanes)))


def define(declared: ll.Declaration, features: Collection[str], called: set[str]) -> str:
    """A look-up for so many places, of which the lowest three bits count; what it calls is added to what is called."""
    count = declared.result.lanes
    words = f"<{count} x i32>"
    width = next((n for n, (feature, _) in _PERMUTED.items() if feature in features and count % n == 0), 0)
    if width:
        called.add(f"declare <{width} x float> @{_PERMUTED[width][1]}(<{width} x float>, <{width} x i32>)")
    body = _permuted(count, width) if width else _compared(count)
    head = f"define internal {words} @{NAME}.{count}({words} %place, <8 x i32> %table) alwaysinline nounwind {{"
    return "\n".join([head, *(f"  {line}" for line in body), "}"])


def _permuted(count: int, width: int) -> list[str]:
    """The function that looks up `count` lanes at once."""
    floats, places = f"<{width} x float>", f"<{width} x i32>"
    again = ", ".join(f"i32 {k % 8}" for k in range(width))
    lines = [f"%words = shufflevector <8 x i32> %table, <8 x i32> poison, {places} <{again}>"]
    lines.append(f"%floats = bitcast {places} %words to {floats}")
    ends: list[str] = []
    for n in range(0, count, width):
        lanes = ", ".join(f"i32 {k}" for k in range(n, n + width))
        lines.append(f"%p{n} = shufflevector <{count} x i32> %place, <{count} x i32> poison, {places} <{lanes}>")
        lines.append(f"%r{n} = call {floats} @{_PERMUTED[width][1]}({floats} %floats, {places} %p{n})")
        ends.append(f"%r{n}")
    while len(ends) > 1:  # a power of two
        lanes = ", ".join(f"i32 {k}" for k in range(2 * width))
        pairs = list(zip(ends[::2], ends[1::2], strict=True))
        ends = [f"{a}.{2 * width}" for a, _ in pairs]
        lines += [
            f"{joined} = shufflevector <{width} x float> {a}, <{width} x float> {b}, <{2 * width} x i32> <{lanes}>"
            for joined, (a, b) in zip(ends, pairs, strict=True)
        ]
        width *= 2
    return [*lines, f"%r = bitcast <{count} x float> {ends[0]} to <{count} x i32>", f"ret <{count} x i32> %r"]


def _compared(count: int) -> list[str]:
    """One entry after the other."""
    words = f"<{count} x i32>"
    lines = [f"%low = and {words} %place, splat (i32 7)"]
    found = ""
    for n in range(8):
        lanes = ", ".join(f"i32 {n}" for _ in range(count))
        lines.append(f"%e{n} = shufflevector <8 x i32> %table, <8 x i32> poison, {words} <{lanes}>")
        if n:
            lines.append(f"%c{n} = icmp eq {words} %low, splat (i32 {n})")
            lines.append(f"%r{n} = select <{count} x i1> %c{n}, {words} %e{n}, {words} {found}")
        found = f"%r{n}" if n else "%e0"
    return [*lines, f"ret {words} {found}"]
