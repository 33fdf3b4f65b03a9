"""Eliminate dead operations, on which no result depends (MLIR's dce).

%a = f(%x);  %b = g(%x);  return %b  =>  %b = g(%x);  return %b"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...dialect.program.function import Function, Operation, Value
from ..passes import graph_pass


@graph_pass
def dce(function: Function) -> Function:
    """The function without operations that its results do not depend on."""
    return replace(function, operations=tuple(live_operations(function.operations, function.results)))


def live_operations(operations: Sequence[Operation], results: Iterable[Value]) -> list[Operation]:
    needed = set(results)
    live: list[Operation] = []
    for operation in reversed(operations):
        if any(r in needed for r in operation.results):
            live.append(operation)
            needed.update(v for _, v in operation.operator.operands())
    return live[::-1]
