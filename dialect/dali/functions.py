"""DALI's mathematical functions: f64 of f64, f32 of everything else, within 2 ulp of the exact value."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..notation.expressions import Expr, apply
from ..notation.scalar_functions import SCALARS
from ..spec.op import T, operator
from .pointwise import Binary, Unary

# scalar functions that are operators as they are
FUNCTIONS = {
    "sqrt": "The square root, rounded once; of less than -0.0 it is NaN.",
    "cbrt": "The real cube root, with the sign of x.",
    "exp": "e to the power of x.",
    "log": "The natural logarithm: -inf of zero, NaN below.",
    "log2": "The logarithm to base 2, exact for powers of 2.",
    "log10": "The logarithm to base 10.",
    "floor": "The greatest integer not above x, as a float.",
    "ceil": "The least integer not below x, as a float.",
    "sin": "The sine of x in radians.",
    "cos": "The cosine of x in radians.",
    "tan": "The tangent of x in radians.",
    "asin": "The inverse of sin in [-π/2, π/2]; NaN outside [-1, 1].",
    "acos": "The inverse of cos in [0, π]; NaN outside [-1, 1].",
    "atan": "The inverse of tan in [-π/2, π/2].",
    "sinh": "(exp(x) - exp(-x)) / 2",
    "cosh": "(exp(x) + exp(-x)) / 2",
    "tanh": "sinh(x) / cosh(x)",
    "asinh": "The inverse of sinh.",
    "acosh": "The inverse of cosh in [0, inf]; NaN below 1.",
    "atanh": "The inverse of tanh; NaN outside [-1, 1].",
}


# Theano's names of functions that have the same derivative, where they differ
DERIVATIVES = {name: f"arc{name[1:]}" for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")}


def _function(name: str, text: str) -> type[Unary[Any]]:
    members = {"__doc__": text, "__module__": __name__, "scalar": name, "exact": staticmethod(SCALARS[name].numpy)}
    members["derivative"] = DERIVATIVES.get(name, name)
    if name == "cbrt":
        members["gradient"] = lambda self, g, operands, y: (g / (y * y * 3),)
    return operator(type(name.capitalize(), (Unary,), members, kind="function"))


globals().update({name.capitalize(): _function(name, text) for name, text in FUNCTIONS.items()})


@operator
class Fabs(Unary[T], kind="function"):
    """x without its sign, as a float."""

    derivative = "abs_"
    scalar = "abs"
    exact = staticmethod(np.abs)


@operator
class Rsqrt(Unary[T], kind="function"):
    """1 / sqrt(x), both rounded: inf of 0.0, -inf of -0.0, 0 of inf."""

    def gradient(self, g: Any, operands: Any, y: Any) -> Any:
        return (g * y * y * y * -0.5,)

    exact = staticmethod(lambda x: 1 / np.sqrt(x))

    def formula(self: Any, x: Expr) -> Expr:
        return 1.0 / apply("sqrt", x)


@operator
class Atan2(Binary[T], kind="quotient"):
    """The angle of the point (b, a) in [-π, π], in all four quadrants: C's atan2(a, b)."""

    derivative = "arctan2"
    scalar = "atan2"
    exact = staticmethod(SCALARS["atan2"].numpy)
