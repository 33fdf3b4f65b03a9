"""Reading and writing what a command line names; `-` is standard input or output."""

from __future__ import annotations

import sys
from pathlib import Path

import cvm
from cvm.cli import Usage
from cvm.dialect.program import Module

STDIN = "<stdin>"


def load(name: str) -> Module:
    """The verified program of a file, or of standard input: its `file(...)` constants are looked for in this folder."""
    if name != "-":
        return cvm.load(name)
    from cvm.parser import parse

    return parse(sys.stdin.buffer.read(), STDIN, Path())


def write(name: str, data: bytes) -> None:
    """Writes a file, or standard output."""
    try:
        if name != "-":
            Path(name).write_bytes(data)
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as e:
        raise Usage(f"{name} cannot be written: {(e.strerror or str(e)).lower()}") from None
