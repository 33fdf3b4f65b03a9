"""Common parts of the dialect's operators: element types, bounds of attributes, and predicates on
unknown sizes.

The formalization is of i32. Operators that mean the same of floats take f32 and f64 too, so that
networks can be trained; operators that only move elements take all types.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..kernel_ir.expressions import Element, Expr, Tensor, apply, axes
from ..kernel_ir.scalar_functions import SCALARS
from ..spec.operator import C, Operator, T
from ..types.tensor_types import F32, F64, I32, ElementType

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes

MIN_ATTR = 0
MAX_ATTR = 4097  # half open, as the text writes it: this admits CVM-Runtime's 4096
INT32_MIN = -(2**31)
NUMBERS = (I32, F32, F64)


class CvmOperator(Operator[T]):
    """An operator of the formalization."""


NARROW = (
    "integers of 8 bits are i32 here, each with its range; quant.conv2d and quant.dense take "
    "i8 and ui8"
)


def i32(*names: str) -> C:
    """Constraint 0 of every operator: the elements are i32."""
    text = " = ".join(f"element({n})" for n in names) + " = i32"
    return C(0, text, lambda o: all(t.element is I32 for _, t in o.operands()))


def numbers(*names: str, also: str = "") -> C:
    """The constraints of an operator that takes floats too; the operands `also`, if any, are
    i32.
    """
    text = " = ".join(f"element({n})" for n in names) + " in {i32, f32, f64}"

    def hold(o: Any) -> bool:
        given = dict(o.operands())
        indices = [given.pop(n) for n in also.split() if n in given]
        elements = {t.element for t in given.values()}
        return (
            len(elements) <= 1
            and (elements <= set(NUMBERS) or (o.any_element and _declared(elements)))
            and all(t.element is I32 for t in indices)
        )

    text += "".join(f", element({n}) = i32" for n in also.split())
    return C(
        0, text, hold, help=lambda o: NARROW * any(t.element.bits == 8 for _, t in o.operands())
    )


def _declared(elements: set[ElementType]) -> bool:
    return all(e.kind == "declared" for e in elements)


def one_element_type(*names: str) -> C:
    """The constraints of an operator that moves elements of several operands unchanged."""
    return C(
        0,
        " = ".join(f"element({n})" for n in names),
        lambda o: len({t.element for _, t in o.operands()}) <= 1,
    )


class Pointwise(CvmOperator[T]):
    """The family of operators whose result has the shape of the first operand, each element
    computed from those beside it.
    """

    scalar: ClassVar[str]  # the scalar function that the operator is, if it is one
    derivative: ClassVar[str] = ""  # the scalar operation of Theano that has the same one

    def exact(self: "Pointwise[np.ndarray]", *operands: Any, **_: Any) -> Any:
        """The operation on arrays whose type holds its results exactly."""
        return SCALARS[self.scalar].numpy(*operands)

    def formula(self, *elements: Any, **_: Any) -> Expr:
        """The operation on elements."""
        return apply(self.scalar, *elements)

    def reference(self: "Pointwise[np.ndarray]") -> np.ndarray:
        given = [a for _, a in self.operands()]
        return rounded(self.exact(*map(exactly, given)), given[0])

    def element(self: "Pointwise[Tensor]", y: Tensor) -> Element:
        at = axes(y.shape)
        return Element(at, self.formula(*(t[at] for _, t in self.operands())))

    def pullback(self: "Pointwise[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        return cotangents[0].gradient_of(
            self.derivative, [o for _, o in self.operands()], results[0]
        )


@dataclass(frozen=True, eq=False)
class Elementwise(Pointwise[T]):
    """The family of Y[d...] = f(X[d...])."""

    x: T

    constraints = (i32("x"),)


@dataclass(frozen=True, eq=False)
class Binary(Pointwise[T]):
    """The family of operations of A and B: i32 modulo 2^32."""

    a: T
    b: T


# Constraints


def within(number: int, symbols: str, low: int, high: int, at: str) -> C:
    """A constraint that the attribute `at`, an integer or several, named `symbols` in the text, is
    in [low, high).
    """

    def holds(o: object) -> bool:
        value = getattr(o, at)
        return all(low <= v < high for v in (value if isinstance(value, tuple) else (value,)))

    return C(number, f"{symbols} in [{low}, {high})", holds, at)


def greatest(element: ElementType) -> str:
    """The scalar function of the maximum; for floats NaN if an operand is."""
    return "max" if element is I32 else "maximum"


def lowest(element: ElementType) -> int | float:
    """The identity of the maximum: less than or equal to every element."""
    return INT32_MIN if element is I32 else -np.inf


# References


def exactly(x: np.ndarray) -> np.ndarray:
    """The elements in a type in which the result of an operation is exact before it is rounded
    once: i64, or f64.
    """
    return x.astype(np.int64 if x.dtype == np.int32 else np.float64)


def rounded(exact: object, like: np.ndarray) -> np.ndarray:
    """The elements in the type of another array: modulo 2^32, or rounded."""
    return modulo_2_32(exact) if like.dtype == np.int32 else np.asarray(exact).astype(like.dtype)


def modulo_2_32(exact: object) -> np.ndarray:
    """The i32 array of exact integers reduced modulo 2^32."""
    return np.asarray(exact, np.int64).astype(np.int32)
