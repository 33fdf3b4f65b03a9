"""Verify in-place operations: the overwritten argument permits it, and all other uses of it, or of
a view of it, can come first.

Operations need not run in the order of the text: one that reads a value may stand after the one
that destroys it, unless it needs the result of that.
"""

from collections.abc import Iterable, Sequence

from ..builtin import Call
from ..support.diagnostics import Diagnostic, Note, Span
from ..types.tensor_types import Type
from .function import Function, Literal, Operation, Value
from .module import Module


def check_destroyed(module: Module, function: Function) -> list[Diagnostic]:
    """The mistakes of the function's in-place operations."""
    diagnostics: list[Diagnostic] = []
    storage: dict[Value, Value] = {}  # maps a view to the value that it is a view of, in the end
    destroyed: dict[Value, list[int]] = {}  # the numbers of the operations that destroy a value
    readers: list[
        tuple[Value, Value, Span, int]
    ] = []  # of which value's storage, by which name, where
    owned = {r for o in function.operations if o.operator.name != "const" for r in o.results}

    def root(value: Value) -> Value:
        return storage.get(value, value)

    for number, operation in enumerate(function.operations):
        operands = list(operation.operator.operands())
        readers += [(root(value), value, operation.at(name), number) for name, value in operands]
        for target in overwritten(module, operation):
            name = next(n for n, v in operands if v is target)
            code = f"{operation.operator.name}.destroyed"
            base = root(target)
            at = operation.at(name)
            if isinstance(base, Literal) or (base not in owned and base not in function.arguments):
                diagnostics.append(Diagnostic("a constant is not destroyed", at, code))
            elif base in function.arguments and "inplace" not in base.attributes:
                message = (
                    f"an argument that is destroyed is marked {{inplace}}, but %{base.name} is not"
                )
                diagnostics.append(
                    Diagnostic(message, at, code, (Note("the argument", base.span),))
                )
            if others := [v for _, v in operands if root(v) is base and v is not target]:
                message = (
                    f"a value is not used by what destroys it, but %{others[0].name} shows the "
                    f"elements of %{target.name}"
                )
                diagnostics.append(Diagnostic(message, at, code))
            destroyed.setdefault(base, []).append(number)
        if operation.operator.view or operation.operator.rearranges:
            storage.update((r, root(operands[0][1])) for r in operation.results if operands)
    if not destroyed:
        return diagnostics
    spans = function.return_spans or (function.span,) * len(function.results)
    end = len(function.operations)
    readers += [
        (root(value), value, span, end) for value, span in zip(function.results, spans, strict=True)
    ]
    earlier = _earlier(
        function, [(n, d) for base, _, _, n in readers for d in destroyed.get(base, ())]
    )
    for base, value, span, number in readers:
        before = [
            d
            for d in destroyed.get(base, ())
            if d < number and (number == end or _needs(earlier, number, d))
        ]
        if before:
            by = function.operations[before[0]]
            message = f"a value is not used after it was destroyed, but %{value.name} is"
            diagnostics.append(
                Diagnostic(
                    message,
                    span,
                    f"{by.operator.name}.destroyed",
                    (Note("destroyed here", by.span),),
                )
            )
    return diagnostics


def _earlier(function: Function, reads: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    """The operations that run before each one: those that give its operands, and readers of what it
    destroys.
    """
    made = {r: n for n, o in enumerate(function.operations) for r in o.results}
    operands = {
        n: {made[v] for _, v in o.operator.operands() if v in made}
        for n, o in enumerate(function.operations)
    }
    for reader, destroyer in reads:
        if reader in operands and reader != destroyer:
            operands[destroyer].add(reader)
    return operands


def _needs(earlier: dict[int, set[int]], number: int, wanted: int) -> bool:
    """Test whether an operation runs after another one in every order."""
    seen, left = {number}, [number]
    while left:
        for n in earlier[left.pop()] - seen:
            if n == wanted:
                return True
            seen.add(n)
            left.append(n)
    return False


def overwritten(module: Module, operation: Operation) -> tuple[Value, ...]:
    """The operands that an operation destroys; for a call, those whose argument is marked."""
    if isinstance(operator := operation.operator, Call):
        callee = module.functions.get(operator.callee)
        marked = () if callee is None else callee.arguments
        return tuple(
            v for v, a in zip(operator.arguments, marked, strict=False) if "inplace" in a.attributes
        )
    return operator.destroys()


def results_stated(function: Function) -> dict[int, int]:
    """The positions of arguments marked `inplace = n`, each with n, the position of a result."""
    marks = enumerate(a.attributes.get("inplace", True) for a in function.arguments)
    return {k: n for k, n in marks if n is not True}


def check_results_stated(function: Function, results: Sequence[Type] | None) -> list[Diagnostic]:
    """The mistakes of arguments marked with the number of the result that they are to hold."""
    diagnostics: list[Diagnostic] = []
    taken: dict[int, str] = {}
    for k, n in results_stated(function).items():
        argument, count = function.arguments[k], len(function.results)
        if n >= count:
            message = f"inplace is the number of a result, of which there are {count}, got {n}"
        elif n in taken:
            message = (
                f"a result overwrites one argument, but result {n} overwrites %{taken[n]}, too"
            )
        elif argument.type is not None and results is not None and results[n] != argument.type:
            message = (
                f"an argument has the type of the result that overwrites it, {results[n]}, "
                f"got {argument.type}"
            )
        else:
            taken[n] = argument.name
            continue
        diagnostics.append(Diagnostic(message, argument.span, "func.inplace"))
    return diagnostics


def arguments_overwritten(function: Function) -> dict[int, int]:
    """The positions of results that overwrite arguments, each with the argument's position."""
    marked = any("inplace" in a.attributes for a in function.arguments)
    return _overwritten_by_mark(function) if marked else {}


def _overwritten_by_mark(function: Function) -> dict[int, int]:
    stated = results_stated(function)
    places: dict[Value, Value] = {
        a: a
        for k, a in enumerate(function.arguments)
        if "inplace" in a.attributes and k not in stated
    }
    for operation in function.operations:
        for target in operation.operator.destroys():
            if target in places:
                places[operation.results[0]] = places[target]
    overwritten = {n: k for k, n in stated.items()}
    for n, result in enumerate(function.results):
        if (
            result in places
            and result not in function.arguments
            and places[result] in function.arguments
        ):
            overwritten.setdefault(n, function.arguments.index(places[result]))
    return {
        n: k
        for n, k in overwritten.items()
        if k not in [overwritten[m] for m in overwritten if m < n]
    }
