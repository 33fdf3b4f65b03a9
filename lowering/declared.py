"""Declared ranges, held by the code itself:  %x: tensor<4xi32> {range = [-127, 127]}  =>  for i { require -127 <= x[i] and x[i] <= 127 }

Python checks arguments before a call; this is for callers that nothing stands before.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dialect.index import Const, Expr, Tensor, apply, axes, both
from ..dialect.loops import Block, For, Kernel, Require
from ..dialect.program import Function


def range_checks(function: Function, arguments: Sequence[Tensor]) -> list[Kernel]:
    """A kernel for each argument with a declared range, without results."""
    made = []
    for value, tensor in zip(function.arguments, arguments, strict=True):
        if (bounds := value.attributes.get("range")) is None:
            continue
        low, high = bounds
        at = axes(tensor.shape)
        x = tensor[at]
        conditions: list[Expr | bool] = []
        if not tensor.element.is_discrete or low > tensor.element.limits[0]:
            conditions.append(apply("le", Const(low, tensor.element), x))
        if not tensor.element.is_discrete or high < tensor.element.limits[1]:
            conditions.append(apply("le", x, Const(high, tensor.element)))
        held = both(*conditions)
        if isinstance(held, Expr):
            body: Block = (Require(held, f"argument %{value.name}: expected values from {low} to {high}", value.span),)
            for index in reversed(at):
                body = (For(index, body),)
            made.append(Kernel(f"{function.name}.range_of_{value.name}", (tensor,), body, 0, value.span))
    return made
