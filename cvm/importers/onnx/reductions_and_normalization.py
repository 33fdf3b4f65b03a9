"""ONNX's operators that reduce axes, and normalizations, which are made of reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import BF16, F16, F32
from cvm.importers.graph.elementwise import combine, number
from cvm.importers.graph.movement import reshaped
from cvm.importers.graph.reductions import (
    extreme,
    is_empty,
    log_softmax_along,
    mean,
    product_of,
    softmax_along,
    total,
)
from cvm.importers.graph.rules import Ints, Known, Unsupported, aligned, real_axes

from .importer import At
from .movement import flatten
from .rules import rule


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
    "ReduceProd": lambda at, x, over: product_of(x, over),
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


def softmax_of(at: At, x: Node, axis: int) -> Node:
    if at.op == "Softmax":
        return softmax_along(x, axis)
    if at.op == "LogSoftmax":
        return log_softmax_along(x, axis)
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


# Normalization


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
