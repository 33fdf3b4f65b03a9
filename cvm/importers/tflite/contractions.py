"""Convolutions, dense layers, products of matrices, pooling and sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import F64, I16, I32, I64
from cvm.importers.exactness import SUMS, Exactness
from cvm.importers.graph import reductions
from cvm.importers.graph.contractions import (
    Window,
    average_pool,
    convolution,
    halves,
    matmul,
    max_pool,
    same_padding,
    transposed_convolution,
)
from cvm.importers.graph.movement import reshaped
from cvm.importers.graph.rules import known_size, real_axes, static

from .arithmetic import activated
from .fixed_point import inverse_square_root
from .quantization import (
    activation_range,
    at_i32,
    less_zero,
    quantized_multiplier,
    requantized,
    rounded,
)
from .rules import FINITE, ROUNDED, At, Ints, Known, Tensor, Unsupported, plain, rule, same_scale

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
UNIT_ZEROS = {"INT8": 0, "UINT8": 128}  # the zero points of numbers from -1 to 1


def windows(
    at: At, sizes: Sequence[int], kernel: Sequence[int], dilations: Sequence[int] = (1, 1)
) -> tuple[tuple[int, ...], tuple[int, int]]:
    """Padding before and after rows and columns, as [top, left, bottom, right], and strides."""
    strides = (at["stride_h"], at["stride_w"])
    if min(strides) < 1:
        raise ValueError(f"the strides are {strides}")
    if at["padding"]:  # VALID
        return (0,) * 4, strides
    before, after = halves(same_padding(sizes, kernel, strides, dilations))
    return (*before, *after), strides


def factors(at: At, of: Tensor) -> list[float]:
    """The scale of the accumulators over the result's, one for each channel where the weights have
    several.
    """
    return [float(of.scale) * float(s) / float(at.y.scale) for s in at.input(1).scales]


def check_quantised(at: At) -> None:
    """Refuse floats with quantized weights (hybrid), which are quantized when called."""
    if at.x.element.kind == "float" and at.input(1).element.is_integer:
        raise Unsupported("a hybrid operator, floats times quantised weights,")
    if any(z for z in at.input(1).zero_points) and len(at.input(1).scales) > 1:
        raise Unsupported("a zero point of each channel")


def accumulators(
    at: At, name: str, of: Tensor, x: Node, w: Node, bias: Node | None = None, **attributes: object
) -> Node:
    """Sums of products, with a bias in their type."""
    zeros = (at.node(np.array(t.zero_point, np.int32)) for t in (of, at.input(1)))
    more = () if bias is None else (bias.cast(I64 if x.element is I16 else I32),)
    return at.apply(f"quant.{name}", x, w, *zeros, *more, **attributes)


def finished(at: At, sums: Node, of: Tensor) -> Node:
    """Accumulators as quantized numbers of the result, through its activation."""
    if at.y.element is I32:
        return sums
    return requantized(
        at, sums, factors(at, of), at.y.element, at.y.zero_point, activation_range(at, at.y)
    )


def channels_last(at: At, y: Node) -> Node:
    """A result whose channels come second with these last, and the fused activation."""
    return activated(at, y.dimshuffle(TO_NHWC))


def window_of(
    pads: Sequence[int], strides: Sequence[int], dilations: Sequence[int] = (1, 1)
) -> Window:
    return Window([*strides], [*dilations], [*pads[:2]], [*pads[2:]])


@rule("CONV_2D", "DEPTHWISE_CONV_2D", exact=SUMS, floats=ROUNDED)
def conv(at: At, x: Node, w: Node, bias: Node | None = None) -> Known:
    check_quantised(at)
    kernel, dilations, deep = (
        static(w, "a kernel", (1, 2)),
        (at["dilation_h"], at["dilation_w"]),
        at.op != "CONV_2D",
    )
    pads, strides = windows(at, static(x, "a convolution", (1, 2)), kernel, dilations)
    channels, outputs = (known_size(n.shape[3], "channels") for n in (x, w))
    if deep and (not channels or outputs % channels):
        raise ValueError(f"{outputs} channels of {channels}")
    groups = channels if deep else channels // max(outputs, 1)
    if not at.x.is_quantised:
        w = w.dimshuffle((3, 0, 1, 2) if deep else TO_NCHW)
        window = window_of(pads, strides, dilations)
        y = convolution(at, x.dimshuffle(TO_NCHW), w, bias, window, groups)
        return channels_last(at, y)
    attributes = {"padding": pads, "stride": strides, "dilation": dilations}
    if deep:
        w = at.apply("cvm.reshape", w, target_shape=(*kernel, channels, outputs // channels))
        return finished(
            at, accumulators(at, "depthwise_conv2d", at.x, x, w, bias, **attributes), at.x
        )
    return finished(
        at, accumulators(at, "conv2d", at.x, x, w, bias, **attributes, groups=groups), at.x
    )


@rule("TRANSPOSE_CONV", exact=SUMS, floats=ROUNDED)
def transpose_conv(at: At, shape: Ints, w: Node, x: Node, bias: Node | None = None) -> Known:
    check_quantised(at)
    of, kernel, output_sizes = at.input(2), static(w, "a kernel", (1, 2)), shape[1:3]
    pads, strides = windows(at, output_sizes, kernel)
    sizes = static(x, "a transposed convolution", (1, 2))
    full = [(n - 1) * s + k for n, s, k in zip(sizes, strides, kernel, strict=True)]
    after = [f - p - m for f, p, m in zip(full, pads[:2], output_sizes, strict=True)]
    if of.is_quantised:
        attributes = {"padding": (*pads[:2], *after), "stride": strides}
        return finished(at, accumulators(at, "transpose_conv2d", of, x, w, bias, **attributes), of)
    window = window_of((*pads[:2], *(max(p, 0) for p in after)), strides)
    more = [max(-p, 0) for p in after]
    x, w = x.dimshuffle(TO_NCHW), w.dimshuffle((3, 0, 1, 2))
    return channels_last(at, transposed_convolution(at, x, w, bias, window, more, 1))


@rule("FULLY_CONNECTED", exact=SUMS, floats=ROUNDED)
def fully_connected(at: At, x: Node, w: Node, bias: Node | None = None) -> Known:
    check_quantised(at)
    if at["weights_format"]:
        raise Unsupported("shuffled weights")
    n, k = static(w, "weights")
    lead = x.shape[:-1] if at["keep_num_dims"] else (-1,)
    rows = (
        x if x.rank == 2 and x.shape[1] == k else at.apply("cvm.reshape", x, target_shape=(-1, k))
    )
    if at.x.is_quantised:
        # one product of f64 and a rounding of halves away from zero, as the reference kernel does
        # it
        sums = accumulators(at, "dense", at.x, rows, w, bias).cast(F64)
        scales = np.array(factors(at, at.x))
        scaled = sums * at.node(scales if len(scales) > 1 else scales.reshape(()))
        y = rounded(scaled, at.y, activation_range(at, at.y))
    else:
        y = activated(at, at.apply("cvm.dense", rows, w, *(() if bias is None else (bias,))))
    return reshaped(at, y, (*lead, n)) if len(lead) > 1 else y


@rule("BATCH_MATMUL", exact=SUMS, floats=ROUNDED)
def batch_matmul(at: At, a: Node, b: Node) -> Known:
    check_quantised(at)
    a, b = (
        n.dimshuffle([*range(n.rank - 2), n.rank - 1, n.rank - 2]) if at[f"adj_{name}"] else n
        for n, name in ((a, "x"), (b, "y"))
    )
    if not at.x.is_quantised:
        return matmul(at, a, b)
    if a.rank != b.rank and b.rank != 2:
        raise Unsupported("batches of different rank")
    sums = accumulators(at, "batch_matmul", at.x, a, b)
    return requantized(at, sums, factors(at, at.x), at.y.element, at.y.zero_point)


@rule("MAX_POOL_2D", floats=FINITE)
@rule("AVERAGE_POOL_2D", floats=ROUNDED)
def pooling(at: At, x: Node) -> Known:
    """An average is over the elements that are inside, in integers with halves away from zero."""
    same_scale(at)
    kernel = (at["filter_height"], at["filter_width"])
    pads, strides = windows(at, static(x, "pooling", (1, 2)), kernel)
    if at.x.is_quantised:
        low, high = activation_range(at, at.y)
        name = "quant.max_pool2d" if at.op == "MAX_POOL_2D" else "quant.avg_pool2d"
        return at.apply(name, x, pool_size=kernel, padding=pads, stride=strides, min=low, max=high)
    pool = max_pool if at.op == "MAX_POOL_2D" else average_pool
    return channels_last(at, pool(at, x.dimshuffle(TO_NCHW), kernel, window_of(pads, strides)))


# Reductions


def over(x: Node, axes: Ints) -> tuple[int, ...]:
    return tuple(sorted({real_axes((a,), x.rank)[0] for a in axes}))


def every_if_none(x: Node, along: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of a reduction; without any, all of them."""
    return along or tuple(range(x.rank))


SIGNED = Exactness(bound="unlike LiteRT 2.3.0, whose kernel reads signed numbers as unsigned")


@rule("MEAN", exact=SUMS, floats=ROUNDED)
@rule("SUM", exact=replace(SUMS, bound=SIGNED.bound), floats=ROUNDED)
def mean(at: At, x: Node, axes: Ints) -> Known:
    along = over(x, axes)
    if not at.x.is_quantised or at.x.element.bits > 16:
        every = every_if_none(x, along)
        y = reductions.mean(at, x, every) if at.op == "MEAN" else reductions.total(x, every)
        return with_kept_dims(at, y.cast(x.element), along)
    count = math.prod(static(x, "a mean", along))
    if at.op == "SUM":
        at.rule_exactness = SUMS if at.x.type == "UINT8" else SIGNED
    sums = less_zero(x, at.x.zero_point).sum(along, dtype=I32, acc_dtype=I32)
    m, s = quantized_multiplier(float(at.x.scale) / float(at.y.scale))
    if count and at.op == "MEAN":
        shift = min(count.bit_length() - 1, 32, 31 + (31 - s))
        m, s = (m << shift) // count, s + shift
    attributes = {"to": at.y.element, "rounding": at.rounding, "zero_point": at.y.zero_point}
    y = at.apply(
        "quant.requantize",
        sums,
        at.node(np.array(m, np.int32)),
        at.node(np.array(s, np.int32)),
        **attributes,
    )
    return with_kept_dims(at, y, along)


def with_kept_dims(at: At, y: Node, along: tuple[int, ...]) -> Node:
    return y.with_ones(along) if at["keep_dims"] else y


@rule("L2_NORMALIZATION", exact=SUMS, floats=ROUNDED)
def l2_normalization(at: At, x: Node) -> Known:
    """Along the last axis."""
    along = (x.rank - 1,)
    if not at.x.is_quantised:
        squares = (x * x).sum(along, dtype=x.element, acc_dtype=x.element)
        return x / squares.scalar("sqrt").scalar("maximum", 1e-6).with_ones(along)
    if (
        at.y.type not in UNIT_ZEROS
        or at.y.scale != 1 / 128
        or at.y.zero_point != UNIT_ZEROS[at.y.type]
    ):
        raise ValueError(
            "a result whose scale is not 1/128, or whose zero point is not in the middle"
        )
    rows = less_zero(reshaped(at, x, (-1, x.shape[-1])), at.x.zero_point)
    m, s = inverse_square_root((rows * rows).sum((1,), dtype=I32, acc_dtype=I32).cast(I64))
    attributes = {
        "to": at.y.element,
        "rounding": at.rounding,
        "zero_point": at.y.zero_point,
        "axis": 0,
    }
    rows, s = (rows, s - at_i32(s, 7)) if at.y.type == "INT8" else (rows * at_i32(s, 1 << 7), s)
    return reshaped(at, at.apply("quant.requantize", rows, m, s, **attributes), x.shape)


@rule("REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL", floats=FINITE)
@rule("REDUCE_PROD", floats=ROUNDED)
def reduce(at: At, x: Node, axes: Ints) -> Known:
    same_scale(at)
    name, along = at.op.removeprefix("REDUCE_"), over(x, axes)
    if name in ("ANY", "ALL"):
        return with_kept_dims(at, x.reduce(name.lower(), along), along)
    every = every_if_none(x, along)
    if name == "PROD":
        plain(at)
        y = reductions.product_of(x, every)
    else:
        y = reductions.extreme(x, every, name.lower())
    return with_kept_dims(at, y.cast(x.element), along)
