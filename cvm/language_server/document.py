"""One text as it stands in an editor: its tokens, the values and functions they name, and its
mistakes.

Works from the tokens, so that names can be followed in a text that has mistakes, and from the
module as far as that is right, for types and ranges. Offsets count characters of the text.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from cvm.dialect.builtin import Const
from cvm.dialect.ir.function import Function, Graph, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.formulas import Formulas
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.spec.operator import OPERATORS, Operator
from cvm.dialect.support.diagnostics import Diagnostic, Error, Source
from cvm.dialect.types.attributes import attribute_text, describe
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, ElementType
from cvm.lowering.formulas.overflow_warnings import Analysis
from cvm.parser import check
from cvm.parser.recovery import KIND_OF_TOKEN, scanner
from cvm.parser.syntax_tree import Token
from cvm.terminal.operator_pages import page, summary, tables
from cvm.terminal.read_program import read_kernels, reader_of, warnings_of

HEADS = ("FUNC", "GRAPH", "REWRITE")  # tokens that begin a scope of values
WORD = re.compile(r"[%@A-Za-z0-9_.$]*\Z")  # that is being written at the end of a text
WORDS = re.compile(r"[%@!]?[A-Za-z_$][\w.$]*")
SUGGESTED = re.compile(r"did you mean ([%@!]?[\w.$]+)")
ENDS_OF_STATEMENTS = ("RESULT", "RETURN", *HEADS)
KINDS_OF_ELEMENTS = {
    "bool": "a boolean",
    "int": "a signed integer",
    "uint": "an unsigned integer",
    "float": "a float",
    "complex": "a complex number",
    "declared": "an element of a package's type",
}
NAMED = ("VALUE", "RESULT", "SYMBOL")


class Document:
    """A text and what is known of it. `folder` is where the files of its constants lie."""

    def __init__(self, text: str, filename: str, folder: Path | None = None) -> None:
        self.source = Source(filename, text)
        self.module, self.mistakes = Module({}), list[Diagnostic]()
        self.lower: Formulas | Plan | None = None  # of a text below functions
        try:
            if (reader := reader_of(text)) is None:
                self.module, self.mistakes = check(text, filename, folder)
            else:
                self.lower = reader(text, filename)
        except Error as e:
            self.mistakes = [*e.diagnostics]
        self.tokens = [t for t in scanner().tokens(text) if t.start < t.end]
        self.is_kernels = reader_of(text) is read_kernels
        self._arguments: dict[int, frozenset[str]] = {}  # by the first token of a function
        heads = ["kernel"] if self.is_kernels else []
        self.heads = [i for i, t in enumerate(self.tokens) if t.type in HEADS or t.text in heads]

    @cached_property
    def warnings(self) -> list[Diagnostic]:
        """The warnings of `cvm check`, once the text has no mistakes."""
        return [] if self.mistakes else warnings_of(self.lower or self.module)

    @cached_property
    def ranges(self) -> Analysis:
        """The intervals of integers, once the text has no mistakes."""
        analysis = Analysis(self.module)
        for function in self.module.functions.values() if not self.mistakes else ():
            analysis.function(function)
        return analysis

    def word(self, offset: int) -> str:
        return WORD.findall(self.source.text[:offset].rpartition("\n")[2])[0]

    def index(self, offset: int) -> int | None:
        """The number of the token at an offset, or just before it; None between tokens."""
        token = bisect_right(self.tokens, offset, key=lambda t: t.start) - 1
        return token if token >= 0 and offset <= self.tokens[token].end else None

    def scope(self, index: int) -> tuple[int, int]:
        """The numbers of the first token of the function around a token, and of the first one after
        it.
        """
        at = bisect_right(self.heads, index)
        return self.heads[at - 1] if at else 0, self.heads[at] if at < len(self.heads) else len(
            self.tokens
        )

    def function(self, index: int) -> Function | None:
        """The function around a token, as far as it was understood."""
        start, end = self.scope(index)
        return self.module.functions.get(
            next((t.name for t in self.tokens[start:end] if t.type == "SYMBOL"), "")
        )

    def values(self, index: int) -> list[Value]:
        """The values of the function around a token, and of its regions."""
        if (function := self.function(index)) is None:
            return []
        start, end = (self.tokens[i].end for i in (self.scope(index)[0], self.scope(index)[1] - 1))
        bodies = (f for f in self.module.functions.values() if f.captured is not None)
        inside = (f for f in bodies if start < f.span.start < end)
        return [v for f in (function, *inside) for v in f.values()]

    def value(self, index: int) -> Value | None:
        """The value of this name that was defined last before a token."""
        token = self.tokens[index]
        same = [v for v in self.values(index) if v.name == token.name]
        before = [v for v in same if v.span.start <= token.start]
        return max(before or same, key=lambda v: v.span.start, default=None)

    def occurrences(self, index: int | None) -> list[Token]:
        """The tokens that name what a token names, first its definition: a value in its function,
        or a function.
        """
        if index is None or (token := self.tokens[index]).type not in NAMED:
            return []
        start, end = (0, len(self.tokens)) if token.type == "SYMBOL" else self.scope(index)
        same = [
            i
            for i in range(start, end)
            if self.tokens[i].type in NAMED and self.tokens[i].text == token.text
        ]
        same.sort(key=lambda i: i not in self.definitions)
        return [self.tokens[i] for i in same]

    @cached_property
    def definitions(self) -> set[int]:
        """The numbers of the tokens that introduce a name: of a function, an argument, or a
        result.
        """
        indices: set[int] = set()
        if self.is_kernels:
            texts = ["", *(t.text for t in self.tokens), ""]
            for i, (before, text, after) in enumerate(
                zip(texts, texts[1:], texts[2:], strict=False)
            ):
                named = text.startswith("%") and (after == ":" or before == "for")
                if named or (text.startswith("@") and before == "kernel"):
                    indices.add(i)
            return indices
        kinds = ["", *(t.type for t in self.tokens), ""]
        for i, (before, kind, after) in enumerate(zip(kinds, kinds[1:], kinds[2:], strict=False)):
            if (kind == "SYMBOL" and before in HEADS) or (kind == "VALUE" and after == "COLON"):
                indices.add(i)
            while kind == "RESULT" and i >= 0:  # %a, %b = ...
                indices.add(i)
                i = i - 2 if kinds[max(i - 1, 0) : i + 1] == ["VALUE", "COMMA"] else -1
        return indices

    def describe(self, index: int | None) -> str:
        """Describe a token as Markdown: its type and values, or its page; empty if nothing is known
        of it.
        """
        if index is None:
            return ""
        if self.is_kernels:
            return self._described(index)
        if (token := self.tokens[index]).type in ("OPERATOR", "INFIX", "STRING"):
            name = token.text.strip('"(')
            return f"```text\n{page(OPERATORS[name])}\n```" if name in OPERATORS else ""
        if token.type == "NAME" and (op := self.operator(index)) is not None:
            rows = [r for r in tables(op)["attributes"] if r[0] == token.text]
            return "".join(f"`{r[0]}`: {', '.join(filter(None, r[1:]))}" for r in rows)
        if element := ELEMENT_TYPES.get(token.text.rstrip(">").split("x")[-1].split("<")[-1]):
            return described_element(element)
        if token.type == "SYMBOL" and token.name in self.module.functions:
            return f"```cvm\n{head(self.module.functions[token.name])}\n```"
        value = self.value(index) if token.type in NAMED and token.type != "SYMBOL" else None
        if value is None or value.type is None:
            return ""
        interval = self.ranges.ranges.get(value)
        interval_text = (
            f"\n\nvalues in [{interval.low}, {interval.high}]" if interval is not None else ""
        )
        declared = (
            f" {{range = {attribute_text(value.attributes['range'])}}}"
            if "range" in value.attributes
            else ""
        )
        return f"```cvm\n%{value.name}: {value.type}{declared}\n```{interval_text}"

    def _described(self, index: int) -> str:
        """Describe a token of kernels: the declaration of a value, or what a function computes."""
        token = self.tokens[index]
        if (row := SCALARS.get(token.text)) is not None:
            return f"`{row.name}`, a function of {row.arity} operands. {row.doc}".strip()
        defined = self.occurrences(index)[:1]
        if not defined:
            return ""
        line = self.source.line(self.source.place(defined[0].start)[0])
        if token.text.startswith("@"):
            return f"```loops\n{line.removesuffix('{').strip()}\n```"
        typed = re.match(
            r"\s*:\s*(tensor<(?:[^<>]|<[^<>]*>)*>|\w+)", self.source.text[defined[0].end :]
        )
        type = typed[1] if typed else "i64, the index of a loop"
        return f"```loops\n{token.text}: {type}\n```"

    def operator(self, index: int) -> type[Operator[Any]] | None:
        """The operator of the operation that a token stands in."""
        for token in reversed(self.tokens[self.scope(index)[0] : index + 1]):
            if token.type == "OPERATOR":
                return OPERATORS.get(token.text)
            if token.type in ENDS_OF_STATEMENTS:
                return None
        return None

    def operand(self, offset: int) -> tuple[type[Operator[Any]], str] | None:
        """The operator around an offset, and the operand or attribute that is written there."""
        end = bisect_right(self.tokens, offset, key=lambda t: t.start)
        if not end or (op := self.operator(end - 1)) is None:
            return None
        kinds = [t.type for t in self.tokens[:end]]
        first = len(kinds) - kinds[::-1].index("OPERATOR")
        if "LBRACE" in kinds[first:]:
            named = [t.text for t in self.tokens[first:end] if t.type == "NAME"]
            return None if "RBRACE" in kinds[first:] else (op, named[-1] if named else "")
        operands = [f.name for f in op.fields if f.is_operand]
        place = min(kinds[first:].count("COMMA"), len(operands) - 1)
        return op, operands[place] if operands else ""

    def fix(self, diagnostic: Diagnostic) -> tuple[int, int, str] | None:
        """The replacement that a mistake suggests: its first and last offset and the word."""
        suggested = SUGGESTED.search(diagnostic.message)
        if suggested is None or diagnostic.span is None:
            return None
        start, word = diagnostic.span.start, suggested[1].rstrip(".")
        words = [*WORDS.finditer(self.source.text[start : diagnostic.span.end])]
        quoted = [w for w in words if re.search(rf"(?<!\w){re.escape(w[0])}\b", diagnostic.message)]
        close = get_close_matches(word, [w[0] for w in quoted or words if w[0] != word], 1, 0)
        found = next((w for w in words if close and w[0] == close[0]), None)
        return None if found is None else (start + found.start(), start + found.end(), word)

    def colors(self) -> Iterator[tuple[Token, str]]:
        """The tokens with their kinds."""
        for index, token in enumerate(self.tokens):
            kind = KIND_OF_TOKEN.get(token.type, "")
            if self.is_kernels and token.text.isidentifier():
                kind = "method" if token.text in SCALARS else "keyword"
            if kind == "variable" and token.text in self.arguments(index):
                kind = "parameter"
            if kind and "\n" not in token.text:
                yield token, kind

    def arguments(self, index: int) -> frozenset[str]:
        """The names of the arguments of the function around a token."""
        first, last = self.scope(index)
        if first not in self._arguments:
            texts = [t.text for t in self.tokens[first:last]]
            head = texts[: texts.index("->") if "->" in texts else 0]
            self._arguments[first] = frozenset(n for n in head if n.startswith("%"))
        return self._arguments[first]

    def hints(self) -> Iterator[tuple[int, str]]:
        """The inferred type of each result, and the offset after which it stands."""
        operations = (o for f in self.module.functions.values() for o in f.operations)
        inferred = (o for o in operations if o.declared is None)
        values = [r for o in inferred if not isinstance(o.operator, Const) for r in o.results]
        types = {v.span.start: v.type for v in values}
        for index in self.heads:
            for i in range(index, self.scope(index)[1]):
                if i in self.definitions and (type := types.get(self.tokens[i].start)) is not None:
                    yield self.tokens[i].end, f": {type}"

    def completions(self, offset: int) -> list[tuple[str, str, str]]:
        """The words that may stand at an offset, each with its kind and a line about it."""
        line = self.source.text[:offset].rpartition("\n")[2]
        before = next(
            (i for i in range(len(self.tokens) - 1, -1, -1) if self.tokens[i].start < offset), 0
        )
        if (word := self.word(offset)).startswith("%"):
            first, last = self.scope(before) if self.tokens else (0, 0)
            names = dict.fromkeys(
                t.text for t in self.tokens[first:last] if t.type in NAMED and t.start + 1 < offset
            )
            types = {f"%{v.name}": str(v.type or "") for v in self.values(before)}
            return [(n, "value", types.get(n, "")) for n in names if n[0] == "%" and n != word]
        if word.startswith("@"):
            names = [t.text for t in self.tokens if t.type == "SYMBOL"] if self.is_kernels else []
            functions = self.module.named.values()
            return [
                *((n, "function", "a kernel") for n in dict.fromkeys(names) if n != word),
                *((f"@{f.name}", "function", head(f)) for f in functions),
            ]
        if line.count("<") > line.count(">"):
            return [(n, "type", "an element type") for n in ELEMENT_TYPES]
        if self.is_kernels:
            return [(n, "operator", row.doc) for n, row in sorted(SCALARS.items())]
        if line.rfind("{") > line.rfind("}"):
            op = self.operator(before) if self.tokens else None
            line = self.source.line(self.source.place(offset)[0])
            fields = op.fields if op else ()
            missing = [f for f in fields if not f.is_operand and f"{f.name} =" not in line]
            return [(f.name, "attribute", describe(f.annotation)) for f in missing]
        return [(name, "operator", summary(op)) for name, op in sorted(OPERATORS.items())]


def described_element(element: ElementType) -> str:
    """Describe an element type: its kind, width, limits and NumPy's name."""
    low, high = element.limits if element.is_integer else ("", "")
    between = f" from {low} to {high}" if element.is_integer else ""
    about = f"{KINDS_OF_ELEMENTS[element.kind]} of {element.bits} bits{between}"
    return f"`{element.name}`: {about}, NumPy's {element.dtype.name}"


def head(function: Function) -> str:
    """The first line of a function, without its body."""
    if isinstance(function, Graph):
        return f"graph @{function.name}"
    arguments = ", ".join(f"%{a.name}: {a.type or '?'}" for a in function.arguments)
    return (
        f"func @{function.name}({arguments}) -> "
        f"({', '.join(str(r.type or '?') for r in function.results)})"
    )
