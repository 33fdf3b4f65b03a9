"""Build the regions of an operation: each becomes a private function of the module.

    %y = builtin.while %go, %x { ... yield %more, %z }
    =>  %y = builtin.while @main.while0(%go, %x, %limit) {carry = 1}

Values that a region uses from around it are captured: they become the last operands, and the last
arguments of the function. The verifier gives the arguments the types of the operands.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..dialect.builtin import Calling
from ..dialect.ir.function import Function, Literal, Value, unique_name, with_shared
from ..dialect.spec.operator import OPERATORS
from ..dialect.support.diagnostics import Note, counted
from ..dialect.types.attributes import Symbol
from ..dialect.types.tensor_types import Type
from .actions import MAX_DEPTH
from .build_operation import (
    Made,
    build_applied,
    build_attributes,
    build_operands,
    form_of,
    operator_name,
    stated_types,
)
from .scope import Scope
from .syntax_tree import ArgumentNode, FunctionNode, OperationNode, RegionNode, Token


class Region(Scope):
    """The values of a region. Those around it are captured where they are used; only arguments may
    have the name of one.
    """

    def __init__(self, outer: Scope) -> None:
        super().__init__(outer.report, outer.functions, outer.files, outer.lenient)
        self.headless = outer.headless
        self.bodies, self.depth = outer.bodies, outer.depth + 1
        self.outer = outer
        self.captured: dict[Value, Value] = {}

    def define(
        self, token: Token, type: Type | None = None, attributes: dict[str, object] | None = None
    ) -> Value:
        around = self.node and token.name not in self.values and visible(self.outer, token.name)
        if isinstance(around, Value):
            said = f"a value is defined once, but {token.text} is one around the region, too"
            notes = [Note("first defined here", around.span)]
            self.report.at(token, "value.redefined", said, notes)
        return super().define(token, type, attributes)

    def use(self, token: Token) -> Value:
        self.capture(token.name)
        return super().use(token)

    def capture(self, name: str) -> None:
        """Take a value of this name from around the region, if the region has none."""
        if name in self.values or name in self.forgiven:
            return
        if isinstance(self.outer, Region):
            self.outer.capture(name)
        if (around := visible(self.outer, name)) is not None:
            self.values[name] = self.captured[around] = Value(name, None, around.span)

    def undefined(self, token: Token) -> None:
        if token.name in self.later:
            super().undefined(token)
        else:
            self.outer.undefined(token)


def visible(scope: Scope, name: str) -> Value | None:
    found = scope.values.get(name) or scope.forgiven.get(name)
    if found is None and isinstance(scope, Region):
        return visible(scope.outer, name)
    return found


Build = Callable[[Scope, FunctionNode], Function]


def build_with_regions(scope: Scope, node: OperationNode, build: Build) -> Made | None:
    """The operation over its operands and what its regions capture, or None where it is broken;
    `build` is for functions.
    """
    report = scope.report
    if (operator := OPERATORS.get(operator_name(node))) is None:
        return build_applied(scope, node)  # which reports it
    form, spans = form_of(operator), {"op": report.span(node.name)}
    code = f"{operator.name}.regions"
    callees = [n for n, f in form.attributes.items() if f.annotation is Symbol]
    last = form.operands[-1] if form.operands else None
    if not issubclass(operator, Calling) or operator.is_derivative or not callees:
        return report.at(node.regions[0].brace, code, f"{operator.name} has no regions")
    if len(node.regions) != len(callees) or last is None or last.kind != "variadic":
        said = f"{operator.name} has {counted(len(callees), 'region')}, got {len(node.regions)}"
        return report.at(node.regions[-1].brace, code, said)
    given = {a.name.text: a.value.value for a in node.attributes}
    scans = {n: v for n, v in given.items() if type(v) is int}
    implied = operator.implied(len(node.operands), scans)
    left_out = {*callees, *(n for n in implied if n not in given)}
    form = form._replace(
        attributes={n: f for n, f in form.attributes.items() if n not in callees},
        required=tuple(r for r in form.required if r not in left_out),
    )
    operands = build_operands(scope, node, operator, form, spans)
    attributes = build_attributes(scope, node, operator, form, spans)
    declared = operand_types = None
    if node.signature is not None:
        declared = stated_types(scope, node.signature.results)
        operand_types = stated_types(scope, node.signature.operands)
        if node.signature.results:
            spans["types"] = report.span(node.signature.results[0])
    if operands is None or attributes is None:
        return None
    attributes = {n: v for n, v in implied.items() if n not in given} | attributes
    unbuilt: dict[str, Any] = dict.fromkeys(callees, Symbol(""))
    operation = operator(**operands, **attributes, **unbuilt)
    entering = operation.passed(0)
    tokens = {v: t for (_, v), t in zip(operation.operands(), node.operands, strict=True)}
    built = [build_region(scope, node, r, entering, tokens, build) for r in node.regions]
    if None in built:
        return None
    bodies = [b for b in built if b is not None]
    functions, captured = with_shared(
        [f for f, _ in bodies], [inner.captured for _, inner in bodies]
    )
    for callee, function, region in zip(callees, functions, node.regions, strict=True):
        function = replace(function, captured=len(captured))
        scope.bodies = {**scope.bodies, function.name: function}
        attributes[callee] = Symbol(function.name)
        spans[callee] = report.span(region.brace)
    operands[last.name] = (*operands[last.name], *captured)
    operation = operator(**operands, **attributes)
    if len(operation.passed(0)) != len(entering) + len(captured):
        said = f"{operator.name} has operands before its region, got {len(node.operands)}"
        return report.at(node.name, f"{operator.name}.operands", said)
    return operation, spans, declared, operand_types


def build_region(
    scope: Scope,
    node: OperationNode,
    region: RegionNode,
    entering: Sequence[Value],
    tokens: dict[Value, Any],
    build: Build,
) -> tuple[Function, Region] | None:
    """The function of a region, without what it captures, and its scope."""
    report = scope.report
    if scope.depth >= MAX_DEPTH:
        said = f"regions are at most {MAX_DEPTH} deep"
        return report.at(region.brace, "parse.depth", said)
    arguments = region.arguments
    if arguments is None:
        if literals := [v for v in entering if isinstance(v, Literal)]:
            said = "a literal has no name inside of a region: name what enters, as in (%x, %y) {"
            return report.at(tokens[literals[0]], f"{node.operator}.regions", said)
        arguments = [ArgumentNode(tokens[v], None, []) for v in entering]
    elif len(arguments) != len(entering):
        names = counted(len(arguments), "name")
        said = f"a region names each value that enters it, but {len(entering)} of them have {names}"
        at = arguments[-1].name if arguments else region.brace
        return report.at(at, f"{node.operator}.regions", said)
    inner = Region(scope)
    head = FunctionNode(region.brace, None, [*arguments], None, region.body)
    function = build(inner, head)
    while isinstance(scope, Region):
        scope = scope.outer
    owner = scope.node and scope.node.name
    begin = "" if owner is None else owner.name
    wanted = f"{begin}.{node.operator.rpartition('.')[2]}{len(inner.bodies)}"
    name = unique_name(wanted, dict.fromkeys((*scope.functions, *inner.bodies), 0), "_")
    function = replace(function, name=name)
    inner.outer.bodies = {**inner.bodies, name: function}
    return function, inner
