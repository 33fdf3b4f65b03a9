"""Reductions that several formats share, and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import Size, product
from cvm.dialect.types.tensor_types import BF16, F16, F32, I1, compute_type

from .importer import At
from .rules import Unsupported


def total(x: Node, over: Sequence[int]) -> Node:
    """The sum in the elements' own type; f16 and bf16 are summed in f32."""
    return x.sum(over, dtype=x.element, acc_dtype=compute_type(x.element))


def mean(at: At, x: Node, over: Sequence[int]) -> Node:
    count = product(tuple(x.shape[a] for a in over))
    if x.element.is_integer:
        return at.apply("dali.floordiv", total(x, over), np.array(count, x.element.dtype)).cast(
            x.element
        )
    if isinstance(count, Size):
        return total(x, over) / at.node(np.array(count, object)).cast(x.element)
    if x.element in (F16, BF16):
        return (x.cast(F32).sum(over, dtype=F32, acc_dtype=F32) / float(count)).cast(x.element)
    return total(x, over) / float(count)


def product_of(x: Node, over: Sequence[int]) -> Node:
    return x.reduce("prod", over, dtype=x.element, acc_dtype=compute_type(x.element))


def extreme(x: Node, over: Sequence[int], name: str) -> Node:
    if is_empty(x, over):
        least = _LIMITS[name](x.element)
        shape = [n for a, n in enumerate(x.shape) if a not in over]
        if any(isinstance(n, Size) for n in shape):
            raise Unsupported("what is the largest of nothing")
        return x.constant(np.full([n for n in shape if isinstance(n, int)], least, x.element.dtype))
    if x.element is I1:
        return x.reduce({"max": "any", "min": "all"}[name], over)
    return x.reduce(name, over)


_LIMITS: dict[str, Any] = {
    "max": lambda e: False if e is I1 else -np.inf if e.kind == "float" else e.limits[0],
    "min": lambda e: True if e is I1 else np.inf if e.kind == "float" else e.limits[1],
}


def is_empty(x: Node, over: Sequence[int]) -> bool:
    return any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in over)


def exponentials(x: Node, over: tuple[int, ...]) -> tuple[Node, Node, Node]:
    """x less its largest element, the powers of that, and their sum."""
    below = x - x.reduce("max", over).with_ones(over)
    powers = below.scalar("exp")
    return below, powers, total(powers, over).with_ones(over)


def softmax_along(x: Node, axis: int) -> Node:
    _, powers, whole = exponentials(x, (axis,))
    return powers / whole


def log_softmax_along(x: Node, axis: int) -> Node:
    below, _, whole = exponentials(x, (axis,))
    return below - whole.scalar("log")
