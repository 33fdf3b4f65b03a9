"""Lay out the boxes of a directed acyclic graph in layers, with few edge crossings (Sugiyama's
method).

Sizes in, positions out, independent of the boxes' contents. An edge over several layers has a point
in each, and so is routed around boxes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

GAP, ROW = 28.0, 52.0  # pixels between boxes of a layer, and between layers
SWEEPS = 12


@dataclass(eq=False)
class Box:
    """A box, or the point where an edge crosses a layer; (x, y) is its center, `label` the width of
    the edge's text.
    """

    width: float = 0.0
    height: float = 0.0
    label: float = 0.0
    x: float = 0.0
    y: float = 0.0
    layer: int = 0
    above: "list[Box]" = field(default_factory=list)
    below: "list[Box]" = field(default_factory=list)

    @property
    def right(self) -> float:
        """The width to the right of the center."""
        return max(self.width / 2, self.label)


Route = list[tuple[float, float]]


def place(
    boxes: Sequence[Box], edges: Iterable[tuple[Box, Box]]
) -> tuple[float, float, list[Route]]:
    """Set the position of every box, in topological order; gives the width, the height, and each
    edge's route.
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
    width, height = _positions(layers, ways)
    return width, height, [_route(way) for way in ways]


def _through(a: Box, b: Box, layers: list[list[Box]]) -> list[Box]:
    points = [Box(layer=n) for n in range(a.layer + 1, b.layer)]
    for point in points:
        layers[point.layer].append(point)
    return [a, *points, b]


def _order(layers: list[list[Box]]) -> None:
    """Order the boxes of each layer by the mean position of their neighbors, downwards and
    upwards.
    """
    place = {box: n for layer in layers for n, box in enumerate(layer)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):

            def middle(box: Box, down: bool = down) -> float:
                joined = box.above if down else box.below
                return sum(place[b] for b in joined) / len(joined) if joined else place[box]

            layer.sort(key=middle)
            place.update((box, n) for n, box in enumerate(layer))


def _positions(layers: list[list[Box]], ways: list[list[Box]]) -> tuple[float, float]:
    y = 0.0
    for layer in layers:
        tallest = max((b.height for b in layer), default=0.0)
        x = 0.0
        for box in layer:
            box.x = x + box.width / 2
            box.y = y + tallest / 2
            x = box.x + box.right + GAP
            if not box.width:
                box.height = tallest
        y += tallest + ROW
    for sweep in range(SWEEPS + 1):
        down = sweep % 2 == 0  # the last one, too: chains hang straight from what they begin with
        for layer in layers if down else reversed(layers):
            _shift(layer, [_wanted(box, down) for box in layer])
    for way in ways:
        _straighten(way[1:-1], layers)
    every = [box for layer in layers for box in layer]
    left = min((b.x - b.width / 2 for b in every), default=0.0)
    for box in every:
        box.x -= left
    return max((b.x + b.right for b in every), default=0.0), max(0.0, y - ROW)


def _wanted(box: Box, down: bool) -> float:
    """The mean position of the neighbors above, or below; boxes count where there are any, not
    edges that pass by.
    """
    joined = box.above if down else box.below
    nearest = [b for b in joined if b.width] or joined
    return sum(b.x for b in nearest) / len(nearest) if nearest else box.x


def _shift(layer: list[Box], wanted: list[float]) -> None:
    """Move the boxes of a layer, then the edges between, to their wanted positions, in order
    without overlap.
    """
    offsets = [0.0]  # of the boxes side by side
    for a, b in pairwise(layer):
        offsets.append(offsets[-1] + a.right + b.width / 2 + GAP)
    placed: dict[int, float] = {}
    for n in sorted(
        range(len(layer)),
        key=lambda n: (not layer[n].width, -len(layer[n].above) - len(layer[n].below)),
    ):
        least = max(
            (x + offsets[n] - offsets[m] for m, x in placed.items() if m < n), default=-float("inf")
        )
        most = min(
            (x + offsets[n] - offsets[m] for m, x in placed.items() if m > n), default=float("inf")
        )
        placed[n] = min(max(wanted[n], least), most)
    for n, box in enumerate(layer):
        box.x = placed[n]


def _straighten(points: Sequence[Box], layers: list[list[Box]]) -> None:
    """Let an edge pass all layers at one position, if there is one that is free in each."""
    room = []
    for point in points:
        layer = layers[point.layer]
        n = layer.index(point)
        left = layer[n - 1].x + layer[n - 1].right + GAP if n else -float("inf")
        room.append(
            (
                left,
                layer[n + 1].x - layer[n + 1].width / 2 - GAP
                if n + 1 < len(layer)
                else float("inf"),
            )
        )
    least = max((r[0] for r in room), default=0.0)
    most = min((r[1] for r in room), default=0.0)
    if least <= most:
        mean = sum(p.x for p in points) / max(1, len(points))
        for point in points:
            point.x = min(max(mean, least), most)


def _route(way: list[Box]) -> Route:
    first, *points, last = way
    through = [(p.x, p.y + side * p.height / 2) for p in points for side in (-1, 1)]
    return [(first.x, first.y + first.height / 2), *through, (last.x, last.y - last.height / 2)]
