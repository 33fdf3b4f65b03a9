"""Elements of prime fields, `!ff.elem<p>`, and their arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.extending import (
    UI32,
    UI64,
    C,
    Cast,
    DeclaredElement,
    Element,
    Expr,
    Operator,
    T,
    Tensor,
    TensorType,
    constant,
    element_type,
    indices,
    operator,
)

LARGEST = 1 << 31  # a sum of two elements fits ui32, their product ui64


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


@element_type
class Elem(DeclaredElement):
    """An element of the field of p elements, stored as the integer from 0 to p - 1."""

    p: int

    type_name = "ff.elem"
    storage = UI32
    constraints = (
        C(1, "1 < p < 2^31", lambda t: 1 < t.p < LARGEST),
        C(2, "p is a prime number", lambda t: is_prime(t.p)),
    )
    low = 0

    @property
    def high(self) -> int:
        return self.p - 1


class Binary(Operator[T]):
    """The family of Y[d...] = f(A[d...], B[d...]), over arrays of one shape."""

    a: T
    b: T

    dialect = "ff"
    constraints = (
        C(1, "element(a) is !ff.elem<p>", lambda o: isinstance(o.a.element, Elem)),
        C(2, "element(a) = element(b)", lambda o: o.a.element is o.b.element),
        C(3, "shape(a) = shape(b)", lambda o: o.a.shape == o.b.shape),
    )

    @property
    def p(self) -> int:
        """The number of elements of the field."""
        element: Any = self.types["a"].element
        return element.p

    def infer(self: Any) -> TensorType:
        return self.a

    def reference(self: Any) -> np.ndarray:
        exact = self.exact(self.a.astype(object), self.b.astype(object)) % self.p
        return np.asarray(exact, np.uint32).reshape(self.a.shape)

    def element(self: Any, y: Tensor) -> Element:
        at = indices(" ".join(f"i{n}" for n in range(len(y.shape))), y.shape) if y.shape else ()
        a, b, p = (wide(x) for x in (self.a[at], self.b[at], constant(self.p, UI32)))
        return Element(at, Cast(self.exact(a, b) % p, UI32))

    def exact(self, a: Any, b: Any) -> Any:
        """The result in the integers, not negative, before it is reduced modulo p."""
        raise NotImplementedError


def wide(x: Expr) -> Expr:
    return Cast(x, UI64)


PAIR = "func @main(%a: tensor<4x!ff.elem<17>>, %b: tensor<4x!ff.elem<17>>)"


def example(name: str) -> str:
    return f"{PAIR} {{\n  %y = ff.{name} %a, %b\n  return %y\n}}\n"


@operator
class Add(Binary[T]):
    """The sum of two elements of a prime field."""

    a: T
    b: T
    example = example("add")

    def exact(self, a: Any, b: Any) -> Any:
        return a + b


@operator
class Sub(Binary[T]):
    """The difference of two elements of a prime field."""

    a: T
    b: T
    example = example("sub")

    def exact(self, a: Any, b: Any) -> Any:
        return a + (constant(self.p, UI64) if isinstance(a, Expr) else self.p) - b


@operator
class Mul(Binary[T]):
    """The product of two elements of a prime field."""

    a: T
    b: T
    example = example("mul")

    def exact(self, a: Any, b: Any) -> Any:
        return a * b
