"""Turn a syntax error in a kernel into a diagnostic: the tokens expected at the place, or the
unclosed brace.
"""

import re
from typing import Any

from lark.exceptions import UnexpectedCharacters, UnexpectedInput

from ..dialect.support.diagnostics import Diagnostic, Note, Source, Span
from ..dialect.support.suggest import did_you_mean
from ..grammar import read

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
    "__ANON_0": "->",
    "__ANON_1": "..",
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
            *("_FOR", "_WHILE", "_IF", "_LET", "_ALLOC", "_ASSERT", "_PREFETCH"),
            *("_BREAK", "_CONTINUE", "_RETURN", "_FAIL"),
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


def explain(error: UnexpectedInput, source: Source, base: int, end: int) -> Diagnostic:
    """The mistake in the text from `base` to `end`, which is one kernel."""
    text = source.text[base:end]
    at = error.pos_in_stream
    whole = len(text.rstrip())
    if isinstance(error, UnexpectedCharacters):
        where = Span(source, base + (at or 0), base + (at or 0) + 1)
        return Diagnostic(
            f"no word or mark of the loop language begins with {where.text!r}", where, CODE
        )
    token: Any = getattr(error, "token", None)
    ended = token is None or token.type == "$END" or at is None or at >= whole
    opened = _unclosed(text)
    if ended and opened is not None:
        brace = Span(source, base + opened, base + opened + 1)
        place = Span(source, base + whole, base + whole)
        message = f"expected }} to close the {{ of line {brace.line}, got the end of the kernel"
        return Diagnostic(message, brace, CODE, (Note("the kernel ends here", place),))
    start = base + (whole if ended else int(at or 0))
    got = "the end" if ended else str(token)
    wanted = _expected(set(getattr(error, "accepts", None) or getattr(error, "expected", ()) or ()))
    words = re.findall(r"^_?[A-Z]+\.2: /([a-z]+)\\b", read("loops.lark"), re.MULTILINE)
    near = did_you_mean(got, words) if got.isalpha() and got not in words else ""
    place = Span(source, start, start if ended else start + len(got))
    return Diagnostic(f"expected {wanted}, got {got}{near}", place, CODE)


def syntax_errors(
    error: UnexpectedInput, source: Source, base: int, end: int, parse: Any
) -> list[Diagnostic]:
    """The mistakes of a kernel or a loop: after each, the text is read again with a stand-in for
    its line.
    """
    text = source.text[base:end]
    diagnostics = list[Diagnostic]()
    for _ in range(1 + REREAD // len(text)):
        diagnostics.append(explain(error, source, base, end))
        text = _without_line(text, error)
        last = error.pos_in_stream or 0
        try:
            parse(text, start="start")
            break
        except UnexpectedInput as e:
            error = e
        if not getattr(error, "token", True) or (error.pos_in_stream or 0) <= last:
            break  # it follows from the one before
    return diagnostics


def _without_line(text: str, error: UnexpectedInput) -> str:
    """The text with the wrong line replaced by one of the same length; empty if no line is
    wrong.
    """
    at = error.pos_in_stream or 0
    begin = text.rfind("\n", 0, at) + 1
    end = f"{text}\n".index("\n", at)
    before = text[begin:at].strip()
    is_statement = "_FOR" in getattr(error, "accepts", ("_FOR",))
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
    names = []
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
