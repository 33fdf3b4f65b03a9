"""The formalization's reduce operators: one process for all of them, over the reduce function of
each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..kernel_ir.expressions import Element, Index, Tensor, axes, reduce
from ..kernel_ir.scalar_references import largest
from ..spec.broadcasting import all_of
from ..spec.operator import C, T, operator
from ..types.tensor_types import TensorType
from .cvm_operator import CvmOperator, exactly, greatest, numbers, rounded

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


@dataclass(frozen=True, eq=False)
class Reduction(CvmOperator[T]):
    """The family of reductions over given axes; the other axes remain as they are.

    T = {i if i >= 0 else i + N | i in axes},  U = {0, ..., N-1},  R = U - T if exclude, else T

    1. exclude and M = N:      Y = X
    2. not exclude and M = 0:  Y[0, ..., 0] = f(X), of rank 1, or N if keepdims
    3. not keepdims:           Y[d_I(0), ..., d_I(N-r-1)] = f({X[d_0, ..., d_N-1] | d_j in [0, n_j),
       j in R})
    4. otherwise the same, at Y[d_0, ..., d_N-1] with d_j = 0 for j in R

    Where every axis is reduced the result is one number, of shape (1,) or, if keepdims, (1, ...,
    1).
    """

    x: T  # (n_0, ..., n_N-1)
    axes: tuple[int, ...] = ()  # M of them
    keepdims: bool = False
    exclude: bool = False

    scalar: ClassVar[str] = ""  # f as a reduction by a scalar function
    exact: ClassVar[Callable[..., Any]]  # f of an array, over a tuple of its axes

    symbols = {
        "N": lambda o: len(o.x.shape),
        "M": lambda o: len(o.axes),
        "T": lambda o: tuple(sorted(o.listed())),
        "R": lambda o: o.reduced(),
        "n_j": lambda o: next(
            n for n in map(o.x.shape.__getitem__, o.reduced()) if isinstance(n, int) and n < 1
        ),
    }
    constraints = (
        numbers("x"),
        C(
            1,
            "axes in [-N, N)",
            lambda o: all(-o.x.rank <= i < o.x.rank for i in o.axes),
            at="axes",
        ),
        C(
            2,
            "card{T} = M, T being axes modulo N",
            lambda o: len(o.listed()) == len(o.axes),
            at="axes",
            plainly=lambda o: f"axes name one axis of {o.x.rank} twice: {list(o.axes)}",
        ),
    )

    def listed(self: "Reduction[Any]") -> set[int]:
        """T."""
        return {i % len(self.x.shape) for i in self.axes}

    def reduced(self: "Reduction[Any]") -> tuple[int, ...]:
        """R in order; without axes it is all of U, excluded or not."""
        every = range(len(self.x.shape))
        return (
            tuple(j for j in every if (j in self.listed()) != self.exclude)
            if self.axes
            else tuple(every)
        )

    def is_identity(self: "Reduction[Any]") -> bool:
        return self.exclude and len(self.axes) == len(self.x.shape)

    def infer(self: "Reduction[TensorType]") -> TensorType:
        if self.is_identity():
            return self.x
        over = self.reduced()
        if self.keepdims:
            return self.x.with_shape(*(1 if j in over else n for j, n in enumerate(self.x.shape)))
        return self.x.with_shape(*([n for j, n in enumerate(self.x.shape) if j not in over] or [1]))

    def reference(self: "Reduction[np.ndarray]") -> np.ndarray:
        if self.is_identity():
            return self.x
        reduced = rounded(
            self.exact(exactly(self.x), axis=self.reduced(), keepdims=self.keepdims), self.x
        )
        return reduced if reduced.ndim or self.keepdims else reduced.reshape(1)

    def element(self: "Reduction[Tensor]", y: Tensor) -> Element:
        d = axes(y.shape)
        over = (
            {}
            if self.is_identity()
            else {j: Index(f"k{j}", self.x.shape[j]) for j in self.reduced()}
        )
        kept = (i for j, i in enumerate(d) if not (self.keepdims and j in over))
        at = tuple(over[j] if j in over else next(kept) for j in range(self.x.rank))
        return Element(d, reduce(self.reduction(), tuple(over.values()), self.x[at]))

    def reduction(self) -> str:
        """f as a reduction by a scalar function."""
        return self.scalar

    def spread(self: "Reduction[Any]", y: Any) -> Any:
        """A result, or its cotangent, with a dimension of size 1 for each that was reduced."""
        if self.is_identity() or self.keepdims:
            return y
        over = self.reduced()
        return (y if len(over) < self.x.rank else y.sum((0,), dtype=y.element)).with_ones(over)


@operator
class Sum(Reduction[T]):
    """The sum over the given axes, modulo 2^32:  f(Z) = Σ Z.   (Reduce Operators, sum)"""

    scalar = "add"
    exact = staticmethod(np.sum)
    example = "%x {axes = [1]}", "%x: 2x3xi32", "2xi32"

    def pullback(self: "Sum[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        return [self.spread(cotangents[0]).like(self.x)]


@operator
class Max(Reduction[T]):
    """The largest element over the given axes, of floats NaN where one is:  f(Z) = max Z.   (Reduce
    Operators, max)
    """

    exact = staticmethod(largest)
    constraints = (
        *Reduction.constraints,
        C(
            3,
            "n_j > 0 for j in R, n being shape(x)",
            lambda o: (
                o.is_identity() or all_of((lambda j=j: o.x.shape[j] > 0) for j in o.reduced())
            ),
        ),
    )
    example = "%x {axes = [-1], keepdims = true}", "%x: 2x3xi32", "2x1xi32"

    def reduction(self: "Max[Any]") -> str:
        return greatest(self.x.element)

    def pullback(self: "Max[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        """To every element that is the largest one, as Theano's."""
        y, g = self.spread(results[0]), self.spread(cotangents[0])
        return [self.x.scalar("eq", y).scalar("switch", g, 0)]
