"""The formalization's broadcast operators: one process for all of them, over the scalar operation
of each.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernel_ir.expressions import Element, Expr, Tensor, apply, axes, cast, select
from ..spec.broadcasting import aligned, all_of, broadcast, cannot_broadcast, fits, source
from ..spec.operator import C, T, declare, operator
from ..types.sizes import Dim, certainly
from ..types.tensor_types import I32, TensorType
from .cvm_operator import Binary, greatest, i32, numbers

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


def misfit(o: Any) -> tuple[int, Dim, Dim]:
    """The first i at which the shapes of a and b do not fit, with em_i and en_i."""
    met = ((i, m, n) for i, (m, n) in enumerate(aligned(o.a.shape, o.b.shape)))
    return next((i, m, n) for i, m, n in met if certainly(lambda m=m, n=n: not fits(m, n)))


@dataclass(frozen=True, eq=False)
class Broadcast(Binary[T]):
    """The family of Y[d_0, ..., d_Q-1] = A[a_0, ..., a_M-1] OP B[b_0, ..., b_N-1], Q = max(M, N),
    where

    a_j = d_Q-M+j if d_Q-M+j < m_j else 0,  and  b_j = d_Q-N+j if d_Q-N+j < n_j else 0

    A has the shape (m_0, ..., m_M-1), B (n_0, ..., n_N-1). em and en are the shapes aligned on the
    right, the shorter one filled with 1. Sizes that meet are equal, or one is 1 and repeated.
    """

    symbols = {
        "i": lambda o: misfit(o)[0],
        "Q": lambda o: max(o.a.rank, o.b.rank),
        "em_i": lambda o: misfit(o)[1],
        "en_i": lambda o: misfit(o)[2],
    }
    constraints = (
        numbers("a", "b"),
        C(
            1,
            "em_i = en_i or em_i = 1 or en_i = 1 for i in [0, Q)",
            lambda o: all_of(
                (lambda m=m, n=n: fits(m, n)) for m, n in aligned(o.a.shape, o.b.shape)
            ),
            plainly=lambda o: cannot_broadcast(o.a.shape, o.b.shape),
        ),
    )

    def infer(self: "Broadcast[TensorType]") -> TensorType:
        return self.a.with_shape(*broadcast(self.a.shape, self.b.shape))

    def element(self: "Broadcast[Tensor]", y: Tensor) -> Element:
        d = axes(y.shape)
        return Element(d, self.formula(self.a[source(d, self.a)], self.b[source(d, self.b)]))

    def pullback(self: "Broadcast[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        (y,), (g,), given = results, cotangents, (self.a, self.b)
        gradients = g.gradient_of(self.derivative, [o.stretched(y) for o in given], y)
        return [None if d is None else d.gathered(o) for d, o in zip(gradients, given, strict=True)]


@operator
class BroadcastDiv(Broadcast[T]):
    """Division truncated toward zero:  OP is divide.   (Broadcast Operators, broadcast_div)

    A quotient by zero is 0, and -2^31 / -1, which is 2^31, becomes -2^31 modulo 2^32. Of floats the
    quotient, rounded.
    """

    derivative = "true_div"
    example = "%z = %x, %y", "%x: 2x3xi32, %y: 3xi32", "2x3xi32"

    def exact(self: "BroadcastDiv[np.ndarray]", a: np.ndarray, b: np.ndarray) -> Any:
        if a.dtype.kind == "f":
            return a / b
        magnitude = np.abs(a) // np.maximum(np.abs(b), 1)
        return np.sign(a) * np.sign(b) * magnitude  # the sign of b is 0 where b is

    def formula(self, a: Expr, b: Expr) -> Expr:
        if a.type is not I32:
            return a / b
        quotient = a / select(b.eq(0) | b.eq(-1), 1, b)  # neither by zero nor beyond the type
        return select(b.eq(0), 0, select(b.eq(-1), -a, quotient))


declare(
    "BroadcastAdd",
    Broadcast,
    "Addition modulo 2^32:  OP is add.   (Broadcast Operators, broadcast_add)",
    example=("%z = %x, %y", "%x: 2x3xi32, %y: 2x1xi32", "2x3xi32"),
    scalar="add",
    derivative="add",
)
declare(
    "BroadcastSub",
    Broadcast,
    "Subtraction modulo 2^32:  OP is sub.   (Broadcast Operators, broadcast_sub)",
    example=("%x, 128", "%x: 2x3xi32", "2x3xi32"),
    scalar="sub",
    derivative="sub",
)
declare(
    "BroadcastMul",
    Broadcast,
    "Multiplication modulo 2^32:  OP is multiply.   (Broadcast Operators, broadcast_mul)",
    example=("%z = %x, %y", "%x: 4x1xi32, %y: 1x5xi32", "4x5xi32"),
    scalar="mul",
    derivative="mul",
)
declare(
    "BroadcastMax",
    Broadcast,
    "The larger one, of floats NaN where one is:  OP is max.   "
    "(Broadcast Operators, broadcast_max)",
    example=("%z = %x, %y", "%x: 2x3xi32, %y: 3xi32", "2x3xi32"),
    scalar="maximum",
    derivative="maximum",
    formula=lambda self, a, b: apply(greatest(a.type), a, b),
)
declare(
    "BroadcastGreater",
    Broadcast,
    "1 where a > b, else 0:  OP is greater.   (in CVM-Runtime; the formalization leaves it out)",
    example=("%x, 0", "%x: 2x3xi32", "2x3xi32"),
    scalar="gt",
    constraints=(i32("a", "b"), *Broadcast.constraints[1:]),
    formula=lambda self, a, b: cast(apply("gt", a, b), I32),
)
