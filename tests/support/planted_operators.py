"""Operators of another package, each with a mistake that `cvm ops planted --check` reports."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.extending import (
    F32,
    F64,
    I64,
    Builder,
    C,
    Cast,
    Element,
    Operator,
    T,
    Tensor,
    Value,
    indices,
    operator,
    pattern,
)


class Planted(Operator[T]):
    """An operator of this dialect, by default the identity."""

    dialect = "planted"

    x: T

    constraints = (C(1, "element(x) = f32", lambda o: o.x.element is F32),)

    def infer(self: Any) -> Any:
        return self.x

    def reference(self: Any) -> Any:
        return self.x

    def element(self: Any, y: Tensor) -> Element:
        (i,) = indices("i", y.shape)
        return Element((i,), self.x[i])


def example(name: str, second: str = "") -> str:
    types, operands = "%x: tensor<5xf32>", "%x"
    if second:
        types, operands = f"%x: tensor<5x{second}>, %z: tensor<5x{second}>", "%x, %z"
    if second == "i64":
        types = "%x: tensor<5xf32>, %z: tensor<5xi64>"
    element = "i32" if second == "i32" else "f32"
    return (
        f"func @main({types}) -> tensor<5x{element}> {{\n"
        f"  %y = planted.{name} {operands}\n  return %y\n}}\n"
    )


@operator
class Right(Planted[T]):
    """Three times x, without a mistake."""

    x: T

    example = example("right")

    def reference(self: Any) -> Any:
        return self.x * np.float32(3)

    def element(self: Any, y: Tensor) -> Element:
        (i,) = indices("i", y.shape)
        return Element((i,), self.x[i] * 3.0)

    def pullback(self: Any, results: Any, cotangents: Any) -> Any:
        return [cotangents[0] * 3.0]

    def pushforward(self: Any, results: Any, tangents: Any) -> Any:
        return [tangents[0] * 3.0]

    def simplified(self: Any, definition: Any) -> Any:
        return None


@operator
class Square(Planted[T]):
    """x², whose pullback lacks a factor of 2."""

    x: T

    example = example("square")

    def reference(self: Any) -> Any:
        return self.x * self.x

    def element(self: Any, y: Tensor) -> Element:
        (i,) = indices("i", y.shape)
        return Element((i,), self.x[i] * self.x[i])

    def pullback(self: Any, results: Any, cotangents: Any) -> Any:
        return [cotangents[0] * self.x]


@operator
class Forward(Right[T]):
    """Three times x, whose pushforward has the wrong sign."""

    x: T

    example = example("forward")

    def pushforward(self: Any, results: Any, tangents: Any) -> Any:
        return [tangents[0] * -3.0]


@operator
class Halve(Planted[T]):
    """x / 2, of which two in a row are simplified to none."""

    x: T

    example = example("halve")

    def reference(self: Any) -> Any:
        return self.x / np.float32(2)

    def element(self: Any, y: Tensor) -> Element:
        (i,) = indices("i", y.shape)
        return Element((i,), self.x[i] * 0.5)

    def simplified(self: Any, definition: Any) -> Any:
        inner = definition(self.x)
        return inner.x if isinstance(inner, Halve) else None


@operator
class AddZero(Planted[T]):
    """x + 0, simplified to x, which is wrong for -0.0."""

    x: T

    example = example("add_zero")

    def reference(self: Any) -> Any:
        return self.x + np.float32(0)

    def element(self: Any, y: Tensor) -> Element:
        (i,) = indices("i", y.shape)
        return Element((i,), self.x[i] + 0.0)

    def simplified(self: Any, definition: Any) -> Any:
        return self.x


@operator
class Negate(Planted[T]):
    """-x, which a pattern replaces by |x|."""

    x: T

    example = example("negate")

    def reference(self: Any) -> Any:
        return -self.x

    def element(self: Any, y: Tensor) -> Element:
        (i,) = indices("i", y.shape)
        return Element((i,), -self.x[i])


@pattern()
def positive(op: Negate, b: Builder) -> Value:
    return b.theano.elemwise(op.x, scalar_op="abs_")


@operator
class Shift(Planted[T]):
    """The next element, also of the last one."""

    x: T

    example = example("shift")

    def reference(self: Any) -> Any:
        return np.roll(self.x, -1)

    def element(self: Any, y: Tensor) -> Element:
        (i,) = indices("i", y.shape)
        return Element((i,), self.x[i + 1])


@operator
class Far(Planted[T]):
    """An element far behind the last page of x."""

    x: T

    example = example("far")

    def element(self: Any, y: Tensor) -> Element:
        (i,) = indices("i", y.shape)
        return Element((i,), self.x[i * (1 << 40)])


class Two(Planted[T]):
    """An operator of two operands."""

    x: T
    z: T

    constraints = (C(1, "shape(x) = shape(z)", lambda o: o.x.shape == o.z.shape),)


@operator
class Take(Two[T]):
    """x[z], without a check of z."""

    x: T
    z: T

    example = example("take", "i64")

    def reference(self: Any) -> Any:
        return self.x[np.clip(self.z, 0, 4)]

    def element(self: Any, y: Tensor) -> Element:
        (i,) = indices("i", y.shape)
        return Element((i,), self.x[Cast(self.z[i], I64)])


@operator
class Divide(Two[T]):
    """x // z, whose formula takes a divisor of 0 for 1, and whose reference gives 0."""

    x: T
    z: T

    example = example("divide", "i32")

    def reference(self: Any) -> Any:
        return np.where(self.z == 0, 0, self.x // np.where(self.z == 0, 1, self.z))

    def element(self: Any, y: Tensor) -> Element:
        (i,) = indices("i", y.shape)
        return Element((i,), self.x[i] // self.z[i])


@operator
class WideFormula(Planted[T]):
    """A formula of another type."""

    x: T

    example = example("wide_formula")

    def element(self: Any, y: Tensor) -> Element:
        (i,) = indices("i", y.shape)
        return Element((i,), Cast(self.x[i], F64))


@operator
class WideReference(Planted[T]):
    """A reference of another type."""

    x: T

    example = example("wide_reference")

    def reference(self: Any) -> Any:
        return self.x.astype(np.float64)


@operator
class Failing(Planted[T]):
    """A pullback that raises."""

    x: T

    example = example("failing")

    def pullback(self: Any, results: Any, cotangents: Any) -> Any:
        return [cotangents[1]]
