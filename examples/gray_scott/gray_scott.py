"""Runs gray_scott.cvm from a few drops of V, and draws it.

python examples/gray_scott/gray_scott.py [--ticks 10000] [--feed 0.0545] [--kill 0.062] [--picture
gray_scott.png]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import cvm


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ticks", type=int, default=10_000)
    options.add_argument("--feed", type=float, default=0.0545)
    options.add_argument("--kill", type=float, default=0.062)
    options.add_argument("--target", default="cpu")
    options.add_argument("--picture", metavar="FILE.png")
    chosen = options.parse_args()
    graph = cvm.compile(
        cvm.load(Path(__file__).parent / "gray_scott.cvm"), "gray_scott", chosen.target
    )
    graph.write("feed", chosen.feed)
    graph.write("kill", chosen.kill)
    u, v = np.ones((512, 512), np.float32), np.zeros((512, 512), np.float32)
    for row, column in np.random.default_rng(0).integers(0, 490, (40, 2)):
        u[row : row + 12, column : column + 12] = 0.5
        v[row : row + 12, column : column + 12] = 0.25
    graph.write("u", u)
    graph.write("v", v)
    began = time.perf_counter()
    graph.step(chosen.ticks)
    spent = time.perf_counter() - began
    v = graph.read("v")
    print(
        f"after {graph.time()} ticks V is {v.mean():.4f} on average, "
        f"{spent / max(1, chosen.ticks) * 1e6:.0f} µs a tick"
    )
    if chosen.picture:
        from cvm.terminal.plot import plot

        plot(chosen.picture, {"v": [v]})


if __name__ == "__main__":
    main()
