"""`cvm viz`: the operations of a program and their data flow, drawn."""

from argparse import Namespace
from html import escape
from pathlib import Path

from cvm.dialect.ir.diagram import svg
from cvm.jit.compile import find
from cvm.terminal.files import load, page, suffix_of, write


def viz(options: Namespace) -> int:
    suffixes = (".svg", ".png", ".pdf", ".html")
    what = "a picture, .svg, .png or .pdf, or a page, .html"
    suffix = suffix_of(options.output, suffixes, what)
    module = load(options.program)
    functions = [find(module, name) for name in options.entry or module.functions]
    if suffix in (".png", ".pdf"):
        from cvm.terminal.plot_diagram import plot_diagram

        write(options.output, plot_diagram(module, functions, not options.whole, suffix[1:]))
        return 0
    text = svg(module, functions, not options.whole)
    if suffix == ".html":
        text = page("viewer.html", TITLE=escape(Path(options.program).name), DRAWING=text)
    write(options.output, text.encode())
    return 0
