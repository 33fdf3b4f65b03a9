"""Propagate scalar constants into the formulas that read them, and simplify.

    c = constant 2;  y[i] = x[i] + i64(c[])  =>  y[i] = x[i] + 2
    select(true, a, b) => a;  1 * a => a;  a - 0 => a;  check(true, a) => a
    ipow(a, 5) => (a * a) * (a * a) * a

Legal for integers, conditions and conversions, where it is exact for every value; float arithmetic
stays as written.
"""

import numpy as np

from ...dialect.kernel_ir.expressions import (
    Apply,
    Cast,
    Check,
    Const,
    Expr,
    Read,
    Tensor,
    When,
    constant,
)
from ...dialect.kernel_ir.scalar_functions import SCALARS
from ...dialect.kernel_ir.simplify_node import fold_constants
from ...dialect.kernel_ir.traverse import over, rebuild
from ...dialect.support.diagnostics import NOWHERE, Span
from ...dialect.types.cast_arrays import converted


def propagate_constants(
    value: Expr, constants: dict[Tensor, np.ndarray], span: Span = NOWHERE
) -> Expr:
    """The formula with constants in place of reads; its checks are reported at `span`, the
    operation's.
    """
    return rebuild(value, lambda e, parts: _simplified(over(e, parts), constants, span), {})


def _simplified(e: Expr, constants: dict[Tensor, np.ndarray], span: Span) -> Expr:
    match e:
        case Read(tensor, _) if (
            tensor in constants and constants[tensor].size == 1 and e.type.kind != "complex"
        ):
            return constant(constants[tensor].reshape(-1)[0], e.type)
        case Cast(Const(number, source), type) if type.kind != "complex":
            return constant(converted(np.array(number, source.dtype), type)[()], type)
        case Apply("select", (Const(), _, _), _) | When(Const()) | Check(Const(True)):
            return fold_constants(e)
        case Apply("mul", (Const(1), a) | (a, Const(1)), t) | Apply(
            "add" | "sub", (a, Const(0)), t
        ) if t.is_integer:
            return a
        case Apply(function, operands, type) if all(
            isinstance(o, Const) and o.type.is_discrete for o in operands
        ):
            return _computed(
                e,
                function,
                [np.array(o.value, o.type.dtype) for o in operands if isinstance(o, Const)],
            )
        case Apply("ipow", (base, Const(exponent)), type):
            return _power(base, exponent % (1 << type.bits))
        case Check(condition, checked, message, where) if where is NOWHERE:
            return Check(condition, checked, message, span)
    return e


def _power(base: Expr, exponent: int) -> Expr:
    """Exponentiation by squaring, from the exponent's highest bit down."""
    if not exponent:
        return constant(1, base.type)
    value = base
    for bit in f"{exponent:b}"[1:]:
        value = value * value * base if bit == "1" else value * value
    return value


def _computed(e: Expr, function: str, operands: list[np.ndarray]) -> Expr:
    if function not in SCALARS:
        return e
    with np.errstate(all="ignore"):
        return constant(np.asarray(SCALARS[function].numpy(*operands))[()], e.type)
