"""Build an operation from its syntax: operands and attributes are matched with the fields of the
operator.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from ..dialect.builtin import Const, Data, Elements, owned
from ..dialect.ir.function import Literal, Operation, Value
from ..dialect.spec.operator import OPERATORS, Field, Operator
from ..dialect.support.diagnostics import Span
from ..dialect.types.attributes import Symbol, conform
from ..dialect.types.constant_files import FileConstantError
from ..dialect.types.literal_types import fit, literal_type
from ..dialect.types.tensor_types import ELEMENT_TYPES, FieldType, TensorType, Type
from .scope import Report, Scope
from .similar_operators import similar_operators
from .syntax_tree import ConstantNode, DenseNode, Item, Mistake, OperationNode, Token, read_string
from .type_syntax import unknown_element


class Form(NamedTuple):
    """The syntax of an operator: its operand fields, the numbers of operands they take, and its
    attributes.
    """

    operands: tuple[Field, ...]
    least: int
    most: int | None
    attributes: dict[str, Field]
    required: tuple[str, ...]


@cache
def form_of(operator: type[Operator[object]]) -> Form:
    operands = tuple(f for f in operator.fields if f.is_operand)
    attributes = {f.name: f for f in operator.fields if not f.is_operand}
    variadic = any(f.kind == "variadic" for f in operands)
    least = sum(f.kind == "operand" for f in operands)
    required = tuple(f.name for f in attributes.values() if f.required)
    return Form(operands, least, None if variadic else len(operands), attributes, required)


Made = tuple[Operator[Value], dict[str, Span], tuple[Type, ...] | None, tuple[Type, ...] | None]


def build_operation(
    scope: Scope,
    node: OperationNode | ConstantNode,
    build: Callable[[Scope, OperationNode], Made | None] | None = None,
) -> Operation | None:
    """The operation, or None where it is broken; its results are known in either case. `build` is
    for one that has regions.
    """
    made = (
        build_constant(scope, node)
        if isinstance(node, ConstantNode)
        else (build or build_applied)(scope, node)
    )
    results = tuple([scope.define(r) for r in node.results]) or unnamed(made)
    if made is None:
        for result in results:
            scope.forgiven[result.name] = result
        return None
    operator, spans, declared, operand_types = made
    if results:
        spans["results"] = results[0].span
    return Operation(operator, results, spans["op"], declared, spans, operand_types)


def unnamed(made: Made | None) -> tuple[Value, ...]:
    """The results of an operation that names none: an effect has values nevertheless."""
    if made is None or not made[0].has_effect:
        return ()
    return tuple(Value("_", None, made[1]["op"]) for _ in made[0].results)


def build_applied(scope: Scope, node: OperationNode) -> Made | None:
    report = scope.report
    name = operator_name(node)
    if name == "const":
        return build_generic_constant(scope, node)
    if (operator := OPERATORS.get(name)) is None:
        report.at(node.name, "op.unknown", unknown_operator(report, name))
        for operand in node.operands:
            if isinstance(operand, Token):
                scope.use(operand)
        return None
    if node.label is not None and not operator.labelled:
        return report.at(node.label, f"{name}.form", f"{name} is written without a name in quotes")
    form = form_of(operator)
    spans = {"op": report.span(node.name)}
    operands = build_operands(scope, node, operator, form, spans)
    attributes = (build_attributes if node.label is None else build_labelled)(
        scope, node, operator, form, spans
    )
    declared = operand_types = None
    good = True
    if node.signature is not None:
        declared = stated_types(scope, node.signature.results)
        operand_types = stated_types(scope, node.signature.operands)
        good = declared is not None and operand_types is not None
        if node.signature.results:
            spans["types"] = report.span(node.signature.results[0])
    if operands is None or attributes is None or not good:
        return None
    return operator(**operands, **attributes), spans, declared, operand_types


def operator_name(node: OperationNode) -> str:
    return from_generic(node.operator) if node.name.type == "STRING" else node.operator


def from_generic(name: str) -> str:
    """The operator of a generic name: `builtin.` and `cvm.` before `quant.` are optional; MLIR has
    `func.call`.
    """
    name = name.removeprefix("cvm.builtin.")
    if name.startswith("cvm.quant."):
        return name.removeprefix("cvm.")
    if name == "func.call":
        return "call"
    if f"builtin.{name}" in OPERATORS:
        return f"builtin.{name}"
    return name


def _ufunc(name: str) -> str:
    """The end of a message about numpy.add and the like, which are one operator."""
    from ..dialect.numpy.ufunc_table import UFUNCS

    dialect, _, rest = name.partition(".")
    known = dialect == "numpy" and rest in UFUNCS
    return f'; it is numpy.elementwise with {{ufunc = "{rest}"}}' if known else ""


def unknown_operator(report: Report, name: str) -> str:
    dialect, _, rest = name.partition(".")
    known = sorted({n.partition(".")[0] for n in OPERATORS if "." in n})
    if dialect in known:
        inside = [n.partition(".")[2] for n in OPERATORS if n.startswith(f"{dialect}.")]
        meant = (
            _ufunc(name)
            or report.meant(rest, inside, f"{dialect}.")
            or similar_operators(rest)
            or f"; `cvm ops {dialect}` lists them"
        )
        return f"the {dialect} dialect has no operator {rest[:80]}{meant}"
    meant = report.meant(name, OPERATORS) or report.meant(dialect, known)
    return f"expected an operator of {', '.join(known)}, got {name[:80]}{meant}"


# Operands


def build_operands(
    scope: Scope,
    node: OperationNode,
    operator: type[Operator[object]],
    form: Form,
    spans: dict[str, Span],
) -> dict[str, Any] | None:
    given = node.operands
    good = form.least <= len(given) and (form.most is None or len(given) <= form.most)
    if not good:
        at = given[form.most] if form.most is not None and len(given) > form.most else node.name
        scope.report.at(
            at, f"{operator.name}.operands", f"expected {operand_count(form)}, got {len(given)}"
        )
    values = [
        scope.use(o) if isinstance(o, Token) else build_literal(scope, o, operator) for o in given
    ]
    if not good or None in values:
        return None
    span = scope.report.span
    filled = {}
    n = 0
    for field in form.operands:
        if field.kind == "variadic":
            count = len(given) - form.least
            filled[field.name] = tuple(values[n : n + count])
            for k in range(count):
                spans[f"{field.name}[{k}]"] = span(given[n + k])
            n += count
        elif n < len(given):
            filled[field.name] = values[n]
            spans[field.name] = span(given[n])
            n += 1
    return filled


def operand_count(form: Form) -> str:
    if form.most not in (None, form.least):
        return f"{form.least} to {form.most} operands"
    return (
        f"{'at least ' * (form.most is None)}{form.least} operand{'' if form.least == 1 else 's'}"
    )


def build_literal(scope: Scope, item: Item, operator: type[Operator[object]]) -> Literal | None:
    value = item.value
    try:
        if isinstance(value, Mistake):
            scope.wrong_operand(item, value)
            return None
        if value is None:
            raise ValueError("an operand is a value or a number, got none")
        if item.element is None:
            type = literal_type(operator.dialect, value)
        else:
            if (name := "".join(item.element.text[1:].split())) not in ELEMENT_TYPES:
                return scope.report.at(item.element, "parse.type", unknown_element(name))
            type = TensorType((), ELEMENT_TYPES[name])
            if operator.dialect == "cog":
                type = FieldType((), type)
            value = fit(value, type.element)
        return Literal(value, type, scope.report.span(item), item.element is not None)  # type: ignore[arg-type]
    except ValueError as e:
        return scope.report.at(item, f"{operator.name}.literal", str(e))


# Attributes


def build_attributes(
    scope: Scope,
    node: OperationNode,
    operator: type[Operator[object]],
    form: Form,
    spans: dict[str, Span],
) -> dict[str, Any] | None:
    report = scope.report
    code = f"{operator.name}.attributes"
    attributes = {}
    good, misspelt = True, False
    if node.callee is not None:
        spans["callee"] = report.span(node.callee)
        if "callee" not in form.attributes:
            return report.at(
                node.callee, code, f"{operator.name} takes no function, got {node.callee.text}"
            )
        good = scope.function(node.callee, node.callee.name)
        attributes["callee"] = Symbol(node.callee.name)
    for name, item in node.attributes:
        if (field := form.attributes.get(name.text)) is None or name.text in attributes:
            again = f"an attribute stands once, but {name.text} is repeated"
            report.at(
                name, code, again if field else unknown_attribute(report, name.text, operator, form)
            )
            good = False
            misspelt = misspelt or field is None
            continue
        value = scope.attribute_value(item)
        spans[name.text] = report.span(item)
        if isinstance(value, Mistake):
            good = False
            continue
        try:
            attributes[name.text] = conform(value, field.annotation)
            good = good and (not isinstance(value, Symbol) or scope.function(item, value))
        except ValueError as e:
            report.at(item, code, f"{name.text}: {e}")
            good = False
    given = {name.text for name, _ in node.attributes}
    if (
        missing := [r for r in form.required if r not in attributes and r not in given]
    ) and not misspelt:
        report.at(
            node.name,
            code,
            f"expected the attribute{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
        )
    return attributes if good and not missing else None


def build_labelled(
    scope: Scope,
    node: OperationNode,
    operator: type[Operator[object]],
    form: Form,
    spans: dict[str, Span],
) -> dict[str, Any] | None:
    """The attributes of `cog.field "name" init dense<...> : type`, which replaces a dictionary."""
    assert node.label is not None
    report = scope.report
    written = {"label": read_string(node.label).value}
    places = {"label": node.label, "initial": node.initial, "type": node.type}
    if node.type is not None:
        if (found := scope.type(node.type)) is None:
            return None
        if "type" in form.attributes:
            written["type"] = found
        if node.initial is not None:
            written["initial"] = scope.elements(DenseNode(node.initial, node.type))
    elif node.initial is not None:
        message = "an initial value is followed by its type, as in dense<0.0> : type"
        return report.at(node.initial, f"{operator.name}.form", message)
    for name, value in written.items():
        place = places[name]
        assert place is not None
        spans[name] = report.span(place)
        if isinstance(value, Mistake):
            return report.mistake(value)
        if name not in form.attributes:
            return report.at(
                place, f"{operator.name}.form", f"{operator.name} has no initial value"
            )
    if missing := [r for r in form.required if r not in written]:
        report.at(
            node.name, f"{operator.name}.form", f"expected {' and '.join(missing)} after the name"
        )
    return None if missing else written


def unknown_attribute(
    report: Report, name: str, operator: type[Operator[object]], form: Form
) -> str:
    if not form.attributes:
        return f"{operator.name} has no attributes, got {name[:80]}"
    meant = report.meant(name, form.attributes)
    return (
        f"{operator.name} has the attributes {', '.join(form.attributes)}, got {name[:80]}{meant}"
    )


def stated_types(scope: Scope, tokens: Sequence[object]) -> tuple[Type, ...] | None:
    types = [scope.type(t) if isinstance(t, Token) else None for t in tokens]
    return None if None in types else tuple(t for t in types if t is not None)


# Constants


def build_constant(scope: Scope, node: ConstantNode) -> Made | None:
    spans = {"op": scope.report.span(node.word), "types": scope.report.span(node.type)}
    if node.body is not None:
        if isinstance(elements := scope.elements(DenseNode(node.body, node.type)), Mistake):
            return scope.report.mistake(elements)
        return Const(elements.data, elements.type), spans, None, None
    type = scope.type(node.type)
    data = None if type is None else read_file(scope, node, type)
    return None if type is None or data is None else (Const(data, type), spans, None, None)


def read_file(scope: Scope, node: ConstantNode, type: Type) -> Data | None:
    assert node.path is not None
    path = read_string(node.path)
    entry = None if node.entry is None else read_string(node.entry)
    for item in (path, entry):
        if item is not None and isinstance(item.value, Mistake):
            return scope.report.mistake(item.value)
    if not type.is_static:
        return scope.report.at(
            node.type, "const.type", f"the sizes of a constant are known, got {type}"
        )
    if scope.files is None:
        message = (
            "a constant is read from a file beside the program, but this program is not in a file"
        )
        return scope.report.at(node.path, "const.file", message)
    name = None if entry is None else entry.value
    try:
        array = scope.files.constant(path.value, name, TensorType(type.array_shape, type.element))
    except FileConstantError as e:
        return scope.report.at(node.path, "const.file", str(e))
    return Data(owned(array), (path.value, name))


def build_generic_constant(scope: Scope, node: OperationNode) -> Made | None:
    """`"cvm.builtin.const"() {value = dense<...> : type} : () -> type`, as the generic form writes
    it.
    """
    report = scope.report
    spans = {"op": report.span(node.name)}
    value = next((i for n, i in node.attributes if n.text == "value"), None)
    if (
        value is None
        or len(node.attributes) != 1
        or node.operands
        or not isinstance(value.value, DenseNode)
    ):
        message = (
            "a constant in the generic form has the attribute value = dense<...> : type and no "
            "operands"
        )
        return report.at(node.name, "const.attributes", message)
    if not isinstance(value_of := scope.attribute_value(value), Elements):
        return None
    stated = None if node.signature is None else stated_types(scope, node.signature.results)
    type = value_of.type
    match stated:
        case (FieldType() as field,) if field.array_shape == type.array_shape:
            type = field
    if node.signature is not None and node.signature.results:
        spans["types"] = report.span(node.signature.results[0])
    return Const(value_of.data, type), spans, stated, None
