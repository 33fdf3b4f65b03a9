"""The types of Theano's scalar operations: for each kind its operand, result and working types."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ..types.tensor_types import C64, C128, F32, F64, I1, I8, ElementType, promoted

Elements = tuple[ElementType, ...]


def upcast(*elements: ElementType) -> ElementType:
    """The common type: NumPy's promotion of arrays, folded from the left."""
    return reduce(promoted, elements)


def floating(element: ElementType) -> ElementType:
    """upgrade_to_float: f32 of i1 and integers of up to 16 bits, f64 of longer ones, floats and
    complex as they are.
    """
    if not element.is_discrete:
        return element
    if element.bits <= 16:
        return F32
    return F64


def part(element: ElementType) -> ElementType:
    """The type of the real part."""
    if element.kind != "complex":
        return element
    if element is C64:
        return F32
    return F64


@dataclass(frozen=True)
class TypeRule:
    """`result` of the operands' types, where `takes` holds of them; `wanted` is that in words.

    `working` are the types that operands are converted to before anything is computed: the
    result's, unless stated.
    """

    wanted: str
    result: Callable[..., ElementType]
    takes: Callable[..., bool] = lambda *elements: True
    working: Callable[[Elements, ElementType], Elements] = lambda elements, result: (
        (result,) * len(elements)
    )


def _no_complex(*elements: ElementType) -> bool:
    return all(e.kind != "complex" for e in elements)


def _upcast_float(*elements: ElementType) -> ElementType:
    return upcast(*map(floating, elements))


def _quotient(*elements: ElementType) -> ElementType:
    return F64 if all(e.is_discrete for e in elements) else upcast(*elements)


def _bits(*elements: ElementType) -> bool:
    if all(e is I1 for e in elements):
        return True
    return all(e.is_integer for e in elements) and upcast(*elements).is_integer


def _common(elements: Elements, result: ElementType) -> Elements:
    return (upcast(*elements),) * len(elements)


def _as_they_are(elements: Elements, result: ElementType) -> Elements:
    return elements


_REAL = "element types that are not complex"

RULES: dict[str, TypeRule] = {
    "upcast": TypeRule("any element types", upcast),
    "upcast real": TypeRule(_REAL, upcast, _no_complex),
    "difference": TypeRule(
        "element types that are not all i1", upcast, lambda *e: any(x is not I1 for x in e)
    ),
    "power": TypeRule("any element types", lambda *e: I8 if upcast(*e) is I1 else upcast(*e)),
    "quotient": TypeRule("any element types", _quotient),
    "float": TypeRule("any element types", _upcast_float),
    "float real": TypeRule(_REAL, _upcast_float, _no_complex),
    "comparison": TypeRule("any element types", lambda *e: I1, working=_as_they_are),
    "predicate": TypeRule("any element type", lambda *e: I1, working=_as_they_are),
    "bits": TypeRule("all i1, or all integers that have a common integer type", upcast, _bits),
    "same": TypeRule("any element type", lambda x: x),
    "same, not bool": TypeRule(
        "an element type that is not i1", lambda x: x, lambda x: x is not I1
    ),
    "sign": TypeRule(
        "an element type that is neither i1 nor complex",
        lambda x: x,
        lambda x: x is not I1 and x.kind != "complex",
    ),
    "rounding": TypeRule("a float", lambda x: x, lambda x: x.kind == "float"),
    "conjugate": TypeRule("any element type", lambda x: I8 if x is I1 else x),
    "part": TypeRule("any element type", part, working=_as_they_are),
    "angle": TypeRule(
        "any element type",
        lambda x: F64,
        working=lambda e, r: (C128 if e[0].kind == "complex" else F64,),
    ),
    "probability": TypeRule(_REAL, lambda *e: F64, _no_complex),
    "second": TypeRule("any element types", lambda x, y: y, working=lambda e, r: (e[0], r)),
    "complex": TypeRule(
        _REAL,
        lambda *e: C64 if np.can_cast(upcast(*e).dtype, np.float32) else C128,
        _no_complex,
        lambda e, r: (part(r),) * 2,
    ),
    "switch": TypeRule(
        "any element types", lambda c, a, b: upcast(a, b), working=lambda e, r: (e[0], r, r)
    ),
    "range": TypeRule(_REAL, lambda *e: I8, _no_complex, _common),
}
