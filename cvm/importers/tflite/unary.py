"""Functions of one operand. Of quantized numbers they are look-up tables, computed while importing
as the reference kernels compute an element; of floats, scalar operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import I16
from cvm.importers.exactness import EXACT, Exactness
from cvm.importers.graph.elementwise import elu, gelu, leaky_relu, same_type, sign

from .fixed_point import divide_by_power, high, inverse_square_root
from .quantization import LIMITS, bounded, limits_of, quantized_multiplier, round_away, scaled
from .rules import FINITE, ROUNDED, At, Known, Unsupported, rule

Function = Callable[[At, np.ndarray], np.ndarray]
F64 = np.float64


def tabulated(at: At, x: Node, function: Function) -> Node:
    """The table of a function of all numbers of an element type, in i64, clamped to the result's
    type.
    """
    low, high = x.element.limits
    table = np.clip(function(at, np.arange(low, high + 1, dtype=np.int64)), *at.y.element.limits)
    return at.apply("quant.table", x, at.node(table.astype(at.y.element.dtype)))


def logarithm(at: At, q: np.ndarray) -> np.ndarray:
    """Give the least result for numbers that are not positive."""
    y = of_real(np.log)(at, np.maximum(q, at.x.zero_point + 1))
    return np.where(q > at.x.zero_point, y, at.y.element.limits[0])


NEAR_TIE = Exactness("no entry of its table is nearly halfway between two integers", "within 1")
ERROR = 2.0**-21  # relative: of an elementary function of f32, and of the operations around it


def of_real(function: Callable[[Any], Any]) -> Function:
    """A function of the real numbers that elements stand for, in f32, rounded half away from
    zero.
    """

    def run(at: At, q: np.ndarray) -> np.ndarray:
        if at.x.element is I16:
            raise Unsupported("a table with interpolation")
        with np.errstate(all="ignore"):
            real = at.x.scale * (q - at.x.zero_point).astype(np.float32)
            y = np.asarray(function(real.astype(F64))).astype(np.float32) * (
                np.float32(1) / at.y.scale
            )
            error = ERROR * (np.abs(y) + np.abs(real / at.y.scale))
            is_tie = np.abs(np.abs(y - np.floor(y)) - 0.5) <= error
        low, high = (v - at.y.zero_point for v in at.y.element.limits)
        is_decided = not (is_tie & (y > low) & (y < high)).any()
        at.rule_exactness = EXACT if is_decided else Exactness(bound=NEAR_TIE.bound)
        y = round_away(np.clip(np.nan_to_num(y), -(2.0**30), 2.0**30).astype(np.float32))
        return (y + np.float32(at.y.zero_point)).astype(np.int64)

    return run


def relu(kind: str) -> Function:
    """The number in the result's scale, within the limits of the activation."""

    def run(at: At, q: np.ndarray) -> np.ndarray:
        y = (
            scaled(q - at.x.zero_point, float(at.x.scale / at.y.scale), at.rounding)
            + at.y.zero_point
        )
        return np.clip(y, *limits_of(at.y, kind))

    return run


def quantized_leaky_relu(at: At, q: np.ndarray) -> np.ndarray:
    x, alpha = q - at.x.zero_point, np.float32(at["alpha"])
    factors = (float(at.x.scale / at.y.scale), float(at.x.scale * alpha / at.y.scale))
    above, below = (scaled(x, f, at.rounding) for f in factors)
    return np.where(x >= 0, above, below) + at.y.zero_point


def absolute(at: At, q: np.ndarray) -> np.ndarray:
    x = np.abs(q - at.x.zero_point)
    same = at.x.scale == at.y.scale
    return (x if same else scaled(x, float(at.x.scale / at.y.scale), at.rounding)) + at.y.zero_point


def hard_swish(at: At, q: np.ndarray) -> np.ndarray:
    """x * relu6(x + 3) / 6 in 16 bits of fixed point."""

    def multiplier(factor: float) -> tuple[int, int]:
        m, s = quantized_multiplier(factor)
        return min((m + (1 << 15)) >> 16, (1 << 15) - 1), 31 - s

    def shifted(x: np.ndarray, by: int) -> np.ndarray:
        return np.clip(x << by, -(1 << 15), (1 << 15) - 1)

    fine = np.float32(1 / 128) * at.x.scale
    scales = at.y.scale, np.float32(3.0) / np.float32(32768.0)
    (out, out_exponent), (relu, exponent) = (multiplier(float(fine / s)) for s in scales)
    if out_exponent > 0:
        raise Unsupported("a result's scale below 1/128 of its operand's")
    x = (q - at.x.zero_point) << 7
    value = shifted(x, exponent - 1) if exponent > 0 else x
    value = high(value, relu, 16)
    value = shifted(value, 1) if exponent > 0 else divide_by_power(value, -exponent)
    value = (value + (1 << 15)) >> 1
    product = value * high(x, out, 16)
    truncated = np.where(product >= 0, product >> 15, -(-product >> 15))
    return divide_by_power(truncated, -out_exponent) + at.y.zero_point


def rsqrt(at: At, q: np.ndarray) -> np.ndarray:
    m, s = quantized_multiplier(1.0 / (math.sqrt(float(at.x.scale)) * float(at.y.scale)))
    x = q - at.x.zero_point
    root, shift = (at.importer.builder.constants[n.value] for n in inverse_square_root(at.node(x)))
    y = (
        scaled(scaled(1, (root, shift - 20), at.rounding), (m, s + 20), at.rounding)
        + at.y.zero_point
    )
    return np.where(x > 0, y, at.y.element.limits[1])


def sigmoid_table() -> np.ndarray:
    """The logistic function of k / 24 in units of 2^-16, each entry raised by half of the
    interpolation's error beside it.
    """
    here, middle, after = (
        65536 / (1 + np.exp(-(np.arange(257) + d) / 24)) for d in (0.0, 0.5, 1.0)
    )
    table = np.floor(here + (middle - (here + after) / 2) / 2 + 0.5).astype(np.int64)
    table[255] = 65535
    return table


SIGMOID = sigmoid_table()


def fixed_point_input(at: At, q: np.ndarray) -> np.ndarray:
    """Numbers of 16 bits in units of 3/4 of 2^-12, as the table of the logistic function takes
    them.
    """
    exponent = math.log2(float(at.x.scale)) + 12
    if exponent in (0, 1) if at.op == "TANH" else exponent == 0:
        return q * (3 << int(exponent))
    factor, shift = np.float32(at.x.scale) * np.float32(4096) * np.float32(3), 0
    while factor <= 32767.0 / 2.0 and shift <= 30:
        factor, shift = factor * np.float32(2), shift + 1
    return (q * int(factor) + ((1 << shift) >> 1)) >> shift


def interpolated(x: np.ndarray, bits: int) -> np.ndarray:
    """The logistic function of |x|, whose low bits interpolate between the table's entries, with as
    many bits more.
    """
    place = np.minimum(np.abs(x) >> bits, 255)
    return (SIGMOID[place] << bits) + (np.abs(x) & ((1 << bits) - 1)) * (
        SIGMOID[place + 1] - SIGMOID[place]
    )


def logistic_16(at: At, q: np.ndarray) -> np.ndarray:
    x = fixed_point_input(at, q)
    y = np.where(np.abs(x) >> 9 >= 255, 0x7FFF << 10, interpolated(x, 9))
    return np.where(x >= 0, y + (1 << 9), (1 << 25) - y + (1 << 9) - 1) >> 10


def tanh_16(at: At, q: np.ndarray) -> np.ndarray:
    x = fixed_point_input(at, q)
    y = np.where(np.abs(x) >> 8 >= 255, 0xFFFF << 8, interpolated(x, 8))
    unit = 1 << 23
    return np.where(x >= 0, y - unit + (1 << 7), unit - y + (1 << 7) - 1) >> 8


def by_width(narrow: Function, wide: Function) -> Function:
    return lambda at, q: (wide if at.x.element is I16 else narrow)(at, q)


GELU = {
    True: lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    False: lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x * math.sqrt(0.5))),
}  # by whether it is approximated

TABLES: dict[str, Function] = {
    "LOGISTIC": by_width(of_real(lambda x: 1 / (1 + np.exp(-x))), logistic_16),
    "TANH": by_width(of_real(np.tanh), tanh_16),
    "ELU": of_real(lambda x: np.where(x < 0, np.expm1(x), x)),
    "GELU": lambda at, q: of_real(GELU[at["approximate"]])(at, q),
    "EXP": of_real(np.exp),
    "LOG": logarithm,
    "RSQRT": rsqrt,
    "ABS": absolute,
    "HARD_SWISH": hard_swish,
    "LEAKY_RELU": quantized_leaky_relu,
    **{kind: relu(kind) for kind in LIMITS if kind != "NONE"},
}  # of quantized numbers

SCALAR = {
    "ABS": "abs_",
    "CEIL": "ceil",
    "COS": "cos",
    "EXP": "exp",
    "FLOOR": "floor",
    "LOG": "log",
    "LOGICAL_NOT": "invert",
    "LOGISTIC": "sigmoid",
    "NEG": "neg",
    "ROUND": "round_half_to_even",
    "SIN": "sin",
    "SQRT": "sqrt",
    "TANH": "tanh",
}  # scalar functions of the same type
OF_FLOATS: dict[str, Callable[[At, Node], Any]] = {
    **dict.fromkeys(SCALAR, lambda at, x: same_type(SCALAR[at.op], x)),
    "SIGN": lambda at, x: sign(x),
    "LEAKY_RELU": lambda at, x: leaky_relu(x, at["alpha"]).cast(x.element),
    **{kind: lambda at, x: bounded(x, at.op) for kind in LIMITS if kind != "NONE"},
    "ELU": lambda at, x: elu(x, 1.0).cast(x.element),
    "GELU": lambda at, x: gelu(x, at["approximate"]),
    "RSQRT": lambda at, x: 1.0 / x.scalar("sqrt"),
    "HARD_SWISH": lambda at, x: x * (x + 3.0).scalar("maximum", 0.0).scalar("minimum", 6.0) / 6.0,
    "SQUARE": lambda at, x: x * x,
}


def function(at: At, x: Node) -> Known:
    """Look numbers of 8 and 16 bits up in a table of all values."""
    if not at.x.is_quantised:
        return OF_FLOATS[at.op](at, x)
    if at.op not in TABLES or x.element.bits > 16:
        raise Unsupported(f"{at.op.lower()} of quantised {x.element}")
    return tabulated(at, x, TABLES[at.op])


TRANSCENDENTAL = {"LOGISTIC", "TANH", "ELU", "GELU", "EXP", "LOG", "SIN", "COS"}
INEXACT_FLOATS = {*TRANSCENDENTAL, "RSQRT", "HARD_SWISH"}
for _op in sorted(TABLES.keys() | OF_FLOATS.keys()):
    _floats = ROUNDED if _op in INEXACT_FLOATS else FINITE if _op in LIMITS else EXACT
    rule(_op, exact=NEAR_TIE if _op in TRANSCENDENTAL else EXACT, floats=_floats)(function)
