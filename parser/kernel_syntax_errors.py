"""Turn a syntax error in a kernel into a diagnostic: the tokens expected at the place, or the
unclosed brace.
"""

import re

from ..dialect.support.diagnostics import Diagnostic, Note, Source, Span
from ..dialect.support.suggest import did_you_mean
from .kernel_actions import KERNELS, UnexpectedToken, parse_members
from .lalr_tables import END, tables
from .lex import UNKNOWN

CODE = "parse.kernel"
MARKS = {
    "LPAR": "(",
    "RPAR": ")",
    "LBRACE": "{",
    "RBRACE": "}",
    "LSQB": "[",
    "RSQB": "]",
    "COMMA": ",",
    "COLON": ":",
    "EQUAL": "=",
    "ARROW": "->",
    "RANGE": "..",
    "TENSOR": "a type such as tensor<4xi32>",
    "VALUE": "%name",
    "SYMBOL": "a name such as @k",
    "STRING": "a message in quotes",
    "INTEGER": "a whole number",
    "NAME": "a word",
    "SIZE": "?N",
}
GROUPS = (  # tokens that mean one thing together
    (
        {
            *("FOR", "WHILE", "IF", "LET", "ALLOC", "ASSERT", "PREFETCH"),
            *("BREAK", "CONTINUE", "RETURN", "FAIL", "CALL"),
        },
        {"VALUE"},
        "a statement",
    ),
    (
        {"FLOAT", "MINUS", "LPAR"},
        {"INTEGER", "BOOLEAN", "VALUE", "NAME", "SIZE", "LSQB", "NOT"},
        "an expression",
    ),
    ({"OR", "AND", "PLUS"}, {"XOR", "COMPARE", "SHIFT", "MINUS", "PRODUCT"}, "an operator"),
)
REREAD = 1 << 20  # characters of a kernel after its mistakes, at most
STAND_INS = {  # for lines that are left out, by their first word
    "for": "if 1{",
    "if": "if 1{",
    "kernel": "kernel@_()->(){",
    "loop": "loop@_()->()while carry 0 of(){",
    "plan": "plan()->()",
}


def explain(error: UnexpectedToken, source: Source, base: int, end: int) -> Diagnostic:
    """The mistake in the text from `base` to `end`, which is one kernel."""
    text = source.text[base:end]
    token = error.token
    if token.type == UNKNOWN:
        where = Span(source, token.start, token.start + 1)
        return Diagnostic(
            f"no word or mark of the loop language begins with {where.text!r}", where, CODE
        )
    whole = base + len(text.rstrip())
    ended = token.type == END
    opened = _unclosed(text)
    if ended and opened is not None:
        brace = Span(source, base + opened, base + opened + 1)
        message = f"expected }} to close the {{ of line {brace.line}, got the end of the kernel"
        notes = (Note("the kernel ends here", Span(source, whole, whole)),)
        return Diagnostic(message, brace, CODE, notes)
    got = "the end" if ended else token.text
    words = [*tables(KERNELS.name).keywords]
    near = did_you_mean(got, words) if got.isalpha() and got not in words else ""
    place = Span(source, whole, whole) if ended else Span(source, token.start, token.end)
    return Diagnostic(f"expected {_expected(error.expected)}, got {got}{near}", place, CODE)


def syntax_errors(error: UnexpectedToken, source: Source, base: int, end: int) -> list[Diagnostic]:
    """The mistakes of a kernel or a loop: after each, the text is read again with a stand-in for
    its line.
    """
    text = source.text[:end]
    diagnostics = list[Diagnostic]()
    for _ in range(1 + REREAD // (end - base)):
        diagnostics.append(explain(error, source, base, end))
        stand_in = _without_line(text[base:], error, base)
        last = error.start
        if not stand_in:
            break
        text = text[:base] + stand_in
        try:
            parse_members(text, base)
            break
        except UnexpectedToken as e:
            error = e
        if error.token.type == END or error.start <= last:
            break  # it follows from the one before
    return diagnostics


def _without_line(text: str, error: UnexpectedToken, base: int) -> str:
    """The text from `base` on with the wrong line replaced by one of the same length; empty if no
    line is wrong.
    """
    at = error.start - base
    begin = text.rfind("\n", 0, at) + 1
    end = f"{text}\n".index("\n", at)
    before = text[begin:at].strip()
    is_statement = error.token.type == UNKNOWN or "FOR" in error.expected
    if (not before and not is_statement) or (
        text[at : at + 1] == "=" and re.fullmatch(r"%[\w$.]+ *(\[.*\])?", before)
    ):
        begin, end = (
            text.rfind("\n", 0, max(begin - 1, 0)) + 1,
            max(begin - 1, 0),
        )  # the line before has no end
    line = text[begin:end].strip()
    opens = line.endswith("{")
    word = "if" if opens and is_statement and not before else re.split(r"\W", line, maxsplit=1)[0]
    stand_in = STAND_INS.get(word, "")
    if "}" in line or stand_in.endswith("{") != opens or len(stand_in) > end - begin:
        return ""
    return text[:begin] + stand_in.ljust(end - begin) + text[end:]


def _expected(terminals: set[str]) -> str:
    names: list[str] = []
    for sure, more, name in GROUPS:
        if sure <= terminals:
            names.append(name)
            terminals = terminals - sure - more
    names += sorted({MARKS.get(t, t.lower().lstrip("_")) for t in terminals - {"$END"}})
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "the end"


def _unclosed(text: str) -> int | None:
    """The offset of the brace that nothing closes: the first whose line is indented further than
    the next `}` that would.
    """
    opened: list[tuple[int, int]] = []
    at = 0
    for line in text.splitlines(keepends=True):
        code = (
            ""
            if line.startswith("//")
            else re.sub(r'"([^"\\\n]|\\.)*"', lambda m: "." * len(m[0]), line)
        )
        indent = len(line) - len(line.lstrip())
        for n, mark in enumerate(code):
            if mark == "{":
                opened.append((at + n, indent))
            elif mark == "}" and opened:
                if opened[-1][1] > indent:
                    return opened[-1][0]
                opened.pop()
        at += len(line)
    return opened[-1][0] if opened else None
