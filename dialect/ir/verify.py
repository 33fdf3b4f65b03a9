"""Verify programs: infer result types and check every constraint, operation by operation.

`verify` returns the module with typed values, or raises with every mistake. `instantiate` does the
same for one function and the types of actual arguments, which decides the constraints that were
undecided for unknown sizes.
"""

import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..builtin import Calling
from ..spec.foreign_operators import misstated_steps
from ..spec.operator import DIALECTS, C, Operator, actual_values, violated
from ..support.compilation_context import abridged, too_many
from ..support.diagnostics import Diagnostic, Note, Span, VerifyError, counted
from ..support.limits import LIMITS
from ..types.sizes import Dim, Size, Undecided, atoms_of
from ..types.tensor_types import FieldType, Type, size_limit_error
from ..types.unify import (
    agree,
    bind,
    named_back,
    received,
    refine,
    renamed,
    size_conflict,
    with_sizes,
)
from .function import Function, Graph, Literal, Operation, Value
from .inline_limits import check_expansion
from .module import Module
from .verify_inplace import check_destroyed, check_results_stated

Values = dict[Value, Type]
Known = dict[
    tuple[object, ...], tuple[Type, ...] | None
]  # (function, argument types) -> result types

MAX_CALLS = 64  # depth of nested calls with sizes that differ from the declared ones


@dataclass
class Verification:
    """The verification of one function: its module, and the types and mistakes found so far.

    `known` caches the results of functions by argument types; `cycles` are the operations that make
    a function call itself; `depth` counts the calls around this function. `open` collects the types
    with unknown sizes where these are decided by those of one call (`DECIDED`); it has None where
    something is undecided still.
    """

    module: Module
    types: Values
    diagnostics: list[Diagnostic]
    known: Known = field(default_factory=dict)
    cycles: frozenset[Operation] = frozenset()
    depth: int = 0
    open: dict[object, Type | None] | None = None

    def report(self, code: str, message: str, span: Span, notes: Sequence[Note] = ()) -> None:
        if self.open is not None:
            raise Undecided  # of this call, not of others
        self.diagnostics.append(Diagnostic(message, span, code, tuple(notes)))


def verify(module: Module) -> Module:
    """The module with every value typed; raises VerifyError with every mistake found."""
    verified, diagnostics = check(module)
    if diagnostics:
        raise VerifyError(abridged(diagnostics))
    return verified


def check(module: Module) -> tuple[Module, list[Diagnostic]]:
    """The module with the types that could be inferred, and every mistake found, in the order of
    the text.
    """
    order, cycles, diagnostics = callees_first(module)
    if len(order) > 1 or any(
        len(f.operations) > LIMITS.get().operations for f in module.functions.values()
    ):
        diagnostics += check_expansion(module, order)
    known: Known = {}
    typed: dict[str, Function] = {}
    # the bodies of regions, whose arguments get types from the operations, come last
    for key in sorted(order, key=lambda k: None in [a.type for a in module.functions[k].arguments]):
        if too_many(diagnostics):
            break
        function = module.functions[key]
        scope = Verification(
            module, {a: a.type for a in function.arguments if a.type is not None}, [], known, cycles
        )
        found = check_function(scope, function)
        if all(a.type is not None for a in function.arguments):
            known[_called(key, function.argument_types)] = None if scope.diagnostics else found
        diagnostics += [*scope.diagnostics, *check_destroyed(module, function)]
        if any("inplace" in a.attributes for a in function.arguments):
            diagnostics += check_results_stated(function, found)
        typed[key] = _typed(function, scope.types)
    diagnostics.sort(key=lambda d: d.span.start)
    return module.with_functions(
        {key: typed.get(key, f) for key, f in module.functions.items()}
    ), diagnostics


def callees_first(module: Module) -> tuple[list[str], frozenset[Operation], list[Diagnostic]]:
    """The functions, callees first; recursive calls are excluded and reported."""
    order: list[str] = []
    done: set[str] = set()
    cycles: set[Operation] = set()
    diagnostics: list[Diagnostic] = []
    for start in module.functions:
        path: dict[str, Iterator[tuple[Operation, str]]] = (
            {} if start in done else {start: _calls(module, start)}
        )
        while path:
            name, calls = next(reversed(path.items()))
            for operation, callee in calls:
                if callee in path:
                    names = [*path]
                    chain = " calls ".join(f"@{n}" for n in [*names[names.index(callee) :], callee])
                    cycles.add(operation)
                    message = f"a function does not call itself, but {chain}"
                    diagnostics.append(Diagnostic(message, operation.at("callee"), "call.cycle"))
                elif callee not in done:
                    path[callee] = _calls(module, callee)
                    break
            else:
                path.pop(name)
                done.add(name)
                order.append(name)
    return order, frozenset(cycles), diagnostics


def _calls(module: Module, name: str) -> Iterator[tuple[Operation, str]]:
    for operation in module.functions[name].operations:
        for callee in dict.fromkeys(name for _, name in operation.operator.callees):
            if callee in module.functions:
                yield operation, callee


def _called(name: str, arguments: Sequence[Type]) -> tuple[object, ...]:
    return name, *(a.key for a in arguments)


def instantiate(
    module: Module,
    function: Function,
    arguments: Sequence[Type],
    open: dict[object, Type | None] | None = None,
) -> Values:
    """The type of every value of a function for these argument types; raises VerifyError if a
    constraint fails.
    """
    scope = Verification(
        module, dict(zip(function.arguments, arguments, strict=True)), [], open=open
    )
    check_function(scope, function)
    if scope.diagnostics:
        raise VerifyError(scope.diagnostics)
    return scope.types


def called(module: Module, operator: Calling[Value]) -> list[Function]:
    """The functions that a verified operator calls, over values of the types that they are called
    with.
    """
    passed: Calling[Any] = typing.cast(Any, operator.map(lambda v: v.known_type))
    callees = [module.functions[name] for _, name in operator.callees]
    return [instantiated(module, f, passed.passed(len(f.arguments))) for f in callees]


def instantiated(module: Module, function: Function, arguments: Sequence[Type]) -> Function:
    """The function over values of the types that `instantiate` gives."""
    return _typed(function, instantiate(module, function, arguments))


def type_operation(operation: Operation) -> tuple[Type, ...]:
    """The result types of one operation over typed values; raises VerifyError if a constraint
    fails.
    """
    scope = Verification(
        Module({}), {v: v.known_type for _, v in operation.operator.operands()}, []
    )
    typed: Operator[Type] = operation.operator.map(lambda v: v.known_type)
    if (found := _satisfied(scope, operation, typed)) is None:
        raise VerifyError(scope.diagnostics)
    return found


def check_function(scope: Verification, function: Function) -> tuple[Type, ...] | None:
    """Type every value of the function; its result types, or None if they cannot be inferred."""
    typed = [a for a in function.arguments if a.type is not None]
    bound = bind([a.known_type for a in typed], [scope.types[a] for a in typed])
    for operation in function.operations:
        if too_many(scope.diagnostics):
            break
        if any(type_of(scope, v) is None for _, v in operation.operator.operands()):
            continue  # their mistakes have been reported
        before, after = operation.operator.placement, operation.operator.afterwards
        found = (
            _check_operation(scope, operation, bound)
            if _placed(scope, operation, function, before)
            else None
        )
        if found is not None and _placed(scope, operation, function, after):
            scope.types.update(zip(operation.results, found, strict=True))
    results = [type_of(scope, v) for v in function.results]
    if any(r is None for r in results):
        return None
    if function.declared is not None:
        _check_declared(scope, function, results, bound)
    return tuple(r for r in results if r is not None)


def _placed(
    scope: Verification, operation: Operation, function: Function, rules: tuple[C, ...]
) -> bool:
    """Check the constraints on an operation's place; the first that fails is reported."""
    for rule in rules:
        if not rule.holds(operation, function):
            scope.report(
                f"{operation.operator.name}.C{rule.number}", rule.text, operation.at(rule.at)
            )
            return False
    return True


def type_of(scope: Verification, value: Value) -> Type | None:
    return value.type if isinstance(value, Literal) else scope.types.get(value)


def _check_operation(
    scope: Verification, operation: Operation, bound: Mapping[object, Dim]
) -> tuple[Type, ...] | None:
    operands = dict(operation.operator.operands())
    if operation in scope.cycles or not _operands_agree(scope, operation, operands, bound):
        return None
    typed: Operator[Any] = operation.operator.map(lambda v: type_of(scope, v))
    found = (
        _check_call(scope, operation, typed)
        if isinstance(typed, Calling)
        else _satisfied(scope, operation, typed)
    )
    return None if found is None else _declared_types(scope, operation, found, bound)


def _operands_agree(
    scope: Verification,
    operation: Operation,
    operands: dict[str, Value],
    bound: Mapping[object, Dim],
) -> bool:
    """Check that operands have types of the operator's dialect, and those that the text states."""
    operator = operation.operator
    for name, value in operands.items():
        type = type_of(scope, value)
        if (isinstance(type, FieldType) or (type and type.element.kind == "declared")) and (
            message := _untaken(operator, name, type)
        ):
            scope.report(
                f"{operator.name}.type", message, operation.at(name), _notes(scope, operation)
            )
            return False
    if operation.declared_operands is None:
        return True
    if len(operation.declared_operands) != (count := len(operands) - _captured(scope, operator)):
        message = (
            f"expected {counted(count, 'operand type')}, got {len(operation.declared_operands)}"
        )
        scope.report(f"{operator.name}.operands", message, operation.at("types"))
        return False
    for stated, (name, value) in zip(operation.declared_operands, operands.items(), strict=False):
        if (type := type_of(scope, value)) is not None and not agree(
            with_sizes(stated, bound), type
        ):
            message = f"{name} is {type}, but the program states {stated}"
            scope.report(
                f"{operator.name}.type", message, operation.at(name), _notes(scope, operation)
            )
            return False
    return True


def _captured(scope: Verification, operator: Operator[object]) -> int:
    """The number of operands that stand for what a region captures, whose types are not stated."""
    callees = [scope.module.functions.get(name) for _, name in operator.callees]
    return max((f.captured or 0 for f in callees if f is not None), default=0)


def _untaken(operator: Operator[Any], name: str, type: Any) -> str:
    """A message if an operator takes no fields, or no elements of a type of a package."""
    if not isinstance(type, FieldType):
        if operator.any_element or operator.dialect not in DIALECTS:
            return ""
        others = "operators of its package do, and those that move elements"
        return f"{operator.name} takes no elements of {type.element}: {others}"
    if operator.dialect in FIELD_DIALECTS or isinstance(operator, Calling):
        return ""
    return f"the operands of {operator.name} are tensors, but {name} is {type}"


FIELD_DIALECTS = ("cog", "builtin")  # whose operands may be fields


def _satisfied(
    scope: Verification, operation: Operation, typed: Operator[Type]
) -> tuple[Type, ...] | None:
    """The result types, if every constraint holds or is undecided; otherwise the first that fails
    is reported.
    """
    broken, waits = violated(typed, typed.constraints)
    if broken is None:
        types = typed.result_types()
        if scope.open is not None:
            scope.open |= {t.key: t for t in types if not t.is_static} | (
                {None: None} if waits else {}
            )
        if (
            wrong := next((w for t in types if (w := size_limit_error(t)) is not None), None)
        ) is None:
            return types
        return scope.report(
            f"{typed.name}.size", wrong, operation.at(None), _notes(scope, operation)
        )
    return _report(scope, operation, typed, broken)


def _report(scope: Verification, operation: Operation, typed: Operator[Type], broken: C) -> None:
    """Report a constraint that does not hold."""
    if scope.open is not None:
        raise Undecided
    notes = _notes(scope, operation, broken.operands(typed))
    message = _message(typed, broken.text)
    if broken.plainly is not None:
        notes.append(Note(message))
        message = broken.plainly(typed)
    if help := broken.help(typed):
        notes.append(Note(help))
    code = f"{typed.name}.C{broken.number}"
    scope.report(code, message + _meant(typed, broken), operation.at(broken.at), notes)


def _meant(typed: Operator[Type], broken: C) -> str:
    """A suggestion for a misspelt attribute."""
    word = getattr(typed, broken.at or "", None)
    if not broken.words or not isinstance(word, str):
        return ""
    from ..support.suggest import did_you_mean

    return did_you_mean(word, broken.words)


def _message(typed: Operator[Type], text: str) -> str:
    actual = ", ".join(f"{term} = {value}" for term, value in actual_values(typed, text))
    return f"{text}, but {actual}" if actual else text


def _notes(
    scope: Verification, operation: Operation, named: Sequence[str] | None = None
) -> list[Note]:
    """Notes with the type of each operand, or of those named, at its definition."""
    operands = [
        o for o in operation.operator.operands() if named is None or o[0].partition("[")[0] in named
    ]
    marks = {v: "the literal " if isinstance(v, Literal) else "%" for _, v in operands}
    return [Note(f"{n} is {marks[v]}{v.name} : {type_of(scope, v)}", v.span) for n, v in operands]


def _declared_types(
    scope: Verification, operation: Operation, found: tuple[Type, ...], bound: Mapping[object, Dim]
) -> tuple[Type, ...] | None:
    """The inferred types, checked against those in the text; a known size in the text refines an
    unknown one.
    """
    name = operation.operator.name
    if len(found) != len(operation.results):
        message = f"expected {counted(len(found), 'result')}, got {len(operation.results)}"
        return scope.report(f"{name}.results", message, operation.at("results"))
    if operation.declared is None:
        return found
    if len(operation.declared) != len(found):
        message = f"expected {counted(len(found), 'result type')}, got {len(operation.declared)}"
        return scope.report(f"{name}.results", message, operation.at("types"))
    kept = []
    for stated, inferred in zip(operation.declared, found, strict=True):
        stated = with_sizes(stated, bound)
        if not agree(stated, inferred):
            message = f"the result is {inferred}, but the program states {stated}"
            return scope.report(
                f"{name}.type", message, operation.at("types"), _notes(scope, operation)
            )
        kept.append(refine(inferred, stated))
    return tuple(kept)


def _check_declared(
    scope: Verification,
    function: Function,
    results: Sequence[Type | None],
    bound: Mapping[object, Dim],
) -> None:
    assert function.declared is not None
    spans = function.return_spans or (function.span,) * len(results)
    if len(function.declared) != len(results):
        message = (
            f"@{function.name} returns {counted(len(results), 'value')}, but its type has "
            f"{len(function.declared)}"
        )
        scope.report("func.results", message, spans[0] if spans else function.span)
        return
    types = [a.type for a in function.arguments if a.type is not None]
    known = atoms_of(d for t in types for d in t.array_shape)
    for stated, inferred, value, span in zip(
        function.declared, results, function.results, spans, strict=True
    ):
        if unbound := [
            d
            for d in stated.array_shape
            if isinstance(d, Size) and d.name and not d.atoms() <= known
        ]:
            message = (
                f"a named size of a result is one of an argument, but {unbound[0]} of {stated} "
                "is of none"
            )
            scope.report("func.size", message, span)
        stated = with_sizes(stated, bound)
        if inferred is not None and not agree(stated, inferred):
            notes = [Note(f"%{value.name} is {inferred}", value.span)]
            scope.report(
                "func.type",
                f"@{function.name} returns {inferred}, but its type says {stated}",
                span,
                notes,
            )


def _check_call(
    scope: Verification, operation: Operation, typed: Calling[Type]
) -> tuple[Type, ...] | None:
    fields = {name: field for field, name in reversed(typed.callees)}
    found = {n: _check_callee(scope, operation, typed, f, n) for n, f in reversed(fields.items())}
    results = [types for _, n in typed.callees if (types := found[n]) is not None]
    if len(results) < len(typed.callees):
        return None
    passed = typed.passed(len(scope.module.functions[typed.callee].arguments))
    typed = typed.with_signature(passed, *results)
    if (types := _satisfied(scope, operation, typed)) and (wrong := misstated_steps(typed)):
        return scope.report(f"{typed.name}.steps", wrong, operation.at(None))
    return types


def _check_callee(
    scope: Verification, operation: Operation, typed: Calling[Type], field: str, name: str
) -> list[Type] | None:
    """The result types of one of the functions that an operation calls."""
    callee = scope.module.functions.get(name)
    if callee is not None and callee.captured is not None:
        _check_body(scope, callee, typed.passed(len(callee.arguments)))
    if callee is None or any(a.type is None for a in callee.arguments):
        return None  # reported by the parser
    at = operation.at(field)
    declared_here = [Note("declared here", callee.span)]
    if isinstance(callee, Graph):
        return scope.report(
            "call.graph",
            f"a call names a function, but @{callee.name} is a graph",
            at,
            declared_here,
        )
    passed = typed.passed(len(callee.arguments))
    if len(passed) != len(callee.arguments):
        message = (
            f"@{callee.name} takes {counted(len(callee.arguments), 'argument')}, got {len(passed)}"
        )
        return scope.report("call.operands", message, at, declared_here)
    for n, (given, argument) in enumerate(zip(passed, callee.arguments, strict=True)):
        if not agree(argument.known_type, given):
            message = f"@{callee.name} takes {argument.known_type} as %{argument.name}, got {given}"
            scope.report(
                "call.type",
                message,
                operation.at(f"arguments[{n}]"),
                [Note("declared here", argument.span)],
            )
            return None
    if (conflict := size_conflict(callee.argument_types, passed)) is not None:
        return scope.report("call.size", conflict, at, declared_here)
    arguments = received(callee.argument_types, passed)
    if scope.open is None:
        arguments, names = renamed(callee.argument_types, arguments)
    else:  # conditions are those of the function that is called first
        names = {a: Size.of_atom(a) for a in atoms_of(d for t in arguments for d in t.array_shape)}
    if (key := _called(name, arguments)) not in scope.known:
        if scope.depth >= MAX_CALLS:
            scope.report(
                "call.depth",
                f"calls with sizes of their own are at most {MAX_CALLS} deep",
                at,
                declared_here,
            )
            return None
        types = dict(zip(callee.arguments, arguments, strict=True))
        inner = Verification(
            scope.module, types, [], scope.known, scope.cycles, scope.depth + 1, scope.open
        )
        found = check_function(inner, callee)
        scope.known[key] = None if inner.diagnostics else found
        legal = scope.known.get(_called(name, callee.argument_types), ()) is not None
        if legal or any(d.code == "call.depth" for d in inner.diagnostics):
            called_here = Note("called here", operation.span)
            scope.diagnostics += [
                replace(d, notes=(*d.notes, called_here)) for d in inner.diagnostics
            ]
        # otherwise the callee has mistakes, reported at its own verification
    if (results := scope.known[key]) is None:
        return None
    return [*named_back(results, names)]


def _check_body(scope: Verification, body: Function, passed: Sequence[Type]) -> None:
    """Give the arguments of a region's body the types of the operands; a computed size becomes
    one without a name. Its mistakes are reported where it is verified itself, afterwards.
    """
    if all(a.type is not None for a in body.arguments):
        return
    sizes: dict[object, Dim] = {}

    def own(d: Dim) -> Dim:
        if isinstance(d, int) or d.is_atom:
            return d
        return sizes.setdefault(d.key, Size.unknown())

    for argument, type in zip(body.arguments, passed, strict=True):
        argument.type = argument.type or type.with_array_shape(tuple(map(own, type.array_shape)))
    types = dict(zip(body.arguments, body.argument_types, strict=True))
    inner = Verification(scope.module, types, [], scope.known, scope.cycles, scope.depth + 1)
    found = check_function(inner, body)
    scope.known[_called(body.name, body.argument_types)] = None if inner.diagnostics else found


def _typed(function: Function, types: Values) -> Function:
    """The function over values that carry their types."""
    new = {v: Value(v.name, types.get(v), v.span, v.attributes) for v in function.values()}

    def change(v: Value) -> Value:
        return v if isinstance(v, Literal) else new.get(v, v)

    changed = (
        (o, o.operator.map(change), tuple(map(change, o.results))) for o in function.operations
    )
    return replace(
        function,
        arguments=tuple(map(change, function.arguments)),
        operations=tuple(
            replace(o, operator=operator, results=results) for o, operator, results in changed
        ),
        results=tuple(map(change, function.results)),
    )
