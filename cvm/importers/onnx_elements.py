"""Operators of ONNX that work element by element. What is made of constants only is computed by NumPy: shapes are, in many
models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from cvm.dialect.ir.types import BY_DTYPE

from .onnx_rules import OPERATIONS, Attributes, Importer, Known, Rule, Unsupported, aligned, known, rule

UNARY: dict[str, tuple[str, Callable[..., Any]]] = {
    "Abs": ("abs_", np.abs), "Neg": ("neg", np.negative), "Exp": ("exp", np.exp), "Log": ("log", np.log),
    "Sqrt": ("sqrt", np.sqrt), "Floor": ("floor", np.floor), "Ceil": ("ceil", np.ceil), "Sin": ("sin", np.sin),
    "Cos": ("cos", np.cos), "Tanh": ("tanh", np.tanh), "Reciprocal": ("inv", np.reciprocal),
}  # fmt: skip
LATER = {"Sigmoid": "sigmoid", "Softplus": "softplus", "Erf": "erf"}  # not of constants
BINARY: dict[str, tuple[str, Callable[..., Any]]] = {
    "Add": ("add", np.add), "Sub": ("sub", np.subtract), "Mul": ("mul", np.multiply), "Div": ("", np.divide),
    "Pow": ("pow", np.power), "Sum": ("add", np.add), "Max": ("maximum", np.maximum), "Min": ("minimum", np.minimum),
}  # fmt: skip


def scalar(name: str, fold: Callable[..., Any] | None) -> Rule:
    """A scalar operation, of more than two operands one after the other."""

    def of_two(to: Importer, a: Known, b: Known) -> Known:
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and fold is not None:
            by = np.floor_divide if fold is np.divide and a.dtype.kind in "iu" else fold
            return np.asarray(by(a, b)).astype(a.dtype)
        x, y = aligned(to, a, b)
        quotient = "true_div" if x.element.kind == "float" else "int_div"
        return x.scalar(name or quotient, y)

    def run(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
        if len(given) > 1:
            return reduce(lambda a, b: of_two(to, a, b), given)
        (x,) = given
        if name in ("add", "maximum", "minimum"):  # of one operand only
            return x
        return np.asarray(fold(x)).astype(x.dtype) if isinstance(x, np.ndarray) and fold else to.node(x).scalar(name)

    return run


OPERATIONS |= {name: scalar(*made) for name, made in (*UNARY.items(), *BINARY.items())}
OPERATIONS |= {name: scalar(made, None) for name, made in LATER.items()}


@rule("Identity", "Dropout")
def same(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    return given[0]


@rule("Relu")
def relu(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    return to.apply("cvm.relu", given[0])


@rule("LeakyRelu")
def leaky_relu(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    x = to.node(given[0])
    return x.scalar("ge", 0).scalar("switch", x, x * float(attributes.get("alpha", 0.01)))


@rule("Clip")
def clip(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    x = to.node(given[0])
    low, high = (
        given[n] if len(given) > n and given[n] is not None else attributes.get(key)
        for n, key in ((1, "min"), (2, "max"))
    )
    for bound, name in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            x = x.scalar(name, float(known(np.asarray(bound), "a bound")))
    return x


@rule("Cast")
def cast(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    import onnx

    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(attributes["to"]))
    if isinstance(given[0], np.ndarray):
        return given[0].astype(dtype)
    if dtype not in BY_DTYPE:
        raise Unsupported(f"elements of type {dtype}")
    return to.node(given[0]).cast(BY_DTYPE[dtype])


@rule("Where")
def where(to: Importer, given: Sequence[Any], attributes: Attributes) -> Any:
    chosen, a, b = aligned(to, *given)
    return chosen.scalar("switch", a, b)
