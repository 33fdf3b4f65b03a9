"""Every case of all groups as a row: the peers' times, and the machine's limit, as multiples of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groups import GROUPS
from matplotlib.figure import Figure

COLOURS = {
    "numpy": "tab:blue", "numexpr": "tab:cyan", "numba": "tab:green", "jax": "tab:purple", "torch": "tab:red",
    "onnxruntime": "tab:orange", "openvino": "tab:brown", "halide": "tab:olive",
}  # fmt: skip


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """A picture: right of the line is slower than cvm."""
    rows = [(g, r) for g, result in results.items() if g != "threads" for r in result["rows"] if len(r["ms"]) > 1]
    figure = Figure(figsize=(11, 1.5 + 0.21 * (len(rows) + len(results))), layout="constrained")
    axes = figure.subplots()
    labels: dict[int, str] = {}
    drawn: dict[str, Any] = {}
    y, group = 0, ""
    for g, r in rows:
        if g != group:
            group, y = g, y + 1
            axes.text(
                0.0, y - 0.9, GROUPS[g].title, transform=axes.get_yaxis_transform(), va="center", size=8, weight="bold"
            )
            y += 1
        for name, (_, ratio, _) in r["ratios"].items():
            peer = name.partition(" ")[0].partition(",")[0]
            drawn[peer] = axes.plot(ratio, y, "o", ms=5, color=COLOURS.get(peer, "gray"), alpha=0.8)[0]
        if "limit" in r:
            drawn["limit"] = axes.plot(r["limit ratio"], y, "|", ms=9, mew=2, color="black")[0]
        labels[y] = r["title"]
        y += 1
    axes.axvline(1, color="black", lw=1)
    axes.set_xscale("log")
    axes.set_ylim(y, -0.5)
    axes.set_yticks(list(labels), list(labels.values()), size=7)
    axes.grid(axis="x", which="both", lw=0.3)
    axes.set_xlabel(
        "time as a multiple of cvm's: peers right of the line are slower; the limit is what the machine can do"
    )
    axes.legend(drawn.values(), drawn.keys(), loc="lower right", fontsize=8)
    figure.savefig(path, dpi=100)
