"""Parse the elements of `dense<...>`: nested lists of numbers to an array of a stated shape and
element type.

Regular lists of plain numbers are parsed in a few passes over the text; other lists element by
element, which finds the place of a mistake.
"""

import re
from typing import Any

import numpy as np

from ..dialect.builtin import Data, owned
from ..dialect.spec.operator import size_text
from ..dialect.support.suggest import did_you_mean
from ..dialect.types.cast_arrays import array_of
from ..dialect.types.literal_types import fit
from ..dialect.types.tensor_types import ElementType
from .syntax_tree import Mistake, Token

_COMMENT = re.compile(r"//[^\n]*")
# of a repeat that is possessive, Python before 3.11.5 keeps what a last, vain round took: here a
# comma, and a sign
_INTEGERS = re.compile(r"\s*-?[0-9]{1,18}\s*(?:,\s*-?[0-9]{1,18}\s*)*+", re.ASCII)
_NUMBERS = re.compile(
    r"\s*-?[0-9]++(?:\.[0-9]*+)?(?:[eE][-+]?[0-9]++)?\s*(?:,\s*-?[0-9]++(?:\.[0-9]*+)?(?:[eE][-+]?[0-9]++)?\s*)*+",
    re.ASCII,
)
_NO_BRACKETS = str.maketrans("", "", "[]")
_TOKEN = re.compile(
    r"\s*(?:([\[\](),])|(0x[0-9A-Fa-f]+|-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)|(-?[A-Za-z_]\w*)|(\S))",
    re.ASCII,
)
_NAN, _INF = float("nan"), float("inf")
_WORDS: dict[str, object] = {
    "true": True,
    "false": False,
    "nan": _NAN,
    "-nan": _NAN,
    "inf": _INF,
    "-inf": -_INF,
}


class Wrong(Exception):
    """The Mistake inside a dense constant."""


def read_dense(token: Token, shape: tuple[int, ...], element: ElementType) -> Data | Mistake:
    """Read the data of a `dense<...>` token as an array of the shape and element type, or return
    the error.
    """
    opening = token.text.index("<") + 1
    body = token.text[opening:-1]
    if "//" in body:
        body = _COMMENT.sub(lambda m: " " * len(m[0]), body)
    try:
        with np.errstate(all="ignore"):
            array = _plain(body, shape, element)
            return (
                array
                if array is not None
                else _careful(body, token.start + opening, shape, element)
            )
    except Wrong as wrong:
        return wrong.args[0]


def _plain(body: str, shape: tuple[int, ...], element: ElementType) -> Data | None:
    """The data if it is a regular list of plain numbers that fit; None if it needs the full
    reader.
    """
    if not shape or element.kind not in ("int", "uint", "float") or len(body) < 32:
        return None
    if re.sub(r"[^\[\],]++", "", body) != _brackets(shape):
        return None
    flat = body.translate(_NO_BRACKETS)
    if (
        not (_INTEGERS if element.is_integer else _NUMBERS).fullmatch(flat)
        or flat.rstrip()[-1] in ",-"
    ):
        return None
    if element.is_integer:
        values = np.fromstring(flat, np.int64, sep=",")
        low, high = element.limits
        if values.size and (int(values.min()) < low or int(values.max()) > high):
            return None
    else:
        values = np.fromstring(flat, np.float64, sep=",")
    if values.size != int(np.prod(shape)):
        return None
    array = array_of(values, element).reshape(shape)
    return Data(owned(array)) if element.is_integer or np.isfinite(array).all() else None


def _brackets(shape: tuple[int, ...]) -> str:
    text = ""
    for n in reversed(shape):
        if n == 0 or n * len(text) > 1 << 28:
            return "?"
        text = f"[{','.join([text] * n)}]"
    return text


def _careful(body: str, offset: int, shape: tuple[int, ...], element: ElementType) -> Data:
    if not body.strip():
        if 0 not in shape:
            message = f"expected elements for the shape {size_text(shape)}, got none"
            raise Wrong(Mistake("const.shape", message, offset - 1, offset + len(body) + 1))
        return Data(owned(np.zeros(shape, element.dtype)))
    if not body.lstrip().startswith("["):
        array = array_of(Elements(body, offset, (), element).read()[0], element)
        return Data(np.broadcast_to(array, shape), splat=bool(shape)) if shape else Data(array)
    array = array_of(Elements(body, offset, shape, element).read(), element)
    return Data(owned(array.reshape(shape)))


class Elements:
    """A reader of nested lists that tracks its position."""

    def __init__(
        self, body: str, offset: int, shape: tuple[int, ...], element: ElementType
    ) -> None:
        self.body = body
        self.offset = offset
        self.shape = shape
        self.element = element
        self.at = 0
        self.token = self.next()

    def next(self) -> re.Match[str] | None:
        if (match := _TOKEN.match(self.body, self.at)) is not None:
            self.at = match.end()
        self.token = match
        return match

    @property
    def text(self) -> str:
        return "" if self.token is None else self.token[self.token.lastindex or 0]

    @property
    def got(self) -> str:
        return self.text[:40] or "the end"

    def wrong(self, code: str, message: str) -> Wrong:
        if self.token is None:
            return Wrong(
                Mistake(
                    code, message, self.offset + len(self.body), self.offset + len(self.body) + 1
                )
            )
        start, end = self.token.span(self.token.lastindex or 0)
        return Wrong(Mistake(code, message, self.offset + start, self.offset + end))

    def read(self) -> list[Any]:
        """All elements in row-major order; lists are checked against the shape as they open and
        close.
        """
        values = []
        counts: list[int] = []
        rank = len(self.shape)
        nested = f"expected lists nested {rank} deep for the shape {size_text(self.shape)}"
        while True:
            if self.text == "[":
                if len(counts) == rank:
                    raise self.wrong("const.shape", f"{nested}, got another '['")
                counts.append(0)
                self.next()
                if self.text != "]":
                    continue
            else:
                if len(counts) != rank:
                    raise self.wrong(
                        "const.shape", f"{nested}, got {self.got} at depth {len(counts)}"
                    )
                values.append(self.value())
                if not rank:
                    break
                counts[-1] += 1
            while counts and self.text == "]":
                if counts[-1] != (wanted := self.shape[len(counts) - 1]):
                    message = (
                        f"expected {wanted} elements in dimension {len(counts) - 1}, got "
                        f"{counts[-1]}"
                    )
                    raise self.wrong("const.shape", message)
                counts.pop()
                if counts:
                    counts[-1] += 1
                self.next()
            if not counts:
                break
            self.pass_over(",", "expected ',' or ']' between elements")
        if self.token is not None:
            raise self.wrong(
                "const.syntax", f"expected the end of the constant, got {self.text[:40]}"
            )
        return values

    def value(self) -> Any:
        if self.text == "(":
            opened = self.token
            self.next()
            real = self.number()
            self.pass_over(",", "expected ',' between the parts of a complex number")
            imaginary = self.number()
            if self.text != ")":
                raise self.wrong(
                    "const.syntax", f"expected ')' after a complex number, got {self.got}"
                )
            self.token = opened
            after = self.at
            value = self.fitting(complex(real, imaginary))
            self.at = after
        else:
            value = self.fitting(self.number(advance=False))
        self.next()
        return value

    def pass_over(self, mark: str, expected: str) -> None:
        if self.text != mark:
            raise self.wrong("const.syntax", f"{expected}, got {self.got}")
        self.next()

    def fitting(self, value: object) -> Any:
        try:
            return fit(value, self.element)
        except ValueError as e:
            raise self.wrong(
                "const.range" if "holds" in str(e) else "const.element", str(e)
            ) from None

    def bits(self) -> float:
        """A float written as its bits, as MLIR does."""
        width = self.element.bits // (2 if self.element.kind == "complex" else 1)
        if self.element.kind not in ("float", "complex") or len(self.text) != 2 + width // 4:
            bits = f"the bits of a float are {width // 4} hexadecimal digits"
            bits = "an integer is decimal" if self.element.is_integer else bits
            raise self.wrong("const.element", f"{bits}, got {self.text[:40]}")
        return float(np.frombuffer(bytes.fromhex(self.text[2:])[::-1], f"<f{width // 8}")[0])

    def number(self, advance: bool = True) -> Any:
        token, text = self.token, self.text
        if token is not None and token.lastindex == 2:
            if len(text) > 400:
                raise self.wrong(
                    "const.range", f"an element fits 64 bits, got a number of {len(text)} digits"
                )
            if "x" in text:
                value = self.bits()
            elif text.lstrip("-").isdigit():
                value = int(text)
            else:
                value = float(text)
        elif text in _WORDS:
            value = _WORDS[text]
        else:
            raise self.wrong(
                "const.syntax", f"expected a number, got {self.got}{did_you_mean(text, _WORDS)}"
            )
        if isinstance(value, float) and np.isinf(value) and text not in _WORDS and "x" not in text:
            raise self.wrong("const.range", f"{self.element} does not hold {text[:40]}; write inf")
        if advance:
            self.next()
        return value
