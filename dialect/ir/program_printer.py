"""Print programs: in the language's short form, which parses back to the same program, or in MLIR's
generic form.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from ..builtin import Call, Const, Elements
from ..spec.operator import Operator
from ..types.attributes import Symbol, attribute_text, quoted
from ..types.literal_types import literal_text, literal_type
from ..types.tensor_types import Type
from .function import Function, Functions, Graph, Literal, Operation, Rewrite, Value, unique_name

WIDTH = 100  # columns beyond which a function's head has one argument per line
Notes = Mapping[Operation, str]


def print_module(
    module: Functions, generic: bool = False, notes: Notes = MappingProxyType({})
) -> str:
    """The text of a module. `generic` is MLIR's generic form, which tools that allow unregistered
    dialects read; it has no rewrites.

    `notes` of operations are comments after them, in the short form.
    """
    bodies = bodies_of(module)
    functions = [
        print_function(f, generic, notes, bodies)
        for name, f in module.functions.items()
        if name not in bodies
    ]
    if not generic:
        return "\n".join([*map(_rewrite, getattr(module, "rewrites", {}).values()), *functions])
    body = "".join(functions)
    return "module {\n" + "".join(f"  {line}\n" for line in body.splitlines()) + "}\n"


def bodies_of(module: Functions) -> dict[str, Function]:
    """The bodies of regions that one operation of another function has."""
    uses = Counter(
        called
        for name, f in module.functions.items()
        for o in f.operations
        for _, called in o.operator.callees
        if called != name
    )
    return {n: f for n, f in module.functions.items() if f.captured is not None and uses[n] == 1}


def print_function(
    function: Function,
    generic: bool = False,
    notes: Notes = MappingProxyType({}),
    bodies: Mapping[str, Function] = MappingProxyType({}),
) -> str:
    """The text of a function; `bodies` are the functions that are printed as regions."""
    if generic:
        return _generic_function(function, bodies)
    return (
        _short_graph(function, notes, bodies)
        if isinstance(function, Graph)
        else _short_function(function, notes, bodies=bodies)
    )


class Names:
    """A unique name for every value: its own, unless another value has it."""

    bodies: Mapping[str, Function] = MappingProxyType({})  # that are printed as regions
    notes: Notes = MappingProxyType({})

    def __init__(self, taken: Iterable[Value] = (), generic: bool = False) -> None:
        self.generic = generic  # there, a name that begins with a digit is a number
        self.given: dict[Value, str] = {}
        self.used: dict[str, int] = {}  # the last number of each name
        for value in taken:
            self.of(value)

    def of(self, value: Value) -> str:
        if value not in self.given:
            self.given[value] = self.fresh(value.name)
        return self.given[value]

    def inside(self) -> "Names":
        """The names in a region, which has those around it."""
        inner = Names(generic=self.generic)
        inner.given, inner.used = {**self.given}, {**self.used}
        inner.bodies, inner.notes = self.bodies, self.notes
        return inner

    def fresh(self, wanted: str) -> str:
        wanted = re.sub(r"[^A-Za-z0-9_.$]", "_", wanted) or "0"
        if self.generic and wanted[0].isdigit() and (not wanted.isdigit() or wanted in self.used):
            wanted = f"_{wanted}"
        return f"%{unique_name(wanted, self.used, '_')}"


# The short form


def _rewrite(rewrite: Rewrite) -> str:
    before = _short_function(rewrite.before, {}, "rewrite").rstrip()
    return f"{before} => {{\n{_body(rewrite.after, Names(rewrite.after.arguments))}\n"


def _short_function(
    function: Function,
    notes: Notes,
    word: str = "func",
    bodies: Mapping[str, Function] = MappingProxyType({}),
) -> str:
    names = Names(function.arguments)
    names.notes, names.bodies = notes, bodies
    arguments = [f"{names.of(a)}: {a.type}{_dictionary(a.attributes)}" for a in function.arguments]
    outcome = _outcome(function) if word == "func" else ""
    head = f"{word} @{function.name}({', '.join(arguments)}){outcome} {{"
    if len(head) > WIDTH:
        begin = f"{word} @{function.name}("
        head = begin + (",\n" + " " * len(begin)).join(arguments) + ")"
        head += f"\n   {outcome} {{" if outcome else " {"
    return f"{head}\n{_body(function, names)}\n"


def _body(function: Function, names: Names, word: str = "return") -> str:
    lines = [_line(o, names) for o in function.operations]
    lines.append(f"  {word} {', '.join(map(names.of, function.results))}".rstrip())
    return "\n".join([*lines, "}"])


def _short_graph(graph: Graph, notes: Notes, bodies: Mapping[str, Function]) -> str:
    names = Names()
    names.notes, names.bodies = notes, bodies
    return "\n".join(
        [f"graph @{graph.name} {{", *(_line(o, names) for o in graph.operations), "}\n"]
    )


def _line(operation: Operation, names: Names) -> str:
    text = f"  {operation_text(operation, names)}".replace("\n", "\n  ")
    if operation not in names.notes:
        return text
    first, *rest = text.split("\n")  # a region follows
    return "\n".join([f"{first}  // {names.notes[operation]}", *rest])


def _outcome(function: Function) -> str:
    """The arrow and the result types: those the program states, or the inferred ones."""
    types: tuple[Type | None, ...] = function.declared or tuple(r.type for r in function.results)
    if (function.declared is None and not types) or None in types:
        return ""
    given = [{} if r in function.arguments else r.attributes for r in function.results]
    if len(types) == 1 and not any(given):
        return f" -> {types[0]}"
    shown = (f"{t}{_dictionary(a)}" for t, a in zip(types, given, strict=True))
    return f" -> ({', '.join(shown)})"


def operation_text(operation: Operation, names: Names) -> str:
    """One operation in the short form."""
    operator = operation.operator
    shown = [v for _, v in operator.operands()]
    regions = ""
    if is_inline(operator, names):
        shown, entered = _regions(operator, names)
        entering = cast(Any, operator).passed(0)
        texts = []
        for taken, body, inner in entered:
            same = [names.given.get(v) for v in entering[: len(taken)]] == taken
            text = f" {{\n{_body(body, inner, 'yield')}"
            texts.append(text if same else f" ({', '.join(taken)}){text}")
        regions = " else".join(texts)
    operands = ", ".join(_operand(v, operator.dialect, names) for v in shown)
    if isinstance(operator, Const):
        text = f"const {operator.data.text} : {operator.type}"
    elif operator.labelled:
        text = _labelled(operator, operands)
    else:
        attributes = written_attributes(operator)
        callee = attributes.pop("callee", None)
        text = operator.name
        if regions:
            calling: Any = operator
            attributes = _beside_regions(operator, attributes)
            implied = calling.implied(len(shown), attributes)
            attributes = {
                n: v for n, v in attributes.items() if n not in implied or implied[n] != v
            }
            text += f" {operands}" if operands else ""
        elif callee is not None:
            text += f" @{callee}({operands})"
        elif operands:
            text += f" {operands}"
        text += _dictionary(attributes) + regions + _stated(operation, len(shown))
    results = ", ".join(map(names.of, operation.results))
    return f"{results} = {text}" if results else text


def _labelled(operator: Operator[Any], operands: str) -> str:
    """`cog.field "n" init dense<0.0> : type`"""
    written = {f.name: v for f, v in operator.attributes()}
    initial, type = written.get("initial"), written.get("type")
    text = f"{operator.name} {quoted(written['label'])}" + (f" {operands}" if operands else "")
    if initial is not None:
        shown = (
            type if type is not None else next(v.type for _, v in operator.operands())
        )  # of an actuator
        return f"{text} init {initial.data.text} : {initial.type if shown is None else shown}"
    return f"{text} : {type}" if type is not None else text


def is_inline(operator: Operator[Any], names: Names) -> bool:
    """Test whether the functions that an operator calls are printed as its regions."""
    return bool(operator.callees) and all(name in names.bodies for _, name in operator.callees)


def _beside_regions(operator: Operator[Any], attributes: dict[str, Any]) -> dict[str, Any]:
    callees = {field for field, _ in operator.callees}
    return {n: v for n, v in attributes.items() if n not in callees}


def _regions(
    operator: Any, names: Names
) -> tuple[list[Value], list[tuple[list[str], Function, Names]]]:
    """The operands before an operation's regions; for each region the names of its arguments, its
    function and the names in it, where what it captures has the name that it has around it.
    """
    bodies = [names.bodies[name] for _, name in operator.callees]
    given = [*operator.arguments]
    first = len(given) - min(b.captured or 0 for b in bodies)
    while any(isinstance(v, Literal) for v in given[first:]):  # which has no name to be used by
        first += 1
    shown = [v for _, v in operator.operands()]
    shown = shown[: len(shown) - len(given[first:])]
    entered = []
    for body in bodies:
        count = len(body.arguments) - len(given[first:])
        entering = operator.passed(0)[:count]
        inner = names.inside()
        for argument, value in zip(body.arguments[count:], given[first:], strict=True):
            inner.given[argument] = names.of(value)
        # an argument keeps the name of its operand where nothing else that is used has it
        keeps = len({*entering}) == count and not {*entering} & {*given[first:]}
        for argument, value in zip(body.arguments, entering, strict=False):
            if (
                keeps
                and not names.generic
                and not isinstance(value, Literal)
                and argument.name == value.name
            ):
                inner.given[argument] = names.of(value)
        entered.append(([inner.of(a) for a in body.arguments[:count]], body, inner))
    return shown, entered


def _stated(operation: Operation, shown: int) -> str:
    """The signature, if the program states result types."""
    if operation.declared is None:
        return ""
    stated = operation.declared_operands
    if stated is None or len(stated) != shown:
        stated = tuple(v.type for _, v in operation.operator.operands())[:shown]
    return "" if None in stated else f" : {signature(stated, operation.declared)}"


def signature(operands: Iterable[object], results: Iterable[object]) -> str:
    given = [*map(str, results)]
    return f"({', '.join(map(str, operands))}) -> " + (
        given[0] if len(given) == 1 else f"({', '.join(given)})"
    )


def _operand(value: Value, dialect: str, names: Names) -> str:
    if not isinstance(value, Literal):
        return names.of(value)
    text = literal_text(value.value)
    try:
        implied = not value.explicit and literal_type(dialect, value.value) == value.type
    except ValueError:
        implied = False
    return text if implied else f"{text} : {value.known_type.element}"


def written_attributes(operator: Operator[object]) -> dict[str, Any]:
    """The attributes that differ from their defaults."""
    return {
        f.name: v
        for f, v in operator.attributes()
        if f.required or attribute_text(v) != attribute_text(f.default)
    }


def _dictionary(attributes: Mapping[str, object]) -> str:
    if not attributes:
        return ""
    shown = [
        k if k == "inplace" and v is True else f"{k} = {attribute_text(v)}"
        for k, v in attributes.items()
    ]
    return f" {{{', '.join(shown)}}}"


# MLIR's generic form


def _generic_function(
    function: Function, bodies: Mapping[str, Function] = MappingProxyType({})
) -> str:
    names = Names(function.values(), generic=True)
    names.bodies = bodies
    arguments = [names.of(a) for a in function.arguments]
    results = [_plain(r.type) for r in function.results]
    is_graph = isinstance(function, Graph)
    end = None if is_graph else '"func.return"'
    block = "\n".join(_generic_block(function, arguments, names, end))
    if is_graph:
        attributes = f"sym_name = {_quoted(function.name)}"
        return f'"cog.graph"() ({block}) {{{attributes}}} : () -> ()\n'
    type = signature([_plain(a.type) for a in function.arguments], results)
    attributes = f"sym_name = {_quoted(function.name)}, function_type = {type}"
    given = [{f"cvm.{k}": v for k, v in a.attributes.items()} for a in function.arguments]
    if any(given):
        attributes += f", arg_attrs = [{', '.join(_generic_dictionary(g) for g in given)}]"
    return f'"func.func"() ({block}) {{{attributes}}} : () -> ()\n'


def _generic_block(
    function: Function, arguments: Sequence[str], names: Names, end: str | None
) -> list[str]:
    """The lines of a region of one block, which ends with the operation `end`."""
    pairs = zip(arguments, function.arguments, strict=False)
    taken = ", ".join(f"{name}: {_plain(a.type)}" for name, a in pairs)
    lines = ["{", f"^bb0({taken}):" if taken else "^bb0:"]
    for operation in function.operations:
        lines += [f"  {line}" for line in _generic_operation(operation, names)]
    if end is not None:
        results = ", ".join(_plain(r.type) for r in function.results)
        returned = ", ".join(map(names.of, function.results))
        lines.append(f"  {end}({returned}) : ({results}) -> ()")
    return [*lines, "}"]


def _generic_operation(operation: Operation, names: Names) -> list[str]:
    """The operation, after a constant for each of its literals."""
    operator = operation.operator
    lines = []
    operands = []
    shown = [v for _, v in operator.operands()]
    attributes = dict(written_attributes(operator))
    regions = ""
    if is_inline(operator, names):
        shown, entered = _regions(operator, names)
        end = _generic_name("builtin.yield")
        blocks = [_generic_block(body, taken, inner, end) for taken, body, inner in entered]
        regions = f" ({', '.join(chr(10).join(block) for block in blocks)})"
        attributes = _beside_regions(operator, attributes)
    for value in shown:
        if isinstance(value, Literal):
            name = names.fresh("literal")
            lines.append(_generic_constant(name, value.array, value.known_type))
            operands.append((name, value.type))
        else:
            operands.append((names.of(value), value.type))
    results = ", ".join(map(names.of, operation.results))
    if isinstance(operator, Const):
        return [
            *lines,
            _generic_constant(results, operator.data.array, operator.type, operator.data.splat),
        ]
    if isinstance(operator, Call):
        attributes["callee"] = Symbol(operator.callee)
    written = f" {_generic_dictionary(attributes)}" if attributes else ""
    types = signature([_plain(t) for _, t in operands], [_plain(r.type) for r in operation.results])
    named = ", ".join(n for n, _ in operands)
    text = f"{_generic_name(operator.name)}({named}){regions}{written} : {types}"
    return [*lines, *(f"{results} = {text}" if results else text).split("\n")]


def _generic_name(name: str) -> str:
    """The name with a dialect that MLIR does not have: it has its own `builtin` and `quant`."""
    dialect = name.rpartition(".")[0]
    if dialect in ("builtin", "quant"):
        return f'"cvm.{name}"'
    if dialect:
        return f'"{name}"'
    return f'"cvm.builtin.{name}"'


def _generic_constant(name: str, array: np.ndarray, type: Type, splat: bool = False) -> str:
    return (
        f"{name} = {_generic_name('const')}() {{value = {_dense_attr(array, splat, type)}}} : "
        f"() -> {_plain(type)}"
    )


def _dense_attr(array: np.ndarray, splat: bool, type: Type) -> str:
    """The elements, and the tensor type of the array."""
    held = f"tensor<{'x'.join([*map(str, type.array_shape), type.element.name])}>"
    if array.size == 0:
        return f"dense<> : {held}"

    def nested(a: object) -> str:
        return (
            f"[{', '.join(map(nested, a))}]"
            if isinstance(a, np.ndarray) and a.ndim
            else _generic_element(a)
        )

    return f"dense<{nested(array.flat[0] if splat else array)}> : {held}"


def _generic_element(value: object) -> str:
    """An element; floats that are not finite are written as their bits."""
    value = value[()] if isinstance(value, np.ndarray) else value
    if isinstance(value, np.complexfloating):
        return f"({_generic_element(value.real)}, {_generic_element(value.imag)})"
    if isinstance(value, np.floating) and not np.isfinite(value):
        return f"0x{int.from_bytes(value.tobytes(), 'little'):0{2 * value.itemsize}X}"
    return literal_text(value)


def _plain(type: Type | None) -> str:
    """The type in MLIR's syntax: sizes have no names."""
    return re.sub(r"\s*x\s*(?=[?0-9a-z])", "x", re.sub(r"\?\s*[A-Z][A-Z0-9_]*", "?", str(type)))


def _generic_dictionary(attributes: dict[str, object]) -> str:
    return f"{{{', '.join(f'{k} = {_generic_attribute(v)}' for k, v in attributes.items())}}}"


def _generic_attribute(value: object) -> str:
    match value:
        case Symbol() | None | bool():
            return attribute_text(value)
        case str():
            return _quoted(value)
        case int() if not -(2**63) <= value < 2**63:
            return f"{value} : ui64"
        case float() if not np.isfinite(value):
            return f"{_generic_element(np.float64(value))} : f64"
        case float():
            return literal_text(value)
        case list() | tuple():
            return f"[{', '.join(map(_generic_attribute, value))}]"
        case dict():
            entries = [f"{_quoted(str(k))} = {_generic_attribute(v)}" for k, v in value.items()]
            return f"{{{', '.join(entries)}}}"
        case Elements(data, type):
            return _dense_attr(data.array, data.splat, type)
    return attribute_text(value)


def _quoted(text: str) -> str:
    """A string of MLIR: characters outside printable ASCII as the bytes of their UTF-8."""
    if text.isascii() and text.isprintable():
        return quoted(text)
    return (
        '"'
        + "".join(
            chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode()
        )
        + '"'
    )
