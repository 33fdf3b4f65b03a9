"""What is wrong with a text that is not the language, in the words of who wrote it."""

from __future__ import annotations

import unicodedata
from typing import Any

from ..dialect.source import Diagnostic, Source, Span
from .lex import END, UNKNOWN
from .nodes import Token

TYPES = frozenset({"TENSOR", "FIELD", "MISTYPED", "ELEMENT"})
NAMES: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"VALUE", "INTEGER", "NAME"}), "an operand"),
    (frozenset({"DENSE", "STRING", "INTEGER"}), "an attribute value"),
    (TYPES, "a type"),
    (frozenset({"RETURN", "RESULT"}), "a statement"),
)
WORDS = {
    "VALUE": "a value %name", "SYMBOL": "a name @name", "STRING": "a string", "INTEGER": "a number", "OPERATOR": "an operator",
    "NAME": "a name", "DENSE": "dense<...>", "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "LBRACE": "'{'",
    "RBRACE": "'}'", "COMMA": "','", "COLON": "':'", "EQUAL": "'='", "ARROW": "'->'", "FUNC": "func", "GRAPH": "graph",
    "MODULE": "module", "RETURN": "return", "RESULT": "%name =", END: "the end of the text", "FILE": "file",
}  # fmt: skip


def explain(source: Source, state: Any, token: Token) -> Diagnostic:
    """The diagnostic for a token that cannot stand where the parser is."""
    span = Span(source, token.start, token.end)
    if token.type == UNKNOWN:
        return Diagnostic(unknown_character(token.text), span, "parse.character")
    expected = {k for k in state.parse_conf.states[state.state_stack[-1]] if k.isupper() or k == END}
    return Diagnostic(f"expected {wanted(expected)}, got {shown(token)}", span, "parse.syntax")


def unknown_character(character: str) -> str:
    if character == '"':
        return "a string ends on the line where it begins"
    name = unicodedata.name(character, "a control character" if ord(character) < 32 else "")
    printable = f"'{character}' " if character.isprintable() else ""
    return f"expected a character of the language, got {printable}(U+{ord(character):04X}{', ' + name.lower() if name else ''})"


def shown(token: Token) -> str:
    if token.type == END:
        return "the end of the text"
    text = token.text if len(token.text) <= 40 else token.text[:37] + "..."
    return f"'{text}'" if not text[0].isalnum() and token.type not in ("VALUE", "RESULT", "SYMBOL", "STRING") else text


def wanted(expected: set[str]) -> str:
    """The expected tokens in words."""
    left = {k for k in expected if not k.startswith("BROKEN")}
    words = []
    for group, word in NAMES:
        if group <= left:
            words.append(word)
            left -= (
                group
                | (TYPES if word in ("a type", "an attribute value") else set())
                | {"MINUS", "FLOAT", "LPAR", "NAME", "INTEGER"}
            )
    words += sorted({WORDS[k] for k in left if k in WORDS})
    words = words[:5]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}" if words else "something else"
