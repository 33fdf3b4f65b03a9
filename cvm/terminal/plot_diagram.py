"""Drawings of programs as .png and .pdf, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import cvm
from cvm.dialect.ir.diagram import LINE, MARGIN, PAD, Drawing, drawings
from cvm.dialect.ir.function import Function, Functions

FILLS = {"argument": "#ddf4ff", "result": "#ddf4ff", "state": "#dafbe1", "repeated": "#fff8c5"}
GREY, GREEN = "#8c959f", "#2da44e"  # of edges; of those of feedback
BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # a label, in pixels
DPI = 72  # pixels of the layout for each inch, so that a letter's size in points is that in pixels
SHARP = 2  # pixels of a .png for each of the layout
MOST_PIXELS = 60_000  # of a side; Agg, matplotlib's rasterizer, draws up to 2^16


def plot_diagram(
    module: Functions, functions: Sequence[Function], collapsed: bool, kind: str
) -> bytes:
    """The functions one below the other, as the contents of a "png" or a "pdf"."""
    try:
        from matplotlib.figure import Figure  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise cvm.Error("pictures need matplotlib: pip install 'cvm-lang[plot]'") from None
    drawn = drawings(module, functions, collapsed)
    width = max((d.width for d in drawn), default=0.0) + 2 * MARGIN
    height = sum(d.height + 2 * LINE + 2 * MARGIN for d in drawn) + MARGIN
    figure = Figure((width / DPI, height / DPI), DPI)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    y = MARGIN
    for drawing in drawn:
        _draw(axes, drawing, y)
        y += drawing.height + 2 * LINE + 2 * MARGIN
    file = BytesIO()
    sharp = min(SHARP, MOST_PIXELS / max(width, height))
    date = {"CreationDate": None} if kind == "pdf" else {}
    figure.savefig(file, format=kind, dpi=DPI * sharp, metadata=date)
    return file.getvalue()


def _draw(axes: Any, drawing: Drawing, top: float) -> None:
    from matplotlib.patches import (  # pyright: ignore[reportMissingImports]
        FancyArrowPatch,
        FancyBboxPatch,
    )
    from matplotlib.path import Path  # pyright: ignore[reportMissingImports]

    def write(x: float, y: float, text: str, size: float, **how: Any) -> None:
        literal = text.replace("$", r"\$")  # which begins mathematics in matplotlib
        axes.text(x, y, literal, size=size, family="monospace", clip_on=False, **how)

    write(MARGIN, top + 12, drawing.title, 14, weight="bold")
    dx, dy = MARGIN, top + 2 * LINE
    for edges, color, style in ((drawing.edges, GREY, "-"), (drawing.fed, GREEN, "--")):
        for edge in edges:
            points = [(x + dx, y + dy) for x, y in edge]
            path = Path(points, [Path.MOVETO, *[Path.CURVE4] * (len(points) - 1)])
            arrow = FancyArrowPatch(
                path=path, arrowstyle="-|>", mutation_scale=9, color=color, linestyle=style
            )
            axes.add_patch(arrow)
    for x, y, text in drawing.labels:
        write(x + dx, y + dy, text, 10, color="#57606a", bbox=BEHIND)
    for box in drawing.boxes:
        left, upper = box.x - box.width / 2 + dx, box.y - box.height / 2 + dy
        patch = FancyBboxPatch(
            (left, upper),
            box.width,
            box.height,
            boxstyle="round,pad=0,rounding_size=5",
            facecolor=FILLS.get(box.kind, "white"),
            edgecolor=GREY,
        )
        axes.add_patch(patch)
        for n, line in enumerate(box.lines):
            weight = "normal" if n else "bold"
            write(box.x + dx, upper + PAD + 9 + n * LINE, line, 12, weight=weight, ha="center")
