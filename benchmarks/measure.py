"""One group of benchmarks in this process: its cases checked, timed beside what the machine can do,
and kept as JSON.

    python benchmarks/measure.py GROUP [--seconds 45]

`run.py` starts this with the processors and settings that the group is for.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from groups import RESULTS, is_ours
from limits import COPY, PEAKS, READ, WRITE, Limits
from report import best_peer
from side_by_side import Case, agreement, installed, ratio, timed

import cvm

PEERS = ("numpy", "numexpr", "numba", "jax", "torch", "onnxruntime", "openvino", "halide")


def processor() -> str:
    """The processor's name, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """The peers that are installed, and LLVM's binding."""
    found = {}
    for name in (*PEERS, "llvmlite"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def measured(
    title: str, case: Case, limits: Limits, peaks: dict[str, float], seconds: float
) -> dict[str, Any]:
    """A row: milliseconds of each contender, how results agree, and the least that the machine
    would take.
    """
    agrees = agreement(case)
    moving = limits.moving(case.moved, case.shares) if case.moved else {}
    times = timed(case, moving, seconds)
    ms = {name: statistics.median(found.values()) for name, found in times.items()}
    ratios = {
        name: ratio(found, times["cvm"]) for name, found in times.items() if not is_ours(name)
    }
    row: dict[str, Any] = {
        "title": title,
        "ms": {name: ms[name] for name in case.contenders},
        "ratios": {
            name: [round(q, 4) for q in ratios[name]] for name in case.contenders if name in ratios
        },
        "agrees": agrees,
        **({"strategies": case.strategies} if case.strategies else {}),
    }
    if moving:
        best = min(moving, key=lambda name: ratios[name][1])
        row["bound"] = {COPY: "copy", READ: "read", WRITE: "write"}.get(case.shares, "move")
        row["limit"], row["limit ratio"] = ms[best], round(ratios[best][1], 4)
    if case.operations:
        peak = next(peaks[t] for t, kind in PEAKS.items() if kind == case.kind)
        row["bound"], row["limit"] = case.kind, case.operations / peak / 1e6
        row["limit ratio"] = row["limit"] / ms["cvm"]
        row["rate"] = case.operations / ms["cvm"] / 1e6
    return row


def shown(row: dict[str, Any]) -> str:
    """A line while running."""
    times = sorted(row["ms"].items(), key=lambda item: item[1])
    listed = "  ".join(f"{name} {ms:.4g}" for name, ms in times)
    listed += f"  limit {row['limit']:.4g}" if "limit" in row else ""
    return f"  {row['title']:44} {listed}  {best_peer(row)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("group")
    parser.add_argument(
        "--seconds", type=float, default=45.0, help="about how long it may take, with setting up"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--only", default="", help="a part of the names of the cases to measure; none are kept"
    )
    options = parser.parse_args()
    began = time.perf_counter()
    cvm.set_num_threads(options.threads)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    limits = Limits()
    peaks = limits.measured()
    if "torch" in sys.modules:
        installed("torch").set_num_threads(options.threads)
    work = importlib.import_module(options.group).WORK
    work = {title: make for title, make in work.items() if options.only in title}
    rows = []
    for n, (title, make) in enumerate(work.items()):
        print(f"\r  {n + 1}/{len(work)} {title:60}", end="\r", file=sys.stderr, flush=True)
        case = make()
        left = options.seconds - (time.perf_counter() - began)
        rows.append(
            measured(title, case, limits, peaks, max(0.2, min(3.0, 0.5 * left / (len(work) - n))))
        )
        print(shown(rows[-1]), flush=True)
    made = {
        "group": options.group,
        "threads": options.threads,
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
        },
        "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
        "load": round(load, 2),
        "seconds": round(time.perf_counter() - began, 1),
        "versions": {"python": platform.python_version(), **versions()},
        "limits": {title: round(value, 1) for title, value in peaks.items()},
        "reached by": limits.reached_by,
        "rows": rows,
    }
    if not options.only:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{options.group}.json").write_text(
            json.dumps(made, indent=1, ensure_ascii=False) + "\n", "utf-8"
        )


if __name__ == "__main__":
    main()
