"""ONNX's operators that reduce axes, and normalisations, which are made of reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import Size, product
from cvm.dialect.types.tensor_types import BF16, F16, F32, I1, compute_type
from cvm.importers.graph.importer import At
from cvm.importers.graph.rules import Ints, Known, Unsupported, aligned, real_axes, rule

from .elementwise import combine, number
from .movement import flatten, reshaped


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


def log_sum_exp(at: At, x: Node, over: Sequence[int]) -> Node:
    """Less the largest element, unless that is infinite."""
    if is_empty(x, over):
        return total(x.scalar("exp"), over).scalar("log")
    top = x.reduce("max", over)
    shift = top.scalar("abs_").scalar("eq", float("inf")).scalar("switch", number(top, 0), top)
    return total((x - shift.with_ones(over)).scalar("exp"), over).scalar("log") + shift


REDUCTIONS: dict[str, Any] = {
    "ReduceSum": lambda at, x, over: total(x, over),
    "ReduceMean": mean,
    "ReduceMax": lambda at, x, over: extreme(x, over, "max"),
    "ReduceMin": lambda at, x, over: extreme(x, over, "min"),
    "ReduceProd": lambda at, x, over: x.reduce(
        "prod", over, dtype=x.element, acc_dtype=compute_type(x.element)
    ),
    "ReduceL1": lambda at, x, over: total(x.scalar("abs_"), over),
    "ReduceL2": lambda at, x, over: total(x * x, over).scalar("sqrt").cast(x.element),
    "ReduceSumSquare": lambda at, x, over: total(x * x, over),
    "ReduceLogSum": lambda at, x, over: total(x, over).scalar("log").cast(x.element),
    "ReduceLogSumExp": log_sum_exp,
}


@rule(*REDUCTIONS)
def reduction(at: At, x: Node, axes: Ints | None = None) -> Known:
    listed = at["axes"] if axes is None else axes
    keeps = at["keepdims"]
    if at["noop_with_empty_axes"] and not listed:
        return (
            x
            if at.op in ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean")
            else REDUCTIONS[at.op](at, x, ()).cast(x.element)
        )
    over = sorted(real_axes(listed, x.rank)) if listed else list(range(x.rank))
    y = REDUCTIONS[at.op](at, x, tuple(over)).cast(x.element)
    return y.with_ones(over) if keeps else y


# Softmax and its kin


def exponentials(x: Node, over: tuple[int, ...]) -> tuple[Node, Node, Node]:
    """x less its largest element, the powers of that, and their sum."""
    below = x - x.reduce("max", over).with_ones(over)
    powers = below.scalar("exp")
    return below, powers, total(powers, over).with_ones(over)


def softmax_of(at: At, x: Node, axis: int) -> Node:
    below, powers, whole = exponentials(x, (axis,))
    if at.op == "Softmax":
        return powers / whole
    if at.op == "LogSoftmax":
        return below - whole.scalar("log")
    first = at.apply("builtin.argmax", x, axis=axis).with_ones((axis,))
    return at.apply("builtin.iota_like", x, axis=axis).scalar("eq", first).cast(x.element)


@rule("Softmax", "LogSoftmax", "Hardmax")
def softmax(at: At, x: Node) -> Known:
    """Before opset 13 over all axes from the given one on."""
    if at.opset < 13:
        return reshaped(at, softmax_of(at, flatten(at, x), 1), x.shape)
    return softmax_of(at, x, at.axis(x))


@rule("LpNormalization")
def lp_normalization(at: At, x: Node) -> Known:
    over = (at.axis(x),)
    norm = total(x.scalar("abs_"), over) if at["p"] == 1 else total(x * x, over).scalar("sqrt")
    norm = norm.with_ones(over)
    return norm.scalar("eq", 0.0).scalar("switch", number(x, 0), x / norm).cast(x.element)


# Normalisation


def normalized(at: At, x: Node, over: tuple[int, ...], epsilon: float) -> tuple[Node, Node, Node]:
    """x with mean 0 and variance 1 over axes, the mean, and what it was divided by."""
    center = mean(at, x, over).with_ones(over)
    away = x - center
    deviation = (mean(at, away * away, over).with_ones(over) + epsilon).scalar("sqrt")
    return away / deviation, center, deviation


def by_channel(x: Node, row: Node) -> Node:
    return row.dimshuffle(["x", 0, *["x"] * (x.rank - 2)]) if x.rank > 1 else row


@rule("BatchNormalization")
def batch_normalization(
    at: At, x: Node, scale: Node, shift: Node, mean_: Node, variance: Node
) -> Any:
    """Training mode gives the mean and the variance of the batch as well."""
    epsilon, momentum = at["epsilon"], at["momentum"]
    training = at["training_mode"] or (at.opset < 7 and at["is_test"] == 0 and at.wants(1))
    if not training and any(map(at.wants, range(1, 5))):
        raise Unsupported("statistics as outputs")
    if at.opset < 9 and at["spatial"] == 0:
        raise Unsupported("statistics of single elements")
    center, spread = mean_, variance
    if training:
        over = (0, *range(2, x.rank))
        center = mean(at, x, over)
        away = x - by_channel(x, center)
        spread = mean(at, away * away, over)
    factor = scale / (spread + epsilon).scalar("sqrt")
    y = (x * by_channel(x, factor) + by_channel(x, shift - center * factor)).cast(x.element)
    statistics = ((mean_, center), (variance, spread)) if training else ()
    return [
        y,
        *(
            before * momentum + now.cast(before.element) * (1 - momentum)
            for before, now in statistics
        ),
    ]


@rule("InstanceNormalization")
def instance_normalization(at: At, x: Node, scale: Node, shift: Node) -> Known:
    y, _, _ = normalized(at, x, tuple(range(2, x.rank)), at["epsilon"])
    return y * by_channel(x, scale) + by_channel(x, shift)


@rule("LayerNormalization")
def layer_normalization(at: At, x: Node, scale: Node, shift: Node | None = None) -> Any:
    stash = x.cast(F32) if x.element in (F16, BF16) and at["stash_type"] == 1 else x
    y, center, deviation = normalized(at, stash, tuple(range(at.axis(x), x.rank)), at["epsilon"])
    y, by = aligned(y.cast(x.element), scale)
    scaled = y * by
    return [
        scaled if shift is None else combine("add", scaled, shift),
        center,
        deviation.scalar("inv"),
    ]


@rule("MeanVarianceNormalization")
def mean_variance_normalization(at: At, x: Node) -> Known:
    over = real_axes(at["axes"] or (0, 2, 3), x.rank)
    center = x - mean(at, x, over).with_ones(over)
    return center / (mean(at, center * center, over).with_ones(over).scalar("sqrt") + 1e-9)


@rule("LRN")
def local_response_normalization(at: At, x: Node) -> Known:
    size = at["size"]
    window = {
        "axes": (1,),
        "sizes": (size,),
        "strides": (1,),
        "dilations": (1,),
        "before": ((size - 1) // 2,),
    }
    whole = total(at.apply("builtin.windows", x * x, **window, after=(size // 2,)), (x.rank,))
    return x / (whole * (at["alpha"] / size) + at["bias"]).scalar("pow", number(x, at["beta"]))
