"""Equalize the channels between layers: where a channel of small weights meets large ones of the
next layer, both are scaled, and the function stays the same (Nagel et al. 2019).

    w1[c] / s[c], b1[c] / s[c], w2[:, c] * s[c]    with s[c] = sqrt(max |w1[c]| / max |w2[:, c]|)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cvm.dialect.ir.function import Operation

from .float_graph import HOMOGENEOUS, LAYERS, FloatGraph, scalar_function

ROUNDS = 3  # over all pairs: scales of a pair change those of the next


def equalize(graph: FloatGraph) -> None:
    pairs = [*_pairs(graph)]
    of = {id(o): o for pair in pairs for o in pair}
    uses = graph.uses()
    arrays: dict[int, tuple[np.ndarray, np.ndarray | None]] = {}
    for key, operation in of.items():
        o: Any = operation.operator
        w, b = graph.array(o.w), None if o.b is None else graph.array(o.b)
        if w is not None and (o.b is None or b is not None) and uses[o.w] == 1:
            arrays[key] = w.astype(np.float64), None if b is None else b.astype(np.float64)
    for _ in range(ROUNDS):
        for first, second in pairs:
            if id(first) in arrays and id(second) in arrays:
                _equalize(first, second, arrays)
    for key, (w, b) in arrays.items():
        o = of[key].operator
        changed = {"w": w, **({} if b is None else {"b": b})}
        new = {
            n: graph.constant(a.astype(graph.array(getattr(o, n)).dtype), getattr(o, n).name)  # type: ignore[union-attr]
            for n, a in changed.items()
        }
        layer = replace(of[key], operator=replace(o, **new))  # type: ignore[type-var]
        for listed in (graph.operations, graph.live):
            listed[listed.index(of[key])] = layer


def _pairs(graph: FloatGraph) -> Iterator[tuple[Operation, Operation]]:
    """Layers, each with the only one that reads its result, through functions that scale with
    their operand.
    """
    made, uses = graph.definitions(), graph.uses()
    for second in graph.live:
        if second.operator.name not in LAYERS:
            continue
        value = second.operator.x  # type: ignore[attr-defined]
        while (first := made.get(value)) is not None and uses[value] == 1:
            if first.operator.name in LAYERS:
                yield first, second
                break
            if not (
                scalar_function(first) in HOMOGENEOUS or first.operator.name == "cvm.max_pool2d"
            ):
                break
            value = first.operator.operands()[0][1]


def _equalize(
    first: Operation, second: Operation, arrays: dict[int, tuple[np.ndarray, np.ndarray | None]]
) -> None:
    (w1, b1), (w2, b2) = arrays[id(first)], arrays[id(second)]
    groups = getattr(second.operator, "groups", 1)
    channels = len(w1)
    if groups not in (1, channels) or w2.shape[1] * groups != channels:
        return
    # with a group for each channel, the rows of a channel are beside each other
    by_channel = w2.swapaxes(0, 1) if groups == 1 else w2.reshape(channels, -1)
    largest1, largest2 = (np.abs(w.reshape(channels, -1)).max(1) for w in (w1, by_channel))
    used = (largest1 > 0) & (largest2 > 0)
    s = np.sqrt(np.where(used, largest1, 1) / np.where(used, largest2, 1))
    s = 2.0 ** np.round(np.log2(s))  # powers of two round nothing
    w1 = w1 / s.reshape(-1, *(1,) * (w1.ndim - 1))
    rows = s if groups == 1 else s.repeat(len(w2) // channels)
    axis = (1, -1) if groups == 1 else (-1, 1)
    w2 = w2 * rows.reshape(*axis, *(1,) * (w2.ndim - 2))
    arrays[id(first)] = w1, None if b1 is None else b1 / s
    arrays[id(second)] = w2, b2
