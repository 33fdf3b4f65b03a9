"""Decompose operators into others that compile to better code.

    product_of_others(x)  =>  product / x where no x is 0, ...

Legal since the operator defines its decomposition. Runs after differentiation, since an operator may have a better
derivative than its parts; the reference evaluator keeps the operator.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.program.builder import Builder
from ...dialect.program.module import Function, Operation, Value
from ...dialect.spec.op import Operator
from .dce import dce


def decompose(function: Function) -> Function:
    """The function with operators replaced by their decompositions."""
    if all(type(o.operator).decompose is Operator.decompose for o in function.operations):
        return function
    known: dict[Value, Value] = {}
    builder = Builder(prefix="p")
    for operation in function.operations:
        operator = operation.operator.map(lambda v: known.get(v, v))
        builder.span = operation.span
        whole = None
        if type(operator).decompose is not Operator.decompose:
            whole = operator.map(builder.node).decompose()
        if whole is None:
            builder.operations.append(_over(operation, operator))
        else:
            known[operation.results[0]] = whole.value
    results = tuple(known.get(r, r) for r in function.results)
    return dce(replace(function, operations=tuple(builder.operations), results=results))


def _over(operation: Operation, operator: Operator[Value]) -> Operation:
    return replace(operation, operator=operator)
