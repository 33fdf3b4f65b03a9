"""Operators of two operands element by element, and conversions."""

from __future__ import annotations

import math
from functools import partial, reduce

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import F32, I16, I32, I64
from cvm.importers.exactness import Exactness
from cvm.importers.graph.elementwise import combine, converted, quotient, where
from cvm.importers.graph.movement import reshaped
from cvm.importers.graph.rules import aligned

from . import quantization as q
from .fixed_point import high, leading_zeros, shifted
from .rules import FINITE, ROUNDED, At, Known, Tensor, Unsupported, plain, rule, same_scale
from .schema import ACTIVATIONS


def activated(at: At, y: Node) -> Node:
    """Floats, or integers without a scale, through the fused activation."""
    if (kind := ACTIVATIONS[at["activation"]]) == "TANH":
        at.rule_exactness = ROUNDED
        return y.scalar("tanh")
    if kind not in q.LIMITS:
        raise Unsupported(f"activation {kind}")
    return q.bounded(y, kind)


@rule("ADD", "SUB", floats=FINITE)
def add(at: At, a: Node, b: Node) -> Known:
    x, z = at.input(0), at.input(1)
    if not at.y.is_quantised:
        return activated(at, combine(at.op.lower(), a, b))
    sign = 1 if at.op == "ADD" else -1
    scales = [float(t.scale) for t in (x, z, at.y)]
    low, high = q.activation_range(at, at.y)
    powers = all(math.frexp(s)[0] == 0.5 for s in scales)
    if (
        at.y.element is I16
        and at["pot_scale_int16"]
        and powers
        and not any(t.zero_point for t in (x, z, at.y))
    ):
        a, b = power_shifted(at, a, x), power_shifted(at, b, z)
        return q.clipped(combine(at.op.lower(), a, b), low, high, I16)
    left = 15 if at.y.element is I16 else 20
    whole = 2 * max(scales[:2])
    factors = scales[0] / whole, scales[1] / whole, whole / ((1 << left) * scales[2])
    (m1, s1), (m2, s2), (m3, s3) = map(q.quantized_multiplier, factors)
    a, b = aligned(a, b)
    return at.apply(
        "quant.add",
        a,
        b,
        zero_points=(x.zero_point, z.zero_point, at.y.zero_point),
        multipliers=(m1, sign * m2, m3),
        shifts=(s1, s2, s3),
        left_shift=left,
        rounding=at.rounding,
        to=at.y.element,
        min=low,
        max=high,
    )


def power_shifted(at: At, x: Node, of: Tensor) -> Node:
    """Numbers of 16 bits whose scale is a power of two, in the result's."""
    if (shift := round(math.log2(float(at.y.scale) / float(of.scale)))) < 0:
        raise Unsupported("an operand's scale above the result's, both powers of two")
    return q.requantized(at, x.cast(I32), 2.0**-shift, I32) if shift else x.cast(I32)


@rule("MUL", floats=FINITE)
def multiply(at: At, a: Node, b: Node) -> Known:
    x, z, y = at.input(0), at.input(1), at.y
    if not y.is_quantised:
        return activated(at, combine("mul", a, b))
    low, high = q.activation_range(at, y)
    m, s = q.quantized_multiplier(float(x.scale * z.scale / y.scale))
    a, b = aligned(a, b)
    return at.apply(
        "quant.mul",
        a,
        b,
        zero_points=(x.zero_point, z.zero_point, y.zero_point),
        multiplier=m,
        shift=s,
        rounding=at.rounding,
        to=y.element,
        min=low,
        max=high,
    )


@rule("SQUARED_DIFFERENCE")
def squared_difference(at: At, a: Node, b: Node) -> Known:
    if not at.y.is_quantised:
        difference = combine("sub", a, b)
        return difference * difference
    whole = 2 * max(float(t.scale) for t in (at.input(0), at.input(1)))
    a, b = (
        q.requantized(
            at, q.less_zero(n, t.zero_point) * q.at_i32(n, 1 << 7), float(t.scale) / whole, I32
        )
        for n, t in ((a, at.input(0)), (b, at.input(1)))
    )
    difference = combine("sub", a, b)
    factor = whole * whole / ((1 << 14) * float(at.y.scale))
    return q.requantized(at, difference * difference, factor, at.y.element, at.y.zero_point)


NO_ZERO = Exactness(
    "no divisor is zero, and no quotient so small that the kernel shifts by more than 31 bits"
)


@rule("DIV", exact=NO_ZERO, floats=FINITE)
def divide(at: At, a: Node, b: Node) -> Known:
    """Take all but quantized numbers of 16 bits."""
    if not at.y.is_quantised:
        return activated(at, quotient(at, a, b))
    if at.y.element.bits > 8:
        raise Unsupported(f"division of quantised {at.y.element}")
    x, z, (low, most) = at.input(0), at.input(1), q.activation_range(at, at.y)
    a, b = q.less_zero(a, x.zero_point), q.less_zero(b, z.zero_point)
    whole = combine("mul", a, b.scalar("sgn"))
    above, below = (reshaped(at, n, (-1,)) for n in (whole, b.scalar("abs_").like(whole)))
    up = leading_zeros(above.scalar("maximum", -1 - above)) - 1
    ratio = high(shifted(above.cast(I64), up), at.apply("quant.reciprocal", below).cast(I64)).cast(
        I32
    )
    m, s = q.quantized_multiplier(float(x.scale / (z.scale * at.y.scale)))
    shift = (up - leading_zeros(below) + (31 + s)).cast(I32)
    attrs = {
        "to": at.y.element,
        "rounding": "tflite_double",
        "zero_point": at.y.zero_point,
        "min": low,
        "max": most,
    }
    result = at.apply("quant.requantize", ratio, np.array(m, np.int32), shift, **attrs, axis=0)
    return reshaped(at, result, whole.shape)


@rule("FLOOR_DIV", floats=FINITE)
@rule("FLOOR_MOD", "POW", "ATAN2", floats=ROUNDED)
def binary(at: At, a: Node, b: Node) -> Known:
    """Take floats and plain integers."""
    plain(at)
    if at.op == "FLOOR_DIV" and a.element.kind == "float":
        return quotient(at, a, b).scalar("floor")
    return combine(
        {"FLOOR_DIV": "floor_div", "FLOOR_MOD": "mod", "POW": "pow", "ATAN2": "arctan2"}[at.op],
        a,
        b,
    )


rule("LOGICAL_AND")(lambda at, a, b: combine("and_", a, b))
rule("LOGICAL_OR")(lambda at, a, b: combine("or_", a, b))


@rule("ADD_N", floats=FINITE)
def add_all(at: At, *xs: Node) -> Known:
    """Take floats and plain integers."""
    plain(at)
    return reduce(partial(combine, "add"), xs)


@rule("MAXIMUM", "MINIMUM", floats=FINITE)
def extreme(at: At, *xs: Node) -> Known:
    """Take numbers of one scale."""
    same_scale(at)
    return reduce(partial(combine, at.op.lower()), xs)


COMPARISONS = {
    "EQUAL": "eq",
    "NOT_EQUAL": "neq",
    "LESS": "lt",
    "LESS_EQUAL": "le",
    "GREATER": "gt",
    "GREATER_EQUAL": "ge",
}


@rule(*COMPARISONS)
def compare(at: At, a: Node, b: Node) -> Known:
    if at.x.is_quantised and a.element.bits < 32:
        a, b = (
            q.requantized(
                at, q.less_zero(n, t.zero_point) * q.at_i32(n, 1 << 8), float(t.scale), I32
            )
            for n, t in ((a, at.input(0)), (b, at.input(1)))
        )
    return combine(COMPARISONS[at.op], a, b)


@rule("SELECT", "SELECT_V2")
def select(at: At, condition: Node, a: Node, b: Node) -> Known:
    if at.op == "SELECT" and condition.rank == 1 < a.rank:
        condition = condition.dimshuffle([0, *["x"] * (a.rank - 1)])
    return where(condition, a, b)


@rule("PRELU")
def prelu(at: At, x: Node, alpha: Node) -> Known:
    t, a, y = at.x, at.input(1), at.y
    x, alpha = aligned(x, alpha)
    if not y.is_quantised:
        return where(x.scalar("lt", 0.0), x * alpha, x)
    plain, slope = q.less_zero(x, t.zero_point), q.less_zero(alpha, a.zero_point)
    above = q.requantized(at, plain, float(t.scale / y.scale), y.element, y.zero_point)
    below = q.requantized(
        at, plain * slope, float(t.scale * a.scale / y.scale), y.element, y.zero_point
    )
    return where(plain.scalar("ge", q.at_i32(plain, 0)), above, below)


# Conversions


@rule(
    "QUANTIZE", floats=Exactness("no element is NaN, and divided by the scale it is within 32 bits")
)
def quantize(at: At, x: Node) -> Known:
    """From floats, and from other scales."""
    y = at.y
    if at.x.is_quantised:
        return q.rescaled(at, x, at.x, y)
    return q.rounded(x / float(y.scale), y, y.element.limits)


@rule("DEQUANTIZE")
def dequantize(at: At, x: Node) -> Known:
    if x.element.kind == "float":
        return x.cast(F32)
    if len(at.x.scales) == 1:
        return q.less_zero(x, at.x.zero_point).cast(F32) * float(at.x.scale)
    order = [0 if n == at.x.axis else "x" for n in range(x.rank)]
    rows = at.x.zero_points.astype(np.int32), at.x.scales.astype(np.float32)
    zeros, scales = (at.node(v).dimshuffle(order) for v in rows)
    return (x.cast(I32) - zeros).cast(F32) * scales


rule("CAST")(lambda at, x: converted(at, x, at.y.element))
