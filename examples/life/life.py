"""Runs life.cvm from a random start, and draws it.

python examples/life/life.py [--ticks 1000] [--target cpu] [--picture life.png]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import cvm


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ticks", type=int, default=1000)
    options.add_argument("--target", default="cpu")
    options.add_argument("--picture", metavar="FILE.png")
    chosen = options.parse_args()
    graph = cvm.compile(cvm.load(Path(__file__).parent / "life.cvm"), "life", chosen.target)
    random = np.random.default_rng(1)
    graph.write("cells", (random.random((512, 512)) < 0.3).astype(np.float32))
    print(f"at the start {int(graph.read('alive'))} of {512 * 512} cells are alive")
    began = time.perf_counter()
    graph.step(chosen.ticks)
    spent = time.perf_counter() - began
    print(
        f"after {graph.time()} ticks {int(graph.read('alive'))}, "
        f"{spent / max(1, chosen.ticks) * 1e6:.0f} µs a tick"
    )
    if chosen.picture:
        from cvm.terminal.plot import plot

        plot(chosen.picture, {"cells": [graph.read("cells")]})


if __name__ == "__main__":
    main()
