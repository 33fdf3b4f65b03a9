"""Derivatives of functions: `theano.l_op`, `theano.r_op` and `theano.grad`, which a pass expands
into ordinary operations.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..builtin import Calling
from ..spec.broadcasting import all_of, same_shape
from ..spec.operator import C, T, operator
from ..types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    pass


def tangent_type(type: Any) -> TensorType:
    """The type of a tangent or cotangent: floats as they are, f64 of integers."""
    tangent = type.element.tangent
    return type if tangent in (None, type.element) else type.with_element(tangent)


def fits(seed: Type, value: Type) -> bool:
    """Test whether a seed has the shape of the value whose cotangent or tangent it is."""
    return same_shape(seed.array_shape, value.array_shape)


@dataclass(frozen=True, eq=False)
class Derivative(Calling[T]):
    """The family of derivatives of `callee` with respect to some of its arguments, all of them
    without `wrt`.
    """

    wrt: tuple[int, ...] | None = None

    is_derivative = True
    symbols = {
        "arguments": lambda o: len(o.signature[0]),
        "given": lambda o: len(o.seeds()),
        "wanted": lambda o: len(o.seeded()),
        "a_seed": lambda o: next(
            s for s, t in zip(o.seeds(), o.seeded(), strict=True) if not fits(s, t)
        ),
    }
    constraints: ClassVar[tuple[C, ...]] = (
        C(1, "wrt in [0, arguments), without repeating", lambda o: o.wrt_is_in_range(), at="wrt"),
        C(
            2,
            "given = wanted: as many seeds after the arguments",
            lambda o: len(o.seeds()) == len(o.seeded()),
        ),
        C(
            3,
            "a seed has the shape of its value, unlike a_seed",
            lambda o: all_of(
                (lambda s=s, t=t: fits(s, t)) for s, t in zip(o.seeds(), o.seeded(), strict=True)
            ),
        ),
        C(
            4,
            "a seed is complex only where its value is",
            lambda o: all(
                s.element.kind != "complex" or t.element.kind == "complex"
                for s, t in zip(o.seeds(), o.seeded(), strict=True)
            ),
        ),
    )

    def passed(self, count: int) -> tuple[T, ...]:
        return self.arguments[:count]

    def wrt_is_in_range(self) -> bool:
        wrt = self.positions()
        return all(0 <= n < len(self.signature[0]) for n in wrt) and len(set(wrt)) == len(wrt)

    def positions(self, count: int | None = None) -> tuple[int, ...]:
        """The arguments to differentiate by."""
        if self.wrt is not None:
            return self.wrt
        return tuple(range(len(self.signature[0]) if count is None else count))

    def seeds(self, count: int | None = None) -> tuple[Any, ...]:
        """The operands after those that are passed: cotangents or tangents."""
        return self.arguments[len(self.signature[0]) if count is None else count :]

    def seeded(self) -> tuple[Any, ...]:
        """The values whose cotangents or tangents are the seeds: results or arguments."""
        return self.signature[1]

    def by(self) -> tuple[Any, ...]:
        return tuple(self.signature[0][n] for n in self.positions())

    def infer(self) -> tuple[Type, ...]:
        return tuple(tangent_type(t) for t in self.by())


SQUARE = """
func @f(%x: tensor<3xf64>) -> tensor<3xf64> {{
  %y = theano.elemwise %x {{scalar_op = "sqr"}}
  return %y
}}

func @main(%x: tensor<3xf64>, %{seed}: tensor<3xf64>) -> tensor<3xf64> {{
  %{result} = "theano.{op}"(%x, %{seed}) {{callee = @f}}
  return %{result}
}}
"""


@operator
class LOp(Derivative[T]):
    """The cotangents of arguments of callee, from those of its results, which stand after the
    arguments: v ↦ v J.   (L_op)

    Cotangents of integers are f64; one that no result depends on gets zeros. The cotangent of a
    complex x + i y is dL/dx + i dL/dy.
    """

    name = "theano.l_op"

    example = SQUARE.format(seed="gy", result="gx", op="l_op")


@operator
class ROp(Derivative[T]):
    """The tangents of the results of callee, from those of its arguments, which stand after them: u
    ↦ J u.   (R_op)
    """

    name = "theano.r_op"

    example = SQUARE.format(seed="dx", result="dy", op="r_op")

    def seeded(self) -> tuple[Any, ...]:
        return self.by()

    def infer(self) -> tuple[Type, ...]:
        return tuple(tangent_type(t) for t in self.signature[1])


@operator
class Grad(Derivative[T]):
    """The gradient of callee, whose only result is a float of rank 0:  theano.grad @f(%x, %y)"""

    constraints = (
        *(c for c in Derivative.constraints if c.number < 3),  # it takes no seeds
        C(
            3,
            "callee has one result, a float of rank 0",
            lambda o: (
                len(o.signature[1]) == 1
                and not o.signature[1][0].array_shape
                and o.signature[1][0].element.kind == "float"
            ),
            at="callee",
        ),
    )
    example = """
        func @f(%x: tensor<3xf64>) -> tensor<f64> {
          %y = theano.elemwise %x {scalar_op = "sqr"}
          %s = theano.sum %y
          return %s
        }

        func @main(%x: tensor<3xf64>) -> tensor<3xf64> {
          %gx = theano.grad @f(%x)
          return %gx
        }
    """

    def seeded(self) -> tuple[Any, ...]:
        return ()
