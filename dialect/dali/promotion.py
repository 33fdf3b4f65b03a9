"""DALI's type promotion: a table of pairs, and for each kind of operator its operand and result
types.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from ..types.tensor_types import ELEMENT_TYPES, F32, F64, I1, ElementType

_TABLE = """
         i1    ui8   ui16  ui32  ui64  i8    i16   i32   i64   f32   f64
    i1   i1    ui8   ui16  ui32  ui64  i8    i16   i32   i64   f32   f64
   ui8   ui8   ui8   ui16  ui32  ui64  i16   i16   i32   i64   f32   f64
  ui16   ui16  ui16  ui16  ui32  ui64  i32   i32   i32   i64   f32   f64
  ui32   ui32  ui32  ui32  ui32  ui64  i64   i64   i64   i64   f32   f64
  ui64   ui64  ui64  ui64  ui64  ui64  i64   i64   i64   i64   f32   f64
    i8   i8    i16   i32   i64   i64   i8    i16   i32   i64   f32   f64
   i16   i16   i16   i32   i64   i64   i16   i16   i32   i64   f32   f64
   i32   i32   i32   i32   i64   i64   i32   i32   i32   i64   f32   f64
   i64   i64   i64   i64   i64   i64   i64   i64   i64   i64   f32   f64
   f32   f32   f32   f32   f32   f32   f32   f32   f32   f32   f32   f64
   f64   f64   f64   f64   f64   f64   f64   f64   f64   f64   f64   f64
"""


def _read_table(text: str) -> dict[tuple[ElementType, ElementType], ElementType]:
    head, *rows = (
        [ELEMENT_TYPES[name] for name in line.split()] for line in text.strip().splitlines()
    )
    return {
        (row[0], column): found for row in rows for column, found in zip(head, row[1:], strict=True)
    }


PROMOTION: dict[tuple[ElementType, ElementType], ElementType] = _read_table(_TABLE)
SUPPORTED: tuple[ElementType, ...] = tuple(dict.fromkeys(a for a, _ in PROMOTION))


def promote(*elements: ElementType) -> ElementType:
    """The common type of operands, by the table from left to right."""
    return reduce(lambda a, b: PROMOTION[a, b], elements)


def floating(*elements: ElementType) -> ElementType:
    """f64 if an operand is, else f32, also for 64-bit integers."""
    return F64 if F64 in elements else F32


# Kinds of operators


@dataclass(frozen=True)
class PromotionRule:
    """The element types of a kind of operator, beyond SUPPORTED, and the type of its result.

    `takes` is in words: {all} stands for `element(a), element(b) are`, {every} for `all` with
    several operands, and {symbol} for the operator's symbol.
    """

    gives: str
    result: Callable[..., ElementType]
    takes: str = ""
    holds: Callable[..., bool] = lambda *elements: True


def _some_number(*elements: ElementType) -> bool:
    return any(e is not I1 for e in elements)


_NUMBERS = "{all} not {every}i1: inputs to arithmetic operator `{symbol}` cannot be booleans"
_CONDITION = "element(condition) = i1"
_INTEGERS = "{all} integral: inputs to bitwise operator `{symbol}` must be of integral type"
_PROMOTED = "the promotion of its operands"

RULES: dict[str, PromotionRule] = {
    "arithmetic": PromotionRule(_PROMOTED, promote, _NUMBERS, _some_number),
    "product": PromotionRule(_PROMOTED, promote),
    "quotient": PromotionRule("f64 if an operand is, else f32", floating, _NUMBERS, _some_number),
    "comparison": PromotionRule("i1", lambda *elements: I1),
    "bitwise": PromotionRule(
        _PROMOTED, promote, _INTEGERS, lambda *elements: all(e.kind != "float" for e in elements)
    ),
    "sign": PromotionRule("its operand's type", promote, _NUMBERS, _some_number),
    "function": PromotionRule("f64 if its operand is, else f32", floating, _NUMBERS, _some_number),
    "choice": PromotionRule(
        "the promotion of the two",
        lambda _, *values: promote(*values),
        _CONDITION,
        lambda c, *_: c is I1,
    ),
}
