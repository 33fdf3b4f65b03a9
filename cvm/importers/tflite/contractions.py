"""Convolutions, dense layers, products of matrices, pooling and sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cvm.dialect.ir.types import F64, I16, I32, I64
from cvm.dialect.program.builder import Node
from cvm.importers.onnx.movement import reshaped
from cvm.importers.onnx.rules import Array, known_size, real_axes, static

from .arithmetic import activated, same_scale
from .quantization import activation_range, at_i32, less_zero, quantized_multiplier, requantized
from .rules import FLOATS, At, Known, Tensor, Unsupported, rule

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
ACCURACY = f"quantised: exact; {FLOATS}"


def windows(
    at: At, sizes: Sequence[int], kernel: Sequence[int], dilations: Sequence[int] = (1, 1)
) -> tuple[tuple[int, ...], tuple[int, int]]:
    """Padding before and after rows and columns, as [top, left, bottom, right], and strides."""
    strides = (at["stride_h"], at["stride_w"])
    if min(strides) < 1:
        raise ValueError(f"the strides are {strides}")
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    whole = [0, 0]
    if at["padding"] == 0:  # SAME
        whole = [max((-(-n // s) - 1) * s + e - n, 0) for n, s, e in zip(sizes, strides, spans, strict=True)]
    before = [p // 2 for p in whole]
    return (*before, *(p - b for p, b in zip(whole, before, strict=True))), strides


def factors(at: At, x: Tensor, w: Tensor) -> float | list[float]:
    """The scale of the accumulators over the result's, one for each channel where the weights have several."""
    if len(w.scales) > 1:
        return [float(x.scale) * float(s) / float(at.y.scale) for s in w.scales]
    return float(x.scale) * float(w.scale) / float(at.y.scale)


def check_quantised(at: At) -> None:
    """Refuse floats with quantised weights (hybrid), which are quantised when called."""
    if at.x.element.kind == "float" and at.input(1).element.is_integer:
        raise Unsupported("a hybrid operator, floats times quantised weights,")
    if any(z for z in at.input(1).zero_points) and len(at.input(1).scales) > 1:
        raise Unsupported("a zero point of each channel")


def finished(at: At, sums: Node, x: Tensor, w: Tensor) -> Node:
    """Accumulators as quantised numbers of the result, through its activation."""
    if at.y.element is I32:
        return sums
    limits = activation_range(at, at.y)
    return requantized(at, sums, factors(at, x, w), at.y.element, at.y.zero_point, limits)


def in_doubles(at: At, sums: Node, x: Tensor, w: Tensor) -> Node:
    """The same by one product of f64 and a rounding of halves away from zero, as the reference kernel of dense layers does it."""
    scales = np.array([float(x.scale) * float(s) / float(at.y.scale) for s in w.scales])
    scaled = sums.cast(F64) * at.node(scales if len(scales) > 1 else scales.reshape(()))
    low, high = activation_range(at, at.y)
    bounds = (float(v - at.y.zero_point) for v in (low, high))
    kept = (
        scaled.scalar("round_half_away_from_zero")
        .scalar("maximum", next(bounds))
        .scalar("minimum", next(bounds))
        .cast(I32)
    )
    return (kept + at_i32(kept, at.y.zero_point)).cast(at.y.element)


def zero_points(at: At, x: Tensor, w: Tensor) -> list[Node]:
    return [at.node(np.array(t.zero_point, np.int32)) for t in (x, w)]


def accumulator_bias(x: Node, bias: Node | None) -> list[Node]:
    """The bias in the accumulators' type."""
    return [] if bias is None else [bias.cast(I64 if x.element is I16 else I32)]


@rule("CONV_2D", accuracy=ACCURACY)
def conv(at: At, x: Node, w: Node, bias: Node | None = None) -> Known:
    check_quantised(at)
    dilations = (at["dilation_h"], at["dilation_w"])
    pads, strides = windows(at, static(x, "a convolution", (1, 2)), static(w, "a kernel", (1, 2)), dilations)
    groups = known_size(x.shape[3], "channels") // max(known_size(w.shape[3], "channels"), 1)
    if not at.x.is_quantised:
        return float_conv(at, x, w.dimshuffle(TO_NCHW), bias, pads, strides, dilations, groups)
    how = {"padding": pads, "stride": strides, "dilation": dilations, "groups": groups}
    sums = at.apply("quant.conv2d", x, w, *zero_points(at, at.x, at.input(1)), *accumulator_bias(x, bias), **how)
    return finished(at, sums, at.x, at.input(1))


def float_conv(
    at: At, x: Node, w: Node, bias: Node | None, pads: Sequence[int], strides: Sequence[int], dilations: Sequence[int], groups: int
) -> Node:  # fmt: skip
    given = () if bias is None else (bias,)
    found = at.onnx(
        "Conv", x.dimshuffle(TO_NCHW), w, *given, pads=pads, strides=strides, dilations=dilations, group=groups
    )
    return activated(at, found.dimshuffle(TO_NHWC))


@rule("DEPTHWISE_CONV_2D", accuracy=ACCURACY)
def depthwise(at: At, x: Node, w: Node, bias: Node | None = None) -> Known:
    check_quantised(at)
    dilations = (at["dilation_h"], at["dilation_w"])
    kernel = static(w, "a kernel", (1, 2))
    pads, strides = windows(at, static(x, "a convolution", (1, 2)), kernel, dilations)
    channels, outputs = known_size(x.shape[3], "channels"), known_size(w.shape[3], "channels")
    if not channels or outputs % channels:
        raise ValueError(f"{outputs} channels of {channels}")
    if not at.x.is_quantised:
        return float_conv(at, x, w.dimshuffle((3, 0, 1, 2)), bias, pads, strides, dilations, channels)
    w = at.apply("cvm.reshape", w, target_shape=(*kernel, channels, outputs // channels))
    how = {"padding": pads, "stride": strides, "dilation": dilations}
    sums = at.apply(
        "quant.depthwise_conv2d", x, w, *zero_points(at, at.x, at.input(1)), *accumulator_bias(x, bias), **how
    )
    return finished(at, sums, at.x, at.input(1))


@rule("TRANSPOSE_CONV", accuracy=ACCURACY)
def transpose_conv(at: At, shape: Array, w: Node, x: Node, bias: Node | None = None) -> Known:
    check_quantised(at)
    t, kernel, wanted = at.input(2), static(w, "a kernel", (1, 2)), [int(n) for n in shape.reshape(-1)[1:3]]
    pads, strides = windows(at, wanted, kernel)
    sizes = static(x, "a transposed convolution", (1, 2))
    full = [(n - 1) * s + k for n, s, k in zip(sizes, strides, kernel, strict=True)]
    pads = (*pads[:2], *(f - p - m for f, p, m in zip(full, pads[:2], wanted, strict=True)))
    if not t.is_quantised:
        turned = w.dimshuffle((3, 0, 1, 2))
        zero = {
            "auto_pad": "NOTSET",
            "group": 1,
            "strides": strides,
            "pads": (*pads[:2], *(max(p, 0) for p in pads[2:])),
        }
        more = tuple(max(-p, 0) for p in pads[2:])
        found = at.onnx(
            "ConvTranspose",
            x.dimshuffle(TO_NCHW),
            turned,
            *(() if bias is None else (bias,)),
            **zero,
            output_padding=more,
        )
        return activated(at, found.dimshuffle(TO_NHWC))
    zeros = zero_points(at, t, at.input(1))
    sums = at.apply("quant.transpose_conv2d", x, w, *zeros, *accumulator_bias(x, bias), padding=pads, stride=strides)
    return finished(at, sums, t, at.input(1))


@rule("FULLY_CONNECTED", accuracy=ACCURACY)
def fully_connected(at: At, x: Node, w: Node, bias: Node | None = None) -> Known:
    check_quantised(at)
    if at["weights_format"]:
        raise Unsupported("shuffled weights")
    n, k = static(w, "weights")
    lead = x.shape[:-1] if at["keep_num_dims"] else (-1,)
    rows = x if x.rank == 2 and x.shape[1] == k else at.apply("cvm.reshape", x, target_shape=(-1, k))
    if at.x.is_quantised:
        sums = at.apply("quant.dense", rows, w, *zero_points(at, at.x, at.input(1)), *accumulator_bias(x, bias))
        found = in_doubles(at, sums, at.x, at.input(1))
    else:
        found = activated(at, at.apply("cvm.dense", rows, w, *(() if bias is None else (bias,))))
    return reshaped(at, found, (*lead, n)) if len(lead) > 1 else found


@rule("BATCH_MATMUL", accuracy=ACCURACY)
def batch_matmul(at: At, a: Node, b: Node) -> Known:
    check_quantised(at)
    a, b = (
        n.dimshuffle([*range(n.rank - 2), n.rank - 1, n.rank - 2]) if at[f"adj_{name}"] else n
        for n, name in ((a, "x"), (b, "y"))
    )
    if not at.x.is_quantised:
        return at.onnx("MatMul", a, b)
    if a.rank != b.rank and b.rank != 2:
        raise Unsupported("batches of different rank")
    sums = at.apply("quant.batch_matmul", a, b, *zero_points(at, at.x, at.input(1)))
    return requantized(at, sums, factors(at, at.x, at.input(1)), at.y.element, at.y.zero_point)


# Pooling


def pool(at: At, x: Node) -> tuple[Sequence[int], dict[str, Any]]:
    kernel = (at["filter_height"], at["filter_width"])
    pads, strides = windows(at, static(x, "pooling", (1, 2)), kernel)
    return kernel, {"padding": pads, "stride": strides}


@rule("MAX_POOL_2D", "AVERAGE_POOL_2D", accuracy=ACCURACY)
def pooling(at: At, x: Node) -> Known:
    """An average is over the elements that are inside, in integers with halves away from zero."""
    same_scale(at)
    kernel, how = pool(at, x)
    if at.x.is_quantised:
        low, high = activation_range(at, at.y)
        name = "quant.max_pool2d" if at.op == "MAX_POOL_2D" else "quant.avg_pool2d"
        return at.apply(name, x, pool_size=kernel, min=low, max=high, **how)
    name = "MaxPool" if at.op == "MAX_POOL_2D" else "AveragePool"
    given = {"kernel_shape": kernel, "pads": how["padding"], "strides": how["stride"], "auto_pad": "NOTSET"}
    return activated(at, at.onnx(name, x.dimshuffle(TO_NCHW), **given).dimshuffle(TO_NHWC))


# Reductions


def over(x: Node, axes: Array) -> tuple[int, ...]:
    return tuple(sorted(set(real_axes(sorted({int(a) % max(x.rank, 1) for a in axes.reshape(-1)}), x.rank))))


@rule("MEAN", "SUM", accuracy=ACCURACY)
def mean(at: At, x: Node, axes: Array) -> Known:
    along = over(x, axes)
    if not at.x.is_quantised or at.x.element.bits > 16:
        name = "ReduceMean" if at.op == "MEAN" else "ReduceSum"
        return at.onnx(name, x, along, keepdims=int(at["keep_dims"]))
    count = math.prod(static(x, "a mean", along))
    if at.op == "SUM":
        raise Unsupported("quantised numbers: the reference kernel's result is not understood")
    sums = less_zero(x, at.x.zero_point).sum(along, dtype=I32, acc_dtype=I32)
    m, s = quantized_multiplier(float(at.x.scale) / float(at.y.scale))
    if count:
        shift = min(count.bit_length() - 1, 32, 31 + (31 - s))
        m, s = (m << shift) // count, s + shift
    low, high = at.y.element.limits
    how = {"to": at.y.element, "rounding": at.rounding, "zero_point": at.y.zero_point, "min": low, "max": high}
    found = at.apply("quant.requantize", sums, at.node(np.array(m, np.int32)), at.node(np.array(s, np.int32)), **how)
    return found.with_ones(along) if at["keep_dims"] else found


REDUCTIONS = {"REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin", "REDUCE_PROD": "ReduceProd"}


@rule(*REDUCTIONS, accuracy="exact but for products of floats")
def reduce(at: At, x: Node, axes: Array) -> Known:
    same_scale(at)
    if at.op == "REDUCE_PROD" and at.x.is_quantised:
        raise Unsupported("quantised numbers")
    return at.onnx(REDUCTIONS[at.op], x, over(x, axes), keepdims=int(at["keep_dims"]))


@rule("REDUCE_ANY", "REDUCE_ALL")
def reduce_bools(at: At, x: Node, axes: Array) -> Known:
    along = over(x, axes)
    found = x.reduce("any" if at.op == "REDUCE_ANY" else "all", along)
    return found.with_ones(along) if at["keep_dims"] else found
