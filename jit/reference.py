"""The reference: each operation's formal definition, evaluated in NumPy in program order. Slow and obvious."""

from __future__ import annotations

import numpy as np

from ..dialect.builtin import Call
from ..dialect.program import Function, Literal, Module, Value


def evaluate(module: Module, function: Function, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """The function's results for these arguments, which have been checked."""
    known: dict[Value, np.ndarray] = dict(zip(function.arguments, arguments, strict=True))

    def array(value: Value) -> np.ndarray:
        return value.array if isinstance(value, Literal) else known[value]

    for operation in function.operations:
        if isinstance(call := operation.operator, Call):
            results = evaluate(module, module.functions[call.callee], [array(v) for v in call.arguments])
        else:
            with np.errstate(all="ignore"):
                found = operation.operator.map(array).reference()
            results = found if isinstance(found, tuple) else (found,)
        known.update(zip(operation.results, results, strict=True))
    return [np.array(array(r)) for r in function.results]
