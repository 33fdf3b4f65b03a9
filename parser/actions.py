"""The grammar's actions: a method for each alias of `cvm.lark`, from the parts of a rule to a
syntax node.
"""

import math
import struct
from typing import Any

from ..dialect.support.suggest import did_you_mean
from ..dialect.types.attributes import Symbol
from ..dialect.types.tensor_types import ELEMENT_TYPES
from . import syntax_tree as syntax
from .lalr import Actions, Language, node_of
from .syntax_tree import read_string
from .type_syntax import read_attribute

MAX_DEPTH = 32  # of brackets inside brackets
WORDS: dict[str, Any] = {
    "true": True,
    "false": False,
    "none": None,
    "nan": float("nan"),
    "inf": float("inf"),
}
HABITS = {
    "True": "true",
    "False": "false",
    "None": "none",
    "null": "none",
    "NaN": "nan",
    "Inf": "inf",
    "infinity": "inf",
}


RETURNS = ('"func.return"', '"cvm.builtin.yield"')  # the ends of blocks in MLIR's generic form


class ProgramActions(Actions):
    """The actions of `cvm.lark`. Nothing is kept between calls."""

    arguments = body = results = operands = attributes = one_type = types = Actions.listed
    taken = inside = Actions.listed

    # 1. programs

    def module(self, parts: list[Any]) -> syntax.ProgramNode:
        return syntax.ProgramNode(parts[2:-1])

    program, broken = (
        node_of(lambda *items: syntax.ProgramNode([*items])),
        node_of(syntax.BrokenNode),
    )
    function, graph, return_ = (
        node_of(syntax.FunctionNode),
        node_of(syntax.GraphNode),
        node_of(syntax.ReturnNode),
    )
    rewrite = node_of(syntax.RewriteNode)
    broken_rewrite = node_of(lambda word, head, *rest: syntax.BrokenNode(head))
    argument = node_of(
        lambda name, type, attributes: syntax.ArgumentNode(name, type, attributes or [])
    )

    result = node_of(syntax.ResultNode)

    def headless(self, parts: list[Any]) -> syntax.FunctionNode | syntax.GraphNode:
        word, head, body = parts
        if word.type == "GRAPH":
            return syntax.GraphNode(word, None, [syntax.BrokenNode(head), *body])
        return syntax.FunctionNode(word, None, [syntax.BrokenNode(head)], None, body)

    quoted_function = node_of(
        lambda word, _, given, body, attrs, end: syntax.QuotedNode(word, given or [], body, attrs)
    )

    # 2. statements

    def statement(self, parts: list[Any]) -> Any:
        results, node = parts
        if results is not None:
            node.results = results
        return node

    short = node_of(
        lambda name, xs, attrs, regions, types: syntax.OperationNode(
            name, xs, attrs or [], types, regions=regions or []
        )
    )
    regions = node_of(lambda *parts: [*parts[::2]])  # `else` between them is left out
    region = node_of(
        lambda arguments, brace, inside, word, operands, _: syntax.RegionNode(
            arguments, brace, [*(inside or ()), syntax.ReturnNode(word, operands)]
        )
    )
    named_value = node_of(lambda name, type: syntax.ArgumentNode(name, type, []))

    def generic(self, parts: list[Any]) -> syntax.OperationNode | syntax.ReturnNode:
        name, operands, regions, attributes, types = parts
        return (
            syntax.ReturnNode(name, operands)
            if name.text in RETURNS
            else self.short([name, operands, attributes, regions, types])
        )

    blocks = node_of(lambda *parts: [*parts])
    block = node_of(
        lambda brace, _, arguments, body: syntax.RegionNode(arguments or [], brace, body)
    )

    applied = node_of(
        lambda name, callee, xs, attrs, types: syntax.OperationNode(
            name, xs, attrs or [], types, callee
        )
    )
    constant = node_of(lambda word, body, type: syntax.ConstantNode(word, type, body=body))
    stored = node_of(
        lambda word, _, path, entry, type: syntax.ConstantNode(word, type, path=path, entry=entry)
    )
    labelled = node_of(
        lambda op, label, xs, _, init, t: syntax.OperationNode(
            op, xs, label=label, initial=init, type=t
        )
    )
    infix = node_of(lambda name, expression: syntax.OperationNode(name, expression=expression))
    binary = node_of(
        lambda left, mark, right: syntax.ExpressionNode(mark, [left, right], left.start, right.end)
    )

    def prefix(self, parts: list[Any]) -> syntax.ExpressionNode | syntax.Item:
        operator, operand = parts
        if (
            operator.type == "MINUS"
            and isinstance(operand, syntax.Item)
            and type(operand.value) in (int, float)
        ):
            return operand._replace(
                value=-operand.value, start=operator.start
            )  # a negative literal
        return syntax.ExpressionNode(operator, [operand], operator.start, operand.end)

    called = node_of(
        lambda name, _, *given: syntax.ExpressionNode(
            name, [*given[:-1]], name.start, given[-1].end
        )
    )
    ascribed = node_of(lambda literal, element: literal._replace(element=element, end=element.end))
    signature = node_of(lambda *types: syntax.Signature([*types[:-1]], types[-1]))

    # 3. literals and attributes

    def integer(self, parts: list[Any]) -> syntax.Item:
        *minus, token = parts
        value = int("-" * len(minus) + token.text) if len(token.text) <= 24 else None
        item = syntax.Item(value, parts[0].start, token.end)
        if value is not None and -(2**63) <= value < 2**64:
            return item
        got = f"one of {len(token.text)} digits" if value is None else value
        return wrong("parse.integer", f"an integer fits 64 bits, got {got}", item)

    def float(self, parts: list[Any]) -> syntax.Item:
        text = "-" * (len(parts) - 1) + parts[-1].text
        item = syntax.Item(float(text), parts[0].start, parts[-1].end)
        if math.isfinite(item.value):
            return item
        message = (
            "a float is at most 1.7976931348623157e308, or else written inf, got "
            f"{text[: 40 + len(parts) - 1]}"
        )
        return wrong("parse.float", message, item)

    def bits(self, parts: list[Any]) -> syntax.Item:
        token, element = parts
        digits = token.text[2:]
        if len(digits) != 16 or element.text[1:].strip() != "f64":
            message = (
                "the bits of a float are written as 16 hexadecimal digits : f64, got "
                f"{token.text[:40]}"
            )
            return wrong("parse.float", message, token)
        return syntax.Item(struct.unpack(">d", bytes.fromhex(digits))[0], token.start, element.end)

    def named(self, parts: list[Any]) -> syntax.Item:
        *minus, token = parts
        word = token.text
        start = parts[0].start
        if word in WORDS and not (minus and word in ("true", "false", "none")):
            return syntax.Item(-WORDS[word] if minus else WORDS[word], start, token.end)
        meant = f"; did you mean {HABITS[word]}" if word in HABITS else did_you_mean(word, WORDS)
        message = f"expected a value, got {'-' * len(minus)}{word[:80]}{meant}"
        return wrong("parse.word", message, syntax.Item(None, start, token.end))

    minus_integer = integer
    minus_float = float
    negated = named

    def complex(self, parts: list[Any]) -> syntax.Item:
        opening, real, imaginary, closing = parts
        for part in (real, imaginary):
            if isinstance(part.value, syntax.Mistake):
                return part
            if not isinstance(part.value, (int, float)) or isinstance(part.value, bool):
                return wrong("parse.complex", "the parts of a complex number are numbers", part)
        return syntax.Item(complex(real.value, imaginary.value), opening.start, closing.end)

    def attribute(self, parts: list[Any]) -> syntax.AttributeNode:
        name, value = parts
        return syntax.AttributeNode(
            name, syntax.Item(True, name.start, name.end) if value is None else value
        )

    string = node_of(lambda token: read_string(token))
    symbol = node_of(lambda token: syntax.Item(Symbol(token.name), token.start, token.end))

    def array(self, parts: list[Any]) -> syntax.Item:
        opening, *items, closing = parts
        return _nest(tuple([i.value for i in items]), items, opening, closing)

    def dictionary(self, parts: list[Any]) -> syntax.Item:
        opening, *entries, closing = parts
        values: dict[Any, Any] = {}
        for key, item in entries:
            if key in values:
                error = wrong(
                    "parse.key", f"a key stands once in a dictionary, but {key} is repeated", item
                )
                return error._replace(start=opening.start, end=closing.end)
            values[key] = item.value
        return _nest(values, [item for _, item in entries], opening, closing)

    def entry(self, parts: list[Any]) -> tuple[Any, syntax.Item]:
        token, item = parts
        key = read_string(token).value if token.type == "STRING" else token.text
        return int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(
            key
        ) < 19 else key, item

    element = node_of(
        lambda token: syntax.Item(
            ELEMENT_TYPES["".join(token.text.split())], token.start, token.end
        )
    )
    attribute_type = node_of(
        lambda token: syntax.Item(read_attribute(token), token.start, token.end)
    )
    dense = node_of(
        lambda body, type: syntax.Item(syntax.DenseNode(body, type), body.start, type.end)
    )
    function_type = node_of(lambda type: syntax.Item(type, 0, 0))

    # 4. types

    type = node_of(lambda token: token)
    broken_types = node_of(lambda token: [syntax.BrokenNode(token)])


PROGRAMS = Language("cvm", ProgramActions())


def wrong(code: str, message: str, at: syntax.Token | syntax.Item) -> syntax.Item:
    """An item that is a mistake."""
    return syntax.Item(syntax.Mistake(code, message, at.start, at.end), at.start, at.end)


def _nest(
    value: Any, items: list[syntax.Item], opening: syntax.Token, closing: syntax.Token
) -> syntax.Item:
    if (depth := 1 + max((i.depth for i in items), default=0)) > MAX_DEPTH:
        value = wrong("parse.depth", f"brackets are nested at most {MAX_DEPTH} deep", opening).value
    value = next((i.value for i in items if isinstance(i.value, syntax.Mistake)), value)
    return syntax.Item(value, opening.start, closing.end, depth=depth)
