"""Files of a command line; `-` is standard input or output."""

import re
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import cvm
from cvm.dialect.ir.module import Module
from cvm.dialect.support.diagnostics import read_bytes
from cvm.dialect.support.files import write_file
from cvm.terminal.usage import Usage

STDIN = "<stdin>"
MODELS = {
    f".{system}": f"from_{system}" for system in ("mlir", "onnx", "tflite", "tosa")
}  # the readers of models


def read(name: str) -> bytes:
    if name != "-":
        return read_bytes(name)
    if sys.stdin is None:
        raise Usage("-: standard input is closed")
    return read_bytes(STDIN, sys.stdin.buffer)


def shown(name: str) -> str:
    return STDIN if name == "-" else name


def load(name: str, data: str | bytes | None = None) -> Module:
    """The verified program of a file, of a model, or of standard input; `data` is its content, if
    it has been read already.
    """
    if (reader := MODELS.get(Path(name).suffix.lower())) is not None:
        return getattr(cvm, reader)(name)
    if name != "-" and data is None:
        return cvm.load(name)
    from cvm.parser import parse

    return parse(
        read(name) if data is None else data,
        shown(name),
        Path() if name == "-" else Path(name).parent,
    )


def write(name: str, data: bytes) -> None:
    try:
        if name != "-":
            write_file(name, data)
        elif sys.stdout.isatty():
            print(data.decode("utf-8", "replace"), end="", flush=True)
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as e:
        raise Usage(f"{name} cannot be written: {(e.strerror or str(e)).lower()}") from None


def suffix_of(name: str, suffixes: Sequence[str], expected: str) -> str:
    """The suffix of an output, which names its format; standard output has none."""
    if (suffix := Path(name).suffix.lower()) not in suffixes and name != "-":
        raise Usage(f"-o is {expected}; got {name}")
    return suffix


def page(name: str, **texts: object) -> str:
    """A file of the folder `pages` with texts in the place of their names, which are in
    capitals.
    """
    text = (files("cvm") / "pages" / name).read_text("utf-8")
    return re.sub("|".join(texts), lambda m: str(texts[m[0]]), text) if texts else text
