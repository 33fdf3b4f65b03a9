"""TOSA graphs from the text that `tosa-opt` prints: a function, whose operators are in MLIR's short
or generic form.
"""

import json
import re
from functools import cache
from typing import Any

import numpy as np
from lark import Lark
from lark.exceptions import UnexpectedInput

import cvm
from cvm import grammar
from cvm.dialect.support.diagnostics import Diagnostic, Source, Span

from .schema import ELEMENTS, Graph, Operator, Tensor, unpacked

KINDS = {
    "i1": "BOOL",
    **{f"i{n}": f"INT{n}" for n in (4, 8, 16, 32, 48)},
    "index": "SHAPE",
    "f32": "FP32",
}
NAMED = {
    "true": True,
    "false": False,
    "SINGLE_ROUND": 1,
    "DOUBLE_ROUND": 3,
    "NEAREST_NEIGHBOR": 1,
    "BILINEAR": 2,
}


class Wrong(ValueError):
    """A message, and the token that is wrong."""


@cache
def _parser() -> Lark:
    return Lark(grammar.read("tosa.lark"), parser="lalr", maybe_placeholders=False)


def read_text(data: bytes, filename: str) -> Graph:
    """The graph of a text; raises ParseError where it is none."""
    source, graph = Source(filename, data.decode("utf-8", "replace")), Graph()
    try:
        for part in list[Any](_parser().parse(source.text).children):
            match getattr(part, "data", ""):
                case "argument":
                    define(graph, *part.children[:2])
                    graph.inputs += (part.children[0][1:],)
                case "operation":
                    names, op, inputs, *dictionaries, _, types = part.children
                    entries = (e.children for d in dictionaries for e in d.children)
                    attributes = {k.strip('"'): value(v) for k, v, *_ in entries}
                    for name, type in zip(names.children, types.children, strict=False):
                        define(graph, name, type, attributes.get("values"))
                    operands, results = (
                        tuple(n[1:] for n in names_of.children) for names_of in (inputs, names)
                    )
                    kind, span = (
                        op.strip('"').removeprefix("tosa.").upper(),
                        Span(source, op.start_pos, op.end_pos),
                    )
                    graph.operators.append(Operator(kind, attributes, operands, results, span))
                case "results":
                    graph.outputs = tuple(n[1:] for n in part.children)
        return graph
    except UnexpectedInput as e:
        at = (
            len(source.text) if getattr(e, "token", "?") == "" else e.pos_in_stream or 0
        )  # "" is the end
        token = (source.text[at:].split(maxsplit=1) or ["its end"])[0]
        message, end = (
            f"expected a TOSA graph as tosa-opt prints it, got {token[:40]!r}",
            at + len(token),
        )
    except Wrong as e:
        message, at, end = e.args[0], e.args[1].start_pos, e.args[1].end_pos
    raise cvm.ParseError(Diagnostic(message, Span(source, at, end), "import"))


def define(graph: Graph, name: Any, type: Any, data: object = None) -> None:
    """Enter a tensor in a graph, of which `data` has the elements if it is a constant."""
    tensor = re.fullmatch(r"(?:tensor|!tosa.shape)<((?:\d+x)*)(\w+)>", type)
    if tensor is None or name[1:] in graph.tensors:
        raise Wrong(
            f"{name} is defined twice"
            if tensor
            else f"expected a tensor of known sizes, got {type}",
            name,
        )
    sizes, element = tensor.groups()
    shape, kind = tuple(map(int, sizes.split("x")[:-1])), KINDS.get(element, element)
    if element.isdigit():
        shape, kind = (int(element),), "SHAPE"
    array = elements(data, shape, kind) if data is not None and kind in ELEMENTS else None
    graph.tensors[name[1:]] = Tensor(name[1:], shape, kind, array)


def elements(token: Any, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """The elements of `dense<...>`: lists, one for all, or bytes in hexadecimal digits."""
    try:
        if isinstance(values := json.loads(token[len("dense<") : -1] or "[]"), str):
            raw = np.frombuffer(bytes.fromhex(values[2:]), np.uint8)
            raw = np.unpackbits(raw, bitorder="little") if kind == "BOOL" else raw
            return unpacked(raw, "INT8" if kind == "INT4" else kind, shape)
        array = np.array(values, ELEMENTS[kind].dtype)
        return array.reshape(shape) if array.ndim else np.broadcast_to(array, shape)
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise Wrong(f"expected elements of {kind} in the shape {shape}", token) from None


def value(token: Any) -> Any:
    """An attribute: numbers and lists of them, names of modes as numbers; the elements of a
    constant as they are.
    """
    text = re.sub(r'^#.*<|^"|[">]$', "", token)
    if text.startswith("array<"):
        return tuple(map(int, re.findall(r"-?\d+", text.partition(":")[2])))
    return (
        token
        if token.type == "DATA"
        else NAMED.get(text, int(text) if re.fullmatch(r"-?\d+", text) else text)
    )
