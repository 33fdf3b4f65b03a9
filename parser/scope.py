"""Scopes: the names defined in one function, and mistakes about them.

A value whose definition failed remains known without a type, so that its uses report nothing
more.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ..dialect.builtin import Elements
from ..dialect.ir.function import Function, Value
from ..dialect.support.compilation_context import too_many
from ..dialect.support.diagnostics import Diagnostic, Note, Source, Span
from ..dialect.support.suggest import did_you_mean
from ..dialect.types.constant_files import Files
from ..dialect.types.tensor_types import Type
from .dense_literals import read_dense
from .syntax_tree import (
    ConstantNode,
    DenseNode,
    FunctionNode,
    GraphNode,
    Item,
    Mistake,
    OperandNode,
    OperationNode,
    Token,
)
from .type_syntax import read_type

SUGGESTED = 200  # mistakes for which the word that was meant is looked for
_NAMES = re.compile(r"(?:%|(?:^|(?<=,)\s*)(?=[A-Za-z_]))([A-Za-z0-9_.$]+)")


class Report:
    """The mistakes of one text."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []

    @property
    def is_full(self) -> bool:
        return too_many(self.diagnostics)

    def span(self, token: Token | Item | Mistake) -> Span:
        return Span(self.source, token.start, token.end)

    def at(
        self, token: Token | Item | Mistake, code: str, message: str, notes: Sequence[Note] = ()
    ) -> None:
        self.diagnostics.append(Diagnostic(message, self.span(token), code, tuple(notes)))

    def meant(self, word: str, known: Iterable[str], sigil: str = "") -> str:
        """A suggestion at the end of a message; only the first mistakes of many are searched."""
        return did_you_mean(word, known, sigil) if len(self.diagnostics) < SUGGESTED else ""

    def mistake(self, mistake: Mistake) -> None:
        self.at(mistake, mistake.code, mistake.message)


class Scope:
    """The values of one function, the functions of the module and the files beside the program."""

    depth = 0  # of regions around these values
    bodies: Mapping[str, Function] = MappingProxyType({})  # those of its regions

    def __init__(
        self, report: Report, functions: dict[str, Token], files: Files | None, lenient: bool
    ) -> None:
        self.report = report
        self.functions = functions
        self.files = files
        self.lenient = lenient  # some function's name is not known: do not complain of unknown ones
        self.headless = False  # the arguments are not known: do not complain of unknown values
        self.values: dict[str, Value] = {}
        self.forgiven: dict[str, Value] = {}
        self.node: FunctionNode | GraphNode | None = None  # once its arguments are defined

    def define(
        self, token: Token, type: Type | None = None, attributes: dict[str, object] | None = None
    ) -> Value:
        """A new value; a second one of the same name is a mistake, and what the name means after it
        is left open.
        """
        value = Value(token.name, type, self.report.span(token), attributes)
        if (first := self.values.pop(token.name, None)) is not None:
            message = f"a value is defined once, but {token.text} is defined twice"
            self.report.at(
                token, "value.redefined", message, [Note("first defined here", first.span)]
            )
            self.forgiven[token.name] = value
        elif token.name in self.forgiven:
            value.type = None
        self.values[token.name] = value
        return value

    def use(self, token: Token) -> Value:
        name = token.name
        if (value := self.values.get(name) or self.forgiven.get(name)) is None:
            value = self.forgiven[name] = Value(name, None, self.report.span(token))
            if not self.headless:
                self.undefined(token)
        return value

    def undefined(self, token: Token) -> None:
        if (later := self.later.get(token.name)) is None:
            meant = self.report.meant(token.name, self.values, "%")
            self.report.at(token, "value.undefined", f"there is no value {token.text}{meant}")
        else:
            message = f"a value is defined before its uses, but {token.text} is defined later"
            self.report.at(
                token, "value.undefined", message, [Note("defined here", self.report.span(later))]
            )

    @cached_property
    def later(self) -> dict[str, Token]:
        """The place where each result of the function is defined."""
        statements = [
            s
            for s in reversed(self.node.body if self.node else [])
            if isinstance(s, (OperationNode, ConstantNode))
        ]
        return {r.name: r for s in statements for r in s.results}

    def wrong_operand(self, item: Item, mistake: Mistake) -> None:
        """Report the error of a literal operand; a word may be the name of a value without its
        %.
        """
        word = self.report.source.text[item.start : item.end]
        if mistake.code == "parse.word" and word in self.values:
            mistake = mistake._replace(
                message=f"the name of a value begins with %, got {word}; did you mean %{word}"
            )
        self.report.mistake(mistake)

    def returned(self, operand: OperandNode) -> Value:
        if isinstance(operand, Token):
            return self.use(operand)
        if isinstance(operand.value, Mistake):
            self.wrong_operand(operand, operand.value)
        else:
            self.report.at(operand, "func.return", "a function returns values, got a literal")
        return Value("", None, self.report.span(operand))

    def forgive(self, token: Token) -> None:
        """The names that stand in text that could not be read may mean anything."""
        for name in _NAMES.findall(token.text):
            if name not in self.values:
                self.forgiven.setdefault(name, Value(name, None, self.report.span(token)))

    def function(self, token: Token | Item, name: str) -> bool:
        """Test whether the function exists; reports a mistake if not."""
        if name in self.functions or self.lenient:
            return name in self.functions
        meant = self.report.meant(name, self.functions, "@")
        self.report.at(token, "func.unknown", f"there is no function @{name}{meant}")
        return False

    def type(self, token: Token) -> Type | None:
        tensor_type = read_type(token)
        return self.report.mistake(tensor_type) if isinstance(tensor_type, Mistake) else tensor_type

    def attribute_value(self, item: Item) -> Any:
        """The value of an attribute with its dense constants read; a Mistake has been reported."""
        if isinstance(value := self.resolved(item.value), Mistake):
            quotes = (
                "; a string stands in quotes"
                if value.code == "parse.word" and ";" not in value.message
                else ""
            )
            self.report.mistake(value._replace(message=value.message + quotes))
        return value

    def resolved(self, value: object) -> Any:
        if isinstance(value, DenseNode):
            return self.elements(value)
        if type(value) is tuple:
            values = tuple([self.resolved(v) for v in value])
            return next((v for v in values if isinstance(v, Mistake)), values)
        if type(value) is dict:
            entries = {k: self.resolved(v) for k, v in value.items()}
            return next((v for v in entries.values() if isinstance(v, Mistake)), entries)
        return value

    def elements(self, node: DenseNode) -> Elements | Mistake:
        if isinstance(tensor_type := read_type(node.type), Mistake):
            return tensor_type
        shape = [d for d in tensor_type.array_shape if isinstance(d, int)]
        if len(shape) < len(tensor_type.array_shape):
            message = f"the sizes of a constant are known, got {tensor_type}"
            return Mistake("const.type", message, node.type.start, node.type.end)
        data = read_dense(node.body, tuple(shape), tensor_type.element)
        return data if isinstance(data, Mistake) else Elements(data, tensor_type)
