"""Parse types: one token, from left to right, with mistakes located inside it."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from ..dialect.support.suggest import did_you_mean
from ..dialect.types.sizes import Dim, Size
from ..dialect.types.tensor_types import (
    ELEMENT_TYPES,
    MAX_RANK,
    MAX_SIZE,
    ElementType,
    FieldType,
    TensorType,
    Type,
)
from .syntax_tree import Mistake, Token, read_string

HABITS = {  # what the element types are called elsewhere
    "bool": "i1",
    "int": "i32",
    "long": "i64",
    "index": "i64",
    "ui1": "i1",
    "u1": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "si8": "i8",
    "si16": "i16",
    "si32": "i32",
    "si64": "i64",
    "uint8": "ui8",
    "uint16": "ui16",
    "uint32": "ui32",
    "uint64": "ui64",
    "u8": "ui8",
    "u16": "ui16",
    "u32": "ui32",
    "u64": "ui64",
    "half": "f16",
    "float": "f32",
    "double": "f64",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "bfloat16": "bf16",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
}

_BLANK = re.compile(r"\s*")
_DIM = re.compile(r"(\d+|\?\s*[A-Z][A-Z0-9_]*|\?)\s*(?=[x>])", re.ASCII)
_ELEMENT = re.compile(r"complex\s*<\s*(\w*)\s*>|\w+", re.ASCII)
_NAME = re.compile(r"!([a-z][a-z0-9_]*\.[a-z0-9_.]+)", re.ASCII)
_PARAMETER = re.compile(
    r'-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|true\b|false\b|"(?:[^"\\\n]|\\.)*"', re.ASCII
)
MAX_DIGITS = 1000  # of a number in a type; Python converts up to 4300
_WORD = re.compile(r"[?*-]?\s*\w*")


class Wrong(Exception):
    """A mistake inside a type, between two offsets of its text."""

    def __init__(self, message: str, start: int, end: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = start + 1 if end is None else end


class Cursor(NamedTuple):
    """The text of a type and how far it has been read."""

    text: str
    at: int

    def blanks(self) -> "Cursor":
        match = _BLANK.match(self.text, self.at)
        return Cursor(self.text, match.end() if match else self.at)

    def expect(self, mark: str, meaning: str) -> "Cursor":
        if not self.text.startswith(mark, self.at):
            raise Wrong(f"expected '{mark}' {meaning}", min(self.at, len(self.text) - 1))
        return Cursor(self.text, self.at + len(mark)).blanks()


def read_type(token: Token, read: Callable[[str], object] | None = None) -> Any:
    """The type a token stands for, or a Mistake. Every anonymous `?` is a size of its own."""
    try:
        return _read(token.text) if "?" in token.text else (read or _known)(token.text)
    except Wrong as wrong:
        return Mistake(
            "parse.type", wrong.message, token.start + wrong.start, token.start + wrong.end
        )


def read_attribute(token: Token) -> Any:
    """The type that an attribute is, or a Mistake; it may be an element type of a package."""
    is_declared = token.text.startswith("!") and not token.text.startswith("!cog.")
    return read_type(token, _declared_alone if is_declared else None)


def _declared_alone(text: str) -> ElementType:
    return _declared(Cursor(text, 0))[0]


def _read(text: str) -> Type:
    if text.startswith("tensor"):
        found, rest = _tensor(Cursor(text, 0))
    elif text.startswith("!"):
        found, rest = _field(Cursor(text, 0))
    else:
        name = "".join(text.split())
        known = f"; write tensor<{name}>" if name in ELEMENT_TYPES else ""
        raise Wrong(f"expected the type of a tensor, got {name[:80]}{known}", 0, len(text))
    if rest.at < len(text):
        raise Wrong("expected the end of the type", rest.at)
    return found


_known = lru_cache(4096)(_read)


def _tensor(cursor: Cursor) -> tuple[TensorType, Cursor]:
    cursor = (
        Cursor(cursor.text, cursor.at + len("tensor"))
        .blanks()
        .expect("<", "and a shape, as in tensor<2x3xf32>")
    )
    shape: list[Dim] = []
    opened = cursor.at
    while dim := _DIM.match(cursor.text, cursor.at):
        shape.append(read_dim(dim[1], cursor.at))
        cursor = Cursor(cursor.text, dim.end())
        if cursor.text.startswith(">", cursor.at):
            raise Wrong(
                "expected an element type after the sizes, as in tensor<2x3xf32>", cursor.at
            )
        cursor = cursor.expect("x", "between two sizes")
    check_shape(shape, opened, cursor.at)
    element, cursor = _element(cursor)
    return TensorType(tuple(shape), element), cursor.blanks().expect(">", "at the end of the type")


def _field(cursor: Cursor) -> tuple[FieldType, Cursor]:
    if (name := re.match(r"![\w.]*", cursor.text)) is None or name[0] != "!cog.field":
        element, _ = _declared(cursor)
        got = f"{cursor.text[:80]}; write tensor<{element}>"
        raise Wrong(f"expected the type of a tensor, got {got}", 0, len(cursor.text))
    cursor = (
        Cursor(cursor.text, name.end())
        .blanks()
        .expect("<", "and a shape, as in !cog.field<[2, 3], f32>")
    )
    cursor = cursor.expect("[", "and the sizes, as in !cog.field<[2, 3], f32>")
    shape: list[Dim] = []
    opened = cursor.at
    while not cursor.text.startswith("]", cursor.at):
        if shape:
            cursor = cursor.expect(",", "between two sizes")
        if (
            dim := re.compile(r"\d+|\?\s*[A-Z][A-Z0-9_]*|\?", re.ASCII).match(
                cursor.text, cursor.at
            )
        ) is None:
            raise Wrong("expected a size or ']'", min(cursor.at, len(cursor.text) - 1))
        shape.append(read_dim(dim[0], cursor.at))
        cursor = Cursor(cursor.text, dim.end()).blanks()
    check_shape(shape, opened, cursor.at)
    if len(shape) > 3:
        raise Wrong(f"a field has at most 3 dimensions, got {len(shape)}", opened, cursor.at)
    cursor = cursor.expect("]", "").expect(
        ",", "and the type of a point, as in !cog.field<[2, 3], f32>"
    )
    begin = cursor.at
    if cursor.text.startswith("tensor", cursor.at):
        point, cursor = _tensor(cursor)
    else:
        element, cursor = _element(cursor)
        point = TensorType((), element)
    if point.rank > 2:
        raise Wrong(
            f"the points of a field are tensors of order at most 2, got {point.rank}",
            begin,
            cursor.at,
        )
    return FieldType(tuple(shape), point), cursor.blanks().expect(">", "at the end of the type")


def read_dim(text: str, at: int) -> Dim:
    """A size as it is written: 3, ? or ?N."""
    if text[0] == "?":
        name = text[1:].strip()
        return Size.named(name) if name else Size.unknown()
    if len(text) > 20 or int(text) >= MAX_SIZE:
        raise Wrong("a size is less than 2^40", at, at + len(text))
    return int(text)


def check_shape(shape: list[Dim], start: int, end: int) -> None:
    if len(shape) > MAX_RANK:
        raise Wrong(f"a tensor has at most {MAX_RANK} dimensions, got {len(shape)}", start, end)
    total = 1
    for dim in shape:
        total *= dim or 1 if isinstance(dim, int) else 1
    if total >= MAX_SIZE:
        raise Wrong(
            "a tensor has less than 2^40 elements, with sizes of 0 counted as 1", start, end
        )


def _declared(cursor: Cursor) -> tuple[ElementType, Cursor]:
    """An element type that a package declares: `!ff.elem<17>`."""
    from ..dialect.spec.declared_types import declared, unknown_type

    name = _NAME.match(cursor.text, cursor.at)
    start = cursor.at
    if name is None:
        raise Wrong("the name of a type is !dialect.type", start)
    if (kind := declared(name[1])) is None:
        raise Wrong(unknown_type(name[1]), start, name.end())
    values = []
    cursor = Cursor(cursor.text, name.end())
    if (inner := cursor.blanks()).text.startswith("<", inner.at):
        cursor = inner.expect("<", "")
        while not cursor.text.startswith(">", cursor.at):
            if values:
                cursor = cursor.expect(",", "between two parameters")
            value, cursor = _parameter(cursor)
            values.append(value)
            cursor = cursor.blanks()
        cursor = Cursor(cursor.text, cursor.at + 1)
    try:
        return kind(*values), cursor
    except ValueError as e:
        raise Wrong(str(e), start, cursor.at) from None


def _parameter(cursor: Cursor) -> tuple[Any, Cursor]:
    """A parameter of a type: a number, a truth value, a string or an element type."""
    if (match := _PARAMETER.match(cursor.text, cursor.at)) is None:
        if _ELEMENT.match(cursor.text, cursor.at) or cursor.text.startswith("!", cursor.at):
            return _element(cursor)
        at = min(cursor.at, len(cursor.text) - 1)
        raise Wrong("expected a parameter: a number, true, false, a string or a type", at)
    text, rest = match[0], Cursor(cursor.text, match.end())
    if text[0] == '"':
        value = read_string(Token("STRING", text, match.start(), match.end())).value
        if isinstance(value, Mistake):
            raise Wrong(value.message, match.start(), match.end())
        return value, rest
    if text in ("true", "false"):
        return text == "true", rest
    if len(text) > MAX_DIGITS:
        raise Wrong(f"a number has at most {MAX_DIGITS} characters", match.start(), match.end())
    return (int(text) if text.lstrip("-").isdigit() else float(text)), rest


def _element(cursor: Cursor) -> tuple[ElementType, Cursor]:
    if (
        (match := _ELEMENT.match(cursor.text, cursor.at)) is None
        or match[0][0].isdigit()
        or match[0] == "x"
    ):
        return _declared_or_refused(cursor)
    if (name := "".join(match[0].split())) not in ELEMENT_TYPES:
        if name.rpartition("x")[2] in ELEMENT_TYPES or re.match(
            r"\s+x", cursor.text[match.end() :]
        ):
            raise Wrong(
                f"an unknown size is written ? or ?N, got {name[:80]}", match.start(), match.end()
            )
        raise Wrong(unknown_element(name), match.start(), match.end())
    return ELEMENT_TYPES[name], Cursor(cursor.text, match.end())


def unknown_element(name: str) -> str:
    """A message about a word that should be an element type."""
    meant = (
        f"; did you mean {HABITS[name]}" if name in HABITS else did_you_mean(name, ELEMENT_TYPES)
    )
    return f"expected an element type, got {name[:80]}{meant}"


def _declared_or_refused(cursor: Cursor) -> tuple[ElementType, Cursor]:
    """An element type of a package, or an error where a size or an element type is expected."""
    if cursor.text.startswith("!", cursor.at):
        return _declared(cursor)
    match = _WORD.match(cursor.text, cursor.at)
    word = match[0].strip() if match else ""
    start = cursor.at
    end = cursor.at + max(1, len(word))
    if start >= len(cursor.text):
        raise Wrong("expected '>' at the end of the type", start - 1)
    if re.match(r"\?\s*[^\sA-Z]", word):
        raise Wrong(f"the name of a size is upper case, as in ?N, got {word[:80]}", start, end)
    if word.startswith("-"):
        raise Wrong(
            f"a size is not negative (an unknown one is written ?), got {word[:80]}", start, end
        )
    if word.startswith("*"):
        raise Wrong("a tensor has a known rank (an unknown size is written ?), got *", start, end)
    if word[:1] == "?" or word[:1].isdigit():
        raise Wrong(f"expected 'x' after a size, got {word[:80]}", start, end)
    raise Wrong("expected a size or an element type, as in tensor<2x3xf32>", start, end)
