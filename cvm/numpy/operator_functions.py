"""The operators as Python functions, for functions compiled with `cvm.compile`.

Mathematical functions follow the rules of the trace, NumPy's or the dali dialect's; layers and
rearrangements are the cvm dialect's, with attributes as keywords: `cvm.conv2d(x, w, padding=(1,
1))`.
"""

from collections.abc import Callable
from typing import Any

from cvm.dialect.spec.operator import OPERATORS

from ..tracing.trace import apply, tracer_of, ufunc_of_trace
from .selection import clip, where

# the dali dialect's functions, and what they are by NumPy's rules
NUMPY: dict[str, str | Callable[..., object]] = {
    **{
        n: n
        for n in (
            "fabs",
            "floor",
            "ceil",
            "sqrt",
            "cbrt",
            "exp",
            "log",
            "log2",
            "log10",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
        )
    },
    **{f"a{n}": f"arc{n}" for n in ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh")},
    **{
        "abs": "absolute",
        "pow": "power",
        "fpow": "float_power",
        "min": "minimum",
        "max": "maximum",
    },
    **{
        "clamp": clip,
        "where": where,
        "rsqrt": lambda x: ufunc_of_trace("reciprocal", ufunc_of_trace("sqrt", x)),
    },
}


class OperatorFunction:
    """An operator as a function of traced arrays; attributes are keywords."""

    def __init__(self, name: str) -> None:
        self.__name__ = name.partition(".")[2]
        self.operator = name
        self.__doc__ = OPERATORS[name].__doc__

    def __call__(self, *operands: object, **attributes: object) -> Any:
        return apply(self.operator, *operands, **attributes)

    def __repr__(self) -> str:
        return f"<operator {self.operator}>"


class RuleFunction(OperatorFunction):
    """A function that follows the rule of the trace: an operator of the dali dialect, or what NumPy
    has for it.
    """

    def __call__(self, *operands: object, **attributes: object) -> Any:
        tracer = tracer_of(operands)
        fields = [f for f in OPERATORS[self.operator].fields if f.is_operand]
        wrong = not sum(f.required for f in fields) <= len(operands) <= len(fields)
        if tracer is None or tracer.rules == "dali" or wrong:
            return super().__call__(*operands, **attributes)
        if isinstance(function := NUMPY[self.__name__], str):
            return ufunc_of_trace(function, *operands, **attributes)
        return function(*operands, **attributes)


def function(name: str) -> OperatorFunction | None:
    """The function of this name: one that follows the rule of the trace, or else of the cvm
    dialect.
    """
    if name in NUMPY:
        return RuleFunction(f"dali.{name}")
    return OperatorFunction(f"cvm.{name}") if f"cvm.{name}" in OPERATORS else None


def names(dialect: str = "cvm") -> list[str]:
    """The operators of a dialect, and with those of the cvm dialect all that `function` knows."""
    more = NUMPY if dialect == "cvm" else ()
    return sorted({*more, *(o.partition(".")[2] for o in OPERATORS if o.startswith(f"{dialect}."))})
