"""Parse text to programs: `parse` and `read` return a verified module or raise with every mistake
of the text.
"""

from pathlib import Path

from ..dialect.ir import verify
from ..dialect.ir.module import Module
from ..dialect.support.compilation_context import abridged, compiling, too_many
from ..dialect.support.diagnostics import Diagnostic, ParseError, VerifyError, read_bytes
from ..dialect.types.constant_files import Files
from .build_module import build
from .decode import decode, untokened
from .recovery import Reader

__all__ = ["check", "parse", "read"]


def parse(
    text: str | bytes,
    filename: str = "<text>",
    folder: Path | None = None,
    allow_outside: bool = False,
) -> Module:
    """The verified module a text describes; raises ParseError or VerifyError with all its mistakes,
    in the text's order.

    `folder` is where `file(...)` constants are looked for; they stay inside it unless
    `allow_outside`.
    """
    module, diagnostics = check(text, filename, folder, allow_outside)
    if diagnostics:
        raise (
            ParseError if any(d.code.startswith("parse.") for d in diagnostics) else VerifyError
        )(diagnostics)
    return module


def check(
    text: str | bytes,
    filename: str = "<text>",
    folder: Path | None = None,
    allow_outside: bool = False,
) -> tuple[Module, list[Diagnostic]]:
    """The module as far as it could be built and verified, and every mistake in the order of the
    text.
    """
    with compiling():
        source, mistakes = decode(text, filename)
        reader = Reader(source)
        module, more = build(
            reader.read(), source, None if folder is None else Files(folder, allow_outside)
        )
        diagnostics = [*untokened(source, mistakes, reader.diagnostics), *more]
        verified, more = (module, []) if too_many(diagnostics) else verify.check(module)
    diagnostics_in_order = sorted(diagnostics + more, key=lambda d: (d.span.start, d.span.end))
    return verified, abridged(
        diagnostics_in_order
    ) if diagnostics_in_order else diagnostics_in_order


def read(path: str | Path, allow_outside: bool = False) -> Module:
    """The verified module of a file."""
    return parse(read_bytes(path), str(path), Path(path).parent, allow_outside)
