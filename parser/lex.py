"""Text to tokens: the terminals of the grammar in one regular expression. Every character belongs
to some token.
"""

import re
from collections.abc import Iterator
from functools import cached_property

from .lalr_tables import Tables
from .syntax_tree import Token

UNKNOWN = "UNKNOWN"
COMMENTS = ("COMMENT",)
OUTSIDE = (
    "LBRACE",
    "RBRACE",
    "RESULT",
    "INFIX",
    "OPERATOR",
)  # tokens that end an expression that is not closed


class Scanner:
    """The lexer of a grammar. A word that is a keyword is one wherever it stands."""

    def __init__(self, tables: Tables) -> None:
        self.terminals = tables.terminals
        self.keywords = tables.keywords
        self.ignored = frozenset(tables.ignored)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return _any_of([f"(?P<{name}>{pattern})" for name, pattern in self.terminals])

    @cached_property
    def inside(self) -> re.Pattern[str]:
        """The pattern of the tokens inside an expression."""
        return _any_of(
            [f"(?P<{name}>{pattern})" for name, pattern in self.terminals if name not in COMMENTS]
        )

    def tokens(
        self, text: str, start: int = 0, end: int | None = None, keep: bool = False
    ) -> Iterator[Token]:
        """The tokens of a stretch of text; `keep` gives blanks and comments too."""
        ignored = frozenset() if keep else self.ignored
        keywords = self.keywords
        for match in self.matches(text, start, len(text) if end is None else end):
            if (kind := match.lastgroup) in ignored or kind is None:
                continue
            word = match[0]
            if kind == "NAME":
                kind = keywords.get(word, kind)
            yield Token(kind, word, match.start(), match.end())

    def matches(self, text: str, start: int, end: int) -> Iterator[re.Match[str]]:
        """The match of each token. From `dialect.expr(` to the matching parenthesis there are no
        comments.
        """
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


def _any_of(patterns: list[str]) -> re.Pattern[str]:
    return re.compile(f"{'|'.join(patterns)}|(?P<{UNKNOWN}>[^ -~]++|.)", re.DOTALL)
