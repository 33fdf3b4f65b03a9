"""The goals and the results of all groups that were measured, as the tables of docs/performance.md
and figures beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from goals import table
from groups import GROUPS, is_ours, load

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- tables: written by benchmarks/run.py -->\n", "<!-- end of tables -->\n"
BOUNDS = {
    "copy": "a copy of as many bytes, by the better kind of stores",
    "read": "reading as many bytes",
    "move": "reading and writing as many bytes of as many arrays, by the better kind of stores",
    "write": "writing as many bytes",
    "i16": "the multiply-add peak of i16 pairs",
    "i8": "the multiply-add peak of bytes",
    "f32": "the multiply-add peak of f32",
}


PER_MS = {"ms": 1.0, "µs": 1e3}


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def section(group: str, result: dict[str, Any]) -> str:
    about, rows = GROUPS[group], result["rows"]
    peers = list(dict.fromkeys(n for r in rows for n in r["ms"] if not is_ours(n)))
    more = list(dict.fromkeys(n for r in rows for n in r["ms"] if is_ours(n) and n != "cvm"))
    bounded, rated = any("limit" in r for r in rows), any("rate" in r for r in rows)
    head = [about.title, f"cvm, {about.unit}", *(n.removeprefix("cvm, ") for n in more), *peers]
    head += (["best peer / cvm"] if peers else []) + (["limit", "limit / cvm"] if bounded else [])
    head += ["G op/s"] if rated else []
    head += ["strategies"] if (told := any("strategies" in r for r in rows)) else []
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for r in rows:
        ms, scale = r["ms"], PER_MS[about.unit]
        cells = [
            r["title"],
            *(number(ms[n] * scale) if n in ms else "" for n in ("cvm", *more, *peers)),
        ]
        if peers:
            cells.append(best_peer(r))
        if bounded:
            cells += (
                [number(r["limit"] * scale), f"{r['limit ratio']:.2f}"]
                if "limit" in r
                else ["", ""]
            )
        if rated:
            cells.append(f"{r['rate']:.0f}" if "rate" in r else "")
        if told:
            cells.append(r.get("strategies", ""))
        lines.append(f"| {' | '.join(cells)} |")
    bounds = dict.fromkeys(r["bound"] for r in rows if "bound" in r)
    notes = [f"Limit: {', '.join(BOUNDS[b] for b in bounds)}."] if bounds else []
    notes += [f"Results: {'; '.join(agreed)}."] if (agreed := agreements(rows)) else []
    notes.append(f"{measured_on(result)}.")
    return "\n".join([f"### {about.title}", "", *lines, "", " ".join(notes), ""])


def best_peer(row: dict[str, Any]) -> str:
    """The ratio of the best peer's time to ours: the median and the quartiles."""
    if not row["ratios"]:
        return ""
    low, middle, high = min(row["ratios"].values(), key=lambda quartiles: quartiles[1])
    return f"**{middle:.2f}** {low:.2f}-{high:.2f}"


def agreements(rows: list[dict[str, Any]]) -> list[str]:
    """The agreement of the peers' results with ours; equal rows are merged."""
    found: dict[str, dict[str, list[str]]] = {}
    for r in rows:
        for name, text in r["agrees"].items():
            if is_ours(name) and text == "exact":
                continue
            kind = "within rounding" if text.startswith("within") else text
            found.setdefault(name, {}).setdefault(kind, []).append(r["title"])
    told = []
    for name, kinds in found.items():
        if len(kinds) == 1 and len(rows) == len(next(iter(kinds.values()))):
            told.append(f"{name} {next(iter(kinds))}")
        elif set(kinds) <= {"exact", "within rounding"}:
            told.append(f"{name} exact or within rounding")
        else:
            told.append(
                f"{name} "
                + ", ".join(f"{kind} ({'; '.join(titles)})" for kind, titles in kinds.items())
            )
    return told


def measured_on(result: dict[str, Any]) -> str:
    threads = "one thread" if result["threads"] == 1 else f"up to {result['threads']} threads"
    return (
        f"Measured {result['date'].replace('T', ' ')} on {threads}, load average before "
        f"{result['load']}"
    )


def machine(results: dict[str, dict[str, Any]]) -> str:
    """The machine and its limits: medians over the groups' runs."""
    last = max(results.values(), key=lambda r: r["date"])
    lines = [
        f"Machine: {last['machine']['processor']}, {last['machine']['cores']} cores, "
        f"{last['machine']['system']}. "
        f"Versions: {', '.join(f'{n} {v}' for n, v in last['versions'].items())}.",
        "",
        "| limit of one thread | least | most, of all runs |",
        "|---|---:|---:|",
    ]
    for title in last["limits"]:
        values = [r["limits"][title] for r in results.values() if title in r["limits"]]
        way = last.get("reached by", {}).get(title)  # kind, instruction and bytes of the vectors
        by = f", by {way.replace('_', ' ')}-byte vectors" if way else ""
        lines.append(f"| {title}{by} | {min(values):.0f} | {max(values):.0f} |")
    return "\n".join([*lines, ""])


def write() -> None:
    """Bring the page's tables and the figures up to date."""
    results = load()
    if not results:
        return
    parts = [table(results), machine(results), *(section(g, r) for g, r in results.items())]
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    PAGE.write_text(
        before + BEGIN + "\n" + "\n".join(parts) + "\n" + END + rest.split(END)[1], "utf-8"
    )
    try:
        from plot import draw
    except ImportError:
        print("matplotlib is not installed: the figures stay as they were")
    else:
        draw(results, PAGE.parent / "figures")
