"""Rows of numbers that emitted IR looks up, one for each lane: tables in the object file, and the functions that read them.

Rows are loaded whole and turned in registers, so that functions of one index share all of that.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from ...dialect.notation.math_tables import ROWS, Rows
from .ir_writer import Declaration, IRWriter
from .register_transpose import turn

_ROWS = {name: rows for rows in ROWS for name in rows.columns}
NAMES = tuple(_ROWS)


@cache
def _table(rows: Rows) -> str:
    """A table as bytes, which take less time to read than numbers."""
    data = rows.numbers().tobytes()
    text = "".join(f"\\{byte:02x}" for byte in data)
    return f'@{rows.columns[0]}.rows = internal unnamed_addr constant [{len(data)} x i8] c"{text}", align 64'


def define(declared: Declaration, _: Collection[str], called: set[str]) -> str:
    """The definition of a column, which reads the table that it is of."""
    rows, count, f = _ROWS[declared.stem], declared.lanes, IRWriter()
    result, (given,) = declared.result, declared.parameters
    called.add(_table(rows))
    lanes = count if result[0] == "<" else 0
    wide = f"<{lanes} x i64>" if lanes else "i64"
    at = "%n" if given == wide else f.add(f"sext {given} %n to {wide}")
    length, side = rows.numbers().shape

    def times(value: int) -> str:
        return f"splat (i64 {value})" if lanes else str(value)

    at = f.add(f"and {wide} {at}, {times(length - 1)}")
    at = f.add(f"shl {wide} {at}, {times((8 * side).bit_length() - 1)}")
    starts = [f.add(f"extractelement {wide} {at}, i64 {n}") for n in range(count)] if lanes else [at]
    pointers = [f.add(f"getelementptr i8, ptr @{rows.columns[0]}.rows, i64 {start}") for start in starts]
    loaded = [f.add(f"load <{side} x double>, ptr {p}, align {8 * side}") for p in pointers]
    column = rows.columns.index(declared.stem)
    if count % side == 0 and count.bit_count() == 1:
        found = turn(f, "double", loaded, side)[column]
    else:
        parts = [f.add(f"extractelement <{side} x double> {row}, i64 {column}") for row in loaded]
        found = "poison" if lanes else parts[0]
        for n, part in enumerate(parts if lanes else ()):
            found = f.add(f"insertelement {result} {found}, double {part}, i64 {n}")
    head = f"define internal {result} @{declared.name}({given} %n) alwaysinline nounwind {{"
    return "\n".join([head, *f.lines, f"  ret {result} {found}", "}"])
