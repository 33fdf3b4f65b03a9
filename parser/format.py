"""Format programs: one statement per line, two blanks of indentation; comments and single blank
lines are kept.

Line breaks inside a statement stay and are indented again. Names, order and the spelling of numbers
are not changed.
"""

import re
from collections.abc import Iterator

from ..dialect.support.diagnostics import Diagnostic, ParseError, Span
from .build_module import first_token
from .decode import decode, untokened
from .lalr_tables import END
from .recovery import Reader, scanner
from .resynchronize import HEADS
from .syntax_tree import BrokenNode, ProgramNode, Token
from .type_syntax import read_type

INDENT = "  "
CONTINUED = "    "
OPENING = {"LPAR": 1, "LSQB": 1, "LBRACE": 1}
CLOSING = {"RPAR": 1, "RSQB": 1, "RBRACE": 1}
TIGHT_AFTER = {"LPAR", "LSQB", "LBRACE", "PREFIX", ""}
TIGHT_BEFORE = {"RPAR", "RSQB", "RBRACE", "COMMA"}
CALLED = {"SYMBOL", "STRING", "FILE", "NAME", "INFIX"}  # what a parenthesis follows without a blank
SIGNS = {"PLUS", "MINUS", "NOT"}
OPERANDS = {
    "VALUE",
    "INTEGER",
    "FLOAT",
    "NAME",
    "RPAR",
    "ASCRIPTION",
}  # after these a sign is an operator between two


def format_text(text: str | bytes, filename: str = "<text>") -> str:
    """The text in the usual layout; raises ParseError where it is not the language. Types and names
    are not checked, but that types end.
    """
    source, diagnostics = decode(text, filename)
    reader = Reader(source)
    program = reader.read()
    if mistakes := untokened(source, diagnostics, reader.diagnostics):
        raise ParseError(mistakes)
    types = (t for t in scanner().tokens(source.text) if t.type == "MISTYPED")
    open_types = [read_type(t) for t in types if t.text.count("<") > t.text.count(">")]
    if open_types:
        raise ParseError(
            [Diagnostic(m.message, Span(source, m.start, m.end), m.code) for m in open_types]
        )
    return Layout(source.text, *starts(program)).write()


def starts(program: ProgramNode) -> tuple[set[int], set[int]]:
    """The offsets at which functions and statements begin, and those of the braces of regions."""
    items = [i for i in program.items if not isinstance(i, BrokenNode)]
    offsets, braces = {i.word.start for i in items}, set[int]()
    waiting = [s for i in items for s in i.body]
    while waiting:
        if not isinstance(statement := waiting.pop(), BrokenNode):
            offsets.add(first_token(statement).start)
            for region in getattr(statement, "regions", ()):
                braces.add(region.brace.start)
                waiting += region.body
    return offsets, braces


class Layout:
    """A text being written again, line by line."""

    def __init__(self, text: str, starts: set[int], regions: set[int]) -> None:
        self.text = text
        self.starts = starts
        self.regions = regions  # the offsets of their braces
        self.lines: list[str] = []
        self.trailing: dict[int, str] = {}  # the comments at the end of lines
        self.line: list[str] = []  # the pieces of the line being written
        self.column = 0
        self.level = 0  # of braces that enclose statements
        self.open: list[int] = []  # the column after each bracket open inside the statement
        self.head = False  # between `func` and the brace of its body
        self.last = ""  # the type of the token before on this line
        self.before = ""  # the same, on whatever line

    def write(self) -> str:
        for token, breaks in self.tokens():
            if token.type == "COMMENT":
                self.comment(token, breaks)
            elif token.type != END:
                self.place(token, breaks)
        self.end_line()
        self.align_trailing()
        return "".join(f"{line}\n" for line in self.lines)

    def align_trailing(self) -> None:
        """Comments at the end of lines that follow each other begin in one column."""
        for first in sorted(n for n in self.trailing if n - 1 not in self.trailing):
            end = first
            while end in self.trailing:
                end += 1
            column = max(len(self.lines[n]) for n in range(first, end))
            for n in range(first, end):
                self.lines[n] = f"{self.lines[n]:{column}}  {self.trailing[n]}"

    def tokens(self) -> Iterator[tuple[Token, int]]:
        """The tokens and comments, each with the number of line breaks before it."""
        breaks = 0
        for token in scanner().tokens(self.text, keep=True):
            if token.type == "BLANK":
                breaks += token.text.count("\n")
            else:
                yield token, breaks
                breaks = 0

    def place(self, token: Token, breaks: int) -> None:
        if (
            token.start in self.starts
            or token.type == "MODULE"
            or (token.type == "RBRACE" and not self.open)
        ):
            self.end_line()
            self.open.clear()
            if token.type == "RBRACE":
                self.level -= 1
            self.blank_line(breaks, token.type in HEADS, token.type == "RBRACE")
            self.put(INDENT * self.level)
            self.head = token.type in (*HEADS, "MODULE")
        elif token.type in ("BECOMES", "ELSE") and self.before == "RBRACE":
            self.head = token.type == "BECOMES"  # after the brace that closes the first program
            self.put(" ")
        elif breaks and self.last != "BECOMES":
            self.end_line()
            self.put(self.continuation(token))
        elif not self.tight(token):
            self.put(" ")
        self.put(self.laid_out(token))
        self.last = "PREFIX" if token.type in SIGNS and self.before not in OPERANDS else token.type
        self.before = token.type
        is_body = token.start in self.regions or (self.head and not self.open)
        if token.type in OPENING and not (token.type == "LBRACE" and is_body):
            self.open.append(self.column)
        elif token.type in CLOSING and self.open:
            self.open.pop()
        elif token.type == "LBRACE":
            self.level += 1
            self.head = False
            self.last = "body"

    def comment(self, token: Token, breaks: int) -> None:
        text = token.text.rstrip()
        if not breaks and self.last:
            self.end_line()
            self.trailing[len(self.lines) - 1] = text
        else:
            self.end_line()
            self.blank_line(breaks, False, False)
            self.lines.append(
                (self.continuation(token) if self.open else INDENT * self.level) + text
            )

    def continuation(self, token: Token) -> str:
        if (column := self.open[-1] if self.open else -1) > 0 and token.type in CLOSING:
            column -= 1
        return " " * column if column > 0 else INDENT * self.level + CONTINUED

    def blank_line(self, breaks: int, always: bool, never: bool) -> None:
        """One blank line where there were some, none at the edges of a body."""
        before = self.lines[-1] if self.lines else "{"
        edge = before.rstrip().endswith("{") or never or not before
        if not edge and (breaks > 1 or (always and not before.lstrip().startswith("//"))):
            self.lines.append("")

    def put(self, piece: str) -> None:
        self.line.append(piece)
        end = piece.rfind("\n")
        self.column = self.column + len(piece) if end < 0 else len(piece) - end - 1

    def end_line(self) -> None:
        if line := "".join(self.line).rstrip():
            self.lines += line.split("\n")
        self.line.clear()
        self.column = 0
        self.last = ""

    def tight(self, token: Token) -> bool:
        """Test whether no blank precedes the token."""
        if self.last in TIGHT_AFTER or token.type in TIGHT_BEFORE:
            return True
        if token.type == "LPAR":
            return self.last in CALLED
        return token.type == "COLON" and self.head and bool(self.open)

    def laid_out(self, token: Token) -> str:
        match token.type:
            case "TENSOR" | "DECLARED" | "ELEMENT":
                return type_text(token.text)
            case "DENSE":
                return dense_text(token.text, self.column)
            case "ASCRIPTION":
                return ": " + "".join(token.text[1:].split())
        return token.text


def type_text(text: str) -> str:
    """A type as the printer writes it: blanks around every x where a size has a name, and after
    commas.
    """
    text = "".join(text.split())
    if re.search(r"\?[A-Z]", text):
        text = re.sub(r"(?<=[?0-9A-Z_])x", " x ", text)
    return text.replace(",", ", ")


_INSIDE = re.compile(r"//[^\n]*|\n|[ \t\r\f]+|[\[\](),]|[^\s\[\](),/]+|/")


def dense_text(text: str, column: int) -> str:
    """A dense constant that begins at a column: its lines are indented under the brackets they
    stand in.
    """
    opening = text.index("<") + 1
    out = "dense<"
    open_at = [column + len("dense<")]
    position = open_at[0]
    pieces: list[str] = [out]
    fresh, gap = True, False
    for match in _INSIDE.finditer(text[opening:-1].strip()):
        if (piece := match[0]) == "\n":
            if not fresh:
                pieces.append("\n")
            fresh = True
            continue
        if piece[0] in " \t\r\f":
            continue
        if fresh and pieces[-1] == "\n":
            indent = open_at[-1] - (1 if piece in ")]" and len(open_at) > 1 else 0)
            pieces.append(" " * indent)
            position = indent
        elif gap:
            pieces.append("  " if piece.startswith("//") else " ")
            position += len(pieces[-1])
        elif piece.startswith("//"):
            pieces.append("  ")
        pieces.append(piece.rstrip())
        position += len(piece)
        fresh, gap = False, piece == ","
        if piece in "[(":
            open_at.append(position)
        elif piece in "])" and len(open_at) > 1:
            open_at.pop()
    return "".join(pieces) + ">"
