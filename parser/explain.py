"""A diagnostic for a token that cannot stand where the parser is: what the table of mistakes says, or what was expected."""

from __future__ import annotations

import unicodedata
from typing import Any

from ..dialect.op import OPERATORS
from ..dialect.source import Diagnostic, Source, Span
from .lex import END, UNKNOWN
from .mistakes import Known, Said
from .nodes import Token
from .suggest import did_you_mean

BLANKS = " \t\r\n\f\v"
STATEMENT = Said("parse.statement", "expected a statement, as in %y = cvm.relu %x, got {got}")
DENSE = "dense<...> holds numbers, brackets and commas up to a '>'"


def explain(source: Source, state: Any, at: Any, token: Token, known: Known) -> Diagnostic:
    """The diagnostic for a token that cannot stand where the parser is."""
    before = state.value_stack[-1] if state.value_stack and isinstance(state.value_stack[-1], Token) else None
    span = Span(source, token.end - len(word(token)), token.end)
    if token.type == UNKNOWN and token.text == "<" and before is not None and before.text == "dense":
        return Diagnostic(DENSE, Span(source, before.start, token.end), "parse.constant")
    if token.type == "NAME" and token.text == "dense" and source.text[token.end :].lstrip()[:1] == "<":
        return Diagnostic(DENSE, span, "parse.constant")
    said = known.get((at, token.type)) or known.get((at, None))
    infix = said is not None and said.code == "parse.infix"
    if token.text == "/" and not infix:
        return Diagnostic(unknown_character("/"), span, "parse.character")
    if token.type == UNKNOWN and (not token.text.isascii() or not token.text.isprintable() or token.text in "\"'\\"):
        return Diagnostic(unknown_character(token.text), span, "parse.character")
    if not infix and before is not None and before.type == "VALUE" and missing_comma(source, before, token):
        span = Span(source, before.start, before.end)
        return Diagnostic(f"expected ',' before an operand, got {before.text}", span, "parse.operand")
    if token.type == "NAME" and "RETURN" in state.parse_conf.states[at] and source.on_new_line(token.start):
        said = STATEMENT
    if said is not None:
        return Diagnostic(said.message.replace("{got}", shown(token)) + meant(said, token), span, said.code)
    expected = {k for k in state.parse_conf.states[at] if k.isupper() or k == END}
    return Diagnostic(f"expected {wanted(expected)}, got {shown(token)}", span, "parse.syntax")


def word(token: Token) -> str:
    """The token's text, of `: i64` only the word."""
    return token.text[1:].lstrip(BLANKS) if token.type == "ASCRIPTION" else token.text


def missing_comma(source: Source, value: Token, token: Token) -> bool:
    """Whether a value that seems to begin a statement stands on the line of the one before."""
    after = token.type in ("RESULT", "RETURN", "RBRACE", "LBRACE", "COLON", "VALUE")
    return after and not source.on_new_line(value.start, "{")


def meant(said: Said, token: Token) -> str:
    """What was probably meant by a word."""
    if said.code == "parse.operator":
        return did_you_mean(token.text, [n for n in OPERATORS if n.endswith(f".{token.text}")] or OPERATORS)
    if token.type != "NAME":
        return ""
    words = {
        "parse.item": ("func", "graph", "module"),
        "parse.statement": ("return", "const", "call"),
        "parse.name": (),
    }
    return did_you_mean(token.text, words.get(said.code, ()))


def unknown_character(text: str) -> str:
    character = text[0]
    if character == '"':
        return "a string ends with '\"' on the line where it begins"
    if character == "/":
        return "expected '//' before a comment, got '/'"
    name = unicodedata.name(character, "a control character" if ord(character) < 32 else "")
    printable = f"'{character}' " if character.isprintable() else ""
    return f"expected a character of the language, got {printable}(U+{ord(character):04X}{name and ', '}{name.lower()})"


def shown(token: Token) -> str:
    """The token as a message shows it."""
    if token.type == END:
        return "the end of the text"
    text = word(token)
    text = " ".join(text.split()) if len(text) <= 40 else " ".join(text[:37].split()) + "..."
    if token.type == UNKNOWN and not text.isprintable():
        return f"U+{ord(token.text[0]):04X}"
    return text if text[:1].isalnum() or text[:1] in '%@"!' else f"'{text}'"


# The expected tokens in words, where no example fits

TYPES = frozenset({"TENSOR", "FIELD", "MISTYPED", "ELEMENT"})
GROUPS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"VALUE", "INTEGER", "NAME"}), "an operand"),
    (frozenset({"DENSE", "STRING", "INTEGER"}), "a value"),
    (TYPES, "a type"),
    (frozenset({"INTEGER", "FLOAT"}), "a number"),
    (frozenset({"RETURN", "RESULT"}), "a statement"),
)
NUMBERS = frozenset({"MINUS", "INTEGER", "FLOAT", "NAME", "LPAR"})
WORDS = {
    "VALUE": "%name", "SYMBOL": "@name", "STRING": "a string", "INTEGER": "a number", "OPERATOR": "an operator",
    "NAME": "a name", "DENSE": "dense<...>", "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'",
    "LBRACE": "'{'", "RBRACE": "'}'", "COMMA": "','", "COLON": "':'", "EQUAL": "'='", "ARROW": "'->'", "FUNC": "func",
    "GRAPH": "graph", "MODULE": "module", "RETURN": "return", "RESULT": "%name =", "FILE": "file", END: "the end",
}  # fmt: skip


def wanted(expected: set[str]) -> str:
    """The expected tokens in words."""
    left = {k for k in expected if not k.startswith("BROKEN")}
    words = []
    for group, word in GROUPS:
        if group <= left:
            words.append(word)
            left -= group | NUMBERS | (TYPES if word == "a value" else set())
    words += sorted({WORDS[k] for k in left if k in WORDS})
    words = words[:5]
    if len(words) < 2:
        return words[0] if words else "something else"
    return f"{', '.join(words[:-1])} or {words[-1]}"
