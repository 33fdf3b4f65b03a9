"""Index formulas of reshapes: the index of the element at the same row-major position of another
shape.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..kernel_ir.expressions import ZERO, Element, Expr, Tensor, axes, flat_index, unflatten
from ..types.sizes import Dim, product, same_size
from .broadcasting import is_one
from .operator import Operator, T

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


class Reshaping(Operator[T]):
    """The family of operators whose result has the elements of x in row-major order."""

    if TYPE_CHECKING:  # fields of each of the operators
        x: T

    view = True

    def element(self: "Reshaping[Tensor]", y: Tensor) -> Element:
        """The formula; groups of axes of equal products are converted separately."""
        at = axes(y.shape)
        shape = y.shape
        other = self.x.shape
        mine = [j for j, n in enumerate(shape) if not is_one(n)]
        theirs = [j for j, n in enumerate(other) if not is_one(n)]
        indices: list[Expr] = [ZERO] * len(other)
        for group, into in _groups([shape[j] for j in mine], [other[j] for j in theirs]):
            here, there = mine[group], theirs[into]
            position = flat_index(tuple(at[j] for j in here), tuple(shape[j] for j in here))
            for j, index in zip(
                there, unflatten(position, tuple(other[j] for j in there)), strict=True
            ):
                indices[j] = index
        return Element(at, self.x[tuple(indices)])

    def pullback(self: "Reshaping[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        return [cotangents[0].apply("builtin.reshape_like", self.x)]


def _groups(a: list[Dim], b: list[Dim]) -> Iterator[tuple[slice, slice]]:
    """The shortest runs of axes of two shapes whose products are certainly equal, in order, then
    the remaining axes.
    """
    i = j = 0
    while i < len(a) or j < len(b):
        runs = ((m, n) for m in range(i + 1, len(a) + 1) for n in range(j + 1, len(b) + 1))
        equal = (
            r for r in runs if same_size(product(tuple(a[i : r[0]])), product(tuple(b[j : r[1]])))
        )
        stop = min(equal, key=sum, default=(len(a), len(b)))
        yield slice(i, stop[0]), slice(j, stop[1])
        i, j = stop
