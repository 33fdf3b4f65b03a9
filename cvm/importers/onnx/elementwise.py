"""ONNX's operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import F16, F32, F64, UI8, compute_type
from cvm.importers.exactness import EXACT, ROUNDED, Exactness
from cvm.importers.graph.elementwise import (
    clipped,
    combine,
    converted,
    elu,
    gelu,
    leaky_relu,
    number,
    quotient,
    same_type,
    sign,
    where,
)
from cvm.importers.graph.rules import Array, Known, Unsupported, aligned

from .elements import STRING, element_of
from .exactness import NOT_NAN
from .importer import At
from .rules import rule

# Functions of one operand, by Theano's names

UNARY = {
    "Abs": "abs_",
    "Acos": "arccos",
    "Acosh": "arccosh",
    "Asin": "arcsin",
    "Asinh": "arcsinh",
    "Atan": "arctan",
    "Atanh": "arctanh",
    "BitwiseNot": "invert",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "neg",
    "Not": "invert",
    "Reciprocal": "inv",
    "Round": "round_half_to_even",
    "Sigmoid": "sigmoid",
    "Sign": "sgn",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}


@rule(*UNARY)
def unary(at: At, x: Node) -> Known:
    if at.op != "Sign":
        return same_type(UNARY[at.op], x)
    if x.element.kind == "float":  # of -0.0 it is 0.0
        at.rule_exactness = NOT_NAN if x.element is F16 else EXACT
    return sign(x)


ACTIVATIONS: dict[str, Callable[[Node, Any], Node]] = {
    "Elu": lambda x, at: elu(x, at["alpha"]),
    "Celu": lambda x, at: (
        x.scalar("maximum", 0.0)
        + ((x / at["alpha"]).scalar("expm1") * at["alpha"]).scalar("minimum", 0.0)
    ),
    "Selu": lambda x, at: (
        where(x.scalar("gt", 0.0), x, x.scalar("expm1") * at["alpha"]) * at["gamma"]
    ),
    "LeakyRelu": lambda x, at: leaky_relu(x, at["alpha"]),
    "ThresholdedRelu": lambda x, at: where(x.scalar("gt", at["alpha"]), x, 0.0),
    "HardSigmoid": lambda x, at: clipped(x * at["alpha"] + at["beta"], 0.0, 1.0),
    "HardSwish": lambda x, at: x * clipped(x * (1 / 6) + 0.5, 0.0, 1.0),
    "Softsign": lambda x, at: x / (x.scalar("abs_") + 1.0),
    "Mish": lambda x, at: x * x.scalar("softplus").scalar("tanh"),
    "Swish": lambda x, at: x * (x * at["alpha"]).scalar("sigmoid"),
    "Relu": lambda x, at: (
        at.apply("cvm.relu", x) if x.element in (F32, F64) else x.scalar("maximum", number(x, 0))
    ),
}


@rule(*ACTIVATIONS)
def activation(at: At, x: Node) -> Known:
    return ACTIVATIONS[at.op](x, at).cast(x.element)


rule("Gelu")(lambda at, x: gelu(x, at["approximate"] == "tanh"))


@rule("Shrink")
def shrink(at: At, x: Node) -> Known:
    """Compute with f32 on integers, the type of its attributes."""
    y = x.cast(F32) if x.element.is_integer else x
    bias, limit = (number(y, at[k]) for k in ("bias", "lambd"))
    above, below = y.scalar("gt", limit), y.scalar("lt", -limit)
    return where(above, y - bias, where(below, y + bias, 0)).cast(x.element)


@rule("IsInf")
def is_inf(at: At, x: Node) -> Known:
    result = x.scalar("isinf")
    for detected, side in ((at["detect_positive"], "lt"), (at["detect_negative"], "gt")):
        result = result if detected else result.scalar("and_", x.scalar(side, 0.0))
    return result


# Functions of several operands

BINARY = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "And": "and_",
    "Or": "or_",
    "Xor": "xor",
    "BitwiseAnd": "and_",
    "BitwiseOr": "or_",
    "BitwiseXor": "xor",
    "Equal": "eq",
    "Less": "lt",
    "LessOrEqual": "le",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
}
ON_SIZES: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.floor_divide,
}


def on_sizes(at: At, a: Array, b: Array) -> Array:
    return ON_SIZES[at.op](a.astype(object), b.astype(object))


@rule("Add", "Sub", "Mul", symbolic=on_sizes)
@rule(*(name for name in BINARY if name not in ON_SIZES))
def binary(at: At, a: Node, b: Node) -> Known:
    return combine(BINARY[at.op], a, stretched(at, a, b))


def stretched(at: At, a: Node, b: Node) -> Node:
    """The second operand of an operator that, before opset 7, says at which axis it is repeated."""
    if at.opset >= 7 or not at["broadcast"] or at["axis"] is None:
        return b
    return b.dimshuffle([*range(b.rank), *["x"] * (a.rank - at["axis"] % a.rank - b.rank)])


@rule("Div", symbolic=on_sizes)
def divide(at: At, a: Node, b: Node) -> Known:
    return quotient(at, a, stretched(at, a, b))


@rule("Mod")
def modulo(at: At, a: Node, b: Node) -> Known:
    if not at["fmod"] and a.element.kind != "float":
        return combine("mod", a, b)
    x, y = aligned(a, b)
    wide = compute_type(x.element)
    remainder = at.apply("dali.mod", x.cast(wide), y.cast(wide)).cast(x.element)
    if at["fmod"]:
        return remainder
    zero = y.scalar("lt", 0.0).scalar("switch", number(y, -0.0), number(y, 0.0))
    other_side = remainder.scalar("lt", 0.0).scalar("neq", y.scalar("lt", 0.0))
    return remainder.scalar("eq", 0.0).scalar(
        "switch", zero, other_side.scalar("switch", remainder + y, remainder)
    )


@rule("Pow")
def power(at: At, a: Node, b: Node) -> Known:
    x, y = aligned(a, stretched(at, a, b))
    if x.element.kind == "float":
        return x.scalar("pow", y.cast(x.element)).cast(x.element)
    if y.element.kind == "float":
        at.rule_exactness = ROUNDED
        return x.cast(F64).scalar("pow", y.cast(F64)).cast(x.element)
    return at.apply("dali.pow", x, y.cast(x.element)).cast(x.element)


@rule("BitShift")
def shift(at: At, a: Node, b: Node) -> Known:
    """Shifts by less than 0, or by at least the width, leave only the sign."""
    x, y = aligned(a, b)
    left, bits = at["direction"] == "LEFT", x.element.bits
    within = y.scalar("ge", number(y, 0)).scalar("and_", y.scalar("lt", number(y, bits)))
    most = within.scalar("switch", y, number(y, bits - 1))
    moved = at.apply("dali.shl" if left else "dali.shr", x, most).cast(x.element)
    return moved if not left and x.element.signed else where(within, moved, number(x, 0))


@rule("PRelu")
def prelu(at: At, x: Node, slope: Node) -> Known:
    if at.opset < 7 and slope.rank == 1 and x.rank > 1:
        slope = slope.dimshuffle([0, *["x"] * (x.rank - 2)])
    return where(x.scalar("lt", number(x, 0)), combine("mul", x, slope), x)


VARIADIC = {"Sum": "add", "Mean": "add", "Max": "maximum", "Min": "minimum"}


@rule(*VARIADIC)
def variadic(at: At, *xs: Node) -> Known:
    result = reduce(partial(combine, VARIADIC[at.op]), xs)
    return result / float(len(xs)) if at.op == "Mean" else result


rule(
    "Where",
    symbolic=lambda at, c, a, b: np.where(c.astype(bool), a.astype(object), b.astype(object)),
)(lambda at, condition, a, b: where(condition, a, b))


@rule("Clip")
def clip(at: At, x: Node, low: Node | None = None, high: Node | None = None) -> Known:
    """Floats without bounds are clipped to finite ones."""
    for limit, key, name, side in ((low, "min", "maximum", -1), (high, "max", "minimum", 1)):
        if limit is None and at[key] is not None:
            limit = number(x, at[key])
        elif limit is None and x.element.kind == "float":
            infinity, zero = (np.array(v, x.element.dtype) for v in (side * np.inf, 0))
            limit = x.constant(np.nextafter(infinity, zero))
        x = x if limit is None else combine(name, x, limit)
    return x


# Types and identities


@rule("Cast", symbolic=lambda at, x: x)
def cast(at: At, x: Node) -> Known:
    if at.labels_of(x) is not None and at["to"] != STRING:
        raise Unsupported("strings as numbers")
    return x if at.labels_of(x) is not None else converted(at, x, element_of(at["to"]))


rule("CastLike", symbolic=lambda at, x, like: x)(lambda at, x, like: converted(at, x, like.element))
rule("Identity", symbolic=lambda at, x: x)(lambda at, known: known)


@rule("BitCast")
def bit_cast(at: At, x: Node) -> Known:
    return at.apply(
        "builtin.bitcast",
        x.cast(UI8) if x.element.kind == "bool" else x,
        dtype=element_of(at["to"]),
    )


@rule("Dropout")
def dropout(at: At, x: Node, ratio: Array | None = None, training: Array | None = None) -> Any:
    """Not in training mode with a ratio above 0, which draws random numbers."""
    _ = at["seed"], at["ratio"]  # of no numbers, and by which nothing is dropped
    trains = training is not None and training.any() and (ratio is None or ratio.any())
    if trains or (at.protos.get("is_test") is not None and not at["is_test"] and at["ratio"]):
        raise Unsupported("training mode, which draws random numbers,")
    if at.wants(1) and 10 <= at.opset < 12:
        at.rule_exactness = Exactness(
            bound="unlike onnxruntime, whose mask of these opsets is false"
        )
    mask = x.scalar("second", True)
    return [x, mask if at.opset >= 10 else mask.cast(x.element)]
