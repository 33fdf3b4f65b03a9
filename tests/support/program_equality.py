"""Compare programs, up to the names of values and source locations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cvm.dialect.builtin import Data, Elements
from cvm.dialect.ir.function import Function, Literal, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.spec.operator import Operator
from cvm.dialect.types.attributes import attribute_text
from cvm.dialect.types.tensor_types import Type


def same_program(a: Module, b: Module) -> bool:
    """Test whether the modules have the same functions in the same order."""
    if list(a.functions) != list(b.functions):
        return False
    return all(same_function(f, b.functions[name]) for name, f in a.functions.items())


def same_function(a: Function, b: Function) -> bool:
    """Test whether the functions have the same operations and types; sizes without a name are
    equal.
    """
    if type(a) is not type(b) or a.name != b.name or not _same_values(a.arguments, b.arguments):
        return False
    if [_shown(v.attributes) for v in a.arguments] != [_shown(v.attributes) for v in b.arguments]:
        return False
    numbers = (_numbered(a), _numbered(b))
    if len(a.operations) != len(b.operations) or not _same_uses(a.results, b.results, numbers):
        return False
    return all(
        _same_operation(o, p, numbers) for o, p in zip(a.operations, b.operations, strict=True)
    )


Numbers = tuple[dict[Value, int], dict[Value, int]]


def _numbered(function: Function) -> dict[Value, int]:
    return {value: n for n, value in enumerate(function.values())}


def _same_operation(a: Operation, b: Operation, numbers: Numbers) -> bool:
    operands = [v for _, v in a.operator.operands()], [v for _, v in b.operator.operands()]
    return (
        type(a.operator) is type(b.operator)
        and _same_values(a.results, b.results)
        and _same_types(a.declared, b.declared)
        and _same_uses(*operands, numbers)
        and _same_attributes(a.operator, b.operator)
    )


def _same_uses(a: Sequence[Value], b: Sequence[Value], numbers: Numbers) -> bool:
    return len(a) == len(b) and all(_same_use(x, y, numbers) for x, y in zip(a, b, strict=True))


def _same_use(a: Value, b: Value, numbers: Numbers) -> bool:
    if isinstance(a, Literal) and isinstance(b, Literal):
        return str(a.type) == str(b.type) and attribute_text(a.value) == attribute_text(b.value)
    return (
        not isinstance(a, Literal)
        and not isinstance(b, Literal)
        and numbers[0].get(a) == numbers[1].get(b)
    )


def _same_values(a: Sequence[Value], b: Sequence[Value]) -> bool:
    return [str(v.type) for v in a] == [str(v.type) for v in b]


def _same_types(a: Sequence[Type] | None, b: Sequence[Type] | None) -> bool:
    return (a is None) == (b is None) and [*map(str, a or ())] == [*map(str, b or ())]


def _same_attributes(a: Operator[Any], b: Operator[Any]) -> bool:
    for (_, x), (_, y) in zip(a.attributes(), b.attributes(), strict=True):
        if isinstance(x, Elements) and isinstance(y, Elements):
            x, y = (x.data, y.data) if str(x.type) == str(y.type) else (x.type, y.type)
        if isinstance(x, Data) and isinstance(y, Data):
            if not x.same(y):
                return False
        elif attribute_text(x) != attribute_text(y):
            return False
    return True


def _shown(attributes: dict[str, Any]) -> dict[str, str]:
    return {name: attribute_text(value) for name, value in attributes.items()}
