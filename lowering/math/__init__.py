"""Transcendental functions (a libm) as expressions of exactly rounded primitives, with equal bits
on every target.

Each function is written once and is within 2 ulp over its whole range (measured in
docs/accuracy.md); infinities, NaN, signed zeros and subnormal numbers are as in C's Annex F. f32
and f64 are computed in their own type, f16 and bf16 in f32. Read `primitives` and `double_word`
first, then `argument_reduction` and the families of functions. docs/coefficients.py proves the
error bounds of the tables, and names their sources.
"""

from collections.abc import Callable
from functools import partial

from ...dialect.kernel_ir.expressions import Apply, Expr
from ...dialect.kernel_ir.traverse import over, rebuild
from ...dialect.types.tensor_types import BF16, compute_type
from .bfloat16 import converted, in_f32
from .erf import erf, erfc, erfcx
from .exponential import exp, exp2, expm1
from .hyperbolic import acosh, asinh, atanh, cosh, sigmoid, sinh, softplus, tanh
from .logarithm import BINARY, DECIMAL, NATURAL, log1p, logarithm
from .power import cbrt, pow, rsqrt
from .trigonometric import acos, asin, atan, atan2, cos, sin, tan

FUNCTIONS: dict[str, Callable[..., Expr]] = {
    f.__name__: f
    for f in (
        *(exp, exp2, expm1, log1p, pow, cbrt, rsqrt),
        *(sin, cos, tan, asin, acos, atan, atan2),
        *(sinh, cosh, tanh, asinh, acosh, atanh, sigmoid, softplus),
        *(erf, erfc, erfcx),
    )
} | {base.name: partial(logarithm, base=base) for base in (NATURAL, BINARY, DECIMAL)}


def computed(function: str, *operands: Expr) -> Expr:
    """Expand a function of FUNCTIONS into primitives."""
    element = operands[0].type
    return converted(
        FUNCTIONS[function](*(converted(o, compute_type(element)) for o in operands)), element
    )


def in_primitives(expr: Expr) -> Expr:
    """The expression with every one of FUNCTIONS, and arithmetic of bf16, replaced by its
    expression in primitives.
    """

    def replaced(e: Expr, parts: tuple[Expr, ...]) -> Expr:
        if isinstance(e, Apply) and e.function in FUNCTIONS:
            return computed(e.function, *parts)
        return in_f32(e, parts) if BF16 in [p.type for p in (e, *parts[-1:])] else over(e, parts)

    return rebuild(expr, replaced, {})
