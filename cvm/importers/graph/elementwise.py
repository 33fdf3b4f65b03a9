"""Computations element by element that several formats share."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import F16, I1, ElementType
from cvm.importers.exactness import HALF, WITHIN

from .importer import At
from .rules import aligned


def where(condition: Node, then: Any, otherwise: Any) -> Node:
    """Choose between two values of one type; numbers become those of the other's type."""
    typed = then if isinstance(then, Node) else otherwise
    c, a, b = aligned(
        condition, *(v if isinstance(v, Node) else number(typed, v) for v in (then, otherwise))
    )
    return c.scalar("switch", a, b)


def number(like: Node, value: float) -> Node:
    """A number in the type of a value."""
    return like.constant(np.array(value, like.element.dtype))


def clipped(x: Node, low: float, high: float) -> Node:
    return x.scalar("maximum", low).scalar("minimum", high)


def combine(name: str, x: Node, y: Node) -> Node:
    """A scalar operation of two operands of one type, which the result has too."""
    a, b = aligned(x, y)
    result = a.scalar(name, b)
    return result if result.element is I1 else result.cast(x.element)


def ufunc(name: str, *xs: Node) -> Node:
    """A function of NumPy by its name, of operands that broadcast."""
    return xs[0].builder.apply("numpy.elementwise", *xs, ufunc=name)


def quotient(at: At, x: Node, y: Node) -> Node:
    """The quotient, of integers rounded down."""
    x, y = aligned(x, y)
    return x / y if x.element.kind == "float" else at.apply("dali.floordiv", x, y).cast(x.element)


def same_type(name: str, x: Node) -> Node:
    """A scalar function, whose result has the type of its operand or is i1."""
    y = x.scalar(name)
    return y if y.element is I1 else y.cast(x.element)


def sign(x: Node) -> Node:
    """The sign of numbers, which is 0.0 of -0.0."""
    y = same_type("sgn", x)
    return where(x.scalar("eq", 0.0), 0.0, y) if x.element.kind == "float" else y


def elu(x: Node, alpha: float) -> Node:
    return where(x.scalar("lt", 0.0), x.scalar("expm1") * alpha, x)


def leaky_relu(x: Node, alpha: float) -> Node:
    return where(x.scalar("lt", 0.0), x * alpha, x)


def gelu(x: Node, approximate: bool) -> Node:
    """The Gaussian error linear unit, of erf or of its approximation by tanh."""
    if approximate:
        inner = (x + x * x * x * 0.044715) * float(np.sqrt(2 / np.pi))
        return x * 0.5 * (inner.scalar("tanh") + 1.0)
    return x * 0.5 * ((x * float(np.sqrt(0.5))).scalar("erf") + 1.0)


def converted(at: At, x: Node, element: ElementType) -> Node:
    if x.element.kind == "float" and element.is_integer:
        at.rule_exactness = WITHIN
        x = x.scalar("trunc")
    elif element is F16 and x.element.kind == "float":
        at.rule_exactness = HALF
    return x.cast(element)
