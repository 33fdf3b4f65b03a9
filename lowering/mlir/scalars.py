"""The operations of `arith` and `math` for the scalar functions: their names, by kind of element,
and those that take several.
"""

from collections.abc import Callable
from typing import TypeAlias

from ...dialect.types.tensor_types import BF16, F32, F64, I1, ElementType

Emit: TypeAlias = Callable[[str], str]  # of an operation: the name of its result

NAMES: dict[str, dict[str, str]] = {  # by kind of element: signed, unsigned, bool, float
    **{
        n: {"int": f"arith.{n}i", "uint": f"arith.{n}i", "float": f"arith.{n}f"}
        for n in ("add", "sub", "mul")
    },
    **{
        n: {"int": f"arith.{n}si", "uint": f"arith.{n}ui", "float": f"arith.{n}f"}
        for n in ("div", "rem")
    },
    **{n: {"float": f"arith.{n}f"} for n in ("neg", "maximum", "minimum")},
    **{n: dict.fromkeys(("int", "uint", "bool"), f"arith.{n}i") for n in ("and", "or", "xor")},
    **{n: {"float": f"math.{n}"} for n in ("floor", "ceil", "trunc", "fma", "sqrt")},
    "floordiv": {"int": "arith.floordivsi", "uint": "arith.divui"},
    "abs": {"float": "math.absf"},
    "shl": {"int": "arith.shli", "uint": "arith.shli"},
    "shr": {"int": "arith.shrsi", "uint": "arith.shrui"},
    "clz": {"int": "math.ctlz", "uint": "math.ctlz"},
    "rint": {"float": "math.roundeven"},
}
COMPARISONS = {
    "eq": "eq",
    "ne": "ne",
    "lt": "slt",
    "le": "sle",
    "gt": "sgt",
    "ge": "sge",
}  # of signed integers


class Unsupported(Exception):
    """There is nothing in MLIR for it."""


def mlir_type(element: ElementType) -> str:
    """The type without a sign, as MLIR's are."""
    if element.kind == "complex":
        raise Unsupported("linalg has no complex numbers")
    if element is BF16:
        raise Unsupported("bf16 is not lowered to linalg")
    if element.kind == "bool":
        return "i1"
    return f"{'f' if element.kind == 'float' else 'i'}{element.bits}"


def literal(value: object, element: ElementType) -> str:
    """A constant's text; floats by their bits where they have no decimal text."""
    if element.kind == "bool":
        return "true" if value else "false"
    if element.kind != "float":
        return str(int(value))  # type: ignore[call-overload]
    return f"0x{element.dtype.type(value).tobytes()[::-1].hex().upper()}"


def constant(value: object, element: ElementType) -> str:
    type = "" if element.kind == "bool" else f" : {mlir_type(element)}"
    return f"arith.constant {literal(value, element)}{type}"


def compare(function: str, a: str, b: str, element: ElementType, emit: Emit) -> str:
    type = mlir_type(element)
    if element.kind == "float":
        predicate = "une" if function == "ne" else f"o{function}"
        return emit(f"arith.cmpf {predicate}, {a}, {b} : {type}")
    predicate = COMPARISONS[function]
    if element.kind != "int" and len(predicate) == 3:
        predicate = "u" + predicate[1:]
    return emit(f"arith.cmpi {predicate}, {a}, {b} : {type}")


def computed(function: str, operands: list[str], element: ElementType, emit: Emit) -> str | None:
    """A scalar function of values of an element type; None if no operation of MLIR computes it."""
    type = mlir_type(element)
    if function in COMPARISONS:
        return compare(function, operands[0], operands[1], element, emit)
    if (
        name := NAMES.get(function, {}).get(element.kind)
    ) == "arith.remf":  # of which xDSL reads the generic form only
        return emit(f'"{name}"({", ".join(operands)}) : ({type}, {type}) -> {type}')
    if name is not None:
        return emit(f"{name} {', '.join(operands)} : {type}")

    def one(value: object) -> str:
        return emit(constant(value, element))

    match function, operands:
        case "max" | "min", (a, b):
            holds = compare("gt" if function == "max" else "lt", a, b, element, emit)
            return emit(f"arith.select {holds}, {a}, {b} : {type}")
        case "select" | "rarely", (c, a, b):
            return emit(f"arith.select {c}, {a}, {b} : {type}")
        case "neg", (a,):
            return emit(f"arith.subi {one(0)}, {a} : {type}")
        case "not", (a,):
            return emit(f"arith.xori {a}, {one(True if element is I1 else -1)} : {type}")
        case "abs", (a,) if element.kind == "int":
            negative = compare("lt", a, one(0), element, emit)
            negated = emit(f"arith.subi {one(0)}, {a} : {type}")
            return emit(f"arith.select {negative}, {negated}, {a} : {type}")
        case "abs" | "any", (a,):
            return a
        case "floormod", (a, b):
            quotient = computed("floordiv", [a, b], element, emit)
            return emit(f"arith.subi {a}, {emit(f'arith.muli {quotient}, {b} : {type}')} : {type}")
    return None


def converted(value: str, source: ElementType, to: ElementType, emit: Emit) -> str:
    """A conversion: integers wrap, floats round to nearest, float to integer saturates (NaN to 0),
    to i1 is `!= 0`.
    """
    a, b = mlir_type(source), mlir_type(to)
    if to.kind == "bool":
        return compare("ne", value, emit(constant(0, source)), source, emit)
    if source.kind == "float" and to.kind == "float":
        name = "extf" if to.bits > source.bits else "truncf"
        return emit(f"arith.{name} {value} : {a} to {b}") if a != b else value
    if source.kind == "float":
        return _saturated(value, source, to, emit)
    if to.kind == "float":
        return emit(f"arith.{'si' if source.kind == 'int' else 'ui'}tofp {value} : {a} to {b}")
    if source.bits == to.bits and source.kind != "bool":
        return value
    if source.bits > to.bits and source.kind != "bool":
        name = "trunci"
    elif source.kind == "int":
        name = "extsi"
    else:
        name = "extui"
    return emit(f"arith.{name} {value} : {a} to {b}")


def _saturated(value: str, source: ElementType, to: ElementType, emit: Emit) -> str:
    """A float as an integer: the nearest that fits after the fraction is dropped, 0 for NaN."""
    if source is not F64:
        wide = F64 if to.bits >= 32 else F32
        if source is not wide:
            return _saturated(converted(value, source, wide, emit), wide, to, emit)
    a, b = mlir_type(source), mlir_type(to)
    low, high = to.limits

    def number(n: int | float, element: ElementType) -> str:
        return emit(constant(n, element))

    signed = "si" if to.kind == "int" else "ui"
    below = compare("lt", value, number(float(low), source), source, emit)
    above = compare("ge", value, number(float(high + 1), source), source, emit)
    inside = emit(f"arith.cmpf ord, {value}, {value} : {a}")
    none = number(0.0, source)
    safe = emit(f"arith.select {inside}, {value}, {none} : {a}")
    safe = emit(f"arith.select {below}, {none}, {safe} : {a}")
    safe = emit(f"arith.select {above}, {none}, {safe} : {a}")
    found = emit(f"arith.fpto{signed} {safe} : {a} to {b}")
    found = emit(f"arith.select {below}, {number(low, to)}, {found} : {b}")
    return emit(f"arith.select {above}, {number(high, to)}, {found} : {b}")
