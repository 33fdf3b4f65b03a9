"""Parse with error recovery: tokens to syntax nodes, continuing after every mistake.

A mistake is reported once; then the parser drops the broken argument, statement or head from its
stack, skips to where the next one can begin, and shifts a BROKEN_* token for the skipped text
(panic mode with error productions).
"""

from collections.abc import Iterator
from functools import cache

from ..dialect.support.compilation_context import too_many
from ..dialect.support.diagnostics import Diagnostic, Note, Source, Span
from .actions import PROGRAMS
from .error_examples import Known, by_state
from .lalr import Parser, Stuck
from .lalr_tables import END
from .lex import Scanner
from .resynchronize import HEADS, SKIPS, STARTS, Ahead, first_offset
from .syntax_errors import explain, open_bracket, shown
from .syntax_tree import ProgramNode, Token

# the colors of tokens, by the names that the language server protocol has for them
KIND_OF_TOKEN = {
    "COMMENT": "comment",
    **dict.fromkeys(("FUNC", "GRAPH", "REWRITE", "MODULE", "RETURN", "CALL"), "keyword"),
    **dict.fromkeys(("CONST", "INIT", "FILE", "DENSE"), "keyword"),
    **dict.fromkeys(("VALUE", "RESULT"), "variable"),
    **dict.fromkeys(("OPERATOR", "INFIX"), "method"),
    **dict.fromkeys(("TENSOR", "DECLARED", "ELEMENT", "MISTYPED", "ASCRIPTION"), "type"),
    **dict.fromkeys(("INTEGER", "BITS", "FLOAT"), "number"),
    "STRING": "string",
    "SYMBOL": "function",
    "NAME": "property",
}


def scanner() -> Scanner:
    """The lexer of programs; made once, when the first one is read."""
    return PROGRAMS.scanner


@cache
def friendly() -> Known:
    """Messages for frequent mistakes, created at the first mistake."""
    return by_state(stops_at)


def stops_at(text: str) -> tuple[int, Token]:
    """The parser's state and the token where it cannot go on."""
    parser = Parser(PROGRAMS)
    for token in [*scanner().tokens(text), Token(END, "", len(text), len(text))]:
        try:
            parser.feed(token)
        except Stuck:
            parser.settle()
            return parser.states[-1], token
    raise AssertionError(f"an example of a mistake is none: {text}")


class Stream:
    """Tokens one after the other, of which some can be put back."""

    def __init__(self, tokens: Iterator[Token], length: int) -> None:
        self.tokens = tokens
        self.end = Token(END, "", length, length)
        self.waiting: list[Token] = []  # the next one last

    def __iter__(self) -> Iterator[Token]:
        while self.waiting:
            yield self.waiting.pop()
        for token in self.tokens:  # noqa: UP028 (`yield from` would close them with this generator)
            yield token
        while True:
            yield self.end

    def back(self, tokens: list[Token]) -> None:
        self.waiting += reversed(tokens)


class Reader:
    """One text being read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []
        self.characters: set[str] = set()  # reported as none of the language's
        self.stream = Stream(scanner().tokens(source.text), len(source.text))
        self.parser = Parser(PROGRAMS)

    def read(self) -> ProgramNode:
        while True:
            token = None
            try:
                feed = self.parser.feed
                for token in self.stream:
                    feed(token)
                    if token.type == END:
                        return self.parser.values[-1]
            except Stuck:
                assert token is not None
                self.parser.settle()
                self.recover(token)

    def recover(self, token: Token) -> None:
        """Reports the mistake and leaves the parser where it can go on."""
        inside = open_bracket(self.parser, token)
        before = self.parser.values[-1] if inside else None
        if (
            isinstance(before, Token)
            and before.type in (*HEADS, "RETURN")
            and self.source.on_new_line(before.start)
        ):
            self.stream.back([token])  # the word was read as the name of an attribute
            token = self.parser.values.pop()
            self.parser.states.pop()
        past_head = (
            not inside and self.parser.accepts("LBRACE") and not self.parser.accepts("COMMA")
        )  # of a function
        if not inside and token.type in (*HEADS, END) and self.parser.accepts("RBRACE"):
            opened = next(
                v
                for v in reversed(self.parser.values)
                if isinstance(v, Token) and v.type == "LBRACE"
            )
            notes = (Note("the brace that is not closed", self.span(opened)),)
            self.say(
                Diagnostic(
                    f"expected '}}', got {shown(token)}", self.span(token), "parse.brace", notes
                )
            )
            if self.parser.accepts("BROKEN_STATEMENT") and self.source.on_new_line(token.start):
                self.feed(
                    "BROKEN_STATEMENT", token.start, token.start
                )  # the return may be what is missing
            self.insert("RBRACE", token)
        elif past_head and token.type in STARTS and self.source.on_new_line(token.start):
            message = f"expected '{{' before the first statement, got {token.text}"
            self.say(Diagnostic(message, self.span(token), "parse.brace"))
            self.insert("LBRACE", token)
        else:
            outside = token.type in STARTS and self.parser.accepts(
                "FUNC"
            )  # of a function, to which it may belong
            if not outside or all(d.code != "parse.brace" for d in self.diagnostics):
                self.say(explain(self.source, self.parser, token, friendly()))
            self.skip(token)

    def insert(self, kind: str, token: Token) -> None:
        """Goes on as if a brace stood before the token."""
        self.stream.back([token])
        self.feed(kind, token.start, token.start)

    def skip(self, token: Token) -> None:
        """Replace a broken part, from its read beginning to its end after this token, by one
        node.
        """
        ahead = Ahead(self.source, token, iter(self.stream))
        states = self.parser.states
        values = self.parser.values
        rows = self.parser.rows
        for depth in range(len(states), 0, -1):
            if (
                kind := next((k for k in SKIPS if rows[states[depth - 1]].get(k, -1) >= 0), None)
            ) is None:
                continue
            if kind == "BROKEN_STATEMENT" and (
                _closes(values[depth - 1 :])
                or (
                    token.type in (*HEADS, END, "RBRACE")
                    and "RBRACE" not in rows[states[depth - 1]]
                )
            ):
                continue  # a region that ends without its yield is broken with its operation
            start = min(
                (s for v in values[depth - 1 :] if (s := first_offset(v)) is not None),
                default=token.start,
            )
            taken = list(scanner().tokens(self.source.text, start, token.start))
            if (stop := SKIPS[kind](ahead, taken)) is not None:
                del states[depth:], values[depth - 1 :]
                self.stream.back(ahead.tokens[stop:])
                self.feed(kind, start, ahead[stop].start)
                return
        raise AssertionError("an item may be broken at the start of a program")

    def say(self, mistake: Diagnostic) -> None:
        """Adds a mistake, the first at its place; after too many the rest of the text is not
        read.
        """
        if self.diagnostics and self.diagnostics[-1].span.start == mistake.span.start:
            return
        if mistake.code == "parse.character" and not mistake.span.text[:1].isascii():
            if mistake.span.text in self.characters:
                return
            self.characters.add(mistake.span.text)
        if not too_many(self.diagnostics):
            self.diagnostics.append(mistake)
        if too_many(self.diagnostics):
            self.stream = Stream(iter(()), len(self.source.text))

    def span(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end)

    def feed(self, kind: str, start: int, end: int) -> None:
        self.parser.feed(Token(kind, self.source.text[start:end], start, end))


def _closes(values: list[object]) -> bool:
    """Test whether the brace that ends a body, or a region's yield, is among what the parser has
    read.
    """
    return any(isinstance(v, Token) and v.type in ("RBRACE", "YIELD") for v in values)
