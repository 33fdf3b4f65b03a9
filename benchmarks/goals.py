"""The goals, and how far each is reached: the first table of docs/performance.md, read off the
results of all groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


def _peer(row: Row) -> float | None:
    """Times as long as ours the best peer takes."""
    return min((quartiles[1] for quartiles in row["ratios"].values()), default=None)


def _limit(row: Row) -> float | None:
    return row.get("limit ratio")


def _of(name: str) -> Callable[[Row], float | None]:
    """Times as long as ours that peer takes."""
    return lambda row: row["ratios"][name][1] if name in row["ratios"] else None


def _takes(name: str, scale: float = 1.0) -> Callable[[Row], float | None]:
    return lambda row: row["ms"][name] * scale if name in row["ms"] else None


def _threads(row: Row) -> float | None:
    return row["ms"]["cvm"] / row["ms"]["cvm, 2 threads"]


@dataclass(frozen=True)
class Measure:
    title: str
    of: Callable[[Row], float | None]
    at_most: bool = False


PEER, LIMIT = Measure("best peer / cvm", _peer), Measure("limit / cvm", _limit)
NUMBA, THREADS = Measure("numba / cvm", _of("numba")), Measure("one thread / two", _threads)
COLD, WARM = (
    Measure("ms", _takes("cvm"), at_most=True),
    Measure("ms, warm", _takes("cvm, warm"), at_most=True),
)
CALL = Measure("µs", _takes("cvm", 1e3), at_most=True)


@dataclass(frozen=True)
class Goal:
    """The goal of a group's rows, or of those whose title contains `only`."""

    title: str
    group: str
    measure: Measure
    bound: float
    only: str = ""

    def reached(self, rows: list[Row]) -> dict[str, float]:
        """The ratio of each measured row, by title."""
        found = {r["title"]: self.measure.of(r) for r in rows if re.search(self.only, r["title"])}
        return {title: value for title, value in found.items() if value is not None}

    def met(self, value: float) -> bool:
        return value <= self.bound if self.measure.at_most else value >= self.bound


ONE_COPY = r"^(transpose|N\w+ to|concatenate|slice)"
GOALS = (
    Goal("chains and broadcasts, 16M", "elementwise", LIMIT, 0.95, "16M|4096"),
    Goal("chains and broadcasts", "elementwise", PEER, 1),
    Goal("u8 images, 32x480x640x3", "images", LIMIT, 1 / 1.1, "^32x"),
    Goal("u8 images, 32x480x640x3", "images", PEER, 2, "^32x"),
    Goal("i32 chain, every size", "shifts", PEER, 1, "elements"),
    Goal("sum and max, 4096 x 4096", "reductions", LIMIT, 0.9, "^(sum|max)"),
    Goal("sum and max, 4096 x 4096", "reductions", PEER, 1, "^(sum|max)"),
    Goal("transpose, layout, concatenate, slice", "movement", LIMIT, 1 / 1.2, ONE_COPY),
    Goal("gather", "movement", PEER, 1, "^take"),
    Goal("dense, large", "contractions", LIMIT, 0.8, "^dense (512|1024)"),
    Goal("conv 3x3", "contractions", LIMIT, 1.2, r"^conv 3x3, "),
    Goal("conv 3x3, 56x56 and 28x28", "contractions", PEER, 1.6, r"^conv 3x3, .*(56|28)x"),
    Goal("conv 3x3, 14x14", "contractions", PEER, 1.2, r"^conv 3x3, .*14x"),
    Goal(
        "conv 3x3, 7x7; first layer, strided, 1x1, dense",
        "contractions",
        PEER,
        1.05,
        r"of 7x7|first|conv.*stride|1x1|dense",
    ),
    Goal("depthwise", "contractions", PEER, 1.5, "depthwise"),
    Goal("f32 products", "matmul", PEER, 1, r"by \d"),
    Goal("f32 product of 1024", "matmul", LIMIT, 0.9, r"^1024"),
    Goal("few rows, f32", "matmul", LIMIT, 0.9, "constant|argument"),
    Goal("attention", "matmul", PEER, 1.5, "attention"),
    Goal("f32 convolutions", "float_networks", PEER, 1, "conv|first"),
    Goal(
        "f32 convolutions, 3x3 of 56x56 to 14x14",
        "float_networks",
        LIMIT,
        0.93,
        r"^conv 3x3, .*(56|28|14)x",
    ),
    Goal("depthwise and pooling of f32", "float_networks", PEER, 1, "depthwise|pool"),
    Goal("networks in f32", "float_networks", PEER, 1.05, "1 thread"),
    Goal("networks in integers", "whole_networks", PEER, 1.2, "1 thread"),
    Goal("networks in integers, two threads", "whole_networks", PEER, 1.1, "2 threads"),
    Goal("CVM-Runtime's kernels", "runtime_kernels", PEER, 5),
    Goal("kernels from Python", "loop_kernels", NUMBA, 0.9),
    Goal("compiling kernels from Python", "loop_compiling", NUMBA, 2),
    Goal("a call, output given", "calls", CALL, 0.1, "^8 elements, out given"),
    Goal("a call, allocating", "calls", CALL, 0.2, "^8 elements, allocating"),
    Goal("a call", "calls", NUMBA, 4, "^8 elements, "),
    Goal("compiling 5 operations", "compiling", COLD, 15, "^5 op"),
    Goal("compiling 100 operations", "compiling", COLD, 40, "^100 op"),
    Goal("compiling the digits network", "compiling", COLD, 150, "digits"),
    Goal("compiling, warm", "compiling", WARM, 10, "operations|digits"),
    Goal("two threads", "threads", THREADS, 1.8),
    Goal("functions of f32", "functions", PEER, 1),
    Goal("functions of f64", "functions64", PEER, 1),
)


def table(results: Mapping[str, dict[str, Any]]) -> str:
    """Goal by goal: how many rows meet it, and what the row that is furthest from it reaches."""
    lines = ["| goal | | rows that meet it | the row furthest from it |", "|---|---:|---:|---|"]
    for goal in GOALS:
        if goal.group not in results or not (reached := goal.reached(results[goal.group]["rows"])):
            continue
        sign, furthest = ("≤", max) if goal.measure.at_most else ("≥", min)
        worst = furthest(reached, key=lambda title: reached[title])
        met = sum(goal.met(value) for value in reached.values())
        lines.append(
            f"| {goal.title} | {goal.measure.title} {sign} {goal.bound:.3g} | {met} of "
            f"{len(reached)} | "
            f"{worst}: {reached[worst]:.3g} |"
        )
    return "\n".join(["### Goals", "", *lines, ""])
