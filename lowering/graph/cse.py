"""Eliminate common subexpressions (MLIR's cse).

    %a = f(%x);  %b = f(%x);  g(%a, %b)  =>  %a = f(%x);  g(%a, %a)

Legal for operations with equal operator, attributes, operands and result types, unless they destroy
an operand or have an effect.
"""

from collections.abc import Container
from dataclasses import replace

from ...dialect.builtin import Const
from ...dialect.ir.function import Function, Literal, Operation, Value
from ...dialect.types.attributes import attribute_text
from ..pass_context import Context
from ..passes import graph_pass


@graph_pass
def cse(function: Function, context: Context) -> Function:
    """The function with each equal operation computed once."""
    effects = context.module.effects
    known: dict[Value, Value] = {}
    first: dict[object, Operation] = {}
    kept: list[Operation] = []
    for operation in function.operations:
        operation = replace(operation, operator=operation.operator.map(lambda v: known.get(v, v)))
        key = _key(operation, effects)
        earlier = None if key is None else first.setdefault(key, operation)
        if earlier is None or earlier is operation:
            kept.append(operation)
        else:
            known.update(zip(operation.results, earlier.results, strict=True))
    return replace(
        function, operations=tuple(kept), results=tuple(known.get(r, r) for r in function.results)
    )


def _key(operation: Operation, effects: Container[str]) -> object | None:
    """A key that is equal for equal operations; None if the operation must not be shared."""
    operator = operation.operator
    if operator.destroys() or operation.acts(effects):
        return None
    types = tuple(r.known_type.key for r in operation.results)
    if isinstance(operator, Const):
        data = operator.data
        return "const", types, data.array.tobytes() if data.array.nbytes <= 1 << 16 else id(data)
    attributes = tuple((f.name, attribute_text(v)) for f, v in operator.attributes())
    return operator.name, attributes, tuple(_operand(v) for _, v in operator.operands()), types


def _operand(value: Value) -> object:
    return (
        ("literal", value.known_type.key, repr(value.value))
        if isinstance(value, Literal)
        else value
    )
