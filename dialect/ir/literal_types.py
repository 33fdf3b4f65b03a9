"""Types of literal operands, dialect by dialect, and the range checks of literals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .types import C64, C128, F32, F64, I1, I8, I16, I32, I64, UI64, ElementType, FieldType, TensorType, Type

LIMIT = {32: 3.4028235677973366e38, 16: 65520.0}  # values from here on round to infinity


def fit(value: Any, element: ElementType) -> Any:
    """The value as one of the element type; raises ValueError if it is of another kind or too large. Floats are rounded
    later.
    """
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
            if math.isfinite(value) and abs(value) >= LIMIT.get(element.bits, math.inf):
                raise ValueError(f"{element} holds at most {float(np.finfo(element.dtype).max):.8g}, got {value!r}")
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


def literal_text(value: Any) -> str:
    """A literal as the language writes it; floats in the fewest digits that give the same value back."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)):
        text = repr(value) if type(value) is float else str(value)
        digits, e, exponent = text.partition("e")
        return text if "." in digits or "n" in text else f"{digits}.0{e}{exponent}"
    if isinstance(value, (complex, np.complexfloating)):
        return f"({literal_text(value.real)}, {literal_text(value.imag)})"
    if value is None:
        return "none"
    return f'"{value}"' if isinstance(value, str) else str(value)


# The type of a literal operand in each dialect


def _cvm(value: Any) -> Type:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"a literal operand of cvm is an integer, i32, got {literal_text(value)}")
    return TensorType((), I32)


def _dali(value: Any) -> Type:
    if isinstance(value, complex):
        raise ValueError(f"a literal operand of dali is an integer, a float, true or false, got {literal_text(value)}")
    return TensorType((), I1 if isinstance(value, bool) else I32 if isinstance(value, int) else F32)


def _cog(value: Any) -> Type:
    if isinstance(value, bool):
        raise ValueError(f"a literal operand of cog is a number, got {literal_text(value)}")
    return FieldType((), TensorType((), C64 if isinstance(value, complex) else F32))


def _theano(value: Any) -> Type:
    """Theano's constants: the smallest integer that holds it, f32 where exact there, else f64."""
    if isinstance(value, bool):
        return TensorType((), I1)
    if isinstance(value, int):
        for element in (I8, I16, I32, I64, UI64):
            if element.limits[0] <= value <= element.limits[1]:
                return TensorType((), element)
        raise ValueError(f"a literal operand of theano fits 64 bits, got {value}")
    if isinstance(value, complex):
        return TensorType((), C64 if _exact(value.real) and _exact(value.imag) else C128)
    return TensorType((), F32 if _exact(value) else F64)


def _numpy(value: Any) -> Type:
    """The types of Python's numbers in NumPy: i64 (ui64 beyond it), f64, complex<f64> and i1."""
    if isinstance(value, bool):
        return TensorType((), I1)
    if isinstance(value, int):
        return TensorType((), I64 if value <= I64.limits[1] else UI64)
    return TensorType((), C128 if isinstance(value, complex) else F64)


def _quant(value: Any) -> Type:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"a literal operand of quant is an integer or a float, got {literal_text(value)}")
    return TensorType((), I32 if isinstance(value, int) else F32)


def _exact(value: float) -> bool:
    if not math.isfinite(value):
        return True
    return abs(value) < LIMIT[32] and float(np.float32(value)) == value


LITERALS: dict[str, Callable[[Any], Type]] = {
    "cvm": _cvm,
    "dali": _dali,
    "cog": _cog,
    "theano": _theano,
    "numpy": _numpy,
    "quant": _quant,
}


def literal_type(dialect: str, value: Any) -> Type:
    """The type of a literal operand in a dialect; raises ValueError if the dialect takes no such literal."""
    if dialect not in LITERALS:
        raise ValueError(f"{dialect} takes no literal operands without a type, as in {literal_text(value)} : i32")
    found = LITERALS[dialect](value)
    if not (
        dialect == "dali" and isinstance(value, float)
    ):  # which is rounded to f32, to infinity where it is too large
        fit(value, found.element)
    return found
