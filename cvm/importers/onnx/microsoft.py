"""onnxruntime's own quantized operators (domain com.microsoft), computed in the steps of its
kernels.

Scales and zero points are constants. An addition is two fused multiply-adds of f32, here products
and sums of f64 that are rounded to f32; what is a table in onnxruntime's kernels is one here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import BY_DTYPE, F32, F64, I32, I64
from cvm.importers.graph.elementwise import clipped
from cvm.importers.graph.reductions import total
from cvm.importers.graph.rules import Array, Known, Unsupported, known_size, real_axes

from .importer import At
from .quantized import dequantized, dot, quantized, requantize, scalar_of
from .rules import rule

MAX_EXP = 0x7FFFFF  # the largest entry of the table of exponentials
scalar = partial(scalar_of, kind="scales")


@rule("com.microsoft.QLinearAdd")
def qlinear_add(
    at: At,
    a: Node,
    a_scale: Array,
    a_zero: Array,
    b: Node,
    b_scale: Array,
    b_zero: Array,
    c_scale: Array,
    c_zero: Array,
) -> Known:
    """fma(a, A, fma(b, B, c_zero - fma(A, a_zero, B * b_zero))), A and B being the scales over
    c_scale.
    """
    of_a, of_b = (np.float32(scalar(s)) / np.float32(scalar(c_scale)) for s in (a_scale, b_scale))
    zeros = np.float64(of_a) * np.float64(scalar(a_zero)) + np.float64(
        of_b * np.float32(scalar(b_zero))
    )
    fixed = np.float32(np.float64(scalar(c_zero)) - np.float64(np.float32(zeros)))
    inner = fused(at, b, of_b, at.node(np.array(fixed, np.float64)))
    to, y = BY_DTYPE[c_zero.dtype], fused(at, a, of_a, inner.cast(F64))
    return clipped(y.scalar("round_half_to_even"), *map(float, to.limits)).cast(to)


def fused(at: At, x: Node, factor: np.float32, added: Node) -> Node:
    return (x.cast(F64) * at.node(np.array(factor, np.float64)) + added).cast(F32)


@rule("com.microsoft.QLinearMul")
def qlinear_mul(
    at: At,
    a: Node,
    a_scale: Array,
    a_zero: Array,
    b: Node,
    b_scale: Array,
    b_zero: Array,
    c_scale: Array,
    c_zero: Array,
) -> Known:
    x, y = (
        n.cast(I32) - at.node(np.array(scalar(zero), np.int32))
        for n, zero in ((a, a_zero), (b, b_zero))
    )
    factor = np.float32(scalar(a_scale)) * np.float32(scalar(b_scale)) / np.float32(scalar(c_scale))
    return requantize(at, x * y, at.node(np.array(factor)), scalar(c_zero))


@rule("com.microsoft.QLinearGlobalAveragePool")
def qlinear_global_average_pool(
    at: At, x: Node, x_scale: Array, x_zero: Array, y_scale: Array, y_zero: Array
) -> Known:
    over = tuple(range(1, x.rank - 1) if at["channels_last"] else range(2, x.rank))
    count = int(np.prod([known_size(x.shape[a], "an average") for a in over]))
    factor = np.float32(scalar(x_scale)) / (np.float32(scalar(y_scale)) * np.float32(count))
    sums = total(x.cast(I32) - at.node(np.array(scalar(x_zero), np.int32)), over).with_ones(over)
    return requantize(at, sums, at.node(np.array(factor)), scalar(y_zero))


@rule("com.microsoft.QGemm")
def qgemm(
    at: At,
    a: Node,
    a_scale: Array,
    a_zero: Node,
    b: Node,
    b_scale: Array,
    b_zero: Node,
    c: Node | None = None,
    y_scale: Array | None = None,
    y_zero: Array | None = None,
) -> Known:
    a = a.dimshuffle((1, 0)) if at["transA"] else a
    rows = b if at["transB"] else b.dimshuffle((1, 0))
    sums = dot(at, a, rows, a_zero, b_zero, c if c is None or c.rank == 1 else None)
    sums = sums + c if c is not None and c.rank != 1 else sums
    alpha = np.float32(1.0 if at["alpha"] is None else at["alpha"])
    factor = np.asarray(alpha * np.float32(scalar(a_scale)) * b_scale.astype(np.float32))
    factor = factor if factor.size > 1 else factor.reshape(())
    if y_scale is None or y_zero is None:
        return sums.cast(F32) * at.node(factor)
    return requantize(
        at, sums, at.node(np.asarray(factor / np.float32(scalar(y_scale)))), scalar(y_zero)
    )


@rule("com.microsoft.QLinearSoftmax")
def qlinear_softmax(
    at: At, x: Node, x_scale: Array, x_zero: Array, y_scale: Array, y_zero: Array
) -> Known:
    """From a table of exponentials in integers, which are divided rounding halves up."""
    _ = at["opset"]
    (axis,) = real_axes((-1 if at["axis"] is None else at["axis"],), x.rank)
    if axis != x.rank - 1 or (at["opset"] or 13) < 13:
        raise Unsupported("an axis other than the last")
    unit = min(float(np.iinfo(np.uint32).max) / known_size(x.shape[axis], "a row"), float(MAX_EXP))
    table = np.rint(unit * np.exp((np.arange(256) - 255.0) * float(scalar(x_scale)))).astype(
        np.int64
    )
    largest = x.cast(I32).reduce("max", (axis,)).with_ones((axis,))
    index = x.cast(I32) - largest + at.node(np.array(255, np.int32))
    powers = at.apply("builtin.gather", at.node(table), index, axes=(0,), mode="clip")
    sums = powers.sum((axis,), dtype=I64, acc_dtype=I64).with_ones((axis,))
    inverse = at.node(np.array(np.floor(np.float32(1) / np.float32(scalar(y_scale))), np.int64))
    halves = at.apply("dali.floordiv", sums, at.node(np.array(2, np.int64)))
    y = at.apply("dali.floordiv", powers * inverse + halves, sums) + at.node(
        np.array(scalar(y_zero), np.int64)
    )
    to = BY_DTYPE[y_zero.dtype]
    return clipped(y, *to.limits).cast(to)


def by_table(at: At, x: Node, x_scale: Array, x_zero: Array, y_scale: Array, y_zero: Array) -> Node:
    """A float function of every number that x may be, as a table."""
    low, high = x.element.limits
    numbers = at.node(np.arange(low, high + 1).astype(x.element.dtype))
    floats = dequantized(
        numbers, at.node(np.array(scalar(x_scale))), at.node(np.array(scalar(x_zero)))
    )
    scale, zero = (at.node(np.array(scalar(p))) for p in (y_scale, y_zero))
    table = quantized(TABULATED[at.op](floats, at), scale, zero, BY_DTYPE[y_zero.dtype])
    return at.apply(
        "builtin.gather",
        table,
        x.cast(I32) - at.node(np.array(low, np.int32)),
        axes=(0,),
        mode="clip",
    )


TABULATED: dict[str, Callable[[Node, At], Node]] = {
    "QLinearSigmoid": lambda v, at: v.scalar("sigmoid"),
    "QLinearLeakyRelu": lambda v, at: v.scalar("ge", 0.0).scalar(
        "switch", v, v * (0.01 if at["alpha"] is None else at["alpha"])
    ),
    "QLinearConcat": lambda v, at: v,
}
rule("com.microsoft.QLinearSigmoid", "com.microsoft.QLinearLeakyRelu")(by_table)


@rule("com.microsoft.QLinearConcat")
def qlinear_concat(at: At, y_scale: Array, y_zero: Array, *parts: Known) -> Known:
    rescaled: list[Node] = []
    for n in range(0, len(parts), 3):
        x, (scale, zero) = at.node(parts[n]), parts[n + 1 : n + 3]
        if not isinstance(scale, np.ndarray) or not isinstance(zero, np.ndarray):
            raise Unsupported("a scale that is not a constant")
        same = scalar(scale) == scalar(y_scale) and scalar(zero) == scalar(y_zero)
        rescaled.append(x if same else by_table(at, x, scale, zero, y_scale, y_zero))
    return at.apply("cvm.concatenate", *rescaled, axis=at["axis"])
