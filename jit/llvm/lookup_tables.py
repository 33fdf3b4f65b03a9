"""Rows of numbers that emitted IR looks up, one for each lane: tables in the object file, and the
functions that read them.

Rows are loaded whole and turned in registers, so that functions of one index share all of that.
"""

from collections.abc import Collection
from functools import cache

from ...dialect.kernel_ir.integer_lookup_tables import ROWS, Rows
from . import ir_builder as ll
from .register_transpose import turn

_ROWS = {name: rows for rows in ROWS for name in rows.columns}
NAMES = tuple(_ROWS)


@cache
def _table(rows: Rows) -> str:
    """A table as bytes, which take less time to read than numbers."""
    data = rows.numbers().tobytes()
    text = "".join(f"\\{byte:02x}" for byte in data)
    return (
        f"@{rows.columns[0]}.rows = internal unnamed_addr constant [{len(data)} x i8] "
        f'c"{text}", align 64'
    )


def define(declared: ll.Declaration, _: Collection[str], called: set[str]) -> str:
    """The definition of a column, which reads the table that it is of."""
    rows, result, (index,) = _ROWS[declared.stem], declared.result, declared.parameters
    assert isinstance(index, ll.Type)
    called.add(_table(rows))
    b = ll.IRBuilder()
    count = result.lanes
    wide = ll.WORD.of(result.lanes)
    length, side = rows.numbers().shape
    n = ll.Value("%n", index)
    at = n if index is wide else b.add(ll.cast("sext", n, wide))
    for operation, number in (("and", length - 1), ("shl", (8 * side).bit_length() - 1)):
        at = b.add(ll.binary(operation, at, ll.splat_constant(ll.index(number), count)))
    starts = [b.add(ll.extract(at, lane)) for lane in range(count)] if count > 1 else [at]
    table = ll.Constant(f"@{rows.columns[0]}.rows", ll.POINTER)
    pointers = [b.add(ll.element_pointer(ll.BYTE, table, start, flags="")) for start in starts]
    loaded = [b.add(ll.load(result.of(side), p, f"align {8 * side}")) for p in pointers]
    column = rows.columns.index(declared.stem)
    if count % side == 0 and count.bit_count() == 1:
        entries = turn(b, loaded, side)[column]
    else:
        parts = [b.add(ll.extract(row, column)) for row in loaded]
        entries = parts[0] if count == 1 else ll.poison(result)
        for lane, part in enumerate(parts if count > 1 else ()):
            entries = b.add(ll.insert(entries, part, lane))
    b.do(ll.returned(entries))
    return b.inlined(result, declared.name, n)
