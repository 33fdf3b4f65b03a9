"""Text to tokens: the terminals of the grammar in one regular expression. Every character belongs to some token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lark.lexer import Lexer

from .nodes import Token

END = "$END"
UNKNOWN = "UNKNOWN"
COMMENTS = ("COMMENT",)
OUTSIDE = ("LBRACE", "RBRACE", "RESULT", "INFIX", "OPERATOR")  # tokens that end an expression that is not closed


class Scanner(Lexer):
    """The lexer of a grammar; Lark hands it the terminals. A word that is a keyword is one wherever it stands."""

    __future_interface__ = 2  # Lark keeps this very object

    def __init__(self, conf: Any) -> None:
        words = [t for t in conf.terminals if t.pattern.type == "str" and t.pattern.value.isalpha()]
        others = [t for t in conf.terminals if t not in words]
        others.sort(key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value)))
        self.keywords = {t.pattern.value: t.name for t in words}
        self.ignored = frozenset(conf.ignore)
        pattern = "|".join(f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in others)
        self.pattern = re.compile(f"{pattern}|(?P<{UNKNOWN}>[^ -~]++|.)", re.DOTALL)
        inside = "|".join(f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in others if t.name not in COMMENTS)
        self.inside = re.compile(f"{inside}|(?P<{UNKNOWN}>[^ -~]++|.)", re.DOTALL)

    def lex(self, lexer_state: Any, parser_state: Any) -> Iterator[Any]:
        raise NotImplementedError("tokens come from `tokens`")

    def tokens(self, text: str, start: int = 0, end: int | None = None, keep: bool = False) -> Iterator[Token]:
        """The tokens of a stretch of text; `keep` gives blanks and comments too."""
        ignored, keywords = (frozenset() if keep else self.ignored), self.keywords
        for match in self.matches(text, start, len(text) if end is None else end):
            kind = match.lastgroup
            if kind in ignored or kind is None:
                continue
            word = match[0]
            if kind == "NAME":
                kind = keywords.get(word, kind)
            yield Token(kind, word, match.start(), match.end())

    def matches(self, text: str, start: int, end: int) -> Iterator[re.Match[str]]:
        """What each token matches. From `dialect.expr(` to the parenthesis that closes it there are no comments."""
        while start < end:
            position = end
            for match in self.pattern.finditer(text, start, end):
                yield match
                if match.lastgroup == "INFIX":
                    position = match.end()
                    break
            start, depth = end, 0
            for match in self.inside.finditer(text, position, end):
                yield match
                depth += (match.lastgroup == "LPAR") - (match.lastgroup == "RPAR")
                if match.lastgroup in OUTSIDE or (depth <= 0 and match.lastgroup == "RPAR"):
                    start = match.end()
                    break
