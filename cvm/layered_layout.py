"""Lay out the boxes of a directed acyclic graph in layers, with few edge crossings (Sugiyama's method).

Sizes in, positions out, independent of the boxes' contents. An edge over several layers has a point in each, and so is
routed around boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

GAP, ROW = 28.0, 46.0  # pixels between boxes of a layer, and between layers
SWEEPS = 12


@dataclass(eq=False)
class Box:
    """A box of some size, or the point where an edge crosses a layer; (x, y) is its centre."""

    width: float = 0.0
    height: float = 0.0
    x: float = 0.0
    y: float = 0.0
    layer: int = 0
    above: list[Box] = field(default_factory=list)
    below: list[Box] = field(default_factory=list)


Route = list[tuple[float, float]]


def place(boxes: Sequence[Box], edges: Iterable[tuple[Box, Box]]) -> tuple[float, float, list[Route]]:
    """Set every box's position; returns the total width and height, and the route of each edge from top to bottom.

    Boxes are in topological order.
    """
    edges = list(edges)
    for a, b in edges:
        a.below.append(b)
    for box in boxes:
        for b in box.below:
            b.layer = max(b.layer, box.layer + 1)
    layers: list[list[Box]] = [[] for _ in range(1 + max((b.layer for b in boxes), default=0))]
    for box in boxes:
        layers[box.layer].append(box)
        box.above, box.below = [], []
    ways = [_through(a, b, layers) for a, b in edges]
    for way in ways:
        for a, b in pairwise(way):
            a.below.append(b)
            b.above.append(a)
    _order(layers)
    width, height = _positions(layers)
    return width, height, [_route(way) for way in ways]


def _through(a: Box, b: Box, layers: list[list[Box]]) -> list[Box]:
    points = [Box(layer=n) for n in range(a.layer + 1, b.layer)]
    for point in points:
        layers[point.layer].append(point)
    return [a, *points, b]


def _order(layers: list[list[Box]]) -> None:
    """Order the boxes of each layer by the mean position of their neighbours, downwards and upwards."""
    place = {box: n for layer in layers for n, box in enumerate(layer)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):

            def middle(box: Box, down: bool = down) -> float:
                joined = box.above if down else box.below
                return sum(place[b] for b in joined) / len(joined) if joined else place[box]

            layer.sort(key=middle)
            place.update((box, n) for n, box in enumerate(layer))


def _positions(layers: list[list[Box]]) -> tuple[float, float]:
    y = 0.0
    for layer in layers:
        tallest = max((b.height for b in layer), default=0.0)
        x = 0.0
        for box in layer:
            box.x, box.y = x + box.width / 2, y + tallest / 2
            x += box.width + GAP
        y += tallest + ROW
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _shift(layer, [_wanted(box) for box in layer])
    every = [box for layer in layers for box in layer]
    left = min((b.x - b.width / 2 for b in every), default=0.0)
    for box in every:
        box.x -= left
    return max((b.x + b.width / 2 for b in every), default=0.0), max(0.0, y - ROW)


def _wanted(box: Box) -> float:
    joined = [*box.above, *box.below]
    return sum(b.x for b in joined) / len(joined) if joined else box.x


def _shift(layer: list[Box], wanted: list[float]) -> None:
    """Move the boxes of a layer to their wanted positions, in order and without overlap: the mean of a pass from the
    left and one from the right.
    """
    left: list[float] = []
    for n, box in enumerate(layer):
        least = left[-1] + (layer[n - 1].width + box.width) / 2 + GAP if n else -float("inf")
        left.append(max(wanted[n], least))
    right = [0.0] * len(layer)
    for n in range(len(layer) - 1, -1, -1):
        most = right[n + 1] - (layer[n + 1].width + layer[n].width) / 2 - GAP if n + 1 < len(layer) else float("inf")
        right[n] = min(wanted[n], most)
    for box, a, b in zip(layer, left, right, strict=True):
        box.x = (a + b) / 2


def _route(way: list[Box]) -> Route:
    first, *points, last = way
    return [(first.x, first.y + first.height / 2), *((p.x, p.y) for p in points), (last.x, last.y - last.height / 2)]
