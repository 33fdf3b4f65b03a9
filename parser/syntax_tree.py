"""Syntax nodes and tokens, located by offsets into the text, before any name is resolved."""

import re
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

L = TypeVar("L")


class Token:
    """A word or mark of the text; `type` is the grammar's name for it. A BROKEN_* token covers what
    could not be read.
    """

    __slots__ = ("end", "start", "text", "type")

    def __init__(self, type: str, text: str, start: int, end: int) -> None:
        self.type = type
        self.text = text
        self.start = start
        self.end = end

    @property
    def name(self) -> str:
        """The name of a value or symbol, without its sigil."""
        return self.text[1:]

    def __repr__(self) -> str:
        return f"{self.type}({self.text!r} at {self.start})"


class Mistake(NamedTuple):
    """Something wrong with what stands at an offset; becomes a diagnostic when the program is
    built.
    """

    code: str
    message: str
    start: int
    end: int


class Item(NamedTuple):
    """A literal or attribute value (or its Mistake), its place, and the element type stated, as in
    `3 : i64`.
    """

    value: Any
    start: int
    end: int
    element: Token | None = None
    depth: int = 0


class AttributeNode(NamedTuple):
    name: Token
    value: Item


class Signature(NamedTuple):
    """`(operands) -> results`, each the token of a type."""

    operands: list[Token]
    results: list[Token]


class DenseNode(NamedTuple):
    """A dense constant among the attributes: the token of its elements and that of its type."""

    body: Token
    type: Token


OperandNode: TypeAlias = Token | Item


class ExpressionNode(NamedTuple, Generic[L]):
    """A part of an infix expression: an operator's mark, or the name of a function, and its
    operands, whose leaves are operands of programs or of kernels.
    """

    operator: Token
    operands: "list[ExpressionNode[L] | L]"
    start: int
    end: int


@dataclass(slots=True)
class OperationNode:
    """An operation in any of its forms. `name` is the token with the operator's name, quoted in the
    generic form.

    In infix form, `name` is the token `dialect.expr` and `expression` what stands in its
    parentheses.
    """

    name: Token
    operands: list[OperandNode] = field(default_factory=list)
    attributes: list[AttributeNode] = field(default_factory=list)
    signature: Signature | None = None
    callee: Token | None = None
    label: Token | None = None
    initial: Token | None = None
    type: Token | None = None
    expression: ExpressionNode[OperandNode] | OperandNode | None = None
    results: list[Token] = field(default_factory=list)
    regions: "list[RegionNode]" = field(default_factory=list)

    @property
    def operator(self) -> str:
        return self.name.text[1:-1] if self.name.type == "STRING" else self.name.text


@dataclass(slots=True)
class ConstantNode:
    """`const dense<...> : type` or `const file("path", "name") : type`."""

    word: Token
    type: Token
    body: Token | None = None
    path: Token | None = None
    entry: Token | None = None
    results: list[Token] = field(default_factory=list)


class ReturnNode(NamedTuple):
    word: Token
    operands: list[OperandNode]


class BrokenNode(NamedTuple):
    """Text that could not be read, and whose error has been reported."""

    token: Token


StatementNode: TypeAlias = OperationNode | ConstantNode | ReturnNode | BrokenNode


@dataclass(slots=True)
class ArgumentNode:
    """An argument of a function or of a region, which may leave its type out."""

    name: Token
    type: Token | None
    attributes: list[AttributeNode]


class RegionNode(NamedTuple):
    """Statements inside of an operation, the last of which is its `yield`. Without `arguments`, the
    values that enter it keep the names of the operands.
    """

    arguments: list[ArgumentNode] | None
    brace: Token
    body: list[StatementNode]


@dataclass(slots=True)
class ResultNode:
    """The type of a function's result, with attributes."""

    type: Token
    attributes: list[AttributeNode]


@dataclass(slots=True)
class FunctionNode:
    """A function; `name` is None and `arguments` holds a BrokenNode where its head could not be
    read.
    """

    word: Token
    name: Token | None
    arguments: list[ArgumentNode | BrokenNode]
    declared: list[Token | ResultNode | BrokenNode] | None
    body: list[StatementNode]


@dataclass(slots=True)
class GraphNode:
    word: Token
    name: Token | None
    body: list[StatementNode]


class RewriteNode(NamedTuple):
    """Two programs over the same arguments, the second of which may stand for the first."""

    word: Token
    name: Token
    arguments: list[ArgumentNode | BrokenNode]
    before: list[StatementNode]
    becomes: Token
    after: list[StatementNode]

    @property
    def body(self) -> list[StatementNode]:
        return [*self.before, *self.after]


class QuotedNode(NamedTuple):
    """A function as MLIR's generic form writes it: an operation with a region and attributes."""

    word: Token
    arguments: list[ArgumentNode | BrokenNode]
    body: list[StatementNode]
    attributes: list[AttributeNode]


ItemNode: TypeAlias = FunctionNode | GraphNode | QuotedNode | RewriteNode | BrokenNode


class ProgramNode(NamedTuple):
    items: list[ItemNode]


_BYTES = re.compile(r"(?:\\[0-9A-Fa-f]{2})+")  # as MLIR writes them
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


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
        if (escape := body[n + 1]) in _ESCAPES:
            out.append(_ESCAPES[escape])
            n += 2
        elif found := _BYTES.match(body, n):
            out.append(bytes.fromhex(found[0].replace("\\", "")).decode("utf-8", "replace"))
            n = found.end()
        else:
            close = body.find("}", n)
            code = body[n + 3 : close] if body[n + 1 : n + 3] == "u{" and close > 0 else ""
            point = (
                int(code, 16)
                if 0 < len(code) <= 6 and all(c in "0123456789abcdefABCDEF" for c in code)
                else -1
            )
            if not 0 <= point < 0x110000 or 0xD800 <= point < 0xE000:
                at = token.start + 1 + n
                message = (
                    f'a backslash is followed by n, t, r, ", \\ or u{{hexadecimal}}, got {escape}'
                )
                return Item(Mistake("parse.escape", message, at, at + 2), token.start, token.end)
            out.append(chr(point))
            n = close + 1
    return Item("".join(out), token.start, token.end)
