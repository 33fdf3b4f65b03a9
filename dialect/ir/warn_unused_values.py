"""Warn of operations whose results nothing uses; no target computes them."""

from ..support.diagnostics import Diagnostic
from .function import Function, Graph, Value


def unused_values(function: Function) -> list[Diagnostic]:
    """A warning for each operation of a function that gives values in vain; names that begin with _
    say that it may.
    """
    if isinstance(function, Graph):
        return []
    used: set[Value] = set(function.results)
    for operation in function.operations:
        used.update(v for _, v in operation.operator.operands())
    diagnostics = []
    for operation in function.operations:
        names = [r.name for r in operation.results]
        if all(n.startswith("_") for n in names) or not used.isdisjoint(operation.results):
            continue
        if not operation.operator.destroys() and not operation.operator.has_effect:
            message = f"nothing uses %{', %'.join(names)}"
            diagnostics.append(
                Diagnostic(message, operation.results[0].span, "value.unused", severity="warning")
            )
    return diagnostics
