"""Parse MLIR's generic form.

    "func.func"() ({^bb0(%x: type): ...}) {sym_name = "f", ...} : () -> ()

A "cog.graph" without arguments is a clocked program.
"""

from .scope import Report
from .syntax_tree import (
    ArgumentNode,
    AttributeNode,
    FunctionNode,
    GraphNode,
    Item,
    Mistake,
    QuotedNode,
    Token,
)

WORDS = {'"func.func"': "function", '"cog.graph"': "graph"}
# the type says what the arguments and the return say already
ATTRIBUTES = {"function": ("sym_name", "function_type", "arg_attrs"), "graph": ("sym_name",)}


def unquoted(report: Report, node: QuotedNode) -> FunctionNode | GraphNode:
    """The function or graph that a quoted name refers to; without a name if the text is not one."""
    name = None
    kind = WORDS.get(node.word.text, "function")
    known = {a.name.text: a.value for a in node.attributes}
    if node.word.text not in WORDS:
        message = (
            'a function in the generic form is "func.func", and a graph "cog.graph", got '
            f"{node.word.text[:80]}"
        )
        report.at(node.word, "parse.generic", message)
    elif not isinstance(label := known.get("sym_name", Item(None, 0, 0)).value, str) or not label:
        report.at(
            node.word,
            "parse.generic",
            f'a {kind} in the generic form has its name as sym_name = "name"',
        )
    else:
        name = Token("SYMBOL", f"@{label}", known["sym_name"].start, known["sym_name"].end)
    allowed = ATTRIBUTES[kind]
    for attribute in node.attributes:
        if attribute.name.text not in allowed:
            what = f"attribute{'s' * (len(allowed) > 1)} {', '.join(allowed)}"
            message = f"a {kind} in the generic form has the {what}, got {attribute.name.text}"
            report.at(attribute.name, "parse.generic", message)
    if kind == "graph":
        if node.arguments:
            report.at(
                node.word, "parse.generic", f"a graph has no arguments, got {len(node.arguments)}"
            )
        return GraphNode(node.word, name, node.body)
    if "arg_attrs" in known:
        add_attributes(report, node, known["arg_attrs"])
    return FunctionNode(node.word, name, node.arguments, None, node.body)


def add_attributes(report: Report, node: QuotedNode, item: Item) -> None:
    """Gives each argument its dictionary `{cvm.range = [0, 1]}` of `arg_attrs`."""
    if isinstance(value := item.value, Mistake):
        report.mistake(value)
    elif not isinstance(value, tuple) or [isinstance(v, dict) for v in value] != [True] * len(
        node.arguments
    ):
        message = f"arg_attrs is an array of {len(node.arguments)} dictionaries, one an argument"
        report.at(item, "parse.generic", message)
    else:
        for argument, attributes in zip(node.arguments, value, strict=True):
            if isinstance(argument, ArgumentNode):
                for key, found in attributes.items():
                    name = Token("NAME", str(key).removeprefix("cvm."), item.start, item.end)
                    argument.attributes.append(
                        AttributeNode(name, Item(found, item.start, item.end))
                    )
