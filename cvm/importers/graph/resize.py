"""Axes resized by interpolation: the places and weights of elements are computed here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import Dim, Size, same_size
from cvm.dialect.types.tensor_types import F32, I64

from .elementwise import number
from .importer import At
from .movement import counted_from
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


def along_of_size(at: At, x: Node, axis: int, m: Dim, factor: float, sampling: Sampling) -> Node:
    """An axis resized from or to an unknown size, where places and weights are computed in f32 in
    a call. A factor of NaN is the ratio of the sizes.
    """
    if sampling.exclude or sampling.antialias or sampling.transform not in OF_SIZES:
        raise Unsupported(f"coordinates by {sampling.transform} in an axis of unknown size")
    if x.element.kind != "float" and sampling.mode != "nearest":
        raise Unsupported("integers between others")
    i = counted_from(at, 0, m).cast(F32)
    n, length = (at.node(np.array(size, object)).cast(F32) for size in (x.shape[axis], m))
    scale = length / n if isnan(factor) else at.node(np.array(factor, np.float32))
    if sampling.transform == "asymmetric":
        at_x = i / scale
    elif sampling.transform == "align_corners":
        at_x = i * (n - 1.0) / (length - 1.0).scalar("maximum", 1.0)
    else:
        at_x = (i + 0.5) / scale - 0.5
        if sampling.transform == "pytorch_half_pixel":
            at_x = length.scalar("gt", 1.0).scalar("switch", at_x, 0.0)
    column = ["x" if j != axis else 0 for j in range(x.rank)]
    total: Node | None = None
    for place, weight in taps_of(at_x, sampling):
        k = place.cast(I64)
        term = at.apply("builtin.gather", x, k, axes=(axis,), mode="clip")
        term = term if weight is None else term * weight.cast(x.element).dimshuffle(column)
        total = term if total is None else total + term
    assert total is not None
    return total


OF_SIZES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
_ROUNDED: dict[str, Callable[[Node], Node]] = {
    "round_prefer_floor": lambda x: (x - 0.5).scalar("ceil"),
    "round_prefer_ceil": lambda x: (x + 0.5).scalar("floor"),
    "floor": lambda x: x.scalar("floor"),
    "ceil": lambda x: x.scalar("ceil"),
}


def taps_of(x: Node, sampling: Sampling) -> list[tuple[Node, Node | None]]:
    """The places of the elements near places, with their weights."""
    if sampling.mode == "nearest":
        if sampling.rounding not in _ROUNDED:
            raise Unsupported(f"rounding by {sampling.rounding}")
        return [(_ROUNDED[sampling.rounding](x), None)]
    first = x.scalar("floor")
    t = x - first
    if sampling.mode == "linear":
        return [(first, 1.0 - t), (first + 1.0, t)]
    a = sampling.coefficient

    def inner(x: Node) -> Node:
        return (x * (a + 2) - (a + 3)) * x * x + 1.0

    def outer(x: Node) -> Node:
        return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a

    weights = [outer(t + 1.0), inner(t), inner(1.0 - t), outer(2.0 - t)]
    return [(first + float(k - 1), w) for k, w in enumerate(weights)]


def stretches(sizes: Sequence[Dim], output_sizes: Sequence[Dim]) -> list[float]:
    """The factor by which each axis is resized; NaN if only a call knows it."""
    return [
        1.0 if same_size(n, m) else m / n if isinstance(m, int) and isinstance(n, int) else nan
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
        if same_size(size, x.shape[axis]) and factor == 1 and part == (0.0, 1.0):
            continue
        if isinstance(size, Size) or isinstance(x.shape[axis], Size):
            x = along_of_size(at, x, axis, size, factor, sampling)
        else:
            x = along(at, x, axis, known_size(size, WHAT), factor, sampling, part)
    return x
