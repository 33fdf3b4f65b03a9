"""Dialects of C: the spelling of types, numbers, scalar functions and conversions, a row for each
function and kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...dialect.types.tensor_types import I1, ElementType

ATOM, UNARY, PRODUCT, SUM, SHIFT, ORDER, EQUALITY, AND, XOR, OR, BOTH, EITHER, CHOICE = range(
    20, 7, -1
)


@dataclass(frozen=True)
class Row:
    """One function: its text over operands {a} {b} {c}, how tightly that binds, and in which mode
    it computes. {s} is the suffix of functions of f32, {t} that of the operands' type.

    Modes: "exact" takes values and gives one, "modular" takes and gives unsigned numbers modulo
    2^width, "rounded" gives a float that is yet to be rounded to the element's type.
    """

    text: str
    level: int = ATOM
    mode: str = "exact"

    @property
    def calls(self) -> bool:
        """Test whether it is a call, whose operands have the types of its parameters."""
        return self.level == ATOM and "(" in self.text


INTEGERS = ("int", "uint")
ALL = ("int", "uint", "bool", "float")


def call(name: str, operands: str = "a", mode: str = "exact") -> Row:
    return Row(f"{name}({', '.join('{' + o + '}' for o in operands)})", ATOM, mode)


def infix(
    signs: str, level: int, kinds: tuple[str, ...], mode: str = "exact"
) -> dict[tuple[str, str], Row]:
    """Functions that are operators of C, each of which follows its name."""
    words = signs.split()
    rows = zip(words[::2], words[1::2], strict=True)
    return {(f, k): Row(f"{{a}} {sign} {{b}}", level, mode) for f, sign in rows for k in kinds}


# integers and booleans, in every dialect
ROWS: dict[tuple[str, str], Row] = {
    **infix("add + sub -", SUM, INTEGERS, "modular"),
    **infix("mul *", PRODUCT, INTEGERS, "modular"),
    **{
        (f, k): Row(f"{s}{{a}}", UNARY, "modular")
        for f, s in (("neg", "-"), ("not", "~"))
        for k in INTEGERS
    },
    **infix("and &", AND, INTEGERS, "modular"),
    **infix("xor ^", XOR, INTEGERS, "modular"),
    **infix("or |", OR, INTEGERS, "modular"),
    **infix("shl <<", SHIFT, INTEGERS, "modular"),
    **infix("shr >>", SHIFT, INTEGERS),
    **infix("and && min &&", BOTH, ("bool",)),
    **infix("or || max ||", EITHER, ("bool",)),
    **infix("xor !=", EQUALITY, ("bool",)),
    ("not", "bool"): Row("!{a}", UNARY),
    ("any", "bool"): Row("{a}", UNARY),
    **infix("div / rem % floordiv / floormod %", PRODUCT, ("uint",)),
    ("div", "int"): call("quotient{t}", "ab"),
    ("rem", "int"): call("truncated_remainder{t}", "ab"),
    ("floordiv", "int"): call("floor_quotient{t}", "ab"),
    ("floormod", "int"): call("floor_remainder{t}", "ab"),
    ("abs", "int"): call("absolute{t}"),
    ("abs", "uint"): Row("{a}", UNARY),
    **{(f, k): call(f"{f}{{t}}", "ab") for f in ("max", "min") for k in INTEGERS},
    **infix("lt < le <= gt > ge >=", ORDER, ALL),
    **infix("eq == ne !=", EQUALITY, ALL),
    **{("ipow", k): call("power{t}", "ab") for k in INTEGERS},
    **{("clz", k): call("leading_zeros{t}") for k in INTEGERS},
    **{("select", k): Row("{a} ? {b} : {c}", CHOICE) for k in ALL},
}


@dataclass(frozen=True)
class Spelling:
    """A dialect of C: the types that carry values, those of arrays' elements where they differ, the
    functions, and the suffixes of functions for a type where they cannot be overloaded.
    """

    values: Mapping[str, str]
    memory: Mapping[str, str]
    rows: Mapping[tuple[str, str], Row]
    suffixes: Mapping[str, str] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """The type of indices of at most 31 bits, and of the results of arithmetic on narrower
        values.
        """
        return self.values["i32"]

    @property
    def long_word(self) -> str:
        """The type of other indices."""
        return self.values["i64"]

    def value_type(self, element: ElementType) -> str:
        """The C type that carries a value."""
        return self.values[element.name]

    def memory_type(self, element: ElementType) -> str:
        """The C type of an array's elements."""
        return self.memory.get(element.name) or self.values[element.name]

    def modular_type(self, element: ElementType) -> str:
        """The unsigned C type that wrapping arithmetic is done in."""
        return self.values["ui64" if element.bits == 64 else "ui32"]

    def suffix(self, ctype: str) -> str:
        return self.suffixes.get(ctype, "")

    def number(self, value: object, element: ElementType) -> str:
        """A literal of the type that carries the element."""
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

    def conversion(self, source: ElementType, target: ElementType) -> Row:
        """The conversion of a value to another type: integers wrap."""
        if target.kind == "bool":
            return Row("{a} != 0", EQUALITY)
        return Row(f"({self.value_type(target)}){{a}}", UNARY)

    def reinterpretation(self, source: ElementType, target: ElementType) -> Row:
        """Reinterpret the bits of an integer as another type of integers."""
        return Row(f"({self.value_type(target)}){{a}}", UNARY)
