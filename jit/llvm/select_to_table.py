"""Trees of selects between constants as tables that a register holds: of 32 bytes, each lane taking
a part of its own.

    select(high, select(low, 4, 3), select(low, 2, 1))
    =>  <1, 2, 3, 4>[2 * high + low]

`complete` defines the look-up by the processor's instruction, and in plain IR where it has none.
"""

from collections.abc import Collection
from typing import NamedTuple

from ...dialect.kernel_ir.expressions import Apply, Const, Expr
from ...dialect.types.tensor_types import F32, F64, ElementType
from . import ir_builder as ll
from .register_transpose import joined

ENTRIES = {F32: 8, F64: 4}
NAME = "chosen_parts"
# by how many places they look up at a time: the feature, and the instruction
_PERMUTED = {16: ("avx512f", "llvm.x86.avx512.permvar.sf.512"), 8: ("avx2", "llvm.x86.avx2.permps")}


class Table(NamedTuple):
    """The entries of a table lookup and the conditions that select one, the condition that halves
    the table first.
    """

    conditions: tuple[Expr, ...]
    entries: tuple[Const, ...]


def table_of(e: Expr) -> Table | None:
    """The table that a tree of selects is, if it fills a register."""
    table = (
        _tree(e) if isinstance(e, Apply) and e.function == "select" and e.type in ENTRIES else None
    )
    return table if table is not None and len(table.entries) == ENTRIES[e.type] else None


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


def look_up(
    b: ll.IRBuilder, place: list[ll.Value], entries: tuple[Const, ...], type: ElementType
) -> ll.Value:
    """One entry for each lane; `place` has the conditions' values, as `Table.conditions`."""
    parts = type.bytes // 4
    lanes = place[0].lanes
    wide, words, table_words = (
        ll.ir_type(f"i{type.bits}", lanes),
        ll.STATUS.of(lanes * parts),
        ll.STATUS.of(8),
    )

    def constant(n: int) -> ll.Constant:
        return ll.splat_constant(ll.Constant(str(n), wide.of(1)), lanes)

    bits: ll.Value | None = None
    for n, condition in enumerate(reversed(place)):
        part = b.once(
            ll.select(condition, constant(parts << n), ll.Constant("zeroinitializer", wide))
        )
        bits = part if bits is None else b.once(ll.binary("or", bits, part))
    assert bits is not None
    if parts == 2:
        high = b.once(ll.binary("shl", bits, constant(32)))
        bits = b.once(ll.binary("or", b.once(ll.binary("or", bits, high)), constant(1 << 32)))
    scalar = ll.value_type(type)
    numbers = ", ".join(f"{scalar} {ll.number(c.value, type).text}" for c in entries)
    table = ll.Constant(f"<{numbers}>", scalar.of(len(entries)))
    places = b.once(ll.cast("bitcast", bits, words))
    values = b.once(ll.cast("bitcast", table, table_words))
    chosen = b.call_once(
        ll.Declaration(words, f"{NAME}.{words.lanes}", (words, table_words)), places, values
    )
    return b.once(ll.cast("bitcast", chosen, scalar.of(lanes)))


def define(declared: ll.Declaration, features: Collection[str], called: set[str]) -> str:
    """Define a declared look-up by the lowest three bits of each place; add its callees to
    `called`.
    """
    words = declared.result
    count = declared.result.lanes
    b = ll.IRBuilder()
    place = ll.Value("%place", words)
    table = ll.Value("%table", ll.STATUS.of(8))
    if width := next(
        (n for n, (feature, _) in _PERMUTED.items() if feature in features and count % n == 0), 0
    ):
        floats = ll.ir_type("float", width)
        narrow = ll.STATUS.of(width)
        permute = ll.Declaration(floats, _PERMUTED[width][1], (floats, narrow))
        called.add(str(permute))
        entries = b.add(
            ll.cast("bitcast", b.add(ll.shuffle(table, [k % 8 for k in range(width)])), floats)
        )
        parts = (ll.shuffle(place, range(n, n + width)) for n in range(0, count, width))
        result = joined(b, [b.add(ll.call(permute, entries, b.add(part))) for part in parts])
        b.do(ll.returned(b.add(ll.cast("bitcast", result, words))))
    else:  # one entry after the other
        low, *numbers = (
            ll.splat_constant(ll.Constant(str(n), ll.STATUS), count) for n in (7, *range(8))
        )
        last = b.add(ll.binary("and", place, low))
        result = b.add(ll.shuffle(table, [0] * count))
        for n in range(1, 8):
            entry = b.add(ll.shuffle(table, [n] * count))
            result = b.add(ll.select(b.add(ll.compare("eq", last, numbers[n])), entry, result))
        b.do(ll.returned(result))
    return b.inlined(words, declared.name, place, table)
