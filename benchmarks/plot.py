"""Figures of docs/performance.md: the peers' times, and the machine's limit, as multiples of ours,
a row for each case.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from groups import GROUPS
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

FIGURES = {
    "networks": ("contractions", "whole_networks", "float_networks", "matmul", "runtime_kernels"),
    "arrays": ("elementwise", "images", "shifts", "gradients", "clocked"),
    "memory": ("reductions", "movement"),
    "functions": ("functions", "functions64"),
    "starting": ("calls", "compiling"),
}
# of light and dark pages; told apart by people with color blindness, after Okabe and Ito
COLOURS = {
    "numpy": ("#0072b2", "#5ab4f0"),
    "numexpr": ("#56a0c9", "#9ad7f5"),
    "numba": ("#00805c", "#2fc79b"),
    "jax": ("#a64d79", "#e08fbb"),
    "torch": ("#c8500a", "#f58a4b"),
    "onnxruntime": ("#b8860b", "#f0bf4c"),
    "openvino": ("#6b4c2a", "#c9a27a"),
    "halide": ("#6a6a00", "#c2c24a"),
}
OTHER = ("#8a8a8a", "#a0a0a0")
INK, FAINT = ("#24292f", "#d5dae0"), ("#e0e4ea", "#3a4048")  # each of light and dark pages
MARKS = "os^DvPX*"  # a shape for each peer, beside its color
ROW, HEADING, MARGIN = 0.235, 0.42, 0.95  # inches


def draw(results: dict[str, dict[str, Any]], folder: Path) -> None:
    """Write a figure for each kind of work, for light and for dark pages:
    performance_KIND_light.svg, _dark.svg.
    """
    matplotlib.rcParams.update(
        {"svg.hashsalt": "cvm", "svg.fonttype": "none", "font.family": "sans-serif"}
    )
    for kind, groups in FIGURES.items():
        rows = {
            g: [r for r in results[g]["rows"] if r["ratios"] or "limit" in r]
            for g in groups
            if g in results
        }
        for dark in (False, True):
            figure = _figure({g: found for g, found in rows.items() if found}, dark)
            path = folder / f"performance_{kind}_{('light', 'dark')[dark]}.svg"
            figure.savefig(path, transparent=True, metadata={"Date": None})
            path.write_text(
                "\n".join(line.rstrip() for line in path.read_text("utf-8").splitlines()) + "\n",
                "utf-8",
            )


def _figure(rows: dict[str, list[dict[str, Any]]], dark: bool) -> Figure:
    ink, faint = INK[dark], FAINT[dark]
    height = MARGIN + ROW * sum(map(len, rows.values())) + HEADING * len(rows)
    figure = Figure(figsize=(9, height))
    axes = figure.add_axes((0.34, 0.5 / height, 0.49, 1 - MARGIN / height))
    drawn: dict[str, Any] = {}
    labels: dict[float, str] = {}
    y = 0.0
    for group, found in rows.items():
        y += HEADING
        axes.plot((1, 1), (y + ROW / 2, y + ROW * (len(found) + 0.5)), color=ink, lw=1.2, zorder=2)
        axes.text(
            -0.66,
            y - 0.1,
            GROUPS[group].title,
            transform=axes.get_yaxis_transform(),
            size=9,
            weight="bold",
            color=ink,
        )
        for r in found:
            y += ROW
            labels[y] = r["title"]
            axes.axhline(y, color=faint, lw=0.6, zorder=0)
            for name, (_, ratio, _) in r["ratios"].items():
                peer = name.partition(" ")[0].partition(",")[0]
                colour = COLOURS.get(peer, OTHER)[dark]
                mark = MARKS[list(COLOURS).index(peer)] if peer in COLOURS else "h"
                drawn[peer] = axes.plot(ratio, y, mark, ms=5, mew=0, color=colour, zorder=3)[0]
            if "limit" in r:
                drawn["limit"] = axes.plot(
                    r["limit ratio"], y, "|", ms=9, mew=2, color=ink, zorder=4
                )[0]
    axes.set_xscale("log")
    axes.set_ylim(y + ROW, 0)
    axes.set_yticks(list(labels), list(labels.values()), size=8, color=ink)
    least, most = axes.get_xlim()
    steps = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    ticks = [t for t in (steps[::2] if most > 200 * least else steps) if least <= t <= most]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t:g}x"))
    axes.grid(axis="x", color=faint, lw=0.6)
    axes.tick_params(length=0, labelsize=8, labelcolor=ink)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(
        "time as a multiple of cvm's: right of 1x is slower than cvm", size=8.5, color=ink
    )
    peers = sorted(drawn, key=[*COLOURS, *drawn].index)
    axes.legend(
        [drawn[p] for p in peers],
        peers,
        loc="upper left",
        bbox_to_anchor=(1.02, 1),
        fontsize=8,
        labelcolor=ink,
        frameon=False,
    )
    return figure
