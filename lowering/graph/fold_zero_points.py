"""Fold the zero points of quantized convolutions and dense layers into their biases, and pad their
inputs beforehand.

    sum of (x - zx) * (w - zw) + bias  =>  sum of x * v + (bias - zx * sum of v),  v = w - zw

Legal where weights and zero points are constants and v fits a byte, since sums are modulo 2^32.
Padding adds nothing to a sum, so padded elements become zx. Pays always: products of bytes go to
the byte dot product, and channel loops have no guards.
"""

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from ...dialect.builtin import Const, Data
from ...dialect.ir.builder import Builder
from ...dialect.ir.function import Function, Literal, Operation, Value
from ...dialect.spec.operator import OPERATORS
from ...dialect.types.tensor_types import BY_DTYPE, I8, I32, UI8, TensorType
from ..passes import graph_pass

FOLDED = ("quant.conv2d", "quant.dense")


@graph_pass
def fold_zero_points(function: Function) -> Function:
    """The function with zero points of constant weights folded into biases."""
    constants = [o for o in function.operations if isinstance(o.operator, Const)]
    known = {
        o.results[0]: o.operator.data.array for o in constants if isinstance(o.operator, Const)
    }
    folded = (_folded(o, known) if o.operator.name in FOLDED else [o] for o in function.operations)
    return replace(function, operations=tuple(chain.from_iterable(folded)))


def _folded(operation: Operation, constants: dict[Value, np.ndarray]) -> list[Operation]:
    o: Any = operation.operator

    def constant(value: Value) -> np.ndarray | None:
        return value.array if isinstance(value, Literal) else constants.get(value)

    w, zx, zw = (constant(v) for v in (o.w, o.x_zero_point, o.w_zero_point))
    x = o.x.known_type.element
    if w is None or zx is None or zw is None or zx.ndim:
        return [operation]
    if x not in (I8, UI8) or o.map(lambda v: v.known_type).acc is not I32:
        return [operation]
    pads = any(getattr(o, "padding", ()))
    zero = int(zx)
    values = w.astype(np.int64) - zw.astype(np.int64).reshape(-1, *(1,) * (w.ndim - 1))
    to = next(
        (e for e in (I8, UI8) if values.size and np.array_equal(values, values.astype(e.dtype))),
        None,
    )
    pads = pads and bool(
        zero or o.layout == "NHWC"
    )  # beforehand; zeros between planes cost nothing
    if to is None or not x.limits[0] <= zero <= x.limits[1] or not (zero or zw.ndim or zw or pads):
        return [operation]
    builder, name = Builder(span=operation.span), operation.results[0].name

    def add(operator: Any, part: str) -> Value:
        return builder.add(operator, names=[f"{name}.{part}"])[0]

    def array(values: np.ndarray, part: str) -> Value:
        return add(Const(Data(values), TensorType(values.shape, BY_DTYPE[values.dtype])), part)

    new: dict[str, Any] = {
        n: array(np.zeros((), np.int32), n) for n in ("x_zero_point", "w_zero_point")
    }
    new["w"] = o.w if not zw.any() else array(values.astype(to.dtype), "weights")
    offset = (-zero * values.reshape(len(values), -1).sum(1)).astype(np.int32)
    if (bias := None if o.bias is None else constant(o.bias)) is not None:
        new["bias"] = array(bias + offset, "bias")
    else:
        moved = array(offset, "offset")
        plus: Any = OPERATORS["theano.elemwise"]
        new["bias"] = (
            moved if o.bias is None else add(plus((o.bias, moved), scalar_op="add"), "bias")
        )
    if pads:
        top, left, bottom, right = o.padding
        around = [(top, left), (bottom, right)]
        around = [(0, *pads, 0) if o.layout == "NHWC" else (0, 0, *pads) for pads in around]
        value = array(np.array(zero, np.int32), "padding")
        pad: Any = OPERATORS["quant.pad"]
        new["x"], new["padding"] = add(pad(o.x, value, *around), "padded"), (0, 0, 0, 0)
    return [*builder.operations, replace(operation, operator=replace(o, **new))]
