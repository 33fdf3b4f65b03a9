"""Axes resized by interpolation: the places and weights of elements are computed here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import Dim, same_size

from .elementwise import number
from .importer import At
from .rules import MAX_CONSTANT, Unsupported, known_size, static

WHAT = "what is resized"  # of unknown size, in a refusal


# the position among n elements of the numbers x, in f32: the scale is the ratio before rounding to
# whole elements, of which `length` is the product
PLACES: dict[str, Callable[[np.ndarray, int, float, float], np.ndarray]] = {
    "half_pixel": lambda x, n, scale, length: (x + 0.5) / scale - 0.5,
    "half_pixel_symmetric": lambda x, n, scale, length: (
        n / 2 * (1 - len(x) / length) + (x + 0.5) / scale - 0.5
    ),
    "pytorch_half_pixel": lambda x, n, scale, length: (
        (x + 0.5) / scale - 0.5 if len(x) > 1 else np.zeros(len(x), np.float32)
    ),
    "align_corners": lambda x, n, scale, length: (
        x * (n - 1) / (length - 1) if length != 1 else np.zeros(len(x))
    ),
    "asymmetric": lambda x, n, scale, length: x / scale,
    "tf_half_pixel_for_nn": lambda x, n, scale, length: (x + 0.5) / scale,
}


NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True)
class Sampling:
    """An interpolation of elements between others."""

    mode: str
    transform: str
    rounding: str
    coefficient: float = -0.75
    exclude: bool = False
    beyond: float = 0.0
    antialias: bool = False

    def __post_init__(self) -> None:
        if self.mode not in ("nearest", "linear", "cubic"):
            raise Unsupported(f"the mode {self.mode}")

    def places(self, n: int, m: int, scale: float, part: tuple[float, float]) -> np.ndarray:
        """The position in n elements of each of m."""
        x, length = np.arange(m, dtype=np.float32), scale * n
        if self.transform == "tf_crop_and_resize":
            step = x / (length - 1) if length != 1 else np.full(len(x), 0.5, np.float32)
            return (part[0] + step * (part[1] - part[0])) * (n - 1)
        if self.transform not in PLACES:
            raise Unsupported(f"coordinates by {self.transform}")
        return PLACES[self.transform](x, n, scale, length).astype(np.float64)

    def weights(self, n: int, places: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """The elements that each place is made of, and their weights."""
        if self.mode == "nearest":
            if self.rounding not in NEAREST:
                raise Unsupported(f"rounding by {self.rounding}")
            return NEAREST[self.rounding](places)[:, None].astype(np.int64), np.ones(
                (len(places), 1)
            )
        stretch = min(scale, 1.0) if self.antialias else 1.0
        reach = int(np.ceil((1 if self.mode == "linear" else 2) / stretch))
        taps = np.floor(places).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
        away = np.abs(taps - places[:, None]) * stretch
        factors = (
            np.maximum(1 - away, 0) if self.mode == "linear" else cubic(away, self.coefficient)
        )
        if self.exclude:
            factors = np.where((taps >= 0) & (taps < n), factors, 0)
        if self.exclude or self.antialias:
            factors = factors / factors.sum(1, keepdims=True)
        return taps, factors


def cubic(x: np.ndarray, a: float) -> np.ndarray:
    inner = (a + 2) * x**3 - (a + 3) * x**2 + 1
    return np.where(x <= 1, inner, np.where(x < 2, a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a, 0))


def along(
    at: At,
    x: Node,
    axis: int,
    m: int,
    scale: float,
    sampling: Sampling,
    part: tuple[float, float] = (0, 1),
) -> Node:
    """An axis resized: for each of the elements that go into one, what is there times its
    weight.
    """
    (n,) = static(x, WHAT, (axis,))
    if n == 0 or m < 0 or scale <= 0 or m * max(1.0, 1 / scale) > MAX_CONSTANT:
        raise Unsupported(f"an axis of {n} elements resized to {m}")
    places = sampling.places(n, m, scale, part)
    taps, weights = sampling.weights(n, places, scale)
    column = ["x" if j != axis else 0 for j in range(x.rank)]
    outside = (
        (places < 0) | (places > n - 1)
        if sampling.transform == "tf_crop_and_resize"
        else np.zeros(m, bool)
    )
    total: Node | None = None
    for k in np.flatnonzero(weights.any(0)):
        term = at.apply(
            "builtin.gather", x, np.clip(taps[:, k], 0, n - 1), axes=(axis,), mode="clip"
        )
        if (weights[:, k] != 1).any():
            if x.element.kind != "float":
                raise Unsupported("integers between others")
            term = term * at.node(weights[:, k].astype(x.element.dtype)).dimshuffle(column)
        total = term if total is None else total + term
    assert total is not None
    if outside.any():
        total = (
            at.node(outside).dimshuffle(column).scalar("switch", number(x, sampling.beyond), total)
        )
    return total


def stretches(sizes: Sequence[Dim], output_sizes: Sequence[Dim]) -> list[float]:
    """The factor by which each axis is resized."""
    return [
        1.0 if same_size(n, m) else known_size(m, WHAT) / known_size(n, WHAT)
        for n, m in zip(sizes, output_sizes, strict=True)
    ]


def resample(
    at: At,
    x: Node,
    axes: Sequence[int],
    sizes: Sequence[Dim],
    factors: Sequence[float],
    sampling: Sampling,
    parts: Sequence[tuple[float, float]] | None = None,
) -> Node:
    """Axes resized to these sizes, each of the part between two fractions of its length."""
    for axis, size, factor, part in zip(
        axes, sizes, factors, parts or [(0.0, 1.0)] * len(axes), strict=True
    ):
        if not (same_size(size, x.shape[axis]) and factor == 1 and part == (0.0, 1.0)):
            x = along(at, x, axis, known_size(size, WHAT), factor, sampling, part)
    return x
