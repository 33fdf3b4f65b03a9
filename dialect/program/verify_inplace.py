"""Verify in-place operations: the overwritten argument permits it, and no later operation uses it or a view of it.

Operations run in the order of the text, so an operation before the overwriting one may read the value.
"""

from __future__ import annotations

from ..builtin import Call
from ..ir.diagnostics import Diagnostic, Note, Span
from .module import Function, Literal, Module, Operation, Value


def check_destroyed(module: Module, function: Function) -> list[Diagnostic]:
    """The mistakes of the function's in-place operations."""
    found: list[Diagnostic] = []
    storage: dict[Value, Value] = {}  # maps a view to the value whose elements it shows
    destroyed: dict[Value, Operation] = {}
    owned = {r for o in function.operations if o.operator.name != "const" for r in o.results}

    def root(value: Value) -> Value:
        while value in storage:
            value = storage[value]
        return value

    def used(value: Value, span: Span) -> None:
        if (by := destroyed.get(root(value))) is not None:
            message = f"a value is not used after it was destroyed, but %{value.name} is"
            found.append(Diagnostic(message, span, f"{by.operator.name}.destroyed", (Note("destroyed here", by.span),)))

    for operation in function.operations:
        operands = list(operation.operator.operands())
        for name, value in operands:
            used(value, operation.at(name))
        for target in overwritten(module, operation):
            name, code = next(n for n, v in operands if v is target), f"{operation.operator.name}.destroyed"
            base = root(target)
            at = operation.at(name)
            if isinstance(base, Literal) or (base not in owned and base not in function.arguments):
                found.append(Diagnostic("a constant is not destroyed", at, code))
            elif base in function.arguments and "inplace" not in base.attributes:
                message = f"an argument that is destroyed is marked {{inplace}}, but %{base.name} is not"
                found.append(Diagnostic(message, at, code, (Note("the argument", base.span),)))
            others = [v for _, v in operands if root(v) is base and v is not target]
            if others:
                message = f"a value is not used by what destroys it, but %{others[0].name} shows the elements of %{target.name}"
                found.append(Diagnostic(message, at, code))
            destroyed.setdefault(base, operation)
        if operation.operator.view or operation.operator.rearranges:
            storage.update((r, operands[0][1]) for r in operation.results if operands)
    spans = function.return_spans or (function.span,) * len(function.results)
    for value, span in zip(function.results, spans, strict=True):
        used(value, span)
    return found


def overwritten(module: Module, operation: Operation) -> tuple[Value, ...]:
    """The operands that an operation destroys; for a call, those whose argument is marked."""
    operator = operation.operator
    if isinstance(operator, Call):
        callee = module.functions.get(operator.callee)
        marked = () if callee is None else callee.arguments
        return tuple(v for v, a in zip(operator.arguments, marked, strict=False) if "inplace" in a.attributes)
    return operator.destroys()


def arguments_overwritten(function: Function) -> dict[int, int]:
    """The positions of results that overwrite arguments, each with the argument's position."""
    places: dict[Value, Value] = {a: a for a in function.arguments if "inplace" in a.attributes}
    for operation in function.operations:
        for target in operation.operator.destroys():
            if target in places:
                places[operation.results[0]] = places[target]
    found = {}
    for n, result in enumerate(function.results):
        if result in places and result not in function.arguments and places[result] in function.arguments:
            found.setdefault(n, function.arguments.index(places[result]))
    return {n: k for n, k in found.items() if k not in [found[m] for m in found if m < n]}
