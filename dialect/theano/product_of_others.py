"""`theano.product_of_others`: the derivative of a product, correct for zero factors, also in
derivatives of it.
"""

import math
from typing import Any

import numpy as np

from ..ir.builder import Cotangents, Node, Nodes
from ..kernel_ir.expressions import Expr, Index, Tensor, as_index, axes, constant
from ..kernel_ir.loops import (
    Alloc,
    Block,
    Store,
    accumulator,
    assign,
    nested,
    substitute_block,
    update,
)
from ..spec.operator import C, Operator, T, operator
from ..types.tensor_types import I64
from .dimensions import are_distinct, axes_exist, reduced


@operator
class ProductOfOthers(Operator[T]):
    """Y[d...] = Π X[e...] over all e that differ from d, but only in `axis`.   (the derivative of
    Prod)

    The product of the factors before X[d...], by that of those behind it, folded from the last one;
    a zero is 0.0.
    """

    x: T
    axis: tuple[int, ...] | None = None

    constraints = (
        C(1, "axis in [-N, N)", lambda o: axes_exist(o.axis, o.x.rank), at="axis"),
        C(2, "no axis repeats in axis", lambda o: are_distinct(o.axis, o.x.rank), at="axis"),
        C(3, "element(x) is a float", lambda o: o.x.element.kind == "float"),
    )
    symbols = {"N": lambda o: o.x.rank}
    example = "%x {axis = [1]}", "%x: 2x3xf64", "2x3xf64"

    def reference(self: "ProductOfOthers[np.ndarray]") -> np.ndarray:
        over = reduced(self.axis, self.x.ndim)
        kept = tuple(j for j in range(self.x.ndim) if j not in over)
        order = (*over, *kept)
        factors = self.x.transpose(order)
        rows = factors.reshape(
            math.prod(self.x.shape[j] for j in over), math.prod(self.x.shape[j] for j in kept)
        )
        y = _before(rows) * _before(rows[::-1])[::-1] + rows.dtype.type(0)
        return y.reshape(factors.shape).transpose(np.argsort(order)).copy()

    def nest(self: "ProductOfOthers[Tensor]", *results: Tensor) -> Block:
        (y,), over = results, reduced(self.axis, self.x.rank)
        d = axes(y.shape)
        if not over:  # each factor is a group of its own
            return nested([*d], (Store(y, d, constant(1, y.element)),))
        backward: list[Expr] = [*d]
        for j in over:
            backward[j] = as_index(y.shape[j]) - 1 - d[j]
        before = accumulator("before", y.element)
        after = accumulator("after", y.element)
        here, there = d, tuple(backward)
        first = (Store(y, here, before[()]), update("mul", before, self.x[here]))
        second = (Store(y, there, y[there] * after[()] + 0.0), update("mul", after, self.x[there]))
        loops = [d[j] for j in over]
        again = [Index(i.name, i.extent) for i in loops]  # a loop's index is its own
        second = substitute_block(second, dict(zip(loops, again, strict=True)))
        body = (Alloc(before), assign(before, 1), *nested(loops, first))
        body += (Alloc(after), assign(after, 1), *nested(again, second))
        return nested([i for j, i in enumerate(d) if j not in over], body)

    def pullback(self: "ProductOfOthers[Node]", results: Nodes, cotangents: Nodes) -> Cotangents:
        """The cotangent of factor i, by the number of zeros: Σ over j ≠ i of g_j times the product
        of all but i and j.
        """
        (g,), over = cotangents, self.over()
        zeros, count, nonzero = self.counted()
        product = nonzero.with_ones(over)
        factors = zeros.scalar("switch", 1, self.x)
        at_zeros = zeros.scalar("switch", g, 0).sum(over, dtype=g.element).with_ones(over)
        shares = zeros.scalar("switch", 0, g / factors)
        total = shares.sum(over, dtype=g.element).with_ones(over)
        none = product / factors * (total - shares)
        one = zeros.scalar("switch", product * total, at_zeros * product / factors)
        return [choice(count, none, one, zeros.scalar("switch", product * (at_zeros - g), 0))]

    def over(self: "ProductOfOthers[Any]") -> tuple[int, ...]:
        return reduced(self.axis, len(self.x.shape))

    def counted(self: "ProductOfOthers[Any]") -> tuple[Any, Any, Any]:
        """The zero factors, their number in each group, and the product of the others."""
        zeros = self.x.scalar("eq", 0)
        over = self.over()
        factors = zeros.scalar("switch", 1, self.x)
        nonzero = factors.reduce("prod", over, no_zeros_in_input=True) if over else factors
        return (
            zeros,
            (zeros.sum(over) if over else zeros.scalar("cast", dtype=I64)).with_ones(over),
            nonzero,
        )


def _before(rows: np.ndarray) -> np.ndarray:
    """For each row the product of those before it."""
    ones = np.ones_like(rows[:1])
    return np.multiply.accumulate(np.concatenate([ones, rows[:-1]])[: len(rows)], 0, rows.dtype)


def choice(count: Any, none: Any, one: Any, two: Any) -> Any:
    """By the number of zeros; 0 where there are more than two."""
    more = count.scalar("eq", 2).scalar("switch", two, 0) if isinstance(two, Node) else two
    return count.scalar("eq", 0).scalar(
        "switch", none, count.scalar("eq", 1).scalar("switch", one, more)
    )
