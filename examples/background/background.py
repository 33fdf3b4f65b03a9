"""Feeds background.cvm with a stream of generated images: a noisy wall, by day and dusk, and a ball
that crosses it.

python examples/background/background.py [--ticks 120] [--picture moving.gif]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import cvm

SIZE = 96, 128


def image(tick: int) -> np.ndarray:
    """The image at a tick; the wall is brick, its light changes slowly, and the ball appears after
    a second's images.
    """
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    brick = np.where((rows % 8 < 1) | ((columns + 8 * (rows // 8 % 2)) % 16 < 1), 0.7, 0.45)
    light = 0.9 + 0.1 * np.cos(tick / 60)
    wall = brick[..., None] * light * np.array([1.0, 0.8, 0.7])
    ball = (rows - 48 - 30 * np.sin(tick / 9)) ** 2 + (columns - 3 * (tick - 40)) ** 2 < 81
    shown = np.where((ball & (tick >= 40))[..., None], [0.1, 0.3, 0.9], wall)
    return (shown + np.random.default_rng(tick).normal(0, 0.02, shown.shape)).astype(np.float32)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ticks", type=int, default=120)
    options.add_argument("--target", default="cpu")
    options.add_argument("--picture", metavar="FILE.gif")
    chosen = options.parse_args()
    graph = cvm.compile(cvm.load(Path(__file__).parent / "background.cvm"), "moving", chosen.target)
    graph.write("mean", image(0))
    seen: list[np.ndarray] = []

    def on_tick(graph: Any, tick: int) -> None:
        seen.append(graph.read("moving"))
        if tick % 20 == 0:
            print(f"tick {tick:4}: {int(graph.read('count')):5} pixels move")

    graph.run(chosen.ticks, sensors={"image": image}, on_tick=on_tick)
    if chosen.picture:
        from cvm.terminal.plot import plot

        plot(chosen.picture, {"moving": seen})


if __name__ == "__main__":
    main()
