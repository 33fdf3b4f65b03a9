"""Eliminate dead operations, on which no result depends (MLIR's dce); effects stay.

%a = f(%x);  %b = g(%x);  return %b  =>  %b = g(%x);  return %b
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from ...dialect.builtin import Calling, Const
from ...dialect.ir.function import Function, Operation, Value
from ...dialect.kernel_ir.expressions import Check, Tensor
from ...dialect.kernel_ir.loops import Assert, statements
from ...dialect.kernel_ir.traverse import walk
from ..pass_context import Context
from ..passes import graph_pass


@graph_pass
def dce(function: Function, context: Context, simplified: bool = False) -> Function:
    """The function without operations that its results do not depend on.

    Errors of operations that results depended on before they were `simplified` are reported, so
    these stay.
    """
    return replace(
        function,
        operations=tuple(
            live_operations(
                function.operations, function.results, simplified, context.module.effects
            )
        ),
    )


def live_operations(
    operations: Sequence[Operation],
    results: Iterable[Value],
    folded: bool = False,
    effects: Container[str] = (),
) -> list[Operation]:
    """The operations on which results depend, those that have an effect or call a function that
    has, and with `folded` those that may fail.
    """
    needed = set(results)
    live: list[Operation] = []
    for operation in reversed(operations):
        if (
            not needed.isdisjoint(operation.results)
            or operation.acts(effects)
            or (folded and may_fail(operation))
        ):
            live.append(operation)
            needed.update(v for _, v in operation.operator.operands())
    return live[::-1]


def may_fail(operation: Operation) -> bool:
    """Test whether a call may report an error that depends on elements; a loop is told apart when
    it is lowered.
    """
    operator = operation.operator
    if operator.is_expanded or isinstance(operator, (Calling, Const)):
        return not isinstance(operator, Const)
    typed = operator.map(tensor)
    results = map(tensor, operation.results)
    parts = (
        statements(typed.nest(*results))
        if typed.has_nest()
        else walk(typed.element(next(results)).value)
    )
    return any(isinstance(p, (Assert, Check)) for p in parts)


def tensor(value: Value) -> Tensor:
    """A tensor of index notation in a value's place."""
    return Tensor(
        value.name, value.known_type.array_shape, value.known_type.element.storage, "argument"
    )
