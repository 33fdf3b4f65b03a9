"""Limits on inlining: call depth and operation count.

Compiling expands calls, so a short program can amount to billions of operations; the limits make it
an error.
"""

from collections.abc import Sequence

from ..support.diagnostics import Diagnostic, Note
from ..support.limits import LIMITS, excess
from .module import Module

DEEPEST = 200  # depth of nested calls


def check_expansion(module: Module, order: Sequence[str]) -> list[Diagnostic]:
    """The calls with which a function first exceeds a limit; in `order`, functions follow their
    callees.
    """
    diagnostics: list[Diagnostic] = []
    most = LIMITS.get().operations
    depths: dict[str, int] = {}
    counts: dict[str, int] = {}
    for name in order:
        function = module.functions[name]
        depth = 0
        count = len(function.operations)
        within = count <= most
        if not within:
            diagnostics.append(
                Diagnostic(excess("operations", count), function.span, "limit.operations")
            )
        calls = [(o, *c) for o in function.operations for c in o.operator.callees]
        for operation, field, callee in calls:
            if callee not in depths:
                continue
            depth = max(depth, depths[callee] + 1)
            count = count + counts[callee]
            if within and (depth > DEEPEST or count > most):
                within = False
                if depths[callee] > DEEPEST or counts[callee] > most:
                    continue  # reported for the callee
                message, code = (
                    (f"calls are at most {DEEPEST} deep, but this one is {depth}", "call.depth")
                    if depth > DEEPEST
                    else (excess("operations", count), "limit.operations")
                )
                note = Note(f"@{callee} has {counts[callee]}", module.functions[callee].span)
                diagnostics.append(
                    Diagnostic(
                        message, operation.at(field), code, (note,) if depth <= DEEPEST else ()
                    )
                )
        depths[name], counts[name] = depth, count
    return diagnostics
