"""Mixed precision: rank layers by the error that weights of 4 bits cause in the results, each layer
alone, and give 4 bits to as many as a budget permits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import cvm
from cvm.dialect.ir.function import Operation

from .float_graph import FloatGraph
from .report import Ranked, Report
from .scheme import Scheme

NARROW = 4  # bits
RANKED = 32  # samples that layers are ranked by: each layer computes the network once more


def ranking(
    graph: FloatGraph,
    scheme: type[Scheme],
    layers: Sequence[Operation],
    calls: Sequence[list[np.ndarray]],
    progress: Callable[[Iterable[Any], str], Iterable[Any]],
) -> list[Ranked]:
    """The layers, those first that add the least error for each bit that 4-bit weights save."""
    operators: list[Any] = [o.operator for o in layers]
    weights = {o.w: a for o in operators if (a := graph.array(o.w)) is not None}
    results = [r for r in graph.function.results if graph.array(r) is None]
    f = cvm.compile(graph.program(results, [*weights]))
    some, samples = list[list[np.ndarray]](), 0
    for arrays in calls:
        if samples < RANKED:
            some.append(arrays)
            samples += len(arrays[0]) if arrays[0].ndim else 1

    def computed(arrays: list[np.ndarray], given: dict[Any, np.ndarray]) -> list[np.ndarray]:
        y = f(*arrays, *given.values())
        return [n.astype(np.float64) for n in (y if isinstance(y, tuple) else (y,))]

    exact = [computed(arrays, weights) for arrays in some]
    signal = sum(float(np.square(x).sum()) for xs in exact for x in xs)
    found = list[tuple[float, Ranked]]()
    for layer, o in progress([*zip(layers, operators, strict=True)], "ranking layers"):
        if (w := weights.get(o.w)) is None:
            continue
        rounded = scheme.rounded(w.astype(np.float64), NARROW).astype(w.dtype)
        noise = sum(
            float(np.square(y - x).sum())
            for arrays, xs in zip(some, exact, strict=True)
            for x, y in zip(xs, computed(arrays, {**weights, o.w: rounded}), strict=True)
        )
        snr = 10 * math.log10(max(signal, 1e-300) / noise) if noise else math.inf
        found.append((noise / max(w.size, 1), Ranked(layer.results[0].name, w.size, snr)))
    return [ranked for _, ranked in sorted(found, key=lambda pair: pair[0])]


def most_that_fit(count: int, report_of: Callable[[int], Report], within: float) -> int:
    """The number of layers, in the order of their ranking, that may have 4 bits, by bisection."""
    report = report_of(0)
    if report.quality < 1 - within:
        raise cvm.Error(
            f"with weights of 8 bits, {report.quality:.2%} of the float program is kept, less than "
            f"the budget's {1 - within:.2%}"
        )
    fits, beyond = 0, count + 1
    while beyond - fits > 1:
        tried = (fits + beyond) // 2
        if report_of(tried).quality >= 1 - within:
            fits = tried
        else:
            beyond = tried
    return fits
