"""The reference: each operation's formal definition, evaluated in NumPy in program order, without
optimization.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...dialect.builtin import Calling
from ...dialect.ir.function import Function, Literal, Operation, Value
from ...dialect.ir.module import Module
from ...dialect.spec.unmet import Unmet
from ...dialect.support.diagnostics import Diagnostic, Error
from ...dialect.support.python_errors import call_error
from ...dialect.types.cast_arrays import with_plain_truths
from ...lowering.graph.dce import live_operations
from .compiled_function import CompiledFunction


class ReferenceFunction(CompiledFunction):
    """Evaluates each operation's formal definition."""

    target = "reference"

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        for output, result in zip(
            outputs, evaluate(self.module, self.computed, arrays), strict=True
        ):
            if output.shape != result.shape or output.dtype != result.dtype:
                made, wanted = (f"{a.dtype}{list(a.shape)}" for a in (result, output))
                message = f"`reference` gives {made}, and `infer` {wanted}"
                raise Error(Diagnostic(message, self.function.span, "operator"))
            output[...] = result


def performed(operation: Operation, array: Callable[[Value], np.ndarray]) -> tuple[np.ndarray, ...]:
    """The results of an operation by its reference; CallError where a check does not hold."""
    try:
        with np.errstate(all="ignore"):
            found = operation.operator.map(array).reference()
    except Unmet as e:
        raise call_error(str(e), operation.span) from None
    return found if isinstance(found, tuple) else (found,)


def evaluate(module: Module, function: Function, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """The function's results for these arguments, which have been checked."""
    known: dict[Value, np.ndarray] = dict(
        zip(function.arguments, map(with_plain_truths, arguments), strict=True)
    )

    def array(value: Value) -> np.ndarray:
        return value.array if isinstance(value, Literal) else known[value]

    for operation in live_operations(function.operations, function.results, effects=module.effects):
        if isinstance(operation.operator, Calling):
            callees = [module.functions[name] for _, name in operation.operator.callees]
            call: Any = operation.operator.map(array)
            results = call.run(*(lambda given, f=f: evaluate(module, f, [*given]) for f in callees))
        else:
            results = performed(operation, array)
        known.update(zip(operation.results, results, strict=True))
    return [np.array(array(r)) for r in function.results]
