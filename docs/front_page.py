"""Draws docs/front_page.svg: a program beside its formulas and loops, as `cvm lower` prints them.

python docs/front_page.py
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

import cvm  # noqa: E402

PROGRAM = ROOT / "examples" / "layer.cvm"
PICTURE = ROOT / "docs" / "front_page.svg"
LETTER, LINE, PAD, GAP = 7.25, 17, 16, 28  # pixels
STYLE = """\
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328; white-space: pre; }
.title { font: 600 14px system-ui, sans-serif; } .comment { fill: #6e7781; }
rect { fill: #f6f8fa; stroke: #d0d7de; } path { fill: none; stroke: #6e7781; stroke-width: 1.5; marker-end: url(#arrow); }
marker path { fill: #6e7781; stroke: none; marker-end: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .comment { fill: #8d96a0; } rect { fill: #161b22; stroke: #3d444d; }
  path { stroke: #8d96a0; } marker path { fill: #8d96a0; }
}
"""


def panels() -> list[tuple[str, list[str]]]:
    """The title and lines of each panel."""
    f = cvm.compile(PROGRAM)
    formulas = [line for line in f.lower("formulas").splitlines() if not line.startswith("//")]
    return [
        ("examples/layer.cvm", PROGRAM.read_text("utf-8").splitlines()),
        ("cvm lower --to formulas", [part for line in formulas for part in wrapped(line)]),
        ("cvm lower --to loops", f.lower("loops").splitlines()),
    ]


def wrapped(line: str, width: int = 90) -> list[str]:
    """A line in parts that fit, cut at blanks."""
    indent = " " * (len(line) - len(line.lstrip()))
    parts = [""]
    for word in line.lstrip().split(" "):
        if parts[-1] and len(parts[-1]) + len(word) >= width:
            parts.append("    " + word)
        else:
            parts[-1] += " " * bool(parts[-1]) + word
    return [indent + part for part in parts]


def picture() -> str:
    """The panels, one below the other, with arrows between them."""
    shown = panels()
    width = int(max(len(line) for _, lines in shown for line in lines) * LETTER) + 4 * PAD
    body, top = [], PAD
    for n, (title, lines) in enumerate(shown):
        height = (len(lines) + 1) * LINE + PAD
        body.append(
            f'<rect x="{PAD}" y="{top}" width="{width - 2 * PAD}" height="{height}" rx="8"/>'
        )
        body.append(
            f'<text class="title" x="{2 * PAD}" y="{top + LINE + 2}">{escape(title)}</text>'
        )
        for k, line in enumerate(lines, 2):
            kind = ' class="comment"' if line.lstrip().startswith("//") else ""
            text = line.lstrip()  # viewers drop blanks at the beginning, so it is moved instead
            x = 2 * PAD + (len(line) - len(text)) * LETTER
            body.append(f'<text{kind} x="{x:g}" y="{top + k * LINE + 4}">{escape(text)}</text>')
        top += height
        if n < len(shown) - 1:
            body.append(f'<path d="M {width // 2} {top + 4} V {top + GAP - 8}"/>')
            top += GAP
    marker = (
        '<marker id="arrow" orient="auto" markerWidth="8" markerHeight="8" refX="4" '
        'refY="4"><path d="M 0 0 L 8 4 L 0 8 Z"/></marker>'
    )
    size = f'width="{width}" height="{top + PAD}" viewBox="0 0 {width} {top + PAD}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>\n{STYLE}</style>\n'
        f"<defs>{marker}</defs>"
    )
    return "\n".join([head, *body, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
