"""ONNX's operators on quantised tensors: integers that stand for (q - zero point) * scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cvm.dialect.ir.types import F32, I32, UI8, ElementType
from cvm.dialect.program.builder import Node

from .elements import element_of
from .elementwise import number
from .matmul_conv_pool import convolved, product
from .rules import Known, Unsupported, aligned, rule

if TYPE_CHECKING:
    from .importer import At


def of_axis(at: At, x: Node, row: Node) -> Node:
    """A parameter of the whole tensor, of each place along an axis, or of blocks along it, as an operand beside x."""
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
    if zero is not None:
        y, z = aligned(y, zero.cast(F32))
        y = y + z
    low, high = to.limits
    return y.scalar("maximum", float(low)).scalar("minimum", float(high)).cast(to)


@rule("QuantizeLinear")
def quantize(at: At, x: Node, scale: Node, zero: Node | None = None) -> Known:
    """To integers of 8 and 16 bits."""
    _ = at["saturate"], at["precision"]
    to = zero.element if zero is not None else element_of(at["output_dtype"]) if at["output_dtype"] else UI8
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
    by = of_axis(at, x, scale)
    shifted = x.cast(I32)
    if zero is not None:
        a, b = aligned(shifted, of_axis(at, x, zero).cast(I32))
        shifted = a - b
    a, b = aligned(shifted.cast(F32), by.cast(F32))
    return (a * b).cast(to)


@rule("DynamicQuantizeLinear")
def dynamic_quantize(at: At, x: Node) -> Any:
    every = tuple(range(x.rank))
    low = x.reduce("min", every).scalar("minimum", 0.0)
    high = x.reduce("max", every).scalar("maximum", 0.0)
    scale = (high - low) / 255.0
    zero = (-low / scale).scalar("maximum", 0.0).scalar("minimum", 255.0).scalar("round_half_to_even")
    zero = scale.scalar("eq", 0.0).scalar("switch", number(scale, 0), zero).cast(UI8)
    return [quantized(x, scale, zero, UI8), scale, zero]


def less_zero(x: Node, zero: Node | None, rows: bool = False) -> Node:
    """Integers less their zero point, which may be one of each row."""
    wide = x.cast(I32)
    if zero is None:
        return wide
    zero = zero.cast(I32)
    if zero.rank == 1 and zero.shape != (1,) and rows:
        zero = zero.dimshuffle([0, *["x"] * (x.rank - 1)])
    a, b = aligned(wide, zero.dimshuffle([]) if zero.shape == (1,) else zero)
    return a - b


@rule("MatMulInteger")
def matmul_integer(at: At, a: Node, b: Node, a_zero: Node | None = None, b_zero: Node | None = None) -> Known:
    if a_zero is not None and a_zero.rank == 1 and a_zero.shape != (1,):
        a_zero = a_zero.dimshuffle([0, "x"])
    return product(at, less_zero(a, a_zero), less_zero(b, b_zero))


@rule("ConvInteger")
def conv_integer(at: At, x: Node, w: Node, x_zero: Node | None = None, w_zero: Node | None = None) -> Known:
    return convolved(at, less_zero(x, x_zero), less_zero(w, w_zero, rows=True), None)


@rule("QLinearMatMul")
def qlinear_matmul(
    at: At, a: Node, a_scale: Node, a_zero: Node, b: Node, b_scale: Node, b_zero: Node, y_scale: Node, y_zero: Node
) -> Known:
    if any(s.rank and s.shape != (1,) for s in (a_scale, b_scale, y_scale)):
        raise Unsupported("scales of rows and columns")
    exact = product(at, less_zero(a, a_zero), less_zero(b, b_zero))
    return requantized(exact, a_scale, b_scale, y_scale, y_zero)


def requantized(exact: Node, a_scale: Node, b_scale: Node, y_scale: Node, y_zero: Node) -> Node:
    a, b, y = (s.cast(F32).dimshuffle([]) if s.shape == (1,) else s.cast(F32) for s in (a_scale, b_scale, y_scale))
    if b.rank == 1:
        b = b.dimshuffle([0, *["x"] * (exact.rank - 2)])
    factor, sums = aligned(a * b / y, exact.cast(F32))
    return quantized(sums * factor, number(sums, 1), y_zero.dimshuffle([]), y_zero.element)


@rule("QLinearConv")
def qlinear_conv(
    at: At, x: Node, x_scale: Node, x_zero: Node, w: Node, w_scale: Node, w_zero: Node, y_scale: Node, y_zero: Node,
    b: Node | None = None,
) -> Known:  # fmt: skip
    exact = convolved(at, less_zero(x, x_zero), less_zero(w, w_zero, rows=True), b)
    return requantized(exact, x_scale, w_scale, y_scale, y_zero)
