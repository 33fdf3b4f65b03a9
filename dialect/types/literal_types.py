"""Types of literal operands, dialect by dialect, and the range checks of literals."""

import math
import typing
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .cast_arrays import is_float
from .tensor_types import (
    C64,
    C128,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    UI64,
    ElementType,
    FieldType,
    TensorType,
    Type,
)

LARGEST = {"f16": 65504.0, "bf16": 2.0**128 - 2.0**120, "f32": 2.0**128 - 2.0**104}
LIMIT = {
    "f16": 65520.0,
    "bf16": 2.0**128 - 2.0**119,
    "f32": 2.0**128 - 2.0**103,
}  # values from here on round to infinity


def fit(value: object, element: ElementType) -> Any:
    """The value as one of the element type; ValueError if it is of another kind or too large.
    Floats are rounded later.
    """
    if element.kind == "declared":
        return typing.cast(Any, element).fit(value)
    if isinstance(value, bool):
        if element.kind == "bool":
            return value
    elif isinstance(value, int):
        if element.kind == "bool" and value in (0, 1):
            return bool(value)
        if element.is_integer:
            low, high = element.limits
            if not low <= value <= high:
                raise ValueError(f"{element} holds {low} to {high}, got {value}")
            return value
        if element.kind in ("float", "complex"):
            return fit(float(value) if element.kind == "float" else complex(value), element)
    elif isinstance(value, float):
        if element.kind == "float":
            if math.isfinite(value) and abs(value) >= LIMIT.get(element.name, math.inf):
                raise ValueError(
                    f"{element} holds at most {LARGEST[element.name]:.8g}, got {value!r}"
                )
            return value
        if element.kind == "complex":
            return fit(complex(value), element)
    elif isinstance(value, complex) and element.kind == "complex":
        part = F32 if element is C64 else F64
        return complex(fit(value.real, part), fit(value.imag, part))
    raise ValueError(f"expected {NOUNS[element.kind]} for {element}, got {literal_text(value)}")


NOUNS = {
    "bool": "true or false",
    "int": "an integer",
    "uint": "an integer",
    "float": "a number",
    "complex": "a number or (real, imaginary)",
}


def literal_text(value: object) -> str:
    """A literal as the language writes it; floats in the fewest digits that give the same value
    back.
    """
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if is_float(value):
        text = repr(value) if type(value) is float else str(value)
        digits, e, exponent = text.partition("e")
        return text if "." in digits or "n" in text else f"{digits}.0{e}{exponent}"
    if isinstance(value, (complex, np.complexfloating)):
        return f"({literal_text(value.real)}, {literal_text(value.imag)})"
    if value is None:
        return "none"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value)


# The type of a literal operand in each dialect


def _theano_integer(value: int) -> ElementType:
    """The smallest type that holds it."""
    fitting = (e for e in (I8, I16, I32, I64, UI64) if e.limits[0] <= value <= e.limits[1])
    if (element := next(fitting, None)) is None:
        raise ValueError(f"a literal operand of theano fits 64 bits, got {value}")
    return element


def _is_f32(value: float) -> bool:
    return not math.isfinite(value) or (
        abs(value) < LIMIT["f32"] and float(np.float32(value)) == value
    )


Element: TypeAlias = ElementType | Callable[[Any], ElementType]
KINDS = (bool, int, float, complex)
LITERALS: dict[
    str, tuple[str, dict[type, Element]]
] = {  # the literals of a dialect in words, and the types of each kind
    "cvm": ("an integer, i32", {int: I32}),
    "dali": ("an integer, a float, true or false", {bool: I1, int: I32, float: F32}),
    "cog": ("a number", {int: F32, float: F32, complex: C64}),
    "theano": (
        "a number, true or false",
        {
            bool: I1,
            int: _theano_integer,
            float: lambda v: F32 if _is_f32(v) else F64,
            complex: lambda v: C64 if _is_f32(v.real) and _is_f32(v.imag) else C128,
        },
    ),
    "numpy": (
        "a number, true or false",
        {bool: I1, int: lambda v: I64 if v <= I64.limits[1] else UI64, float: F64, complex: C128},
    ),
    "quant": ("an integer or a float", {int: I32, float: F32}),
}


def literal_type(dialect: str, value: object) -> Type:
    """The type of a literal operand in a dialect; raises ValueError if the dialect takes no such
    literal.
    """
    if dialect not in LITERALS:
        raise ValueError(
            f"{dialect} takes no literal operands without a type, as in {literal_text(value)} : i32"
        )
    taken, elements = LITERALS[dialect]
    if (kind := next((k for k in KINDS if isinstance(value, k)), float)) not in elements:
        raise ValueError(f"a literal operand of {dialect} is {taken}, got {literal_text(value)}")
    found = elements[kind]
    element = found if isinstance(found, ElementType) else found(value)
    if (
        dialect != "dali" or kind is not float
    ):  # which is rounded to f32, to infinity where it is too large
        fit(value, element)
    return FieldType((), TensorType((), element)) if dialect == "cog" else TensorType((), element)
