"""Operators of StableHLO and CHLO that compute element by element."""

from __future__ import annotations

from functools import partial

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import (
    BF16,
    ELEMENT_TYPES,
    F16,
    F32,
    I1,
    I32,
    I64,
    UI64,
    ElementType,
)
from cvm.importers.graph.elementwise import ufunc
from cvm.importers.graph.rules import Unsupported

from .importer import At, choose, rule, scalar_like

UFUNCS = {
    "abs": "absolute",
    "add": "add",
    "and": "bitwise_and",
    "atan2": "arctan2",
    "cbrt": "cbrt",
    "ceil": "ceil",
    "cosine": "cos",
    "exponential": "exp",
    "exponential_minus_one": "expm1",
    "floor": "floor",
    "is_finite": "isfinite",
    "log": "log",
    "log_plus_one": "log1p",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "multiply",
    "negate": "negative",
    "not": "invert",
    "or": "bitwise_or",
    "round_nearest_even": "rint",
    "sine": "sin",
    "sqrt": "sqrt",
    "subtract": "subtract",
    "tan": "tan",
    "tanh": "tanh",
    "xor": "bitwise_xor",
    **{f"chlo.{n}": f"arc{n[1:]}" for n in ("acos", "acosh", "asin", "asinh", "atan", "atanh")},
    "chlo.conj": "conjugate",
    "chlo.cosh": "cosh",
    "chlo.is_inf": "isinf",
    "chlo.next_after": "nextafter",
    "chlo.sinh": "sinh",
    "chlo.square": "square",
    "chlo.tan": "tan",
    **{
        f"chlo.broadcast_{n}": u
        for n, u in {
            "add": "add",
            "and": "bitwise_and",
            "atan2": "arctan2",
            "maximum": "maximum",
            "minimum": "minimum",
            "multiply": "multiply",
            "next_after": "nextafter",
            "or": "bitwise_or",
            "subtract": "subtract",
            "xor": "bitwise_xor",
        }.items()
    },
}
OF_BOOLS = {
    "add": "logical_or",
    "invert": "logical_not",
    "maximum": "logical_or",
    "minimum": "logical_and",
    "multiply": "logical_and",
}


def computed(name: str, *xs: Node) -> Node:
    """A function of NumPy; sums of truth values are their disjunctions, products conjunctions."""
    if xs[0].element is I1:
        name = OF_BOOLS.get(name, name)
    return ufunc(name, *xs)


@rule(*UFUNCS)
def function(at: At, *xs: Node) -> Node:
    if "broadcast" not in at.op and not at.lift and len({x.rank for x in xs}) > 1:
        at.demand(1, "operands of one type", False, " and ".join(str(x.array_type) for x in xs))
    if len({x.element for x in xs}) > 1:
        at.demand(1, "operands of one type", False, " and ".join(str(x.array_type) for x in xs))
    if xs[0].element.kind == "complex" and at.op in ("atan2", "cbrt"):
        return of_complex(at.op, *xs)
    return computed(UFUNCS[at.op], *xs)


def of_complex(name: str, x: Node, *others: Node) -> Node:
    """By the logarithm: exp(log(x) / 3), and -i log((x2 + i x1) / sqrt(x1^2 + x2^2))."""
    if name == "cbrt":
        return ufunc("exp", ufunc("divide", ufunc("log", x), scalar_like(x, 3)))
    (y,), i = others, scalar_like(x, 1j)
    length = ufunc("sqrt", ufunc("add", ufunc("square", x), ufunc("square", y)))
    turned = ufunc("divide", ufunc("add", y, ufunc("multiply", i, x)), length)
    return ufunc("negative", ufunc("multiply", i, ufunc("log", turned)))


def truncated_quotient(a: Node, b: Node) -> Node:
    """Rounded toward zero; of zero, all bits are set, as XLA has it."""
    zero = scalar_like(b, 0)
    by = choose(ufunc("equal", b, zero), scalar_like(b, 1), b)
    whole = ufunc("floor_divide", ufunc("subtract", a, ufunc("fmod", a, by)), by)
    ones = b.constant(np.array(-1).astype(b.element.dtype))
    return choose(ufunc("equal", b, zero), ones, whole)


@rule("divide", "chlo.broadcast_divide")
def divide(at: At, a: Node, b: Node) -> Node:
    return truncated_quotient(a, b) if a.element.is_integer else ufunc("divide", a, b)


@rule("remainder", "chlo.broadcast_remainder")
def remainder(at: At, a: Node, b: Node) -> Node:
    """With the sign of the dividend; of zero, an integer stays as it is."""
    if not a.element.is_integer:
        return ufunc("fmod", a, b)
    zero = scalar_like(b, 0)
    by = choose(ufunc("equal", b, zero), scalar_like(b, 1), b)
    return choose(ufunc("equal", b, zero), a, ufunc("fmod", a, by))


@rule("power", "chlo.broadcast_power")
def power(at: At, a: Node, b: Node) -> Node:
    if not a.element.is_integer or a.element.kind == "uint":
        return ufunc("power", a, b)
    zero, one = scalar_like(b, 0), scalar_like(b, 1)
    plain = ufunc("power", a, ufunc("maximum", b, zero))
    odd = ufunc("not_equal", ufunc("bitwise_and", b, one), zero)
    of_one = choose(odd, a, one)  # of 1 and -1
    inverse = choose(ufunc("equal", ufunc("absolute", a), one), of_one, zero)
    return choose(ufunc("less", b, zero), inverse, plain)


@rule("shift_left", "shift_right_arithmetic", "chlo.broadcast_shift_left")
def shift(at: At, x: Node, by: Node) -> Node:
    """By more bits than there are, nothing is left but the sign."""
    name = "left_shift" if at.op.endswith("left") else "right_shift"
    bits = scalar_like(by, x.element.bits)
    if by.element.kind == "int":
        by = choose(ufunc("less", by, scalar_like(by, 0)), bits, by)
    return ufunc(name, x, ufunc("minimum", by, bits))


def unsigned(x: Node) -> Node:
    """The bits of integers as unsigned ones."""
    return x if x.element.kind != "int" else x.cast(ELEMENT_TYPES[f"u{x.element}"])


@rule("shift_right_logical")
def shift_right_logical(at: At, x: Node, by: Node) -> Node:
    return shift(at, unsigned(x), unsigned(by)).cast(x.element)


@rule("sign")
def sign(at: At, x: Node) -> Node:
    y = ufunc("sign", x)
    if x.element.kind == "complex":
        length = ufunc("absolute", x)
        zero = scalar_like(length, 0)
        unit = ufunc(
            "divide",
            x,
            choose(ufunc("equal", length, zero), scalar_like(length, 1), length).cast(x.element),
        )
        return choose(ufunc("equal", length, zero), scalar_like(x, 0), unit)
    return choose(ufunc("equal", x, scalar_like(x, 0)), x, y) if x.element.kind == "float" else y


@rule("logistic")
def logistic(at: At, x: Node) -> Node:
    if x.element.kind != "complex":
        return x.scalar("sigmoid").cast(x.element)
    one = scalar_like(x, 1)
    return ufunc("divide", one, ufunc("add", one, ufunc("exp", ufunc("negative", x))))


@rule("rsqrt")
def rsqrt(at: At, x: Node) -> Node:
    return ufunc("divide", scalar_like(x, 1), ufunc("sqrt", x))


@rule("popcnt")
def popcnt(at: At, x: Node) -> Node:
    return ufunc("bitwise_count", unsigned(x)).cast(x.element)


@rule("count_leading_zeros")
def leading_zeros(at: At, x: Node) -> Node:
    """Counts in words of 32 bits: two words, or one with zeros before the bits."""
    bits = x.element.bits
    if bits <= I32.bits:
        count = unsigned(x).cast(I32).apply("quant.leading_zeros")
        return count.scalar("sub", I32.bits - bits).cast(x.element)
    wide = unsigned(x)
    words = (ufunc("right_shift", wide, scalar_like(wide, I32.bits)), wide)
    high, low = (
        n.cast(ELEMENT_TYPES["ui32"]).cast(I32).apply("quant.leading_zeros") for n in words
    )
    is_empty = ufunc("equal", high, scalar_like(high, I32.bits))
    return choose(is_empty, ufunc("add", high, low), high).cast(x.element)


PREDICATES = {
    "EQ": "equal",
    "NE": "not_equal",
    "LT": "less",
    "LE": "less_equal",
    "GT": "greater",
    "GE": "greater_equal",
}


def total_order(x: Node) -> Node:
    """Integers in the order of floats, in which -0 is below 0, and NaN beyond infinity."""
    element = ELEMENT_TYPES[f"i{x.element.bits}"]
    bits = x.apply("builtin.bitcast", dtype=element)
    flipped = ufunc("bitwise_xor", bits, scalar_like(bits, element.limits[1]))
    return choose(ufunc("less", bits, scalar_like(bits, 0)), flipped, bits)


@rule("compare", "chlo.broadcast_compare")
def compare(at: At, a: Node, b: Node) -> Node:
    words = [
        *at.operation.words,
        *map(str, (at.attribute(n, default="") for n in ("comparison_direction", "compare_type"))),
    ]
    words = [w.split()[-1] for w in words if w]
    directions = [w for w in words if w in PREDICATES]
    if not directions:
        raise ValueError("it has no direction of comparison")
    if a.array_type.element is not b.array_type.element:
        at.demand(1, "operands of one element type", False, f"{a.element} and {b.element}")
    if "TOTALORDER" in words and a.element.kind == "float":
        a, b = total_order(a), total_order(b)
    return ufunc(PREDICATES[directions[0]], a, b)


@rule("select", "chlo.broadcast_select")
def select(at: At, condition: Node, a: Node, b: Node) -> Node:
    at.demand(
        2, "two values of one type", a.element is b.element, f"{a.array_type} and {b.array_type}"
    )
    return choose(condition, a, b)


@rule("clamp")
def clamp(at: At, low: Node, x: Node, high: Node) -> Node:
    return computed("minimum", computed("maximum", low, x), high)


def cast(x: Node, to: ElementType) -> Node:
    """A conversion: to truth values what differs from zero, to integers toward zero, of complex
    numbers the real part.
    """
    if x.element.kind == "complex" != to.kind:
        x = x.scalar("real")
    if to is I1:
        return x if x.element is I1 else ufunc("not_equal", x, scalar_like(x, 0))
    return x.cast(to)


@rule("convert")
def convert(at: At, x: Node) -> Node:
    return cast(x, at.element)


@rule("complex")
def complex_(at: At, real: Node, imaginary: Node) -> Node:
    return real.scalar("complex", imaginary)


@rule("real", "imag")
def part_of(at: At, x: Node) -> Node:
    if x.element.kind == "complex":
        return x.scalar(at.op)
    return x if at.op == "real" else ufunc("multiply", x, scalar_like(x, 0))


@rule("reduce_precision")
def reduce_precision(at: At, x: Node) -> Node:
    """Rounds to a format of fewer bits, to nearest even, on the bits of the number."""
    form = str(at.attribute("format", default=""))
    if form:
        exponent, _, mantissa = form.removeprefix("e").partition("m")
        exponent_bits, mantissa_bits = int(exponent), int(mantissa)
    else:
        (exponent_bits,), (mantissa_bits,) = at.ints("exponent_bits"), at.ints("mantissa_bits")
    at.demand(2, "1 <= exponent_bits", exponent_bits >= 1, exponent_bits)
    at.demand(3, "0 <= mantissa_bits", mantissa_bits >= 0, mantissa_bits)
    if x.element in (F16, BF16):
        raise Unsupported(f"a format of {x.element}")
    width = x.element.bits
    stored = 23 if x.element is F32 else 52  # bits of the significand, IEEE 754
    bias = (1 << (width - stored - 2)) - 1
    element = ELEMENT_TYPES[f"ui{width}"]
    bits = x.apply("builtin.bitcast", dtype=element)

    def of(value: int) -> Node:
        return bits.constant(np.array(value, element.dtype))

    y = bits
    if mantissa_bits < stored:
        gone = stored - mantissa_bits
        last = ufunc("bitwise_and", ufunc("right_shift", bits, of(gone)), of(1))
        rounding = ufunc("add", last, of((1 << (gone - 1)) - 1))
        mask = of(((1 << width) - 1) ^ ((1 << gone) - 1))
        y = ufunc("bitwise_and", ufunc("add", bits, rounding), mask)
    if exponent_bits < width - stored - 1:
        reduced_bias = (1 << (exponent_bits - 1)) - 1
        field = ufunc("bitwise_and", y, of(((1 << (width - stored - 1)) - 1) << stored))
        sign_bit = ufunc("bitwise_and", bits, of(1 << (width - 1)))
        infinity = ufunc("bitwise_or", sign_bit, of(((1 << (width - stored - 1)) - 1) << stored))
        over = ufunc("greater", field, of((bias + reduced_bias) << stored))
        under = ufunc("less_equal", field, of((bias - reduced_bias) << stored))
        y = choose(under, sign_bit, choose(over, infinity, y))
    found = y.apply("builtin.bitcast", dtype=x.element)
    special = x if mantissa_bits else ufunc("copysign", scalar_like(x, np.inf), x)
    return choose(ufunc("isnan", x), special, found)


# CHLO


@rule("chlo.is_pos_inf", "chlo.is_neg_inf")
def is_signed_infinity(at: At, x: Node) -> Node:
    return ufunc("equal", x, scalar_like(x, np.inf if at.op == "chlo.is_pos_inf" else -np.inf))


@rule("chlo.mulhi")
def mulhi(at: At, a: Node, b: Node) -> Node:
    """The high half of the bits of a product; of 64 bits, of four products of halves."""
    bits = a.element.bits
    if bits < I64.bits:
        wide = I64 if a.element.kind == "int" else UI64
        product = ufunc("multiply", a.cast(wide), b.cast(wide))
        return ufunc("right_shift", product, scalar_like(product, bits)).cast(a.element)
    x, y = unsigned(a), unsigned(b)
    half, low = scalar_like(x, I32.bits), scalar_like(x, (1 << I32.bits) - 1)
    (xh, xl), (yh, yl) = (
        (ufunc("right_shift", n, half), ufunc("bitwise_and", n, low)) for n in (x, y)
    )
    times, plus, high = (
        partial(ufunc, "multiply"),
        partial(ufunc, "add"),
        partial(ufunc, "right_shift"),
    )
    middle = plus(times(xh, yl), high(times(xl, yl), half))
    carry = plus(times(xl, yh), ufunc("bitwise_and", middle, low))
    found = plus(plus(times(xh, yh), high(middle, half)), high(carry, half))
    if a.element.kind == "int":  # what a sign takes away
        zero = scalar_like(x, 0)
        for n, other in ((a, y), (b, x)):
            negative = ufunc("less", n, scalar_like(n, 0))
            found = ufunc("subtract", found, choose(negative, other, zero))
    return found.cast(a.element)


@rule("chlo.constant_like")
def constant_like(at: At, x: Node) -> Node:
    value = at.attribute("value")
    number = float(value.text) if hasattr(value, "text") else value
    return x.scalar("second", scalar_like(x, number)).cast(x.element)


SCALARS = {
    "round_nearest_afz": "round_half_away_from_zero",
    "chlo.digamma": "psi",
    "chlo.erf": "erf",
    "chlo.erf_inv": "erfinv",
    "chlo.erfc": "erfc",
    "chlo.lgamma": "gammaln",
}  # functions of Theano's


@rule(*SCALARS)
def scalar(at: At, x: Node) -> Node:
    return x.scalar(SCALARS[at.op]).cast(x.element)


@rule("chlo.bessel_i1e")
def bessel_i1e(at: At, x: Node) -> Node:
    """The modified function of order 1, scaled by exp(-|x|)."""
    scale = ufunc("exp", ufunc("negative", ufunc("absolute", x)))
    return ufunc("multiply", x.scalar("i1").cast(x.element), scale)
