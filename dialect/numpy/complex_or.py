"""Formulas of one ufunc for real and for complex elements."""

from __future__ import annotations

from typing import Any

from ..notation.expressions import Expr
from ..theano.complex_arithmetic import Z
from .ufunc_table import Formula


def complex_or(of_reals: Formula, of_parts: Any) -> Formula:
    """The formula of real elements, and of complex ones that of their parts, in f64."""

    def formula(*operands: Expr) -> Expr:
        if operands[0].type.kind != "complex":
            return of_reals(*operands)
        found = of_parts(*map(Z.of, operands))
        return found.expression(operands[0].type) if isinstance(found, Z) else found

    return formula
