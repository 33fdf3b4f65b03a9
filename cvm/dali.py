"""The dali dialect's operators as functions for traced Python, by any rules: `cvm.dali.div(x, 3)`,
`cvm.dali.sqrt(x)`, ...
"""

from cvm.dialect.spec.operator import OPERATORS

from .numpy.operator_functions import OperatorFunction, names


def __getattr__(name: str) -> OperatorFunction:
    if f"dali.{name}" in OPERATORS:
        return OperatorFunction(f"dali.{name}")
    raise AttributeError(f"the dali dialect has no operator {name}")


def __dir__() -> list[str]:
    return names("dali")
