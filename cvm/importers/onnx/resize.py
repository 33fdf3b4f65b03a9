"""ONNX's operators that sample images between their elements: each axis by places and weights that
are computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import Dim, Size, same_size
from cvm.dialect.types.tensor_types import F32, I8, I32, UI8
from cvm.importers.exactness import EXACT, ROUNDED, Exactness
from cvm.importers.graph.contractions import contract
from cvm.importers.graph.elementwise import clipped, number
from cvm.importers.graph.movement import at_step
from cvm.importers.graph.resize import WHAT, Sampling, resample, stretches, taps_of
from cvm.importers.graph.rules import (
    Array,
    Ints,
    Known,
    Unsupported,
    known_size,
    numbers,
    real_axes,
    static,
)

from .elements import I64
from .importer import At
from .rules import rule

# the largest number in a ratio by which sizes below 2^14 are resized exactly in f32
FINE = 1 << 10
INTEGERS = (UI8, I8, I32)  # that onnxruntime interpolates


@rule("Upsample")
@rule("Resize", until=11)
def upsample(at: At, x: Node, scales: Array | None = None) -> Known:
    mode = {"nearest": "nearest", "linear": "linear", "bilinear": "linear"}[at["mode"]]
    sampling = Sampling(mode, "asymmetric", "floor")
    factors = (
        (at["scales"] or [1, 1, at["height_scale"], at["width_scale"]])
        if scales is None
        else scales.tolist()
    )
    m = [resized(n, s) for n, s in zip(x.shape, factors, strict=True)]
    at.rule_exactness = exactness_of(sampling, x, x.shape, m, factors)
    if sampling.mode == "linear" and x.element in INTEGERS:
        return integers_between(at, x, dict(enumerate(zip(m, factors, strict=True))), sampling)
    for axis, scale in enumerate(factors):
        if scale != 1:
            x = resample(at, x, (axis,), (m[axis],), (float(scale),), sampling)
    return x


@rule("Resize", since=11)
def resize(
    at: At,
    x: Node,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Ints | None = None,
) -> Known:
    """Sizes may be computed of unknown ones, and scales of axes of unknown size are ratios of
    integers up to 1024. Integers between others are computed for known sizes, linearly.
    """
    axes = real_axes(at["axes"], x.rank) if at["axes"] is not None else tuple(range(x.rank))
    sampling = Sampling(
        at["mode"].replace("bilinear", "linear"),
        at["coordinate_transformation_mode"],
        at["nearest_mode"],
        at["cubic_coeff_a"],
        bool(at["exclude_outside"]),
        at["extrapolation_value"],
        bool(at["antialias"]),
    )
    policy = at["keep_aspect_ratio_policy"]
    if sizes:
        factors = stretches([x.shape[a] for a in axes], sizes)
        output_sizes: list[Dim] = list(sizes)
        if policy not in (None, "stretch"):
            factor = (min if policy == "not_larger" else max)(factors)
            factors = [factor] * len(axes)
            output_sizes = [int(np.floor(n * factor + 0.5)) for n in static(x, WHAT, axes)]
    elif scales is not None and scales.size:
        factors = [float(s) for s in scales]
        output_sizes = [resized(x.shape[a], s) for a, s in zip(axes, factors, strict=True)]
    else:
        raise ValueError("it has neither sizes nor scales")
    of_axes = [x.shape[a] for a in axes]
    at.rule_exactness = exactness_of(sampling, x, of_axes, output_sizes, factors)
    if sampling.mode == "linear" and x.element in INTEGERS:
        lengths = dict(zip(axes, zip(output_sizes, factors, strict=True), strict=True))
        return integers_between(at, x, lengths, sampling)
    parts = None
    if roi is not None and sampling.transform == "tf_crop_and_resize":
        ends = roi.astype(np.float64).tolist()
        parts = [(ends[k], ends[len(axes) + k]) for k in range(len(axes))]
    return resample(at, x, axes, output_sizes, factors, sampling, parts)


def integers_between(
    at: At, x: Node, lengths: Mapping[int, tuple[Dim, float]], sampling: Sampling
) -> Node:
    """Integers interpolated linearly, in the steps of onnxruntime: all elements around a place
    times their weights, added in f32 and truncated, those of the last axis first. Bytes whose
    channels are the last axis have weights of 10 bits, and sums of i32.

    Args:
        lengths: The size and the factor of each axis that is resized.
    """
    if sampling.antialias or sampling.exclude or sampling.transform == "tf_crop_and_resize":
        raise Unsupported("integers between others")
    resized_axes = {a for a, (m, f) in lengths.items() if f != 1 or not same_size(m, x.shape[a])}
    axes = range(x.rank)[-3 if x.rank % 2 else -2 :]
    if x.rank == 4 and 1 in resized_axes:
        axes = range(1, 3)
    if not resized_axes:
        return x
    if not 1 <= x.rank <= 5 or not resized_axes <= {*axes}:
        raise Unsupported(f"integers resized in the axes {sorted(resized_axes)} of {x.rank}")
    in_bits = axes == range(1, 3) and x.element != I32
    element = I32 if in_bits else F32
    taps: list[list[tuple[np.ndarray, Node]]] = []
    for a, n in zip(axes, static(x, "a resize of integers", axes), strict=True):
        m, factor = lengths.get(a, (n, 1.0))
        if n == 0:
            raise Unsupported("a resize of no elements")
        places = numbers(n).astype(np.float32)
        if a in resized_axes:
            size = known_size(m, WHAT)
            if size < 0 or factor <= 0:
                raise Unsupported(f"an axis of {n} elements resized to {size}")
            numbers(size)  # refuses large ones
            places = sampling.places(n, size, factor, (0, 1)).astype(np.float32)
        places = np.clip(places, 0, n - 1)
        unit = 1 << 10 if in_bits else 1
        places = (places * np.float32(unit)).astype(element.dtype)
        low = np.clip((places // unit).astype(np.int64), 0, n - 1)
        high = np.minimum(low + 1, n - 1)
        column = [0 if j == a else "x" for j in range(x.rank)]
        taps.append([])
        for k, other in ((low, high), (high, low)):
            weight = np.abs(places - (other * unit).astype(element.dtype))
            weight = np.where(low == high, unit / 2, weight).astype(element.dtype)
            taps[-1].append((k, at.node(weight).dimshuffle(column)))
    total: Node | None = None
    for corner in product(*taps):
        value, weight = x, None
        for a, (k, w) in [*zip(axes, corner, strict=True)][::-1]:
            value = at.apply("builtin.gather", value, k, axes=(a,), mode="clip")
            weight = w if weight is None else weight * w
        assert weight is not None
        term = weight * value.cast(element)
        total = term if total is None else total + term
    assert total is not None
    if in_bits:
        total = at.apply("dali.div", total, at.node(np.array(1 << 20, np.int32)).like(total))
    return total.cast(x.element)


def exactness_of(
    sampling: Sampling, x: Node, n: Sequence[Dim], m: Sequence[Dim], scales: Sequence[float]
) -> Exactness:
    """Say where onnxruntime leaves ONNX's definition; nearest elements are chosen in f32."""
    if any(isinstance(d, Size) for d in (*n, *m)):
        return EXACT if sampling.mode == "nearest" else ROUNDED
    pairs = [(float(a), float(b), s) for a, b, s in zip(n, m, scales, strict=True) if s != 1]
    if sampling.transform == "tf_crop_and_resize":
        return Exactness(
            bound="unlike onnxruntime, which crops to whole lengths and only what is resized"
        )
    if pairs and all(a == b for a, b, _ in pairs):
        return Exactness(bound="unlike onnxruntime, which copies what keeps its sizes")
    if sampling.transform == "align_corners" and any(abs(a * s - b) > 1e-5 for a, b, s in pairs):
        return Exactness(bound="unlike onnxruntime, which aligns the corners of whole elements")
    return EXACT if sampling.mode == "nearest" or x.element in INTEGERS else ROUNDED


def resized(n: Dim, factor: float) -> Dim:
    """The product in f32, the type of scales, without its fraction."""
    if isinstance(n, Size) and factor != 1:
        ratio = Fraction(float(factor))
        if not 0 < ratio.numerator <= FINE or ratio.denominator > FINE:
            raise Unsupported(f"an axis of unknown size resized by {factor}")
        return n * ratio.numerator // ratio.denominator
    return n if factor == 1 else int(np.float32(known_size(n, WHAT)) * np.float32(factor))


@rule("AffineGrid")
def affine_grid(at: At, theta: Node, shape: Ints) -> Known:
    """Take the end of an axis with one place, as onnxruntime, where corners are aligned."""
    rank = len(shape) - 2
    sizes = [known_size(n, "a grid") for n in shape[2:]]
    if theta.rank != 3 or rank < 1 or tuple(theta.shape[1:]) != (rank, rank + 1):
        raise ValueError(f"the transformations have shape {theta.shape}, the grid {rank} axes")
    numbers(int(np.prod(sizes, dtype=object)))
    if at["align_corners"]:
        axes = [np.linspace(-1, 1, n) if n > 1 else np.ones(n) for n in sizes]
    else:
        axes = [(2 * np.arange(n) + 1) / n - 1 for n in sizes]
    grid = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(sizes)], -1)
    places = at.node(grid.reshape(-1, rank + 1).astype(theta.element.dtype))
    moved = contract(theta, places, "nij", "pj", "npi")
    return at.apply("builtin.reshape", moved, split=((-1,), tuple(sizes), (-1,)))


@rule("GridSample")
def grid_sample(at: At, x: Node, grid: Node) -> Known:
    rank = x.rank - 2
    sizes = static(x, "what is sampled", range(2, x.rank))
    mode = str(at["mode"]).removeprefix("bi")
    border, corners = at["padding_mode"], bool(at["align_corners"])
    count = grid.rank - 1
    axes = [(at_step(at, grid, grid.rank - 1, rank - 1 - j), n) for j, n in enumerate(sizes)]
    places = [
        ((p + 1.0) * ((n - 1) / 2) if corners else ((p + 1.0) * float(n) - 1.0) * 0.5)
        for p, n in axes
    ]
    if border == "border" and mode != "cubic":
        places = [clipped(p, 0.0, float(n - 1)) for p, n in zip(places, sizes, strict=True)]
    elif border == "reflection" and mode != "cubic":
        places = [reflected(p, n, corners) for p, n in zip(places, sizes, strict=True)]
    taps = [sampled(p, mode) for p in places]
    batch = at.apply("builtin.iota_like", places[0], axis=0)
    total: Node | None = None
    for choice in np.ndindex(*map(len, taps)):
        corner = [taps[j][k] for j, k in enumerate(choice)]
        at_indices, inside, weight = [], None, None
        for (k, w), n in zip(corner, sizes, strict=True):
            if border == "reflection" and mode == "cubic":
                k = reflected(k, n, corners)
            within = k.scalar("ge", 0.0).scalar("and_", k.scalar("le", float(n - 1)))
            inside = within if inside is None else inside.scalar("and_", within)
            weight = w if weight is None else weight if w is None else weight * w
            at_indices.append(clipped(k, 0.0, float(n - 1)).cast(I64))
        term = at.apply(
            "builtin.gather", x, batch, *at_indices, axes=(0, *range(2, x.rank)), mode="clip"
        )
        term = term.dimshuffle((0, count, *range(1, count)))
        assert inside is not None
        term = (
            inside.with_ones((1,)).scalar("switch", term, number(x, 0))
            if border == "zeros"
            else term
        )
        term = term if weight is None else term * weight.with_ones((1,))
        total = term if total is None else total + term
    assert total is not None
    return total.cast(x.element)


def reflected(p: Node, n: int, corners: bool) -> Node:
    """A place mirrored at the ends until it is within."""
    low, high = (0.0, float(n - 1)) if corners else (-0.5, n - 0.5)
    if (span := high - low) == 0:
        return p * 0.0
    away = (p - low).scalar("abs_")
    turns = (away / span).scalar("floor")
    offset = away - turns * span
    odd = (turns * 0.5).scalar("floor") * 2.0
    place = odd.scalar("neq", turns).scalar("switch", (offset * -1.0 + high), offset + low)
    return place if corners else clipped(place, 0.0, float(n - 1))


def sampled(p: Node, mode: str) -> list[tuple[Node, Node | None]]:
    """The places of elements near a place, with their weights."""
    if mode == "nearest":
        return [(p.scalar("round_half_to_even"), None)]
    return taps_of(p, Sampling(mode, "", ""))
