"""Rows of numbers that CUDA C looks up: a table in constant data for each kind of row, and the functions that read it."""

import re

from ...dialect.ir.types import F64
from ...dialect.notation.math_tables import ROWS, Rows
from .scalar_functions import number


def definitions(body: str) -> str:
    """The tables and functions that a text calls."""
    called = [rows for rows in ROWS if any(re.search(rf"\b{name}\(", body) for name in rows.columns)]
    return "".join(f"\n{_table(rows)}\n" for rows in called)


def _table(rows: Rows) -> str:
    table, numbers = f"{rows.columns[0]}_rows", rows.numbers()
    length, width = numbers.shape
    lines = ["  {" + ", ".join(number(x, F64) for x in row) + "}," for row in numbers]
    text = [f"static __device__ const double {table}[{length}][{width}] = {{", *lines, "};"]
    for n, name in enumerate(rows.columns):
        place = f"{table}[at & {length - 1}][{n}]"
        text.append(f"static __device__ __forceinline__ double {name}(long long at) {{ return {place}; }}")
    return "\n".join(text)
