"""The spelling of CUDA C: floats, half precision and dot products beside the functions that all
dialects of C share.
"""

import math
import re
from functools import cache
from pathlib import Path

import numpy as np

from ...dialect.kernel_ir.integer_lookup_tables import ROWS as LOOKED_UP, Rows
from ...dialect.types.tensor_types import F16, F32, F64, ElementType
from ..c import spelling
from ..c.spelling import CHOICE, PRODUCT, SUM, UNARY, Row, Spelling, call, infix

_VALUES = {
    "i1": "bool",
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "long long",
    "ui8": "unsigned char",
    "ui16": "unsigned short",
    "ui32": "unsigned",
    "ui64": "unsigned long long",
    "f16": "float",
    "f32": "float",
    "f64": "double",
}
_MEMORY = {"i1": "unsigned char", "f16": "unsigned short"}  # where that is not the type of values


def _float(value: float, element: ElementType) -> str:
    mark = "" if element is F64 else "f"
    if not math.isfinite(value):
        if element is F64:
            return f"__longlong_as_double(0x{int(np.float64(value).view(np.uint64)):016x}ll)"
        return f"__int_as_float(0x{int(np.float32(value).view(np.uint32)):08x})"
    text = repr(value) if element is F64 else str(F32.dtype.type(value))
    return (text if any(c in text for c in ".e") else f"{text}.0") + mark


ROWS: dict[tuple[str, str], Row] = {
    **spelling.ROWS,
    **infix("add + sub -", SUM, ("float",), "rounded"),
    **infix("mul * div /", PRODUCT, ("float",), "rounded"),
    ("neg", "float"): Row("-{a}", UNARY),
    ("abs", "float"): call("fabs{s}"),
    ("max", "float"): Row("{a} > {b} ? {a} : {b}", CHOICE),
    ("min", "float"): Row("{a} < {b} ? {a} : {b}", CHOICE),
    ("maximum", "float"): call("larger", "ab"),
    ("minimum", "float"): call("smaller", "ab"),
    **{(f, "int"): call(f) for rows in LOOKED_UP for f in rows.columns},
    **{(f, "float"): call(f"{f}{{s}}") for f in ("floor", "ceil", "trunc", "rint")},
    ("lrint", "float"): Row("to_int(rint{s}({a}))"),
    ("sqrt", "float"): call("sqrt{s}", mode="rounded"),
    ("rem", "float"): call("fmod{s}", "ab", "rounded"),
    ("quaddot", "int"): Row("__dp4a({a}, {b}, 0)"),
    ("quaddot_uu", "int"): Row("(int)__dp4a((unsigned){a}, (unsigned){b}, 0u)", UNARY),
    ("quaddot_us", "int"): call("mixed_products", "ab"),
    ("quaddot_su", "int"): call("mixed_products", "ba"),
    ("fma", "float"): call("fma{s}", "abc", "rounded"),
}


@cache
def helpers() -> dict[str, str]:
    """Functions that a source defines if it calls them, by name; each may call those above it
    (`helpers.cu`).
    """
    _, *parts = re.split(
        r"(?m)^//> (\w+)\n", Path(__file__).with_name("helpers.cu").read_text("utf-8")
    )
    return dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


_ROUNDS = {"i32": "to_int", "ui32": "to_unsigned", "i64": "to_long", "ui64": "to_unsigned_long"}


_BITS = {
    ("f32", "int"): "__float_as_int({a})",
    ("f32", "uint"): "__float_as_uint({a})",
    ("f64", "int"): "__double_as_longlong({a})",
    ("f64", "uint"): "(unsigned long long)__double_as_longlong({a})",
    ("int", "f32"): "__int_as_float({a})",
    ("uint", "f32"): "__uint_as_float({a})",
    ("int", "f64"): "__longlong_as_double({a})",
    ("uint", "f64"): "__longlong_as_double((long long){a})",
    ("f16", "int"): "(short)to_half({a})",
    ("f16", "uint"): "to_half({a})",
    ("int", "f16"): "from_half((unsigned short){a})",
    ("uint", "f16"): "from_half({a})",
}


class CudaSpelling(Spelling):
    """CUDA C, whose functions are overloaded."""

    def number(self, value: object, element: ElementType) -> str:
        if element.kind == "float":
            return _float(float(element.dtype.type(value)), element)
        return super().number(value, element)

    def conversion(self, source: ElementType, target: ElementType) -> Row:
        """The conversion of a value to another type: integers wrap, floats saturate."""
        if target is F16:
            return call("half") if source.kind == "float" else Row("half((double){a})", UNARY)
        if source.kind == "float" and target.is_integer:
            if target.bits >= 32:
                return Row(f"{_ROUNDS[target.name]}({{a}})")
            least, most = target.limits
            text = f"({self.value_type(target)})min(max(to_int({{a}}), {least}), {most})"
            return Row(text, UNARY)
        return super().conversion(source, target)

    def reinterpretation(self, source: ElementType, target: ElementType) -> Row:
        """Reinterpret the bits as another type."""
        floats = source.kind == "float", target.kind == "float"
        if floats == (False, False):
            return super().reinterpretation(source, target)
        if all(floats):
            return Row("{a}")
        return Row(
            _BITS[(source.name, target.kind) if floats[0] else (source.kind, target.name)], UNARY
        )


CUDA = CudaSpelling(_VALUES, _MEMORY, ROWS)


def lookup_tables(body: str) -> str:
    """The lookup tables that a text refers to, in constant memory, and the functions that read
    them.
    """
    called = {*re.findall(r"\b(\w+)\(", body)}
    return "".join(
        f"\n{_table(rows)}\n" for rows in LOOKED_UP if not called.isdisjoint(rows.columns)
    )


def _table(rows: Rows) -> str:
    table = f"{rows.columns[0]}_rows"
    numbers = rows.numbers()
    length, width = numbers.shape
    lines = ["  {" + ", ".join(CUDA.number(x, F64) for x in row) + "}," for row in numbers]
    text = [f"static __device__ const double {table}[{length}][{width}] = {{", *lines, "};"]
    for n, name in enumerate(rows.columns):
        place = f"{table}[at & {length - 1}][{n}]"
        text.append(
            f"static __device__ __forceinline__ double {name}(long long at) {{ return {place}; }}"
        )
    return "\n".join(text)
