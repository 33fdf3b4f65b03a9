"""The spelling of types, numbers, scalar functions and conversions in CUDA C: a row for each
function and kind.
"""

import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from ...dialect.kernel_ir.integer_lookup_tables import ROWS as LOOKED_UP, Rows
from ...dialect.types.tensor_types import F16, F32, F64, I1, ElementType

ATOM, UNARY, PRODUCT, SUM, SHIFT, ORDER, EQUALITY, AND, XOR, OR, BOTH, EITHER, CHOICE = range(
    20, 7, -1
)

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


def value_type(element: ElementType) -> str:
    """The C type that carries a value."""
    return _VALUES[element.name]


def memory_type(element: ElementType) -> str:
    """The C type of an array's elements."""
    return _MEMORY.get(element.name) or _VALUES[element.name]


def modular_type(element: ElementType) -> str:
    """The unsigned C type that wrapping arithmetic is done in."""
    return "unsigned long long" if element.bits == 64 else "unsigned"


def number(value: object, element: ElementType) -> str:
    """A literal of the type that carries the element."""
    if element.kind == "float":
        return _float(float(element.dtype.type(value)), element)
    if element is I1:
        return "true" if value else "false"
    integer = int(value)  # type: ignore[call-overload]
    if integer == -(2**31) and element.bits < 64:
        return "(-2147483647 - 1)"
    if element.bits < 64:
        return f"{integer}u" if element.name == "ui32" else str(integer)
    if element.kind == "uint":
        return f"{integer}ull"
    return "(-9223372036854775807ll - 1)" if integer == -(2**63) else f"{integer}ll"


def _float(value: float, element: ElementType) -> str:
    mark = "" if element is F64 else "f"
    if not math.isfinite(value):
        if element is F64:
            return f"__longlong_as_double(0x{int(np.float64(value).view(np.uint64)):016x}ll)"
        return f"__int_as_float(0x{int(np.float32(value).view(np.uint32)):08x})"
    text = repr(value) if element is F64 else str(F32.dtype.type(value))
    return (text if any(c in text for c in ".e") else f"{text}.0") + mark


@dataclass(frozen=True)
class Row:
    """One function: its text over operands {a} {b} {c}, how tightly that binds, and in which mode
    it computes.

    Modes: "exact" takes values and gives one, "modular" takes and gives unsigned numbers modulo
    2^width, "rounded" gives a float that is yet to be rounded to the element's type.
    """

    text: str
    level: int = ATOM
    mode: str = "exact"


_INTEGERS = ("int", "uint")
_ALL = ("int", "uint", "bool", "float")


def _call(name: str, operands: str = "a", mode: str = "exact") -> Row:
    return Row(f"{name}({', '.join('{' + o + '}' for o in operands)})", ATOM, mode)


def _infix(
    signs: str, level: int, kinds: tuple[str, ...], mode: str = "exact"
) -> dict[tuple[str, str], Row]:
    """Functions that are operators of C, each of which follows its name."""
    words = signs.split()
    rows = zip(words[::2], words[1::2], strict=True)
    return {(f, k): Row(f"{{a}} {sign} {{b}}", level, mode) for f, sign in rows for k in kinds}


ROWS: dict[tuple[str, str], Row] = {
    **_infix("add + sub -", SUM, _INTEGERS, "modular"),
    **_infix("mul *", PRODUCT, _INTEGERS, "modular"),
    **{
        (f, k): Row(f"{s}{{a}}", UNARY, "modular")
        for f, s in (("neg", "-"), ("not", "~"))
        for k in _INTEGERS
    },
    **_infix("and &", AND, _INTEGERS, "modular"),
    **_infix("xor ^", XOR, _INTEGERS, "modular"),
    **_infix("or |", OR, _INTEGERS, "modular"),
    **_infix("shl <<", SHIFT, _INTEGERS, "modular"),
    **_infix("shr >>", SHIFT, _INTEGERS),
    **_infix("and && min &&", BOTH, ("bool",)),
    **_infix("or || max ||", EITHER, ("bool",)),
    **_infix("xor !=", EQUALITY, ("bool",)),
    ("not", "bool"): Row("!{a}", UNARY),
    ("any", "bool"): Row("{a}", UNARY),
    **_infix("add + sub -", SUM, ("float",), "rounded"),
    **_infix("mul * div /", PRODUCT, ("float",), "rounded"),
    ("neg", "float"): Row("-{a}", UNARY),
    **_infix("div / rem % floordiv / floormod %", PRODUCT, ("uint",)),
    ("div", "int"): _call("quotient", "ab"),
    ("rem", "int"): _call("truncated_remainder", "ab"),
    ("floordiv", "int"): _call("floor_quotient", "ab"),
    ("floormod", "int"): _call("floor_remainder", "ab"),
    ("abs", "int"): _call("absolute"),
    ("abs", "uint"): Row("{a}"),
    ("abs", "float"): _call("fabs{s}"),
    **{(f, k): _call(f, "ab") for f in ("max", "min") for k in _INTEGERS},
    ("max", "float"): Row("{a} > {b} ? {a} : {b}", CHOICE),
    ("min", "float"): Row("{a} < {b} ? {a} : {b}", CHOICE),
    ("maximum", "float"): _call("larger", "ab"),
    ("minimum", "float"): _call("smaller", "ab"),
    **_infix("lt < le <= gt > ge >=", ORDER, _ALL),
    **_infix("eq == ne !=", EQUALITY, _ALL),
    **{("ipow", k): _call("power", "ab") for k in _INTEGERS},
    **{(f, "int"): _call(f) for rows in LOOKED_UP for f in rows.columns},
    **{("clz", k): _call("leading_zeros") for k in _INTEGERS},
    **{("select", k): Row("{a} ? {b} : {c}", CHOICE) for k in _ALL},
    **{(f, "float"): _call(f"{f}{{s}}") for f in ("floor", "ceil", "trunc", "rint")},
    ("lrint", "float"): Row("to_int(rint{s}({a}))"),
    ("sqrt", "float"): _call("sqrt{s}", mode="rounded"),
    ("rem", "float"): _call("fmod{s}", "ab", "rounded"),
    ("quaddot", "int"): Row("__dp4a({a}, {b}, 0)"),
    ("quaddot_uu", "int"): Row("(int)__dp4a((unsigned){a}, (unsigned){b}, 0u)", UNARY),
    ("quaddot_us", "int"): _call("mixed_products", "ab"),
    ("quaddot_su", "int"): _call("mixed_products", "ba"),
    ("fma", "float"): _call("fma{s}", "abc", "rounded"),
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


def conversion(source: ElementType, target: ElementType) -> Row:
    """The conversion of a value to another type: integers wrap, floats saturate."""
    if target.kind == "bool":
        return Row("{a} != 0", EQUALITY)
    if target is F16:
        return Row("half({a})" if source.kind == "float" else "half((double){a})", UNARY)
    if source.kind == "float" and target.is_integer:
        if target.bits >= 32:
            return Row(f"{_ROUNDS[target.name]}({{a}})")
        least, most = target.limits
        return Row(f"({value_type(target)})min(max(to_int({{a}}), {least}), {most})", UNARY)
    return Row(f"({value_type(target)}){{a}}", UNARY)


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


def reinterpretation(source: ElementType, target: ElementType) -> Row:
    """Reinterpret the bits as another type."""
    floats = source.kind == "float", target.kind == "float"
    if floats == (False, False):
        return Row(f"({value_type(target)}){{a}}", UNARY)
    if all(floats):
        return Row("{a}")
    return Row(
        _BITS[(source.name, target.kind) if floats[0] else (source.kind, target.name)], UNARY
    )


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
    lines = ["  {" + ", ".join(number(x, F64) for x in row) + "}," for row in numbers]
    text = [f"static __device__ const double {table}[{length}][{width}] = {{", *lines, "};"]
    for n, name in enumerate(rows.columns):
        place = f"{table}[at & {length - 1}][{n}]"
        text.append(
            f"static __device__ __forceinline__ double {name}(long long at) {{ return {place}; }}"
        )
    return "\n".join(text)
