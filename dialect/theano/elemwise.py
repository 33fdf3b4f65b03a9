"""`theano.elemwise`: a scalar operation on tensors, broadcast along the dimensions that are
declared to be 1.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..ir.builder import Cotangents, Node, Nodes, Tangents
from ..kernel_ir.expressions import Element, Tensor, axes
from ..spec.broadcasting import aligned, cannot_broadcast
from ..spec.operator import C, Operator, T, operator
from ..types.sizes import Dim
from ..types.tensor_types import BY_DTYPE, I1, ElementType, TensorType
from .algebraic_identities import simplified
from .compare_select_cast import cast_to
from .dimensions import first_clash, is_broadcastable, joined, sizes_agree, source
from .scalar_op import SCALAR_OPS, ScalarOp


@dataclass(frozen=True, eq=False)
class Broadcasting(Operator[T]):
    """The family of operations on elements of operands that are repeated along the dimensions that
    their types say are 1.
    """

    xs: tuple[T, ...]

    op: ClassVar[Any]  # the row of a table that the operator applies
    symbols = {
        "operands": lambda o: len(o.xs),
        "arity": lambda o: o.op.arity,
        "elements": lambda o: tuple(x.element for x in o.xs),
        "sizes": lambda o: first_clash(*(x.shape for x in o.xs)),
    }

    def shape(self: "Broadcasting[Any]") -> tuple[Dim, ...]:
        return tuple(joined(*sizes) for sizes in aligned(*(x.shape for x in self.xs)))

    def element(self: "Broadcasting[Tensor]", y: Tensor) -> Element:
        at = axes(y.shape)
        return Element(at, self.op.expression([x[source(at, x.shape)] for x in self.xs], y.element))

    def summed(self: "Broadcasting[Node]", cotangents: "Cotangents") -> "Cotangents":
        """The cotangents of the operands, summed over the dimensions along which these were
        repeated.
        """
        return [
            d.sum_to(x) if isinstance(d, Node) else d
            for d, x in zip(cotangents, self.xs, strict=True)
        ]


@operator
class Elemwise(Broadcasting[T]):
    """Y[d...] = scalar_op of the operands at d..., each computed in the result's type.
    (tensor.elemwise, Elemwise)

    Operands of lower rank are completed on the left. An operand is repeated along the dimensions
    that its type says are 1; a size that is not known does not stretch, even if it turns out to be
    1. `inplace_pattern = {0 = n}` lets the result take the storage of operand n. `cast` takes the
    element type `dtype`.
    """

    scalar_op: str
    inplace_pattern: dict[int, int] | None = None
    dtype: ElementType | None = None

    symbols = {
        **Broadcasting.symbols,
        "wanted": lambda o: o.op.wanted,
        "result": lambda o: o.infer(),
        "target": lambda o: o.xs[o.target],
    }
    constraints = (
        C(
            1,
            "scalar_op is a scalar operation of Theano",
            lambda o: o.scalar_op in SCALAR_OPS,
            "scalar_op",
            SCALAR_OPS,
        ),
        C(2, "operands = arity of scalar_op", lambda o: o.xs and o.op.arity in (None, len(o.xs))),
        C(
            3,
            "dtype is given for cast, and only there",
            lambda o: (o.dtype is None) == (o.scalar_op != "cast"),
        ),
        C(4, "elements are wanted by scalar_op", lambda o: o.op.takes(*(x.element for x in o.xs))),
        C(
            5,
            "sizes that meet are equal, or declared to be 1",
            lambda o: sizes_agree(*(x.shape for x in o.xs)),
            plainly=lambda o: cannot_broadcast(*(x.shape for x in o.xs)),
        ),
        C(
            6,
            "inplace_pattern maps result 0 to an operand",
            lambda o: all(
                k == 0 and 0 <= v < len(o.xs) for k, v in (o.inplace_pattern or {}).items()
            ),
            at="inplace_pattern",
        ),
        C(
            7,
            "in place, the element type of target is that of result",
            lambda o: o.target is None or o.xs[o.target].element is o.infer().element,
        ),
        C(
            8,
            "in place, the shape of target is that of result",
            lambda o: o.target is None or o.covers(),
        ),
    )
    example = '%z = %x, %y {scalar_op = "add"}', "%x: 2x3xf64, %y: 3xf32", "2x3xf64"

    @property
    def op(self) -> ScalarOp:
        if self.scalar_op == "cast" and self.dtype is not None:
            return cast_to(self.dtype)
        return SCALAR_OPS[self.scalar_op]

    @property
    def target(self) -> int | None:
        """The operand whose storage the result takes."""
        return (self.inplace_pattern or {}).get(0)

    def covers(self: "Elemwise[Any]") -> bool:
        result = self.infer()
        assert self.target is not None
        target = self.xs[self.target]
        if result.rank != target.rank:
            return False
        sizes = zip(result.shape, target.shape, strict=True)
        return all(is_broadcastable(r) or not is_broadcastable(t) for r, t in sizes)

    def infer(self: "Elemwise[TensorType]") -> TensorType:
        return TensorType(self.shape(), self.op.rule.result(*(x.element for x in self.xs)))

    def reference(self: "Elemwise[np.ndarray]") -> np.ndarray:
        elements = tuple(BY_DTYPE[x.dtype] for x in self.xs)
        return np.asarray(
            self.op.evaluate(
                np.broadcast_arrays(*self.xs), elements, self.op.rule.result(*elements)
            )
        )

    def pullback(self: "Elemwise[Node]", results: Nodes, cotangents: Nodes) -> Cotangents:
        (y,), (g,) = results, cotangents
        return self.summed(self.op.pulled(g, self.xs, y))

    def pushforward(self: "Elemwise[Node]", results: Nodes, tangents: Tangents) -> Tangents:
        return [self.op.pushed(tangents, self.xs, results[0])]

    def destroys(self) -> tuple[Any, ...]:
        return (
            ()
            if self.target is None or not 0 <= self.target < len(self.xs)
            else (self.xs[self.target],)
        )

    def constant_folding(self: "Elemwise[Any]") -> bool:
        """Test whether to fold by Theano's `python_constant_folding`, scalars of few operands, or
        as any operator.
        """
        return (self.infer().rank == 0 and len(self.xs) < 32) or super().constant_folding()

    def simplified(self, definition: Any) -> Any:
        return simplified(self, definition) or self._repeated_late(definition)

    def _repeated_late(self: "Elemwise[Any]", definition: Any) -> Any:
        """second(%a, %b) among the operands as %b, where another operand already has the result's
        shape.
        """
        typed: Any = self.map(lambda x: x.known_type)
        shape = typed.infer().with_element(I1).key
        whole = [n for n, x in enumerate(self.xs) if x.known_type.with_element(I1).key == shape]
        for n, x in enumerate(self.xs):
            made = definition(x)
            if (
                isinstance(made, Elemwise)
                and made.scalar_op == "second"
                and any(m != n for m in whole)
            ):
                return replace(self, xs=(*self.xs[:n], made.xs[1], *self.xs[n + 1 :]))
        return None
