"""`cvm viz`: the operations of a program and their data flow, drawn."""

from argparse import Namespace
from html import escape
from pathlib import Path

from cvm.dialect.ir.diagram import svg
from cvm.jit.compile import find
from cvm.terminal.files import load, page, suffix_of, write


def viz(options: Namespace) -> int:
    suffix = suffix_of(options.output, (".svg", ".html"), "a picture, .svg, or a page, .html")
    module = load(options.program)
    text = svg(module, [find(module, name) for name in options.entry or module.functions])
    if suffix == ".html":
        text = page("viewer.html", TITLE=escape(Path(options.program).name), DRAWING=text)
    write(options.output, text.encode())
    return 0
