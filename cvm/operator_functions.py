"""The operators as Python functions, for functions compiled with `cvm.compile`.

Mathematical functions are the dali dialect's; layers and rearrangements are the cvm dialect's, with attributes as
keywords: `cvm.conv2d(x, w, padding=(1, 1))`.
"""

from __future__ import annotations

from typing import Any

from cvm.dialect.spec.op import OPERATORS

from .trace import apply

DALI = [
    "abs",
    "fabs",
    "floor",
    "ceil",
    "pow",
    "fpow",
    "min",
    "max",
    "clamp",
    "sqrt",
    "rsqrt",
    "cbrt",
    "exp",
    "log",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "where",
]


class OperatorFunction:
    """An operator as a function of traced arrays; attributes are keywords."""

    def __init__(self, name: str) -> None:
        self.__name__ = name.partition(".")[2]
        self.operator = name
        self.__doc__ = OPERATORS[name].__doc__

    def __call__(self, *operands: Any, **attributes: Any) -> Any:
        return apply(self.operator, *operands, **attributes)

    def __repr__(self) -> str:
        return f"<operator {self.operator}>"


def function(name: str) -> OperatorFunction | None:
    """The function of this name: of the dali dialect if it has one, else of the cvm dialect."""
    for full in ((f"dali.{name}",) if name in DALI else ()) + (f"cvm.{name}",):
        if full in OPERATORS:
            return OperatorFunction(full)
    return None


def names() -> list[str]:
    """The names of all functions."""
    return sorted(
        {n for n in DALI if f"dali.{n}" in OPERATORS} | {o.partition(".")[2] for o in OPERATORS if o.startswith("cvm.")}
    )
