"""Find a compiled function by its program's text, without parsing the text.

An entry has the files that the program read, with their digests, the key of the function's code,
and its signature. The program itself is parsed on demand. Only functions whose calls need nothing
but the signature are cached.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..dialect.ir.function import Function
from ..dialect.ir.module import Module
from ..dialect.support.compilation_context import compiling
from ..dialect.support.diagnostics import Source
from ..dialect.types.constant_files import FileConstantError, Files
from .cache import disk_cache
from .cache.keys import name_of_text
from .functions import cache_entry
from .functions.native_function import NativeFunction, Program, recalled_function
from .functions.signature import Signature, described, signature_of
from .options import DEFAULT, CompileOptions

if TYPE_CHECKING:
    from .functions.clocked_program import CompiledGraph
    from .functions.compiled_function import CompiledFunction


def compile_text(
    text: str | bytes,
    filename: str,
    folder: Path | None,
    parse: Callable[[], Module],
    entry: str,
    options: CompileOptions = DEFAULT,
) -> "CompiledFunction | CompiledGraph":
    """Compiles a function or a graph of a program's text for a CPU; it lies in a folder, and
    `parse` reads it.
    """
    name = _name(text, folder, entry, options)
    if (data := None if name is None else disk_cache.load(name)) is not None:
        source = Source(filename, text if isinstance(text, str) else text.decode())
        files = None if folder is None else Files(folder)
        if (
            recalled := _recall(data, source, files, lambda: _program(parse(), entry), options)
        ) is not None:
            return recalled
    from .compile import compile_program  # and with it all that reads and compiles programs

    with compiling():
        made = compile_program(parse(), entry, NativeFunction.target, options)
    if name is not None and isinstance(made, NativeFunction):
        _remember(name, made)
    return made


def _name(
    text: str | bytes, folder: Path | None, entry: str, options: CompileOptions
) -> str | None:
    try:
        return name_of_text(
            text.encode() if isinstance(text, str) else text, folder, entry, options
        )
    except UnicodeError:  # the parser says what is wrong
        return None


def _program(module: Module, entry: str) -> tuple[Module, Function]:
    from .compile import prepared

    return prepared(module, entry)


def _recall(
    data: bytes, source: Source, files: Files | None, program: Program, options: CompileOptions
) -> NativeFunction | None:
    """Restore the function of a cache entry, if the files beside the program are unchanged."""
    entry = json.loads(data)
    try:
        if any(files is None or files.digest(path) != digest for path, digest in entry["files"]):
            return None
    except FileConstantError:
        return None
    head = signature_of(entry, source)
    made = cache_entry.load(entry["code"], head.function)
    return None if made is None else recalled_function(head, made, program, options)


def _remember(name: str, made: NativeFunction) -> None:
    """Keeps what leads from a text to its function, if that is all that calls need."""
    files = made.module.files
    if made.kept_as is None or None in files.values():
        return
    entry = described(
        Signature(
            made.head, made.overwritten, made.returned, None if made.is_static else made.left_open
        )
    )
    if entry is not None:
        disk_cache.store(
            name, json.dumps({**entry, "files": list(files.items()), "code": made.kept_as}).encode()
        )
