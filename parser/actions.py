"""The grammar's actions: a method for each alias of `cvm.lark`, from the parts of a rule to a syntax node."""

from __future__ import annotations

import struct
from typing import Any

from ..dialect.ir.attributes import Symbol
from ..dialect.ir.suggest import did_you_mean
from ..dialect.ir.types import ELEMENT_TYPES
from .syntax_tree import (
    ArgumentNode,
    AttributeNode,
    BrokenNode,
    ConstantNode,
    DenseNode,
    ExpressionNode,
    FunctionNode,
    GraphNode,
    Item,
    Mistake,
    OperationNode,
    ProgramNode,
    QuotedNode,
    ReturnNode,
    Signature,
    Token,
)
from .type_syntax import read_type

MAX_DEPTH = 32  # of brackets inside brackets
WORDS: dict[str, Any] = {"true": True, "false": False, "none": None, "nan": float("nan"), "inf": float("inf")}
HABITS = {
    "True": "true", "False": "false", "None": "none", "null": "none", "NaN": "nan", "Inf": "inf", "infinity": "inf",
}  # fmt: skip
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


class Tree:
    """A method takes the parts of a rule; marks such as commas are not among them. Nothing is kept between calls."""

    def listed(self, parts: list[Any]) -> list[Any]:
        return parts

    arguments = body = results = operands = attributes = one_type = types = listed

    # 1. programs

    def program(self, parts: list[Any]) -> ProgramNode:
        return ProgramNode(parts)

    def module(self, parts: list[Any]) -> ProgramNode:
        return ProgramNode(parts[2:-1])

    def function(self, parts: list[Any]) -> FunctionNode:
        return FunctionNode(*parts)

    def headless(self, parts: list[Any]) -> FunctionNode | GraphNode:
        word, head, body = parts
        if word.type == "GRAPH":
            return GraphNode(word, None, body)
        return FunctionNode(word, None, [BrokenNode(head)], None, body)

    def graph(self, parts: list[Any]) -> GraphNode:
        return GraphNode(*parts)

    def quoted_function(self, parts: list[Any]) -> QuotedNode:
        word, _, arguments, body, attributes, _ = parts
        return QuotedNode(word, arguments or [], body, attributes)

    def broken(self, parts: list[Any]) -> BrokenNode:
        return BrokenNode(parts[0])

    def argument(self, parts: list[Any]) -> ArgumentNode:
        return ArgumentNode(parts[0], parts[1], parts[2] or [])

    # 2. statements

    def statement(self, parts: list[Any]) -> Any:
        results, node = parts
        if results is not None:
            node.results = results
        return node

    def return_(self, parts: list[Any]) -> ReturnNode:
        return ReturnNode(*parts)

    def short(self, parts: list[Any]) -> OperationNode:
        name, operands, attributes, signature = parts
        return OperationNode(name, operands, attributes or [], signature)

    def generic(self, parts: list[Any]) -> OperationNode | ReturnNode:
        return ReturnNode(parts[0], parts[1]) if parts[0].text == '"func.return"' else self.short(parts)

    def applied(self, parts: list[Any]) -> OperationNode:
        name, callee, operands, attributes, signature = parts
        return OperationNode(name, operands, attributes or [], signature, callee=callee)

    def constant(self, parts: list[Any]) -> ConstantNode:
        word, body, type = parts
        return ConstantNode(word, type, body=body)

    def stored(self, parts: list[Any]) -> ConstantNode:
        word, _, path, entry, type = parts
        return ConstantNode(word, type, path=path, entry=entry)

    def labelled(self, parts: list[Any]) -> OperationNode:
        name, label, operands, _, initial, type = parts
        return OperationNode(name, operands, label=label, initial=initial, type=type)

    def infix(self, parts: list[Any]) -> OperationNode:
        name, expression = parts
        return OperationNode(name, expression=expression)

    def binary(self, parts: list[Any]) -> ExpressionNode:
        left, operator, right = parts
        return ExpressionNode(operator, [left, right], left.start, right.end)

    def prefix(self, parts: list[Any]) -> ExpressionNode | Item:
        operator, operand = parts
        if operator.type == "MINUS" and isinstance(operand, Item) and type(operand.value) in (int, float):
            return operand._replace(value=-operand.value, start=operator.start)  # a negative literal
        return ExpressionNode(operator, [operand], operator.start, operand.end)

    def called(self, parts: list[Any]) -> ExpressionNode:
        name, _, *operands, closing = parts
        return ExpressionNode(name, operands, name.start, closing.end)

    def ascribed(self, parts: list[Any]) -> Item:
        literal, element = parts
        return literal._replace(element=element, end=element.end)

    def signature(self, parts: list[Any]) -> Signature:
        return Signature(parts[:-1], parts[-1])

    # 3. literals and attributes

    def integer(self, parts: list[Any]) -> Item:
        return _integer(parts[0], parts[0].start, "")

    def minus_integer(self, parts: list[Any]) -> Item:
        return _integer(parts[1], parts[0].start, "-")

    def float(self, parts: list[Any]) -> Item:
        return _float(parts[0], parts[0].start, "")

    def minus_float(self, parts: list[Any]) -> Item:
        return _float(parts[1], parts[0].start, "-")

    def bits(self, parts: list[Any]) -> Item:
        token, element = parts
        digits = token.text[2:]
        if len(digits) != 16 or element.text[1:].strip() != "f64":
            message = f"the bits of a float are written as 16 hexadecimal digits : f64, got {token.text[:40]}"
            return wrong("parse.float", message, token)
        return Item(struct.unpack(">d", bytes.fromhex(digits))[0], token.start, element.end)

    def named(self, parts: list[Any]) -> Item:
        return _named(parts[0], parts[0].start, False)

    def negated(self, parts: list[Any]) -> Item:
        return _named(parts[1], parts[0].start, True)

    def complex(self, parts: list[Any]) -> Item:
        opening, real, imaginary, closing = parts
        for part in (real, imaginary):
            if isinstance(part.value, Mistake):
                return part
            if not isinstance(part.value, (int, float)) or isinstance(part.value, bool):
                return wrong("parse.complex", "the parts of a complex number are numbers", part)
        return Item(complex(real.value, imaginary.value), opening.start, closing.end)

    def attribute(self, parts: list[Any]) -> AttributeNode:
        name, value = parts
        return AttributeNode(name, Item(True, name.start, name.end) if value is None else value)

    def string(self, parts: list[Any]) -> Item:
        return read_string(parts[0])

    def symbol(self, parts: list[Any]) -> Item:
        token = parts[0]
        return Item(Symbol(token.name), token.start, token.end)

    def array(self, parts: list[Any]) -> Item:
        opening, *items, closing = parts
        return _nest(tuple([i.value for i in items]), items, opening, closing)

    def dictionary(self, parts: list[Any]) -> Item:
        opening, *entries, closing = parts
        values: dict[Any, Any] = {}
        for key, item in entries:
            if key in values:
                found = wrong("parse.key", f"a key stands once in a dictionary, but {key} is repeated", item)
                return found._replace(start=opening.start, end=closing.end)
            values[key] = item.value
        return _nest(values, [item for _, item in entries], opening, closing)

    def entry(self, parts: list[Any]) -> tuple[Any, Item]:
        token, item = parts
        key = read_string(token).value if token.type == "STRING" else token.text
        return int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 19 else key, item

    def element(self, parts: list[Any]) -> Item:
        token = parts[0]
        return Item(ELEMENT_TYPES["".join(token.text.split())], token.start, token.end)

    def attribute_type(self, parts: list[Any]) -> Item:
        return Item(read_type(parts[0]), parts[0].start, parts[0].end)

    def dense(self, parts: list[Any]) -> Item:
        body, type = parts
        return Item(DenseNode(body, type), body.start, type.end)

    def function_type(self, parts: list[Any]) -> Item:
        return Item(parts[0], 0, 0)

    # 4. types

    def type(self, parts: list[Any]) -> Token:
        return parts[0]

    def broken_types(self, parts: list[Any]) -> list[Any]:
        return [BrokenNode(parts[0])]


def wrong(code: str, message: str, at: Token | Item) -> Item:
    """An item that is a mistake."""
    return Item(Mistake(code, message, at.start, at.end), at.start, at.end)


def _integer(token: Token, start: int, sign: str) -> Item:
    value = int(sign + token.text) if len(token.text) <= 24 else None
    if value is not None and -(2**63) <= value < 2**64:
        return Item(value, start, token.end)
    got = f"one of {len(token.text)} digits" if value is None else value
    return wrong("parse.integer", f"an integer fits 64 bits, got {got}", Item(None, start, token.end))


def _float(token: Token, start: int, sign: str) -> Item:
    found = Item(float(sign + token.text), start, token.end)
    if found.value not in (float("inf"), -float("inf")):
        return found
    message = f"a float is at most 1.7976931348623157e308, or else written inf, got {sign}{token.text[:40]}"
    return wrong("parse.float", message, found)


def _named(token: Token, start: int, negative: bool) -> Item:
    word = token.text
    if word in WORDS and not (negative and word in ("true", "false", "none")):
        return Item(-WORDS[word] if negative else WORDS[word], start, token.end)
    meant = f"; did you mean {HABITS[word]}" if word in HABITS else did_you_mean(word, WORDS)
    message = f"expected a value, got {'-' if negative else ''}{word[:80]}{meant}"
    return wrong("parse.word", message, Item(None, start, token.end))


def _nest(value: Any, items: list[Item], opening: Token, closing: Token) -> Item:
    depth = 1 + max((i.depth for i in items), default=0)
    if depth > MAX_DEPTH:
        value = wrong("parse.depth", f"brackets are nested at most {MAX_DEPTH} deep", opening).value
    value = next((i.value for i in items if isinstance(i.value, Mistake)), value)
    return Item(value, opening.start, closing.end, depth=depth)


def read_string(token: Token) -> Item:
    """The text that a string literal stands for."""
    body = token.text[1:-1]
    if "\\" not in body:
        return Item(body, token.start, token.end)
    out, n = [], 0
    while n < len(body):
        if body[n] != "\\":
            out.append(body[n])
            n += 1
            continue
        escape = body[n + 1]
        if escape in _ESCAPES:
            out.append(_ESCAPES[escape])
            n += 2
        else:
            close = body.find("}", n)
            code = body[n + 3 : close] if body[n + 1 : n + 3] == "u{" and close > 0 else ""
            point = int(code, 16) if 0 < len(code) <= 6 and all(c in "0123456789abcdefABCDEF" for c in code) else -1
            if not 0 <= point < 0x110000 or 0xD800 <= point < 0xE000:
                at = token.start + 1 + n
                message = f'a backslash is followed by n, t, r, ", \\ or u{{hexadecimal}}, got {escape}'
                return Item(Mistake("parse.escape", message, at, at + 2), token.start, token.end)
            out.append(chr(point))
            n = close + 1
    return Item("".join(out), token.start, token.end)
