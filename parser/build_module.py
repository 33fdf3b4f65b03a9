"""Build a module from syntax nodes: functions, their arguments, and rewrites. Operand types of
functions are not checked here.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

from ..dialect.ir.function import Function, Graph, Literal, Operation, Rewrite, Value
from ..dialect.ir.module import Module
from ..dialect.ir.verify_rewrites import verify_rewrite
from ..dialect.support.diagnostics import Diagnostic, Note, Source, Span
from ..dialect.support.suggest import did_you_mean
from ..dialect.types.attributes import attribute_text
from ..dialect.types.constant_files import Files
from ..dialect.types.tensor_types import Type
from . import syntax_tree as syntax
from .build_operation import Made, build_operation, stated_types
from .generic_form import unquoted
from .infix import build_infix
from .scope import Report, Scope

Statement = syntax.OperationNode | syntax.ConstantNode | syntax.ReturnNode
RESULT_ATTRIBUTES = ("scale", "zero_point")  # an integer q is for (q - zero_point) * scale
ARGUMENT_ATTRIBUTES = ("range", "inplace", *RESULT_ATTRIBUTES)


def build(
    program: syntax.ProgramNode, source: Source, files: Files | None
) -> tuple[Module, list[Diagnostic]]:
    """The module a program's text describes, as far as it can be built, and every mistake found on
    the way.
    """
    report = Report(source)
    items = [
        unquoted(report, i) if isinstance(i, syntax.QuotedNode) else i
        for i in program.items
        if not isinstance(i, syntax.RewriteNode)
    ]
    names: dict[str, syntax.Token] = {}
    for item in items:
        if not isinstance(item, syntax.BrokenNode) and item.name is not None:
            if item.name.name in names:
                report.at(
                    item.name,
                    "func.redefined",
                    f"a name stands for one function, but {item.name.text} is defined twice",
                    [Note("first defined here", report.span(names[item.name.name]))],
                )
            else:
                names[item.name.name] = item.name
    functions: dict[str, Function] = {}
    broken = any(isinstance(i, syntax.BrokenNode) or i.name is None for i in items)
    for n, item in enumerate(items):
        if report.is_full:
            break
        if not isinstance(item, syntax.BrokenNode):
            scope = Scope(report, names, files, lenient=broken)
            made = (
                build_function(scope, item)
                if isinstance(item, syntax.FunctionNode)
                else build_graph(scope, item)
            )
            functions |= {
                **scope.bodies,
                made.name if made.name not in functions else f"{made.name}#{n}": made,
            }
    return Module(
        functions,
        source.filename,
        {} if files is None else files.digests,
        rewrites=build_rewrites(report, program, names, files)
        if len(items) < len(program.items)
        else {},
    ), report.diagnostics


def build_rewrites(
    report: Report,
    program: syntax.ProgramNode,
    names: dict[str, syntax.Token],
    files: Files | None,
) -> dict[str, Rewrite]:
    """The rewrites of a program by name, verified; every mistake is reported once."""
    rewrites: dict[str, Rewrite] = {}
    for node in program.items:
        if not isinstance(node, syntax.RewriteNode) or report.is_full:
            continue
        if (name := node.name.name) in rewrites:
            notes = [Note("first defined here", rewrites[name].span)]
            message = f"a name stands for one rewrite, but {node.name.text} is defined twice"
            report.at(node.name, "rewrite.redefined", message, notes)
        before = report.diagnostics[:]
        first, second = (
            build_function(
                Scope(report, names, files, lenient=False),
                syntax.FunctionNode(node.word, node.name, node.arguments, None, body),
            )
            for body in (node.before, node.after)
        )
        rewrites[name] = Rewrite(name, first, second, report.span(node.name))
        parts = (*node.arguments, *node.body)
        if report.diagnostics == before and not any(
            isinstance(p, syntax.BrokenNode) for p in parts
        ):
            rewrites[name], mistakes = verify_rewrite(rewrites[name])
            report.diagnostics += mistakes
        report.diagnostics[:] = dict.fromkeys(
            report.diagnostics
        )  # those of the arguments are twice
    return rewrites


def build_function(scope: Scope, node: syntax.FunctionNode) -> Function:
    report = scope.report
    nodes = (a for a in node.arguments if isinstance(a, syntax.ArgumentNode))
    arguments = [build_argument(scope, a) for a in nodes if not report.is_full]
    for broken in node.arguments:
        if isinstance(broken, syntax.BrokenNode):
            scope.forgive(broken.token)
            scope.headless = scope.headless or node.name is None
            arguments.append(
                Value("", None, report.span(broken.token))
            )  # calls are not checked against it
    scope.node = node
    operations: list[Operation] = []
    returned: syntax.ReturnNode | None = None
    for statement in statements(scope, node.body):
        if returned is not None:
            report.at(
                first_token(statement),
                "func.return",
                "a function ends with its return, but a statement follows it",
                [Note("the return", report.span(returned.word))],
            )
            break
        if isinstance(statement, syntax.ReturnNode):
            returned = statement
        else:
            operations += build_statement(scope, statement)
    name = node.name or node.word
    if (
        returned is None
        and not report.is_full
        and not any(isinstance(s, syntax.BrokenNode) for s in node.body[-1:])
    ):
        report.at(name, "func.return", f"a function ends with a return, but {name.text} has none")
    results = (
        [] if returned is None else [(scope.returned(o), report.span(o)) for o in returned.operands]
    )
    return Function(
        node.name.name if node.name is not None else "",
        tuple(arguments),
        tuple(operations),
        tuple(v for v, _ in results),
        None
        if returned is None or node.declared is None
        else stated_types(
            scope,
            [
                result_type(scope, t, n, results, arguments)
                if isinstance(t, syntax.ResultNode)
                else t
                for n, t in enumerate(node.declared)
            ],
        ),
        report.span(name),
        tuple(s for _, s in results),
    )


def build_graph(scope: Scope, node: syntax.GraphNode) -> Graph:
    scope.node = node
    operations: list[Operation] = []
    for statement in statements(scope, node.body):
        if isinstance(statement, syntax.ReturnNode):
            message = "a graph has no return: what is read from it has a cog.probe"
            scope.report.at(statement.word, "graph.return", message)
        else:
            operations += build_statement(scope, statement)
    name = node.name or node.word
    return Graph(name.name, (), tuple(operations), (), span=scope.report.span(name))


def statements(scope: Scope, body: list[syntax.StatementNode]) -> Iterator[Statement]:
    """The statements that can be built; one that a broken one follows on its line is broken,
    too.
    """
    for n, (statement, after) in enumerate(zip(body, [*body[1:], None], strict=False)):
        if scope.report.is_full:
            break
        if (
            isinstance(after, syntax.OperationNode)
            and not after.results
            and is_operand(statement, after, scope.report)
        ):
            message = (
                f"an operand is a value or a number: name the result of {after.name.text} in a "
                "statement before"
            )
            scope.report.at(after.name, "parse.operand", message)
            body[n + 1] = after = syntax.BrokenNode(after.name)
        if isinstance(statement, syntax.BrokenNode):
            scope.forgive(statement.token)
        elif isinstance(after, syntax.BrokenNode) and not scope.report.source.on_new_line(
            after.token.start, "{"
        ):
            for result in getattr(statement, "results", ()):
                scope.forgive(result)
        else:
            yield statement


def is_operand(outer: syntax.StatementNode, inner: syntax.OperationNode, report: Report) -> bool:
    """Test whether an operation stands where the operands of the one before it do, as in `cvm.relu
    cvm.abs %x`.
    """
    word = getattr(outer, "name", getattr(outer, "word", inner.name))
    between = report.source.text[word.end : inner.name.start]
    return between.isspace() and "\n" not in between


def build_statement(
    scope: Scope, node: syntax.OperationNode | syntax.ConstantNode
) -> list[Operation]:
    """The operations that a statement stands for: one, but several in infix form, and none where it
    is broken.
    """
    if isinstance(node, syntax.OperationNode) and node.expression is not None:
        return build_infix(scope, node)
    operation = build_operation(
        scope, node, _build_with_regions if getattr(node, "regions", ()) else None
    )
    return [] if operation is None else [operation]


def _build_with_regions(scope: Scope, node: syntax.OperationNode) -> Made | None:
    from .regions import build_with_regions  # which few programs need

    return build_with_regions(scope, node, build_function)


def first_token(statement: Statement) -> syntax.Token:
    if isinstance(statement, syntax.ReturnNode):
        return statement.word
    if statement.results:
        return statement.results[0]
    return statement.name if isinstance(statement, syntax.OperationNode) else statement.word


def build_argument(scope: Scope, node: syntax.ArgumentNode) -> Value:
    type = None if node.type is None else scope.type(node.type)
    known = ARGUMENT_ATTRIBUTES
    found = annotations(scope, node.attributes, type, known) if node.attributes else {}
    return scope.define(node.name, type, found)


def result_type(
    scope: Scope,
    node: syntax.ResultNode,
    n: int,
    results: Sequence[tuple[Value, Span]],
    arguments: Sequence[Value],
) -> syntax.Token:
    """The type of a result in the text; its attributes are those of the value that is returned."""
    found = annotations(scope, node.attributes, scope.type(node.type), RESULT_ATTRIBUTES)
    value = results[n][0] if n < len(results) else None
    if found and (value in arguments or isinstance(value, Literal)):
        said = f"attributes of a result are of one that is computed, but {value} is not"
        scope.report.at(node.attributes[0].name, "func.attributes", said)
    elif value is not None:
        value.attributes = found
    return node.type


def annotations(
    scope: Scope,
    nodes: Sequence[syntax.AttributeNode],
    type: Type | None,
    known: Sequence[str],
) -> dict[str, Any]:
    """The attributes of an argument or a result, of the names that are known."""
    attributes = {}
    for name, item in nodes:
        if isinstance(value := scope.attribute_value(item), syntax.Mistake):
            continue
        if name.text not in known:
            listed = f"{', '.join(known[:-1])} and {known[-1]}"
            whose = "an argument" if known is ARGUMENT_ATTRIBUTES else "a result"
            meant = did_you_mean(name.text, known)
            wrong: str | None = f"{whose} has the attributes {listed}, got {name.text}{meant}"
        else:
            wrong = wrong_attribute(name, value, type)
        if wrong is not None:
            scope.report.at(name, "func.attributes", wrong)
        elif name.text in attributes:
            scope.report.at(
                name, "func.attributes", f"an attribute stands once, but {name.text} is repeated"
            )
        else:
            attributes[name.text] = value
    return attributes


def wrong_attribute(name: syntax.Token, value: object, type: Type | None) -> str | None:
    """A message about an invalid attribute of an argument or a result, or None."""
    if name.text == "inplace":
        if value is True or (isinstance(value, int) and value is not False and value >= 0):
            return None
        return "inplace has no value, or the number of a result"
    if type is None:
        return None
    if name.text in RESULT_ATTRIBUTES:
        return wrong_scale(name.text, value, type)
    if type.element.kind not in ("int", "uint", "float"):
        return f"a range is stated of integers and floats, but the elements are {type.element}"
    kinds = (int, float) if type.element.kind == "float" else (int,)
    ends = value if isinstance(value, tuple) else ()
    if len(ends) != 2 or not all(isinstance(v, kinds) and not isinstance(v, bool) for v in ends):
        return f"range is [lowest, highest], two {'numbers' if float in kinds else 'integers'}"
    low, high = type.element.limits if type.element.is_integer else ends
    if not ends[0] <= ends[1]:
        return f"range is [lowest, highest], but {ends[0]} > {ends[1]}"
    if not low <= ends[0] <= ends[1] <= high:
        return f"a range of {type.element} lies within [{low}, {high}], got [{ends[0]}, {ends[1]}]"
    return None


def wrong_scale(name: str, value: object, type: Type) -> str | None:
    """A message about an invalid scale or zero point, or None."""
    if not type.element.is_integer:
        return f"{name} is stated of integers, but the elements are {type.element}"
    if name == "scale":
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < inf
        return None if good else f"a scale is a positive number, got {attribute_text(value)}"
    low, high = type.element.limits
    good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    if good:
        return None
    return (
        f"a zero point of {type.element} lies within [{low}, {high}], got {attribute_text(value)}"
    )
