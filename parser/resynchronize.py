"""Resynchronize after a syntax error: for each kind of broken construct, the next token at which
one can begin.
"""

from collections.abc import Callable, Iterator
from itertools import count

from ..dialect.support.diagnostics import Source
from .lalr_tables import END
from .syntax_tree import (
    ConstantNode,
    FunctionNode,
    GraphNode,
    OperationNode,
    QuotedNode,
    RewriteNode,
    Token,
)

DEPTH = {"LPAR": 1, "LSQB": 1, "LBRACE": 1, "RPAR": -1, "RSQB": -1, "RBRACE": -1}
HEADS = ("FUNC", "GRAPH", "REWRITE")
STARTS = ("RESULT", "RETURN", "CALL", "CONST", "OPERATOR", "INFIX", "STRING")


class Ahead:
    """The token that could not be read, and the following ones, read on demand."""

    def __init__(self, source: Source, first: Token, rest: Iterator[Token]) -> None:
        self.source = source
        self.tokens = [first]
        self.rest = rest

    def __getitem__(self, n: int) -> Token:
        while len(self.tokens) <= n:
            self.tokens.append(next(self.rest))
        return self.tokens[n]

    def on_new_line(self, n: int) -> bool:
        return self.source.on_new_line(self[n].start)

    def begins_statement(self, n: int, depth: int) -> bool:
        """Test whether the token certainly begins a statement, given the open brackets before
        it.
        """
        token = self[n]
        if token.type in ("RESULT", "RETURN", "YIELD"):
            return self.on_new_line(n)
        if token.type == "VALUE" and self.on_new_line(n):
            while self[n].type == "VALUE" and self[n + 1].type == "COMMA":
                n += 2
            return self[n].type == "RESULT"
        return depth <= 0 and token.type in STARTS and self.on_new_line(n)

    def begins_body(self, n: int) -> bool:
        """Test whether the brace opens the body of a function, not a dictionary."""
        return opens_block(self[n + 1].type, self[n + 2].type)

    def ends_function(self, n: int) -> bool:
        """Test whether a return stands here, and the brace after it closes a function."""
        if self[n].type != "RETURN":
            return False
        end = next(m for m in count(n) if self[m].type in ("RBRACE", END))
        return self[end + 1].type in (END, *HEADS)

    def block_end(self, n: int) -> int:
        """The token after the block of statements that begins here, or n where no block is followed
        by more of the body.
        """
        depth = 0
        for end in range(n, n + 1000 * self.begins_body(n)):
            kind = self[end].type
            depth += (kind == "LBRACE") - (kind == "RBRACE")
            if not depth or kind in (END, *HEADS):
                return n if depth or self[end + 1].type in (END, "RBRACE", *HEADS) else end + 1
        return n


def opens_block(first: str, second: str) -> bool:
    """Test whether what follows a brace begins statements, not a dictionary."""
    return first in ("VALUE", "RBRACE", "RESULT", "YIELD") or (
        first in STARTS and second != "EQUAL"
    )


def in_region(taken: list[Token]) -> bool:
    """Test whether the tokens of a statement end in an open region."""
    kinds = [*(t.type for t in taken), "", ""]
    opened: list[bool] = []
    for n, kind in enumerate(kinds):
        if kind == "LBRACE":
            opened.append(opens_block(kinds[n + 1], kinds[n + 2]) and kinds[n + 1] != "RETURN")
        elif kind == "RBRACE" and opened:
            opened.pop()
    return any(opened)


def skip_statement(ahead: Ahead, taken: list[Token]) -> int | None:
    depth = sum(DEPTH.get(t.type, 0) for t in taken)
    braces = sum(DEPTH[t.type] for t in taken if t.type in ("LBRACE", "RBRACE"))
    inside = in_region([*taken, ahead[0]])
    n = 0
    while True:
        if (token := ahead[n]).type == "LBRACE":
            token = ahead[
                n := ahead.block_end(n)
            ]  # as of a loop or a condition, which the language lacks
        if token.type == END or (token.type in HEADS and ahead.on_new_line(n)):
            return n
        if (token.type == "RBRACE" and braces <= 0) or (
            (n or taken)
            and (not inside or ahead.ends_function(n))
            and ahead.begins_statement(n, depth)
        ):
            return n
        depth += DEPTH.get(token.type, 0)
        braces += DEPTH[token.type] if token.type in ("LBRACE", "RBRACE") else 0
        inside = inside and braces > 0
        n += 1


def skip_argument(ahead: Ahead, taken: list[Token]) -> int | None:
    depth = 0
    for token in taken:
        depth += DEPTH.get(token.type, 0)
        if depth < 0:
            return None
    for n in count():
        if (kind := ahead[n].type) in ("COMMA", "RPAR") and depth <= 0:
            return n
        if kind in (END, *HEADS, "ARROW", "RETURN", "RESULT") or (
            kind == "LBRACE" and ahead.begins_body(n)
        ):
            return None
        depth += DEPTH.get(kind, 0)


def skip_head(ahead: Ahead, taken: list[Token]) -> int | None:
    for n in count():
        if ahead[n].type == "LBRACE" and ahead.begins_body(n):
            return n
        if ahead[n].type in (END, *HEADS, "RESULT", "RETURN", "RBRACE"):
            return None


SKIPS: dict[str, Callable[[Ahead, list[Token]], int | None]] = {
    "BROKEN_STATEMENT": skip_statement,
    "BROKEN_ARGUMENT": skip_argument,
    "BROKEN_TYPES": skip_head,
    "BROKEN_HEADER": skip_head,
    "BROKEN_MODULE": lambda ahead, taken: next(
        n for n in count() if ahead[n].type in (END, *HEADS)
    ),
    "BROKEN_ITEM": lambda a, past: next(
        n for n in count() if a[n].type == END or ((n or past) and a[n].type in HEADS)
    ),
    "BROKEN_REST": lambda ahead, taken: next(n for n in count() if ahead[n].type == END),
}


def first_offset(value: object) -> int | None:
    """The offset at which the parser's stack begins."""
    match value:
        case OperationNode() | ConstantNode():
            name = value.name if isinstance(value, OperationNode) else value.word
            return min(t.start for t in (*value.results, name))
        case FunctionNode() | GraphNode() | QuotedNode() | RewriteNode():
            return value.word.start
        case list() | tuple():
            start = getattr(value, "start", None)
            return (
                start
                if start is not None
                else next((s for v in value if (s := first_offset(v)) is not None), None)
            )
    return getattr(value, "start", None)
