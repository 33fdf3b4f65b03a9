"""Fold operations on constants, evaluated by the reference (MLIR's fold).

    %y = f(constants)  =>  %y = const, the value of f

An operator may opt out (`constant_folding`). An operation whose check fails is not folded and fails
at run time.
"""

from dataclasses import replace

import numpy as np

from ...dialect.builtin import Calling, Const, Data, owned
from ...dialect.ir.function import Function, Literal, Operation, Value
from ...dialect.spec.unmet import Unmet
from ..passes import graph_pass


@graph_pass
def fold_constants(function: Function) -> Function:
    """The function with operations on constants replaced by constants."""
    known: dict[Value, np.ndarray] = {}
    return replace(
        function, operations=tuple(new for o in function.operations for new in _folded(o, known))
    )


def _folded(operation: Operation, known: dict[Value, np.ndarray]) -> list[Operation]:
    if isinstance(operator := operation.operator, Const):
        known[operation.results[0]] = operator.data.array
        return [operation]
    operands = [v for _, v in operator.operands()]
    is_constant = all(isinstance(v, Literal) or v in known for v in operands)
    if not operands or not is_constant or isinstance(operator, Calling) or not _worth_it(operation):
        return [operation]
    try:
        with np.errstate(all="ignore"):
            found = operator.map(
                lambda v: v.array if isinstance(v, Literal) else known[v]
            ).reference()
    except Unmet:
        return [operation]
    constants: list[Operation] = []
    for result, array in zip(
        operation.results, found if isinstance(found, tuple) else (found,), strict=True
    ):
        known[result] = np.ascontiguousarray(array).reshape(array.shape)
        constant = Const(Data(owned(known[result])), result.known_type)
        constants.append(replace(operation, operator=constant, results=(result,), declared=None))
    return constants


def _worth_it(operation: Operation) -> bool:
    types = [v.known_type for _, v in operation.operator.operands()]
    if not all(t.is_static for t in (*types, *(r.known_type for r in operation.results))):
        return False
    return operation.operator.map(lambda v: v.known_type).constant_folding()
