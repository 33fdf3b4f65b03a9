"""Theano's elementary functions: on floats and complex numbers directly, on integers as floats."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..kernel_ir.expressions import Expr, apply, select
from ..kernel_ir.scalar_functions import SCALARS
from ..kernel_ir.scalar_references import precise
from . import complex_functions as c
from .complex_arithmetic import angle
from .formula_blocks import LN2, LN10, by_table
from .scalar_op import ByParts, Numpy, OnComplex, of_one, row

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes, Tangents


def _exactly(function: Numpy) -> Numpy:
    """The function in NumPy's longest precision, also of complex numbers."""
    of_reals = precise(function)

    def numpy(x: np.ndarray) -> np.ndarray:
        return (
            np.asarray(function(x.astype(np.clongdouble))).astype(x.dtype)
            if x.dtype.kind == "c"
            else of_reals(x)
        )

    return numpy


# Theano's name: the scalar function, the complex one, and the derivative by g, x and y
_FUNCTIONS: "dict[str, tuple[str, OnComplex, Callable[[Node, Node, Node], Node]]]" = {
    "exp": ("exp", c.exp, lambda g, x, y: g * y),
    "exp2": ("exp2", c.exp2, lambda g, x, y: g * y * LN2),
    "expm1": ("expm1", c.expm1_, lambda g, x, y: g * x.scalar("exp")),
    "log": ("log", c.log, lambda g, x, y: g / x),
    "log2": ("log2", c.log2, lambda g, x, y: g / (x * LN2)),
    "log10": ("log10", c.log10, lambda g, x, y: g / (x * LN10)),
    "log1p": ("log1p", c.log1p_, lambda g, x, y: g / (x + 1)),
    "sin": ("sin", c.sin, lambda g, x, y: g * x.scalar("cos")),
    "cos": ("cos", c.cos, lambda g, x, y: -(g * x.scalar("sin"))),
    "tan": ("tan", c.tan, lambda g, x, y: g * (y * y + 1)),
    "arcsin": ("asin", c.arcsin, lambda g, x, y: g / (1 - x * x).scalar("sqrt")),
    "arccos": ("acos", c.arccos, lambda g, x, y: -(g / (1 - x * x).scalar("sqrt"))),
    "arctan": ("atan", c.arctan, lambda g, x, y: g / (x * x + 1)),
    "sinh": ("sinh", c.sinh, lambda g, x, y: g * x.scalar("cosh")),
    "cosh": ("cosh", c.cosh, lambda g, x, y: g * x.scalar("sinh")),
    "tanh": ("tanh", c.tanh, lambda g, x, y: g * (1 - y * y)),
    "arcsinh": ("asinh", c.arcsinh, lambda g, x, y: g / (x * x + 1).scalar("sqrt")),
    "arccosh": ("acosh", c.arccosh, lambda g, x, y: g / (x * x - 1).scalar("sqrt")),
    "arctanh": ("atanh", c.arctanh, lambda g, x, y: g / (1 - x * x)),
}


for _name, (_real, _on_complex, _derivative) in _FUNCTIONS.items():
    row(
        _name,
        1,
        "float",
        _exactly(getattr(np, _name)),
        by_table(_real)[1],
        f"{_name} of x",
        on_complex=_on_complex,
        gradient=of_one(_derivative),
    )


def _arctan2_gradient(g: "Node", xs: "Nodes", y: "Node") -> "Cotangents":
    a, b = (x.cast(y.element) for x in xs)
    below = a * a + b * b
    return g * b / below, -(g * a / below)


row(
    "arctan2",
    2,
    "float real",
    *by_table("atan2"),
    "the angle of the point (y, x)",
    gradient=_arctan2_gradient,
)
row(
    "deg2rad",
    1,
    "float real",
    precise(np.deg2rad),
    lambda x: x * (math.pi / 180),
    "degrees in radians",
    gradient=lambda g, xs, y: (g * (math.pi / 180),),
)
row(
    "rad2deg",
    1,
    "float real",
    precise(np.rad2deg),
    lambda x: x * (180 / math.pi),
    "radians in degrees",
    gradient=lambda g, xs, y: (g * (180 / math.pi),),
)


row(
    "sigmoid",
    1,
    "float real",
    *by_table("sigmoid"),
    "1 / (1 + exp(-x))",
    gradient=lambda g, xs, y: (g * y * (1 - y),),
)
row(
    "softplus",
    1,
    "float real",
    *by_table("softplus"),
    "log(1 + exp(x))",
    gradient=of_one(lambda g, x, y: g * x.scalar("sigmoid")),
)


# Polar coordinates


def _angle(x: Expr) -> Expr:
    """The angle of a real number: 0, π for a negative sign, NaN for NaN."""
    return apply("atan2", select(x.eq(x), 0.0, x), x)


def _polar_exactly(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    angle = y.astype(np.longdouble)
    return SCALARS["complex"].numpy(
        (x * np.cos(angle)).astype(x.dtype), (x * np.sin(angle)).astype(x.dtype)
    )


def _polar_gradient(g: "Node", xs: "Nodes", y: "Node") -> "Cotangents":
    r, angle = xs
    re, im = g.scalar("real"), g.scalar("imag")
    cos, sin = angle.scalar("cos"), angle.scalar("sin")
    return re * cos + im * sin, r * (im * cos - re * sin)


def _polar_tangent(tangents: "Tangents", xs: "Nodes", y: "Node") -> "Node":
    (dr, da), (r, angle) = tangents, xs
    cos, sin = angle.scalar("cos"), angle.scalar("sin")
    parts = [p for p in (dr and (dr * cos, dr * sin), da and (-(r * da * sin), r * da * cos)) if p]
    re, im = parts[0] if len(parts) == 1 else (a + b for a, b in zip(*parts, strict=True))
    return re.scalar("complex", im)


def _turn(x: "Node") -> "Node":
    """i x / |x|²: where x goes as its angle grows, by how far it is away."""
    re, im = x.scalar("real"), x.scalar("imag")
    square = re * re + im * im
    return (-im / square).scalar("complex", re / square)


row(
    "angle",
    1,
    "angle",
    np.angle,
    _angle,
    "the angle of x in the complex plane, as f64",
    on_complex=angle,
    gradient=lambda g, xs, y: (None,),
    by_parts=ByParts(
        lambda g, xs, y: (g * _turn(xs[0]),),
        lambda ts, xs, y: (ts[0] * _turn(xs[0]).scalar("conj")).scalar("real"),
    ),
)
row(
    "complex_from_polar",
    2,
    "complex",
    _polar_exactly,
    lambda x, y: apply("complex", x * apply("cos", y), x * apply("sin", y)),
    "x (cos y + i sin y)",
    gradient=lambda g, xs, y: (None, None),
    by_parts=ByParts(_polar_gradient, _polar_tangent),
)
