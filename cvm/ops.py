"""Every operator as a function: `cvm.ops.dsp.fir(x, taps)`, on arrays and on traced arrays.

On arrays an operator is compiled for their types, once, and called. Functions of traced arrays,
`cvm.grad` and `cvm.vmap` record it. Attributes are keywords.
"""

from collections.abc import Callable
from functools import cache
from inspect import Parameter, Signature
from typing import Any

from cvm.dialect.spec.operator import OPERATORS, REQUIRED, Field
from cvm.dialect.support.suggest import did_you_mean

from .numpy.operator_functions import OperatorFunction
from .tracing.diagnose import caller, fail
from .tracing.trace import apply, tracer_of
from .transforms.traced_function import TracedFunction, traced

MOST_KEPT = 256  # combinations of attributes of one operator, of which compiled code is kept


class ArrayFunction(OperatorFunction):
    """An operator as a function of arrays or traced arrays, with the signature of its class."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        fields = OPERATORS[name].fields
        order = sorted(fields, key=lambda f: (not f.is_operand, not f.required))
        self.__signature__ = Signature([*map(_parameter, order)])
        self._operands = [f.name for f in fields if f.is_operand]
        self._compiled: dict[str, TracedFunction] = {}

    def __call__(self, *operands: object, **attributes: object) -> Any:
        if twice := [o for o in self._operands[: len(operands)] if o in attributes]:
            fail(f"{self.operator} got the operand {twice[0]} twice", caller())
        last = max((n for n, o in enumerate(self._operands) if o in attributes), default=-1)
        given = [attributes.pop(o, None) for o in self._operands[len(operands) : last + 1]]
        operands = (*operands, *given)
        if tracer_of((*operands, *attributes.values())) is not None:
            return apply(self.operator, *operands, **attributes)
        key = repr(sorted(attributes.items()))
        if key not in self._compiled:
            if len(self._compiled) >= MOST_KEPT:
                self._compiled.clear()
            self._compiled[key] = traced(_function(self.operator, attributes))
        return self._compiled[key](*operands)


def _function(operator: str, attributes: dict[str, object]) -> Callable[..., Any]:
    return lambda *operands: apply(operator, *operands, **attributes)


def _parameter(field: Field) -> Parameter:
    kind = Parameter.POSITIONAL_OR_KEYWORD
    if field.kind != "operand":
        kind = {"variadic": Parameter.VAR_POSITIONAL, "optional": kind}.get(
            field.kind, Parameter.KEYWORD_ONLY
        )
    default = Parameter.empty if field.default is REQUIRED else field.default
    if kind is Parameter.VAR_POSITIONAL:
        return Parameter(field.name, kind)
    note = Parameter.empty if field.is_operand else field.annotation
    return Parameter(field.name, kind, default=default, annotation=note)


class Dialect:
    """The operators of one dialect as functions."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, operator: str) -> ArrayFunction:
        name = f"{self.__name__}.{operator}"
        if operator.startswith("_") or name not in OPERATORS:
            raise AttributeError(f"there is no operator {name}{did_you_mean(name, OPERATORS)}")
        found = self.__dict__[operator] = ArrayFunction(name)
        return found

    def __dir__(self) -> list[str]:
        return sorted(o.partition(".")[2] for o in OPERATORS if o.startswith(f"{self.__name__}."))

    def __repr__(self) -> str:
        return f"<operators of {self.__name__}>"


@cache
def _dialect(name: str) -> Dialect:
    known = OPERATORS.dialects(name)
    if name not in known:
        raise AttributeError(f"there is no dialect {name}{did_you_mean(name, known)}")
    return Dialect(name)


def __getattr__(name: str) -> Dialect:
    if name.startswith("_"):
        raise AttributeError(name)
    return _dialect(name)


def __dir__() -> list[str]:
    return [*OPERATORS.dialects()]
