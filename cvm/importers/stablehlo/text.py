"""StableHLO's text as operations with attributes, regions and types: the pretty form becomes the
generic one, as far as rules do not ask for more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import cvm
from cvm.dialect.support.diagnostics import Diagnostic, Source, Span
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, I64, ElementType, TensorType
from cvm.parser.lalr import Actions, Language, Parser, Stuck, node_of
from cvm.parser.lalr_tables import END
from cvm.parser.syntax_tree import Token

WORDS = {  # without a value
    *("applies", "across", "init", "EQ", "NE", "GE", "GT", "LE", "LT"),
    *("FLOAT", "NOTYPE", "SIGNED", "TOTALORDER", "UNSIGNED"),
}
MAX_DEPTH = 64  # of regions and brackets inside each other


class Wrong(ValueError):
    """A message, and the token that is wrong."""


@dataclass(eq=False)
class Block:
    """A region: the names and types of its arguments, and its operations."""

    arguments: list[tuple[str, Token]]
    operations: list[Operation]


@dataclass(eq=False)
class Operation:
    """An operation. `words` and `lists` are what the pretty form has beside operands and named
    attributes.
    """

    head: Token
    results: list[str] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    lists: list[Any] = field(default_factory=list)
    regions: list[Block] = field(default_factory=list)
    types: list[Token] = field(default_factory=list)
    result_types: list[Token] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.head.text.strip('"')


@dataclass(eq=False)
class Group:
    """Brackets, and the tokens, groups and regions in them."""

    kind: str
    parts: list[Any]


class HloActions(Actions):
    """The actions of `stablehlo.lark`."""

    operations = items = inner = Actions.listed

    def parameters(self, parts: list[Any]) -> list[Any]:
        return [p for p in parts if p is not None]

    types = parameters

    def start(self, parts: list[Any]) -> list[Operation]:
        return parts[0]

    def group(self, parts: list[Any]) -> Group:
        return Group(parts[0].text, parts[1])

    def several(self, parts: list[Any]) -> list[str]:
        name, count = parts[0].text, int(parts[1].text)
        return [f"{name}#{n}" for n in range(min(count, MAX_RESULTS))]

    def results(self, parts: list[Any]) -> list[str]:
        return [n for p in parts for n in ([p.text] if isinstance(p, Token) else p)]

    parameter = node_of(lambda name, type, *_: (name.text, type))
    region = node_of(lambda block: block if isinstance(block, Block) else Block([], block))
    labelled = node_of(lambda label, arguments, body: Block(arguments or [], body))

    def while_regions(self, parts: list[Any]) -> list[Any]:
        return [Block([], parts[-3]), Block([], parts[-1])]

    def reducer(self, parts: list[Any]) -> list[Any]:
        pairs = parts[1:-1]
        if len({*map(len, pairs)}) > 1:
            raise Wrong("a reducer has as many parameters in each list", parts[0])
        return [Block([p for column in zip(*pairs, strict=True) for p in column], parts[-1])]

    def module(self, parts: list[Any]) -> Operation:
        return Operation(parts[0], regions=[Block([], parts[-1])])

    def function(self, parts: list[Any]) -> Operation:
        head, visibility, symbol, parameters, types, *_, body = parts
        return Operation(
            head,
            attributes={"sym_name": symbol.text, "sym_visibility": visibility and visibility.text},
            regions=[Block(parameters, body)],
            result_types=[t for t in types or [] if isinstance(t, Token)],
        )

    def operation(self, parts: list[Any]) -> Operation:
        results, head, items, types, result_types, regions = parts
        o = Operation(head, results or [])
        take(o, items)
        o.types = types or []
        o.result_types = result_types or (o.types if len(o.results) != 1 else o.types[-1:])
        o.regions += regions or []
        if o.name.endswith("return") and (o.words or o.lists or len(o.operands) != len(o.types)):
            raise Wrong("expected a return of values, each with its type", head)
        if o.words[:1] == ["init"]:  # an operand and its initial value in turn
            o.operands = [*o.operands[::2], *o.operands[1::2]]
        if o.name.endswith(".while") and regions:
            if len(o.words) != len(o.types):
                raise Wrong(f"a loop of {len(o.words)} values and {len(o.types)} types", head)
            for block in o.regions:
                block.arguments = list(zip(o.words, o.types, strict=True))
        return o


MAX_RESULTS = 1 << 16
HLO = Language("stablehlo", HloActions())


def parsed(text: str, filename: str) -> tuple[list[Operation], Source]:
    """The operations of a text; raises ParseError where it is none."""
    source = Source(filename, text)
    parser, token = Parser(HLO), None
    end = Token(END, "", len(text), len(text))
    try:
        for token in [*HLO.scanner.tokens(text), end]:
            parser.feed(token)
        return parser.values[-1], source
    except Stuck:
        assert token is not None
        shown = token.text.split("\n")[0][:40] or "its end"
        message, at = f"expected StableHLO in MLIR's text, got {shown!r}", token
    except Wrong as e:
        message, at = e.args
    raise cvm.ParseError(Diagnostic(message, Span(source, at.start, at.end), "import"))


def split(parts: Sequence[object], kind: str = "COMMA") -> Iterator[list[Any]]:
    """The runs between tokens of a kind."""
    run = []
    for part in parts:
        if isinstance(part, Token) and part.type == kind:
            yield run
            run = []
        else:
            run.append(part)
    if run:
        yield run


def is_kind(part: Any, *kinds: str) -> bool:
    return isinstance(part, Token) and part.type in kinds


def take(o: Operation, parts: Sequence[Any], depth: int = 0) -> None:
    """Enter what stands between an operation's name and its types."""
    if depth > MAX_DEPTH:
        raise Wrong(f"brackets more than {MAX_DEPTH} deep", o.head)
    for run in split(parts):
        begun = 0
        while begun < len(run):
            part = run[begun]
            begun += 1
            if (
                is_kind(part, "NAME", "STRING")
                and begun < len(run)
                and is_kind(run[begun], "EQUAL")
            ):
                stop = begun + 2
                while stop < len(run) and not (
                    isinstance(run[stop], Block)
                    or (isinstance(run[stop], Group) and run[stop].kind == "{")
                    or is_kind(run[stop], "ATTRIBUTES")
                    or (is_kind(run[stop], "NAME") and is_kind((*run, None)[stop + 1], "EQUAL"))
                ):
                    stop += 1
                o.attributes[part.text.strip('"')] = value(run[begun + 1 : stop], o.head, depth)
                begun = stop
            elif is_kind(part, "VALUE") and begun < len(run) and is_kind(run[begun], "EQUAL"):
                o.words.append(part.text)  # an argument of the loop's regions
                begun += 1
            elif is_kind(part, "VALUE"):
                o.operands.append(part.text)
            elif isinstance(part, Block):
                o.regions.append(part)
            elif isinstance(part, Group) and part.kind in ("{", "<"):
                inner = part.parts
                if part.kind == "<" and len(inner) == 1 and isinstance(inner[0], Group):
                    inner = inner[0].parts  # the properties of the generic form
                o.attributes |= dictionary(inner, o.head, depth + 1)
            elif isinstance(part, Group) and part.kind == "(":
                take(o, part.parts, depth + 1)
            elif isinstance(part, Group):
                o.lists.append(value([part], o.head, depth))
            elif is_kind(part, "DATA"):
                o.attributes["value"] = part
            elif is_kind(part, "SYMBOL", "STRING", "NAME"):
                o.words.append(part.text)
                if begun < len(run) and isinstance(run[begun], Group) and part.type == "NAME":
                    o.attributes[part.text] = len([*split(run[begun].parts)])  # operands of a kind
                elif part.type == "NAME" and not ("." in part.text or part.text in WORDS):
                    raise Wrong(f"{part.text} is no word of StableHLO", part)
            elif not is_kind(part, "COLON"):
                raise Wrong(f"expected an operand or an attribute, got {part.text!r}", part)


def dictionary(parts: Sequence[object], at: Token, depth: int) -> dict[str, Any]:
    """The attributes between braces; one without a value is there."""
    entries = {}
    for run in split(parts):
        if run and isinstance(run[0], Token):
            entries[run[0].text.strip('"')] = value(run[2:], at, depth) if run[2:] else True
    return entries


def value(run: Sequence[Any], at: Token, depth: int = 0) -> Any:
    """An attribute: a number, a word, a list, a dictionary, or an array."""
    if depth > MAX_DEPTH:
        raise Wrong(f"brackets more than {MAX_DEPTH} deep", at)
    first, *rest = run or [None]
    if is_kind(first, "HASH") and rest and isinstance(rest[0], Group):
        first, *rest = rest  # the name of an attribute's kind says nothing more
    if rest and is_kind(rest[0], "COLON"):
        if is_kind(rest[-1], "NUMBER"):
            return tuple(value(part, at, depth) for part in split(run, "COLON"))
        return array(first, rest[-1]) if is_kind(first, "DATA") else value([first], at, depth)
    if rest and all(is_kind(part, "NAME") for part in run):
        return rest[-1].text  # of the kind that the first names
    if rest:
        return [value([part], at, depth + 1) for part in run if not is_kind(part, "HASH")]
    if isinstance(first, Group):
        inner = [*split(first.parts)]
        if first.kind != "[" and any(is_kind(p, "EQUAL") for run in inner for p in run[:2]):
            return dictionary(first.parts, at, depth + 1)
        found = [value(run, at, depth + 1) for run in inner]
        return found if first.kind == "[" or len(found) != 1 else found[0]
    if is_kind(first, "NUMBER"):
        text = first.text
        return int(text, 0) if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)", text) else float(text)
    if is_kind(first, "DATA"):
        return array(first, None) if first.text.startswith("array") else first
    if is_kind(first, "NAME") and first.text in ("true", "false"):
        return first.text == "true"
    if isinstance(first, Token):
        return first.text.strip('"')
    return first


def typed(token: Token) -> TensorType:
    """The type of a tensor; sizes that are not known are `?`."""
    found = re.fullmatch(r"tensor<((?:(?:\d+|\?)x)*)([^,]*)(?:,.*)?>", token.text, re.DOTALL)
    element = ELEMENT_TYPES.get(found[2].strip()) if found else None
    element = I64 if found and found[2] == "index" else element
    if found is None or element is None:
        raise Wrong(f"a value of type {token.text} is not supported", token)
    sizes = found[1].split("x")[:-1]
    return TensorType(tuple(Size.unknown() if n == "?" else int(n) for n in sizes), element)


def array(data: Token, type: Token | None) -> Any:
    """The elements of `dense<...>`: lists, one for all, or bytes in hexadecimal digits; of
    `array<...>` a tuple.
    """
    kind, _, inner = data.text[:-1].partition("<")
    try:
        if kind == "array":
            return tuple(json.loads(f"[{inner.partition(':')[2]}]"))
        if kind != "dense" or type is None:
            raise Wrong(f"constants of the form {kind} are not supported", data)
        of = typed(type)
        if not all(isinstance(n, int) for n in of.shape):
            raise Wrong("a constant of unknown sizes", type)
        return elements(inner.strip(), of.shape, of.element)  # type: ignore[arg-type]
    except (TypeError, OverflowError, RecursionError, ValueError) as e:
        if isinstance(e, Wrong):
            raise
        said = f" of {type.text}" if type else ""
        raise Wrong(f"expected the elements{said}, got {data.text[:40]!r}", data) from None


def elements(text: str, shape: tuple[int, ...], element: ElementType) -> np.ndarray:
    """The array; floats may be their bits in hexadecimal digits."""
    dtype = element.dtype
    if text.startswith('"'):
        raw = np.frombuffer(bytes.fromhex(text.strip('"')[2:]), np.uint8)
        if element.bits == 1:
            count = int(np.prod(shape))
            whole = len(raw) == 1 and raw[0] in (0, 255)  # one for all
            bits = raw[:1] & 1 if whole else np.unpackbits(raw, bitorder="little")[:count]
            return (
                np.broadcast_to(bits.astype(bool).reshape(-1 if len(bits) > 1 else ()), shape)
                if whole
                else bits.astype(bool).reshape(shape)
            )
        found = raw.view(dtype)
        return np.broadcast_to(found[0], shape) if len(found) == 1 else found.reshape(shape)
    if element.kind == "complex":
        text = text.replace("(", "[").replace(")", "]")
        part = np.dtype(f"f{dtype.itemsize // 2}")
        pairs = np.ascontiguousarray(_numbers(text, part))
        found = pairs.view(dtype)[..., 0]
    else:
        found = _numbers(text, dtype)
    return found.reshape(shape) if found.ndim or not shape else np.broadcast_to(found, shape)


def _numbers(text: str, dtype: np.dtype) -> np.ndarray:
    is_hexadecimal = "0x" in text or "0X" in text
    if is_hexadecimal:
        text = re.sub(r"(-?)0[xX]([0-9A-Fa-f]+)", lambda m: f'"{m[1]}{m[2]}"', text)
    nested = json.loads(text.replace("+", "") or "[]")
    if not is_hexadecimal:
        return _exact(nested, dtype)
    bits = np.dtype(f"u{dtype.itemsize}")
    flat = np.array(nested, object)
    found = np.empty(flat.shape, dtype)
    for place, n in np.ndenumerate(flat):
        if not isinstance(n, str):
            found[place] = n
        elif n.startswith("-"):
            found[place] = int(n, 16)
        else:
            found[place] = np.array(int(n, 16), bits).view(dtype)
    return found


def _exact(nested: object, dtype: np.dtype) -> np.ndarray:
    """Numbers in a type, where none but floats may be rounded."""
    if dtype.kind in "iu":
        found = np.array(nested, object)
        if not all(isinstance(n, int) for n in found.flat):
            raise ValueError
        small = np.array(found, dtype)
        return small
    if dtype.kind == "b":
        return np.array(nested).astype(bool)
    return np.array(nested, np.float64).astype(dtype)
