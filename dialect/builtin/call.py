"""Calls: operators that name a function of the module."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from ..spec.operator import Operator, T, operator
from ..types.attributes import Symbol
from ..types.tensor_types import Type

if TYPE_CHECKING:
    from ..kernel_ir.loops import Steps


@dataclass(frozen=True, eq=False)
class Calling(Operator[T]):
    """The family of operators that call a function of the module with their first operands."""

    any_element = True
    arguments: tuple[T, ...]
    callee: Symbol

    is_derivative: ClassVar[bool] = False
    # the types of the arguments that are passed, and of the results of each callee
    signature: ClassVar[tuple[tuple[Any, ...], ...]] = ((), ())

    @property
    def callees(self) -> tuple[tuple[str, str], ...]:
        """The names of the functions that it calls, each with its field."""
        return tuple((f.name, v) for f, v in self.attributes() if f.annotation is Symbol)

    def with_signature(self, passed: Sequence[Type], *results: Sequence[Type]) -> Self:
        """Copy the operator with the argument types and each callee's result types, on which
        constraints and result types depend.
        """
        known = replace(self)
        object.__setattr__(known, "signature", (tuple(passed), *map(tuple, results)))
        return known

    @classmethod
    def implied(cls, operands: int, attributes: Mapping[str, object]) -> dict[str, Any]:
        """The attributes that may be left out beside a region, of an operation with this many
        operands before it.
        """
        return {}

    def passed(self, count: int) -> tuple[T, ...]:
        """The operands that are passed to a callee of `count` arguments."""
        return self.arguments

    def run(
        self, *callees: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    ) -> Sequence[np.ndarray]:
        """The results, of an operator over arrays; `callees` evaluate the functions, in the order
        of the fields that name them.
        """
        raise NotImplementedError(self.name)

    def steps(self) -> "Steps":
        """The loop over the callee that the operator is, of one that is neither expanded nor
        inlined nor a branch.
        """
        raise NotImplementedError(self.name)


@operator
class Call(Calling[T]):
    """A call of another function of the module: `call @f(%x)`. Expanded before lowering."""

    name = "call"
    is_expanded = True

    example = """
        func @twice(%x: tensor<?N x i32>) -> tensor<?N x i32> {
          %y = cvm.elemwise_add %x, %x
          return %y
        }

        func @main(%x: tensor<3xi32>) -> tensor<3xi32> {
          %y = call @twice(%x)
          return %y
        }
    """

    def infer(self: "Call[object]") -> tuple[Type, ...]:
        return self.signature[1]

    def run(
        self: "Call[Any]", *callees: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    ) -> Sequence[np.ndarray]:
        return callees[0](self.arguments)
