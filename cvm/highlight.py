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

from cvm.parser.recovery import KIND_OF_TOKEN, scanner

COLORS: dict[str, _TokenType] = {
    "comment": Comment.Single,
    "keyword": Keyword,
    "variable": Name.Variable,
    "method": Name.Builtin,
    "type": Keyword.Type,
    "number": Number,
    "string": String,
    "function": Name.Function,
    "property": Name.Attribute,
}


class CvmLexer(Lexer):
    """Highlight `.cvm` programs."""

    name = "cvm"
    aliases = ("cvm",)
    filenames = ("*.cvm",)
    url = ""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        for token in scanner().tokens(text, keep=True):
            kind = COLORS.get(KIND_OF_TOKEN.get(token.type, ""))
            if token.type == "UNKNOWN":
                kind = Error
            elif kind is None:
                sign = Operator if re.fullmatch(r"[-+*/=<>!&|^~%]+", token.text) else Punctuation
                kind = Text if token.text.isspace() else sign
            yield token.start, kind, token.text
