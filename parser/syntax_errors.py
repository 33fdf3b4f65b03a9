"""Diagnostics for unexpected tokens: the message from the table of mistakes, or the expected
tokens.
"""

import re
import unicodedata

from ..dialect.spec.operator import OPERATORS
from ..dialect.support.diagnostics import Diagnostic, Note, Source, Span
from ..dialect.support.suggest import did_you_mean
from .error_examples import Known, Said
from .lalr import Parser
from .lalr_tables import END
from .lex import UNKNOWN
from .resynchronize import STARTS
from .similar_operators import similar_operators
from .syntax_tree import ConstantNode, OperationNode, Token

KNOWN = set(
    "<>?!.^"
)  # characters of the language that are tokens only where they stand in the wrong place
ELEMENTS = re.compile(
    r"(?:[^<>:{}%@=\"\n/]++|//.*)*+(?:\n(?:[^<>:{}%@=\"a-z\n/]++|//.*)*+)*+"
)  # of dense
CLOSING = {"LPAR": ")", "LBRACE": "}", "LSQB": "]"}
OUTSIDE_BRACKETS = ("ARROW", "LBRACE", "RBRACE", "RETURN", END)
BODY = re.compile(r"\{\s*(?:%|return\b)")  # a brace before a statement, not an attribute
BLANKS = " \t\r\n\f\v"
STATEMENT = Said("parse.statement", "expected a statement, as in %y = cvm.relu %x, got {got}")


def explain(source: Source, parser: Parser, token: Token, known: Known) -> Diagnostic:
    """The diagnostic for a token that cannot stand where the parser is."""
    before = parser.values[-1] if parser.values and isinstance(parser.values[-1], Token) else None
    said = known.get((parser.states[-1], token.type)) or known.get((parser.states[-1], None))
    infix = said is not None and said.code == "parse.infix"
    span = Span(source, token.end - len(word(token)), token.end)
    if token.text in ("dense", "<") and (unclosed := unclosed_dense(source, token)) is not None:
        return unclosed
    if token.type == "BITS" and len(token.text) <= 18:
        message = f"an integer is decimal, as in {int(token.text, 16)}, got {token.text}"
        return Diagnostic(message, span, "parse.number")
    if (
        token.text in "%@" and not (after := source.text[token.end : token.end + 1]).isascii()
    ):  # a name begins with it
        return Diagnostic(
            unknown_character(after), Span(source, token.end, token.end + 1), "parse.character"
        )
    if (token.type == UNKNOWN and token.text not in KNOWN) or (token.text == "/" and not infix):
        return Diagnostic(unknown_character(token.text), span, "parse.character")
    follows = token.type in ("RESULT", "RETURN", "RBRACE", "LBRACE", "COLON", "VALUE")
    follows = not infix and (follows or (token.type in STARTS and source.on_new_line(token.start)))
    if (
        follows
        and before is not None
        and before.type == "VALUE"
        and not source.on_new_line(before.start, "{")
    ):
        span = Span(source, before.start, before.end)
        return Diagnostic(
            f"expected ',' before an operand, got {before.text}", span, "parse.operand"
        )
    if token.type == "NAME" and (
        number := re.search(r"[0-9.]+$", source.text[max(0, token.start - 40) : token.start])
    ):
        message = (
            "a number is of digits and a point, with no other marks, got "
            f"{number[0]}{token.text[:40]}"
        )
        return Diagnostic(
            message, Span(source, token.start - len(number[0]), token.end), "parse.number"
        )
    behind = before and re.search(
        r"[^={}\s][ \t]*$", source.text[max(0, before.start - 100) : before.start]
    )
    if before and behind and said is not None and said.code == "parse.generic":
        token = before
        said = Said("parse.operand", "a name in quotes stands before the operands, got {got}")
        span = Span(source, token.start, token.end)
    brackets = [v for v in parser.values if isinstance(v, Token) and v.text in ("(", ")", "{")]
    if [v.text for v in brackets if v.text != "{"] == ["("] and BODY.match(
        source.text, brackets[-1].start
    ):
        token = brackets[-1]
        said = Said("parse.argument", "expected ',' or ')' after an argument, got {got}")
        span = Span(source, token.start, token.end)
    if token.type == "NAME" and "RETURN" in parser.row and source.on_new_line(token.start):
        named = re.compile(r"(?:\s*,\s*%?\w+)*+\s*=(?!=)").match(source.text, token.end)
        said = (
            Said("parse.statement", "the name of a result begins with %, got {got}")
            if named
            else STATEMENT
        )
    if said is not None:
        close = (
            ""
            if said.message.startswith("expected ',' or ')'") and not open_bracket(parser, token)
            else " or ')'"
        )
        message = said.message.replace(" or ')'", close).replace("{got}", shown(token)) + meant(
            said, token
        )
        return Diagnostic(message, span, said.code, opening(source, parser, token))
    expected = {k for k in parser.row if k.isupper() or k == END}
    return Diagnostic(f"expected {wanted(expected)}, got {shown(token)}", span, "parse.syntax")


def unclosed_dense(source: Source, token: Token) -> Diagnostic | None:
    """The diagnostic for `dense`, or the '<' after it, without the '>' that closes it."""
    start = source.text.find("<", token.start)
    before = source.text[max(0, start - 100) : max(0, start)].rstrip(BLANKS)
    if not before.endswith("dense") or source.text[token.end : start].strip(BLANKS):
        return None
    end = ELEMENTS.match(source.text, start + 1).end()  # type: ignore[union-attr]  # it matches everywhere
    got = f"'{source.text[end]}'" if end < len(source.text) else "the end of the text"
    message = f"expected ',' or '>' after an element of dense<...>, got {got}"
    note = Note("the '<' that is not closed", Span(source, start, start + 1))
    return Diagnostic(
        message, Span(source, end, min(end + 1, len(source.text))), "parse.constant", (note,)
    )


def opening(source: Source, parser: Parser, token: Token) -> tuple[Note, ...]:
    """A note with the bracket that is open around a token that stands outside of brackets."""
    begins = token.type not in ("NAME", "STRING") and source.on_new_line(token.start)
    bracket = open_bracket(parser, token) if begins or token.type in OUTSIDE_BRACKETS else None
    if bracket is None or token.text == CLOSING[bracket.type]:
        return ()
    return (
        Note(f"the '{bracket.text}' that is not closed", Span(source, bracket.start, bracket.end)),
    )


def open_bracket(parser: Parser, token: Token) -> Token | None:
    """The innermost bracket that is open at a token, if it is not around statements or
    functions.
    """
    brackets: list[Token | None] = [None]
    for value, state in zip(parser.values, parser.states[1:], strict=True):
        if value is token:
            break
        if isinstance(value, Token) and value.type in CLOSING:
            brackets.append(
                None if parser.rows[state].keys() & {"BROKEN_STATEMENT", "BROKEN_ITEM"} else value
            )
        elif isinstance(value, Token) and value.text in CLOSING.values():
            brackets.pop()
        elif isinstance(value, (OperationNode, ConstantNode)) and brackets[-1] is not None:
            brackets[-1] = None  # the brace of a region
    return brackets[-1]


def word(token: Token) -> str:
    """The token's text, of `: i64` only the word."""
    return token.text[1:].lstrip(BLANKS) if token.type == "ASCRIPTION" else token.text


def meant(said: Said, token: Token) -> str:
    """A suggestion for a misspelt word."""
    if said.code == "parse.operator":
        known = [n for n in OPERATORS if not n.startswith(f"{token.text}.")]
        return similar_operators(token.text) or did_you_mean(token.text, known)
    if token.type != "NAME":
        return ""
    words = {"parse.item": "func graph module rewrite", "parse.statement": "return const call"}
    return did_you_mean(token.text, words.get(said.code, "").split())


def unknown_character(text: str) -> str:
    if (character := text[0]) == '"':
        return "a string ends with '\"' on the line where it begins"
    if character in "/#":
        return f"a comment begins with //, got {character}"
    if character == ";":
        return "a statement ends without a mark, and ',' separates, got ;"
    if character in "'‘’“”":
        return f'a string stands between "quotes", got {character}'
    name = unicodedata.name(character, "a control character" if ord(character) < 32 else "").lower()
    code = f"U+{ord(character):04X}"
    if not character.isprintable():
        return f"expected a character of the language, got {code}{f' ({name})' if name else ''}"
    more = "" if character.isascii() else f" ({code}{name and ', '}{name})"
    hint = "; a name is of ASCII letters, digits and _" if character.isalpha() else ""
    return f"expected a character of the language, got '{character}'{more}{hint}"


def shown(token: Token) -> str:
    if token.type == END:
        return "the end of the text"
    text = word(token)
    text = " ".join(text.split()) if len(text) <= 40 else " ".join(text[:37].split()) + "..."
    if token.type == UNKNOWN and not text.isprintable():
        return f"U+{ord(token.text[0]):04X}"
    return text if text[:1].isalnum() or text[:1] in '%@"!' else f"'{text}'"


# The expected tokens in words, where no snippet fits

# a group is expected where its first tokens all are; it stands for the others too
GROUPS: tuple[tuple[str, str, str], ...] = (
    ("an operand", "VALUE INTEGER NAME", "FLOAT MINUS LPAR"),
    (
        "a value",
        "DENSE STRING INTEGER",
        "FLOAT MINUS LPAR NAME SYMBOL LSQB LBRACE TENSOR DECLARED MISTYPED ELEMENT",
    ),
    ("a type", "TENSOR DECLARED", "MISTYPED ELEMENT"),
    ("a number", "INTEGER FLOAT", "MINUS NAME"),
    ("a name", "NAME FILE INIT", "CALL CONST FUNC GRAPH MODULE RETURN REWRITE OPERATOR"),
    ("a statement", "RESULT RETURN", "OPERATOR CALL CONST STRING VALUE RBRACE"),
    ("func, graph or rewrite", "FUNC GRAPH", "STRING REWRITE"),
)
WORDS = {
    "VALUE": "%name",
    "SYMBOL": "@name",
    "STRING": "a string",
    "INTEGER": "a number",
    "OPERATOR": "an operator",
    "NAME": "a name",
    "DENSE": "dense<...>",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "COMMA": "','",
    "COLON": "':'",
    "EQUAL": "'='",
    "ARROW": "'->'",
    "BECOMES": "'=>'",
    "FILE": "file",
    END: "the end of the text",
}


def wanted(expected: set[str]) -> str:
    """The expected tokens in words."""
    left = {k for k in expected if not k.startswith("BROKEN")}
    words = []
    for word, first, others in GROUPS:
        if left.issuperset(first.split()):
            words.append(word)
            left.difference_update(first.split(), others.split())
    words = [*sorted(WORDS[k] for k in left if k in WORDS), *words]
    if len(words) < 2:
        return words[0] if words else "something else"
    return f"{', '.join(words[:-1])} or {words[-1]}"
