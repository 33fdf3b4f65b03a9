"""Algebraic identities of Theano's scalar operations that are exact for the element type."""

from collections.abc import Callable
from typing import Any

from ..builtin import Const
from ..ir.function import Literal, Value
from ..types.tensor_types import ElementType

Definition = Callable[[Value], Any]
# a second operand that changes nothing, and which of the first operands it may be
NEUTRAL: dict[str, tuple[Any, int]] = {
    "mul": (1, 2), "true_div": (1, 1), "int_div": (1, 1), "pow": (1, 1), "sub": (0, 1), "add": (0,
     2), "or_": (0, 2), "xor": (0, 2),
}  # fmt: skip
INVOLUTIONS = ("neg", "invert", "conj")
IDEMPOTENT = ("abs_", "floor", "ceil", "trunc", "round_half_to_even", "round_half_away_from_zero")


def simplified(operator: Any, definition: Definition) -> Value | None:
    """An operand, or an operand of what made it, that is the operator's result; its type is still
    to be compared.
    """
    xs, name = operator.xs, operator.scalar_op
    first = xs[0]
    if name == "identity" or (
        name in ("real", "conj") and first.known_type.element.kind != "complex"
    ):
        return first
    if name == "second" or (name == "switch" and xs[1] is xs[2]):
        return xs[1]
    if name == "cast":
        return _cast(first, operator.dtype, definition)
    if name in INVOLUTIONS or name in IDEMPOTENT:
        return _twice(name, first, definition)
    if name in ("maximum", "minimum", "and_", "or_") and xs[0] is xs[1]:
        return first
    return _without_neutral(name, xs, definition) if name in NEUTRAL and len(xs) == 2 else None


def _cast(x: Value, element: ElementType, definition: Definition) -> Value | None:
    """x itself, or its operand if x is a cast to a type that holds it, and back."""
    if x.known_type.element is element:
        return x
    made = definition(x)
    if getattr(made, "scalar_op", "") != "cast":
        return None
    (source,) = made.xs
    return (
        source
        if source.known_type.element is element and holds(x.known_type.element, element)
        else None
    )


def holds(wide: ElementType, narrow: ElementType) -> bool:
    """Test whether one type contains every value of the other."""
    if narrow.kind == wide.kind:
        return wide.bits >= narrow.bits
    if narrow.is_discrete and wide.is_discrete:
        return narrow.kind == "bool" or (
            narrow.kind == "uint" and wide.kind == "int" and wide.bits > narrow.bits
        )
    return (
        narrow.is_discrete
        and wide.kind == "float"
        and narrow.bits <= {16: 11, 32: 24, 64: 53}[wide.bits]
    )


def _twice(name: str, x: Value, definition: Definition) -> Value | None:
    made = definition(x)
    if getattr(made, "scalar_op", "") != name:
        return None
    if name in INVOLUTIONS:
        return made.xs[0]
    return x


def _without_neutral(name: str, xs: tuple[Value, ...], definition: Definition) -> Value | None:
    neutral, places = NEUTRAL[name]
    element = xs[0].known_type.element
    if element.kind == "complex" or xs[1].known_type.element.kind == "complex":
        return None
    if name in ("add", "int_div") and any(not x.known_type.element.is_integer for x in xs):
        return None  # -0.0 + 0 is 0.0, and x // 1 is rounded
    for n in range(places):
        if scalar_value(xs[1 - n], definition) == neutral:
            return xs[n]
    return None


def scalar_value(value: Value, definition: Definition) -> Any:
    """The number that a value is, or all its elements are; None where that is not known."""
    if isinstance(value, Literal):
        return value.array[()]
    made = definition(value)
    if (
        isinstance(made, Const)
        and made.data.array.size
        and (made.data.splat or made.data.array.size == 1)
    ):
        return made.data.array.reshape(-1)[0]
    return None
