"""Theano's operators as functions for traced Python: `cvm.theano.sum(x, axis=(0,))`,
`cvm.theano.sigmoid(x)`, ...

Scalar operations have Theano's names; operands broadcast along dimensions that are known to be
1.
"""

from functools import partial
from typing import Any

from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.theano.scalar_op import SCALAR_OPS

from .numpy.operator_functions import OperatorFunction, names
from .tracing.trace import TracedArray, apply


def dimshuffle(x: Any, *new_order: int | str) -> Any:
    return apply("theano.dimshuffle", x, new_order=tuple(new_order))


def dot(x: TracedArray, y: TracedArray) -> Any:
    """The product of matrices, (m, k) by (k, n), summed in the result's type."""
    product = apply(
        "theano.elemwise", dimshuffle(x, 0, 1, "x"), dimshuffle(y, "x", 0, 1), scalar_op="mul"
    )
    return apply("theano.sum", product, axis=(1,), acc_dtype=product.type.element)


def __getattr__(name: str) -> Any:
    if name in SCALAR_OPS:
        return partial(OperatorFunction("theano.elemwise"), scalar_op=name)
    if f"theano.{name}" in OPERATORS:
        return OperatorFunction(f"theano.{name}")
    raise AttributeError(f"the theano dialect has no operator or scalar operation {name}")


def __dir__() -> list[str]:
    return sorted({*SCALAR_OPS, *names("theano"), "dimshuffle", "dot"})
