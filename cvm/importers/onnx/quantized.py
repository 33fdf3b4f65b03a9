"""ONNX's operators on quantized tensors: integers that stand for (q - zero point) * scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.spec.broadcasting import same_shape
from cvm.dialect.types.tensor_types import BY_DTYPE, F16, F32, I32, UI8, ElementType
from cvm.importers.graph.contractions import matmul
from cvm.importers.graph.elementwise import clipped, combine, number
from cvm.importers.graph.movement import reshaped
from cvm.importers.graph.rules import Array, Known, Unsupported, aligned

from .elements import element_of
from .exactness import HALF
from .importer import At
from .matmul_conv_pool import kernel_sizes, spatial
from .rules import rule


def of_axis(at: At, x: Node, row: Node) -> Node:
    """A parameter of the whole tensor, of each place along an axis, or of blocks along it, as an
    operand beside x.
    """
    axis, block = at["axis"], at["block_size"]
    if row.rank == 0 or row.shape == (1,):
        return row.dimshuffle([])
    if row.rank == 1 and not block:
        return row.dimshuffle([0 if j == axis % x.rank else "x" for j in range(x.rank)])
    if not block:
        raise ValueError(f"a scale of {row.rank} dimensions without blocks")
    spread = at.apply("cvm.repeat", row, axis=axis % x.rank, repeats=block)
    n, m = x.shape[axis % x.rank], spread.shape[axis % x.rank]
    if n != m:
        raise Unsupported(f"{n} elements in blocks of {block}")
    return spread


def quantized(x: Node, scale: Node, zero: Node | None, to: ElementType) -> Node:
    """Halves to even, and the nearest number that the type has."""
    a, b = aligned(x, scale)
    y = (a / b).scalar("round_half_to_even").cast(F32)
    y = y if zero is None else combine("add", y, zero.cast(F32))
    return clipped(y, *map(float, to.limits)).cast(to)


@rule("QuantizeLinear")
def quantize(at: At, x: Node, scale: Node, zero: Node | None = None) -> Known:
    """To integers of 8 and 16 bits."""
    _ = at["saturate"], at["precision"]
    to = (
        zero.element
        if zero is not None
        else element_of(at["output_dtype"])
        if at["output_dtype"]
        else UI8
    )
    if not to.is_integer or to.bits > 16 or at["precision"] not in (None, 0, 1):
        raise Unsupported(f"quantisation to {to}")
    if x.element.is_integer:
        x, scale = x.cast(F32), scale.cast(F32)
    zero = None if zero is None else of_axis(at, x, zero)
    return quantized(x.cast(scale.element), of_axis(at, x, scale), zero, to)


@rule("DequantizeLinear")
def dequantize(at: At, x: Node, scale: Node, zero: Node | None = None) -> Known:
    """To floats, from integers."""
    to = scale.element if not at["output_dtype"] else element_of(at["output_dtype"])
    if to is F16:
        at.rule_exactness = HALF
    return dequantized(
        x, of_axis(at, x, scale), None if zero is None else of_axis(at, x, zero)
    ).cast(to)


def dequantized(x: Node, scale: Node, zero: Node | None) -> Node:
    shifted = x.cast(I32) if zero is None else combine("sub", x.cast(I32), zero.cast(I32))
    return combine("mul", shifted.cast(F32), scale.cast(F32))


@rule("DynamicQuantizeLinear")
def dynamic_quantize(at: At, x: Node) -> Any:
    every = tuple(range(x.rank))
    low = x.reduce("min", every).scalar("minimum", 0.0)
    scale = (x.reduce("max", every).scalar("maximum", 0.0) - low) / 255.0
    zero = clipped(-low / scale, 0.0, 255.0).scalar("round_half_to_even")
    zero = scale.scalar("eq", 0.0).scalar("switch", number(scale, 0), zero).cast(UI8)
    return [quantized(x, scale, zero, UI8), scale, zero]


def parameter(zero: Node | None, like: Node) -> Node:
    """A zero point as an operand of a contraction: a number, or a row of them."""
    if zero is None:
        return like.constant(np.zeros((), like.element.dtype))
    return zero.dimshuffle([]) if zero.rank == 1 and zero.array_type.size == 1 else zero


def dot(
    at: At, a: Node, rows: Node, a_zero: Node | None, b_zero: Node | None, bias: Node | None = None
) -> Node:
    """The products of rows with rows, in i32."""
    zeros = parameter(a_zero, a), parameter(b_zero, rows)
    return at.apply("quant.dense", a, rows, *zeros, *(() if bias is None else (bias,)))


@rule("MatMulInteger")
def integer_product(
    at: At, a: Node, b: Node, a_zero: Node | None = None, b_zero: Node | None = None
) -> Node:
    """NumPy's product of quantized matrices, in i32."""
    zeros = parameter(a_zero, a), parameter(b_zero, b)
    if a.rank >= 2 and b.rank == 2 and (a.rank == 2 or zeros[0].rank == 0):
        y = dot(
            at,
            a if a.rank == 2 else reshaped(at, a, (-1, *a.shape[-1:])),
            b.dimshuffle((1, 0)),
            *zeros,
        )
        return y if a.rank == 2 else reshaped(at, y, (*a.shape[:-1], b.shape[1]))
    if a.rank == b.rank >= 2 and same_shape(a.shape[:-2], b.shape[:-2]):
        return at.apply("quant.batch_matmul", a, b, *zeros)
    return matmul(at, less_zero(a, a_zero), less_zero(b, b_zero))


def less_zero(x: Node, zero: Node | None) -> Node:
    """Integers less their zero point."""
    zero = parameter(zero, x)
    if zero.rank:
        raise Unsupported("zero points of rows and columns of what is broadcast")
    return x.cast(I32) - zero.cast(I32)


@rule("ConvInteger")
def integer_convolution(
    at: At,
    x: Node,
    w: Node,
    x_zero: Node | None = None,
    w_zero: Node | None = None,
    bias: Node | None = None,
) -> Node:
    """The convolution of quantized tensors, in i32."""
    kernel = kernel_sizes(at, w)
    strides, dilations, before, after = spatial(at, x, kernel)
    if len(kernel) > 2 or any(n < 0 for n in (*before, *after)):
        raise Unsupported(
            "negative padding" if len(kernel) <= 2 else "a convolution of three dimensions"
        )
    lacking = 2 - len(kernel)
    x, w = (n.with_ones((2,)) if lacking else n for n in (x, w))
    ones, none = (1,) * lacking, (0,) * lacking
    y = at.apply(
        "quant.conv2d",
        x,
        w,
        parameter(x_zero, x),
        parameter(w_zero, w),
        *(() if bias is None else (bias,)),
        layout="NCHW",
        padding=(*none, *before, *none, *after),
        stride=(*ones, *strides),
        dilation=(*ones, *dilations),
        groups=at["group"] or 1,
    )
    return y.dimshuffle((0, 1, 3)) if lacking else y


def requantize(at: At, sums: Node, factor: Node, zero: Any, axis: int = -1) -> Node:
    """Integers scaled as floats, to the type of a zero point, which is a constant."""
    to = BY_DTYPE[np.asarray(zero).dtype]
    return at.apply(
        "quant.requantize",
        sums,
        factor,
        to=to,
        rounding="half_even_f32",
        zero_point=int(zero),
        axis=axis,
    )


def output_scale(a_scale: Node, b_scale: Node, y_scale: Node) -> Node:
    """The factor of the sums, in the order of onnxruntime: a * b / y."""
    a, b, y = (parameter(s.cast(F32), s) for s in (a_scale, b_scale, y_scale))
    if a.rank or b.rank > 1 or y.rank:
        raise Unsupported("scales of rows and columns")
    return a * b / y


def scalar_of(parameter: Array, kind: str = "zero points") -> Any:
    """A scale or a zero point of a whole tensor."""
    if parameter.size != 1:
        raise Unsupported(f"{kind} of rows and columns")
    return parameter.reshape(-1)[0]


@rule("QLinearMatMul")
def qlinear_matmul(
    at: At,
    a: Node,
    a_scale: Node,
    a_zero: Node,
    b: Node,
    b_scale: Node,
    b_zero: Node,
    y_scale: Node,
    y_zero: Array,
) -> Known:
    sums = integer_product(at, a, b, a_zero, b_zero)
    return requantize(at, sums, output_scale(a_scale, b_scale, y_scale), scalar_of(y_zero))


@rule("QLinearConv")
def qlinear_conv(
    at: At,
    x: Node,
    x_scale: Node,
    x_zero: Node,
    w: Node,
    w_scale: Node,
    w_zero: Node,
    y_scale: Node,
    y_zero: Array,
    b: Node | None = None,
) -> Known:
    sums = integer_convolution(at, x, w, x_zero, w_zero, b)
    return requantize(at, sums, output_scale(x_scale, w_scale, y_scale), scalar_of(y_zero), axis=1)
