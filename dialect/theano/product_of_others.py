"""`theano.product_of_others`: the derivative of a product, correct for zero factors, also in derivatives of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.types import I64, TensorType
from ..notation.index import Element, Index, Tensor, axes, constant, reduce, select
from ..program.builder import Node
from ..spec.op import C, Operator, T, operator
from .dimensions import are_distinct, axes_exist, reduced


@operator
class ProductOfOthers(Operator[T]):
    """Y[d...] = Π X[e...] over all e that differ from d, but only in `axis`.   (the derivative of Prod)

    With no zero among the factors that is their product by X[d...]; with one, it is 0 except there; with more, it is 0.
    A zero is 0.0.
    """

    x: T
    axis: tuple[int, ...] | None = None

    constraints = (
        C(1, "axis in [-N, N)", lambda o: axes_exist(o.axis, o.x.rank), at="axis"),
        C(2, "no axis repeats in axis", lambda o: are_distinct(o.axis, o.x.rank), at="axis"),
        C(3, "element(x) is a float", lambda o: o.x.element.kind == "float"),
    )
    symbols = {"N": lambda o: o.x.rank}
    example = """
        func @main(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
          %y = theano.product_of_others %x {axis = [1]}
          return %y
        }
    """

    def infer(self: ProductOfOthers[TensorType]) -> TensorType:
        return self.x

    def reference(self: ProductOfOthers[np.ndarray]) -> np.ndarray:
        y = np.empty_like(self.x)
        over = reduced(self.axis, self.x.ndim)
        for d in np.ndindex(self.x.shape):
            group = tuple(slice(None) if j in over else i for j, i in enumerate(d))
            others = np.ones(self.x[group].shape, bool)
            others[tuple(d[j] for j in over)] = False
            y[d] = np.multiply.reduce(self.x[group], None, self.x.dtype, where=others) + 0.0
        return y

    def element(self: ProductOfOthers[Tensor], y: Tensor) -> Element:
        d = axes(y.shape)
        over = {j: Index(f"k{j}", self.x.shape[j]) for j in reduced(self.axis, self.x.rank)}
        x = self.x[tuple(over.get(j, i) for j, i in enumerate(d))]
        if not over:
            return Element(d, constant(1, y.element))
        same = None
        for j, k in over.items():
            equal = k.eq(d[j])
            same = equal if same is None else same & equal
        assert same is not None
        return Element(d, reduce("mul", tuple(over.values()), select(same, constant(1, x.type), x)) + 0.0)

    def decompose(self: Any) -> Any:
        zeros, count, nonzero = self.counted()
        of_one = zeros.scalar("switch", nonzero.with_ones(self.over()), 0)
        of_none = nonzero.with_ones(self.over()) / zeros.scalar("switch", 1, self.x)
        return choice(count, of_none, of_one, 0) + 0

    def pullback(self: Any, results: Any, cotangents: Any) -> Any:
        """The cotangent of factor i: Σ over j ≠ i of g_j times the product of all but i and j, by the number of zero
        factors.
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
        two = zeros.scalar("switch", product * (at_zeros - g), 0)
        return [choice(count, none, one, two)]

    def over(self: Any) -> tuple[int, ...]:
        return reduced(self.axis, len(self.x.shape))

    def counted(self: Any) -> tuple[Any, Any, Any]:
        """The zero factors, their number in each group, and the product of the others."""
        zeros, over = self.x.scalar("eq", 0), self.over()
        factors = zeros.scalar("switch", 1, self.x)
        nonzero = factors.reduce("prod", over, no_zeros_in_input=True) if over else factors
        return zeros, (zeros.sum(over) if over else zeros.scalar("cast", dtype=I64)).with_ones(over), nonzero


def choice(count: Any, none: Any, one: Any, two: Any) -> Any:
    """By the number of zeros; 0 where there are more than two."""
    more = count.scalar("eq", 2).scalar("switch", two, 0) if isinstance(two, Node) else two
    return count.scalar("eq", 0).scalar("switch", none, count.scalar("eq", 1).scalar("switch", one, more))
