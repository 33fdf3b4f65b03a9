"""Simplify operations by identities that are exact for the element type (MLIR's canonicalize).

    x * 1 => x,  -(-x) => x,  transpose(transpose(x)) => x, ...

Each operator defines its identities. Float sums are not reordered; an identity that fails for NaN,
infinity or -0.0 is applied to integers only.
"""

from dataclasses import replace

from ...dialect.ir.function import Function, Literal, Operation, Value
from ...dialect.ir.verify import type_operation
from ...dialect.spec.operator import Operator
from ..passes import graph_pass

MOST_STEPS = 8  # rounds of simplification, at most; bounds compile time (by hand)


@graph_pass
def simplify(function: Function) -> Function:
    """The function with operations replaced by simpler ones, or by existing values."""
    known: dict[Value, Value] = {}
    defined: dict[Value, Operator[Value]] = {}
    kept: list[Operation] = []
    for operation in function.operations:
        if (
            operator := operation.operator.map(lambda v: known.get(v, v))
        ) is not operation.operator:
            operation = replace(operation, operator=operator)
        if isinstance(found := _simplest(operation, defined), Value):
            known[operation.results[0]] = found
            continue
        if found is not operation.operator:
            operation = replace(operation, operator=found)
        kept.append(operation)
        defined.update((r, operation.operator) for r in operation.results)
    return replace(
        function, operations=tuple(kept), results=tuple(known.get(r, r) for r in function.results)
    )


def _simplest(
    operation: Operation, defined: dict[Value, Operator[Value]]
) -> Value | Operator[Value]:
    """An existing value of the same type that equals the operation's result, or else the simplest
    operator for it.
    """
    operator = operation.operator
    type_key = operation.results[0].known_type.key if len(operation.results) == 1 else None
    for _ in range(MOST_STEPS):
        if isinstance(
            simpler := None if operator.destroys() else operator.simplified(defined.get), Value
        ):
            return (
                operator
                if isinstance(simpler, Literal) or simpler.known_type.key != type_key
                else simpler
            )
        if (
            simpler is None
            or type_operation(replace(operation, operator=simpler))[0].key != type_key
        ):
            return operator
        operator = simpler
    return operator
