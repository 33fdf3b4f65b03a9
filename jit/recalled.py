"""A program's text to a function that was compiled from it before, without reading the text: for what lies in the disk cache.

The entry of a text says which files the program read, and what they held; where its function's code is kept; and the function's
head, all of it that calls need. The program itself is read when somebody asks for more. Functions are remembered only where
calls look at nothing else, whatever the sizes of the arguments are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dialect.files import FileConstantError, Files
from ..dialect.left_open import LeftOpen
from ..dialect.program import Function, Module, Value
from ..dialect.sizes import Size
from ..dialect.source import Source, Span
from ..dialect.types import ELEMENT_TYPES, TensorType, Type
from . import cache, kept
from .identity import name_of_text
from .kept import read, written
from .native_function import NativeFunction, recalled_function

if TYPE_CHECKING:
    from .function import CompiledFunction
    from .graph import CompiledGraph

Program = Callable[[], tuple[Module, Function]]


@dataclass(frozen=True)
class Head:
    """What calls of a function go by."""

    function: Function  # without its operations
    overwritten: dict[int, int]
    left_open: LeftOpen | None  # of a function with unknown sizes


def compile_text(
    text: str | bytes, filename: str, folder: Path | None, parse: Callable[[], Module], entry: str
) -> CompiledFunction | CompiledGraph:
    """Compiles a function or a graph of a program's text for a CPU; it lies in a folder, and `parse` reads it."""
    name = _name(text, folder, entry)
    data = None if name is None else cache.load(name)
    if data is not None:
        source = Source(filename, text if isinstance(text, str) else text.decode())
        files = None if folder is None else Files(folder)
        found = _recall(data, source, files, lambda: _prepared(parse(), entry))
        if found is not None:
            return found
    from .compile import compile_program  # and with it all that reads and compiles programs

    made = compile_program(parse(), entry)
    if name is not None and isinstance(made, NativeFunction):
        _remember(name, made)
    return made


def _name(text: str | bytes, folder: Path | None, entry: str) -> str | None:
    try:
        return name_of_text(text.encode() if isinstance(text, str) else text, folder, entry)
    except UnicodeError:  # the parser says what is wrong
        return None


def _prepared(module: Module, entry: str) -> tuple[Module, Function]:
    from .targets import prepared

    return prepared(module, entry, NativeFunction.target)


def _recall(data: bytes, source: Source, files: Files | None, program: Program) -> NativeFunction | None:
    """The function of what is remembered, if the files beside the program are as they were."""
    found = json.loads(data)
    try:
        if any(files is None or files.digest(path) != digest for path, digest in found["files"]):
            return None
    except FileConstantError:
        return None
    head = _head(found, source)
    made = kept.load(found["code"], head.function)
    return None if made is None else recalled_function(head, made, program)


def _remember(name: str, made: NativeFunction) -> None:
    """Keeps what leads from a text to its function, if that is all that calls need."""
    if made.kept_as is not None and (found := _described(made)) is not None:
        cache.store(name, json.dumps({**found, "code": made.kept_as}).encode())


def _described(made: NativeFunction) -> dict[str, Any] | None:
    function = made.function
    types = (*function.argument_types, *function.result_types)
    is_static = all(t.is_static for t in types)
    left_open = None if is_static else made.left_open
    others = () if left_open is None else left_open.others
    values = (*function.arguments, *function.results)
    if (
        (left_open is None and not is_static)
        or not all(isinstance(t, TensorType) for t in (*types, *others))
        or any(v.span.source is not function.span.source for v in values)
        or None in made.module.files.values()
    ):
        return None
    atoms: dict[Any, int] = {}
    for d in (d for t in types for d in t.array_shape if isinstance(d, Size) and d.is_atom):
        atoms.setdefault(d.terms[0][0], len(atoms))

    def type_of(t: Type) -> list[Any]:
        return [t.element.name, *(written(d, atoms) for d in t.array_shape)]

    def value_of(v: Value) -> list[Any]:
        return [v.name, v.span.start, v.span.end, type_of(v.known_type), v.attributes]

    return {
        "name": function.name,
        "span": [function.span.start, function.span.end],
        "sizes": [atom[0] if len(atom) == 1 else None for atom in atoms],
        "arguments": [value_of(a) for a in function.arguments],
        "results": [value_of(r) for r in function.results],
        "others": None if left_open is None else [type_of(t) for t in others],
        "overwritten": list(made.overwritten.items()),
        "files": list(made.module.files.items()),
    }


def _head(found: dict[str, Any], source: Source) -> Head:
    sizes = tuple((Size.unknown() if name is None else Size.named(name)).terms[0][0] for name in found["sizes"])

    def type_of(parts: list[Any]) -> Type:
        element, *dims = parts
        return TensorType(tuple(read(d, sizes) for d in dims), ELEMENT_TYPES[element])

    def value_of(name: str, start: int, end: int, type: list[Any], attributes: dict[str, Any]) -> Value:
        told = {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
        return Value(name, type_of(type), Span(source, start, end), told)

    arguments, results = (tuple(value_of(*v) for v in found[values]) for values in ("arguments", "results"))
    function = Function(found["name"], arguments, (), results, span=Span(source, *found["span"]))
    others, left_open = found["others"], None
    if others is not None:
        left_open = LeftOpen(function.argument_types, function.result_types, tuple(map(type_of, others)))
    return Head(function, dict(found["overwritten"]), left_open)
