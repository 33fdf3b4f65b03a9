"""`cvm viz`: draw the operations of a program and their data flow."""

from __future__ import annotations

from argparse import Namespace
from html import escape
from pathlib import Path

from cvm.cli import Usage
from cvm.commands.io import load, page, write
from cvm.dialect.program.diagram import svg
from cvm.jit.compile import find

KINDS = (".svg", ".html")


def viz(options: Namespace) -> int:
    suffix = Path(options.output).suffix.lower()
    if suffix not in KINDS and options.output != "-":
        raise Usage(f"-o is a picture, .svg, or a page, .html; got {options.output}")
    module = load(options.program)
    names = options.entry or [*module.functions]
    functions = [find(module, name) for name in names]
    title = Path(options.program).name
    text = svg(module, functions)
    if suffix == ".html":
        text = page("viewer.html", TITLE=escape(title), DRAWING=text)
    write(options.output, text.encode())
    return 0
