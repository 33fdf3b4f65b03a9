"""StableHLO modules, as JAX and MLIR's tools print them, to programs."""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from typing import Any

import cvm
from cvm.dialect.support.compilation_context import USER_TRACEBACK
from cvm.importers import refuse, unreadable
from cvm.importers.exactness import Imported
from cvm.importers.flatbuffer import contents
from cvm.importers.graph.rules import Unsupported

from . import elementwise, indexing, linear, random_bits, regions, shapes  # noqa: F401 (they enter their rules)
from .importer import Reader
from .text import Operation, Wrong, parsed, typed

BYTECODE = b"ML\xefR"  # the first bytes of MLIR's bytecode


@USER_TRACEBACK
def from_stablehlo(model: str | PathLike[str] | bytes | object) -> Imported:
    """Import the function @main of a StableHLO module, or its public one, as a verified module.

    Functions that it calls become part of it.

    Args:
        model: A path, the text (a string of several lines, or bytes), or the result of
            `jax.export.export`.

    Raises:
        ParseError: An operation cannot be imported; the message names every such operation.
    """
    if (text := getattr(model, "mlir_module", None)) is not None:
        model = str(text()).encode()
    elif isinstance(model, str) and "\n" in model:
        model = model.encode()
    filename, data = contents(model, "<stablehlo>")
    if data.startswith(BYTECODE):
        unreadable(
            filename,
            "it is MLIR's bytecode, of which the text is needed",
        )
    return imported(data.decode("utf-8", "replace"), filename)


@USER_TRACEBACK
def from_jax(f: Any, *args: Any) -> Imported:
    """Import a function of JAX for arguments of these shapes and elements, as a verified module.

    Needs the package jax.

    Args:
        f: The function, also one that `jax.jit` returned.
        args: Arrays, or `jax.ShapeDtypeStruct`; each leaf of a pytree becomes an argument.

    Raises:
        ParseError: An operation cannot be imported; the message names every such operation.
    """
    try:
        jax = import_module("jax")
    except ImportError:
        raise cvm.Error("cvm.from_jax needs the jax package") from None
    lowered = (f if hasattr(f, "lower") else jax.jit(f)).lower(*args)
    return imported(str(lowered.as_text()), "<jax>")


def imported(text: str, filename: str) -> Imported:
    operations, source = parsed(text, filename)
    while len(operations) == 1 and operations[0].name in ("module", "builtin.module"):
        operations = operations[0].regions[0].operations
    functions = {_symbol(o): o for o in operations if o.name == "func.func"}
    public = [
        o for o in functions.values() if o.attributes.get("sym_visibility") in (None, "public")
    ]
    main = functions.get("@main", public[0] if len(public) == 1 else None)
    if main is None or len(functions) < len(operations):
        names = ", ".join(o.name for o in operations if o.name != "func.func") or ", ".join(
            functions
        )
        refuse(
            filename,
            "expected a module of functions, one of them @main or the only public one, "
            f"got {names or 'none'}",
        )
    to = Reader("StableHLO", "line", functions=functions, source=source)
    try:
        body = main.regions[0]
        arguments = [to.argument(name[1:], typed(type)) for name, type in body.arguments]
        results = to.block(body, arguments, {})
    except (Unsupported, Wrong, ValueError) as e:
        refuse(filename, f"the function cannot be imported: {e.args[0]}")
    to.check(filename)
    to.names.clear()
    return to.imported(
        filename, [to.result(filename, f"{n}", v) for n, v in enumerate(results)], ""
    )[0]


def _symbol(function: Operation) -> str:
    return "@" + str(function.attributes.get("sym_name", "")).removeprefix("@").strip('"')
