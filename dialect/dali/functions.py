"""DALI's operators that are scalar functions. Mathematical ones: f64 of f64, f32 of everything
else, within 2 ulp.
"""

from typing import Any

from ..kernel_ir.expressions import Expr, apply
from ..kernel_ir.scalar_functions import SCALARS
from ..spec.operator import T, operator
from .pointwise import Binary, Unary

# the scalar function, the operator's name where it differs, kind, symbol, and Theano's operation of
# the same derivative
FUNCTIONS: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("neg", "", "sign", "-", "neg", "-x, in x's type: of unsigned integers, too, modulo 2^width."),
    ("add", "", "arithmetic", "+", "add", "a + b"),
    ("sub", "", "arithmetic", "-", "sub", "a - b"),
    ("div", "", "quotient", "/", "true_div", "a / b as floats, f32 for integers of every width."),
    ("min", "", "arithmetic", "", "", "a if a < b, else b: b where either is NaN."),
    ("max", "", "arithmetic", "", "", "a if a > b, else b: b where either is NaN."),
    ("and", "", "bitwise", "&", "", "The bits set in both a and b."),
    ("or", "", "bitwise", "|", "", "The bits set in a or b."),
    ("xor", "", "bitwise", "^", "", "The bits set in one of a and b."),
    ("not", "", "bitwise", "~", "", "The bits not set in x, in x's type; of i1 its negation."),
    (
        "sqrt",
        "",
        "function",
        "",
        "sqrt",
        "The square root, rounded once; of less than -0.0 it is NaN.",
    ),
    ("cbrt", "", "function", "", "", "The real cube root, with the sign of x."),
    ("exp", "", "function", "", "exp", "e to the power of x."),
    ("log", "", "function", "", "log", "The natural logarithm: -inf of zero, NaN below."),
    ("log2", "", "function", "", "log2", "The logarithm to base 2, exact for powers of 2."),
    ("log10", "", "function", "", "log10", "The logarithm to base 10."),
    ("floor", "", "function", "", "floor", "The greatest integer not above x, as a float."),
    ("ceil", "", "function", "", "ceil", "The least integer not below x, as a float."),
    ("sin", "", "function", "", "sin", "The sine of x in radians."),
    ("cos", "", "function", "", "cos", "The cosine of x in radians."),
    ("tan", "", "function", "", "tan", "The tangent of x in radians."),
    (
        "asin",
        "",
        "function",
        "",
        "arcsin",
        "The inverse of sin in [-π/2, π/2]; NaN outside [-1, 1].",
    ),
    ("acos", "", "function", "", "arccos", "The inverse of cos in [0, π]; NaN outside [-1, 1]."),
    ("atan", "", "function", "", "arctan", "The inverse of tan in [-π/2, π/2]."),
    ("sinh", "", "function", "", "sinh", "(exp(x) - exp(-x)) / 2"),
    ("cosh", "", "function", "", "cosh", "(exp(x) + exp(-x)) / 2"),
    ("tanh", "", "function", "", "tanh", "sinh(x) / cosh(x)"),
    ("asinh", "", "function", "", "arcsinh", "The inverse of sinh."),
    ("acosh", "", "function", "", "arccosh", "The inverse of cosh in [0, inf]; NaN below 1."),
    ("atanh", "", "function", "", "arctanh", "The inverse of tanh; NaN outside [-1, 1]."),
    ("abs", "fabs", "function", "", "abs_", "x without its sign, as a float."),
    (
        "atan2",
        "",
        "quotient",
        "",
        "arctan2",
        "The angle of the point (b, a) in [-π, π], in all four quadrants: C's atan2(a, b).",
    ),
)
# gradients of those whose derivative no operation of Theano has
GRADIENTS = {
    "min": lambda self, g, operands, y: g.switched(operands[0].scalar("lt", operands[1])),
    "max": lambda self, g, operands, y: g.switched(operands[0].scalar("gt", operands[1])),
    "cbrt": lambda self, g, operands, y: (g / (y * y * 3),),
}

for _scalar, _name, _kind, _symbol, _derivative, _text in FUNCTIONS:
    _members: dict[str, object] = {
        "__doc__": _text,
        "__module__": __name__,
        "scalar": _scalar,
        "derivative": _derivative,
    }
    _members |= {"gradient": GRADIENTS[_scalar]} if _scalar in GRADIENTS else {}
    _family: object = (Unary, Binary)[SCALARS[_scalar].arity - 1]
    operator(
        type((_name or _scalar).capitalize(), (_family,), _members, kind=_kind, symbol=_symbol)
    )


@operator
class Rsqrt(Unary[T], kind="function"):
    """1 / sqrt(x), both rounded: inf of 0.0, -inf of -0.0, 0 of inf."""

    exact = staticmethod(lambda x: 1 / SCALARS["sqrt"].numpy(x))

    def gradient(self, g: Any, operands: Any, y: Any) -> Any:
        return (g * y * y * y * -0.5,)

    def formula(self, x: Expr) -> Expr:
        return 1.0 / apply("sqrt", x)
