"""ONNX's sequences within a model: their items are known one by one while importing, and no
sequence is left in the program.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.importers.graph.movement import at_step, joined, pieces, stacked
from cvm.importers.graph.rules import Array, Items, Known, static

from .importer import At
from .rules import rule


@rule("SequenceEmpty")
def empty(at: At) -> Any:
    _ = at["dtype"]
    return Items()


rule("SequenceConstruct")(lambda at, *known: Items(known))
rule("SequenceLength")(lambda at, items: np.array(len(items), np.int64))


def place(sequence: Items, position: Array | None, beyond: int = 0) -> int:
    """The position counted from the front; by default the end."""
    most = len(sequence) + beyond
    k = most - 1 if position is None else int(position.reshape(()))
    if not -most <= k < most:
        raise ValueError(f"position {k} of {len(sequence)} items")
    return k + len(sequence) if k < 0 else k


@rule("SequenceAt")
def item(at: At, sequence: Items, position: Array) -> Known:
    return sequence[place(sequence, position)]


@rule("SequenceInsert")
def insert(at: At, sequence: Items, value: Known, position: Array | None = None) -> Any:
    k = place(sequence, position, beyond=1)
    return Items((*sequence[:k], value, *sequence[k:]))


@rule("SequenceErase")
def erase(at: At, sequence: Items, position: Array | None = None) -> Any:
    k = place(sequence, position)
    return Items((*sequence[:k], *sequence[k + 1 :]))


@rule("ConcatFromSequence")
def concatenate(at: At, sequence: Items) -> Known:
    items = [at.node(x) for x in sequence]
    if at["new_axis"]:
        return stacked(at, items, at["axis"] % (items[0].rank + 1))
    return joined(at, items, at.axis(items[0]))


@rule("SplitToSequence")
def split(at: At, x: Node, sizes: Array | None = None) -> Any:
    axis = at.axis(x)
    n, keep = static(x, "an axis that is split", (axis,))[0], at["keepdims"]
    if sizes is None:
        whole = [at_step(at, x, axis, k) for k in range(n)]
        return Items(s.with_ones((axis,)) for s in whole) if keep else Items(whole)
    size = int(sizes.reshape(())) if sizes.ndim == 0 else 0
    ends = (
        [min(size, n - k) for k in range(0, n, size)] if sizes.ndim == 0 else list(map(int, sizes))
    )
    return Items(pieces(at, x, axis, ends))
