"""`theano.dimshuffle`: dimensions inserted, reordered and dropped."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..kernel_ir.expressions import ZERO, Element, Expr, Tensor, axes
from ..spec.operator import C, Operator, T, operator
from ..types.tensor_types import TensorType
from .dimensions import is_broadcastable

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes, Tangents


@operator
class Dimshuffle(Operator[T]):
    """Y[d...] = X[e...], where e_j = d_i for new_order[i] = j; "x" inserts a dimension of size 1.
    (DimShuffle)

    A dimension that is not in new_order is dropped, which its type has to say is 1. An index map:
    nothing is copied.
    """

    any_element = True
    x: T
    new_order: tuple[int | Literal["x"], ...]
    input_broadcastable: tuple[bool, ...] | None = None

    rearranges = True
    symbols = {
        "N": lambda o: o.x.rank,
        "broadcastable": lambda o: tuple(is_broadcastable(n) for n in o.x.shape),
        "dropped": lambda o: tuple(j for j in range(o.x.rank) if j not in o.new_order),
    }
    constraints = (
        C(
            1,
            "new_order is in [0, N), or 'x'",
            lambda o: all(0 <= j < o.x.rank for j in o.kept()),
            at="new_order",
        ),
        C(
            2,
            "no index repeats in new_order",
            lambda o: len(set(o.kept())) == len(o.kept()),
            at="new_order",
        ),
        C(
            3,
            "input_broadcastable has N entries",
            lambda o: o.input_broadcastable is None or len(o.input_broadcastable) == o.x.rank,
            at="input_broadcastable",
        ),
        C(
            4,
            "dimensions are broadcastable where input_broadcastable says so",
            lambda o: all(
                is_broadcastable(n)
                for n, b in zip(o.x.shape, o.input_broadcastable or (), strict=False)
                if b
            ),
            at="input_broadcastable",
        ),
        C(
            5,
            "dropped dimensions of shape(x) are declared to be 1",
            lambda o: o.drops_ones(),
            at="new_order",
        ),
    )
    example = '%x {new_order = [1, "x", 0]}', "%x: 2x3xf32", "3x1x2xf32"

    def kept(self) -> list[int]:
        return [j for j in self.new_order if j != "x"]

    def drops_ones(self: "Dimshuffle[Any]") -> bool:
        """Test whether the dropped dimensions have size 1 and, if `input_broadcastable` is given,
        are marked there.
        """
        said = self.input_broadcastable or (True,) * self.x.rank
        return all(
            is_broadcastable(n) and said[j]
            for j, n in enumerate(self.x.shape)
            if j not in self.new_order
        )

    def infer(self: "Dimshuffle[TensorType]") -> TensorType:
        return self.x.with_shape(*(1 if j == "x" else self.x.shape[j] for j in self.new_order))

    def reference(self: "Dimshuffle[np.ndarray]") -> np.ndarray:
        y = np.transpose(
            self.x, (*self.kept(), *[j for j in range(self.x.ndim) if j not in self.new_order])
        )
        return y.reshape(tuple(1 if j == "x" else self.x.shape[j] for j in self.new_order)).copy()

    def pullback(self: "Dimshuffle[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        where = {j: i for i, j in enumerate(self.new_order) if j != "x"}
        return [cotangents[0].dimshuffle([where.get(j, "x") for j in range(self.x.rank)])]

    def pushforward(self: "Dimshuffle[Node]", results: "Nodes", tangents: "Tangents") -> "Tangents":
        return [None if t is None else t.dimshuffle(self.new_order) for t in tangents]

    def simplified(self: "Dimshuffle[Any]", definition: Any) -> Any:
        """The operand where nothing moves; of a dimshuffle, one of its operand."""
        if self.new_order == tuple(range(self.x.known_type.rank)):
            return self.x
        if not isinstance(made := definition(self.x), Dimshuffle):
            return None
        return Dimshuffle(
            made.x, tuple("x" if j == "x" else made.new_order[j] for j in self.new_order)
        )

    def element(self: "Dimshuffle[Tensor]", y: Tensor) -> Element:
        at = axes(y.shape)
        e: list[Expr] = [ZERO] * self.x.rank
        for i, j in zip(at, self.new_order, strict=True):
            if j != "x":
                e[j] = i
        return Element(at, self.x[tuple(e)])
