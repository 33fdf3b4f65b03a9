"""Contenders timed in turn, A B C A B C ..., so that a machine that is slow for a while is slow for all of them."""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

Contender = Callable[[], Any]


def installed(name: str) -> Any:
    """The module, or None where it is not installed."""
    return importlib.import_module(name) if importlib.util.find_spec(name) is not None else None


def medians(contenders: dict[str, Contender], seconds: float = 2.0, least: int = 5) -> dict[str, float]:
    """The median milliseconds of each, after a call that is not counted. Progress is shown on a terminal."""
    for run in contenders.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds or len(next(iter(times.values()))) < least:
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) * 1e3)
        if sys.stderr.isatty():
            print(f"\r{min(1.0, spent / seconds):4.0%}", end="\r", file=sys.stderr)
    return {name: statistics.median(found) for name, found in times.items()}


def row(title: str, found: dict[str, float], limit: float | None = None) -> str:
    """A line of the table: ours, every peer, the best peer's time over ours, and the limit's."""
    mine = found["cvm"]
    peers = {name: ms for name, ms in found.items() if name not in ("cvm", "copy")}
    listed = ", ".join(f"{name} {ms:.3g}" for name, ms in sorted(peers.items(), key=lambda p: p[1]))
    ratio = f"{min(peers.values()) / mine:.2f}" if peers else ""
    to_limit = f"{limit / mine:.2f}" if limit is not None else ""
    return f"| {title} | {mine:.3g} | {listed} | {ratio} | {to_limit} |"


HEAD = "| work | cvm, ms | peers, ms | best peer / cvm | copy / cvm |\n|---|---|---|---|---|"
