"""Rows of numbers that emitted IR looks up, one for each lane: tables in the object file, and the functions that read them.

Rows are loaded whole and turned in registers, so that functions of one index share all of that.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ...dialect.notation.lookup_tables import ROWS, Rows
from .ir_writer import IRWriter
from .register_transpose import turn

_ROWS = {name: rows for rows in ROWS for name in rows.columns}
DECLARED = re.compile(rf"^declare (double|<(\d+) x double>) @({'|'.join(_ROWS)})\.(\w+)\((.*)\)$", re.MULTILINE)


def complete(text: str, _: Collection[str]) -> str:
    """The module with every such function defined, and the tables that they read."""
    called = {_ROWS[match[3]].columns: _ROWS[match[3]] for match in DECLARED.finditer(text)}
    return "\n".join([DECLARED.sub(_defined, text), *map(_table, called.values())])


def _table(rows: Rows) -> str:
    """A table as bytes, which take less time to read than numbers."""
    data = rows.numbers().tobytes()
    text = "".join(f"\\{byte:02x}" for byte in data)
    return f'@{rows.columns[0]}.rows = internal unnamed_addr constant [{len(data)} x i8] c"{text}", align 64'


def _defined(declared: re.Match[str]) -> str:
    result, lanes, name, suffix, given = declared.groups()
    rows, count, f = _ROWS[name], int(lanes or 1), IRWriter()
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
    column = rows.columns.index(name)
    if count % side == 0 and count.bit_count() == 1:
        found = turn(f, "double", loaded, side)[column]
    else:
        parts = [f.add(f"extractelement <{side} x double> {row}, i64 {column}") for row in loaded]
        found = "poison" if lanes else parts[0]
        for n, part in enumerate(parts if lanes else ()):
            found = f.add(f"insertelement {result} {found}, double {part}, i64 {n}")
    head = f"define internal {result} @{name}.{suffix}({given} %n) alwaysinline nounwind {{"
    return "\n".join([head, *f.lines, f"  ret {result} {found}", "}"])
