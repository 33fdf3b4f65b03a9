"""A Pygments lexer of programs, from the tokens of the language's own lexer: for Sphinx, MkDocs,
IPython and `pygmentize`.
"""

import re
from collections.abc import Iterator
from typing import Any

from pygments.lexer import Lexer
from pygments.token import (
    Comment,
    Error,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    _TokenType,
)

from cvm.parser.recovery import scanner

TYPES: dict[str, _TokenType] = {
    "COMMENT": Comment.Single,
    **dict.fromkeys(
        ("FUNC", "GRAPH", "REWRITE", "MODULE", "RETURN", "CALL", "CONST", "INIT", "FILE", "DENSE"),
        Keyword,
    ),
    **dict.fromkeys(("VALUE", "RESULT"), Name.Variable),
    **dict.fromkeys(("OPERATOR", "INFIX"), Name.Builtin),
    **dict.fromkeys(("TENSOR", "DECLARED", "ELEMENT", "MISTYPED", "ASCRIPTION"), Keyword.Type),
    **dict.fromkeys(("INTEGER", "BITS"), Number.Integer),
    "FLOAT": Number.Float,
    "STRING": String,
    "SYMBOL": Name.Function,
    "NAME": Name.Attribute,
    "UNKNOWN": Error,
}


class CvmLexer(Lexer):
    """Highlight `.cvm` programs."""

    name = "cvm"
    aliases = ("cvm",)
    filenames = ("*.cvm",)
    url = ""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        for token in scanner().tokens(text, keep=True):
            if (kind := TYPES.get(token.type)) is None:
                sign = Operator if re.fullmatch(r"[-+*/=<>!&|^~%]+", token.text) else Punctuation
                kind = Text if token.text.isspace() else sign
            yield token.start, kind, token.text
