"""Theano's reductions whose accumulator and result have types of their own."""

from dataclasses import dataclass, field
from typing import Any

from ..spec.operator import C, T, declare, operator
from ..types.tensor_types import BF16, C64, C128, F16, F32, F64, I64, UI64, ElementType
from .reduce import BY_ATTRIBUTE, MUL_WITHOUT_ZEROS, NONEMPTY, REDUCIBLE, Reduction, is_reducible
from .type_rules import upcast


def default_dtype(element: ElementType) -> ElementType:
    """The result's type: integers of 64 bits of integers, floats and complex numbers as they
    are.
    """
    if element.kind in ("bool", "int"):
        return I64
    if element.kind == "uint":
        return UI64
    return element


def keeps_precision(element: ElementType, accumulator: ElementType) -> bool:
    """Test whether no precision is lost; by definition a float or complex accumulator of integers
    loses none.
    """
    return (element.is_discrete and not accumulator.is_discrete) or upcast(
        element, accumulator
    ) is accumulator


@dataclass(frozen=True, eq=False)
class TypedReduction(Reduction[T]):
    """The family of reductions in `acc_dtype` whose result is of `dtype`.

    By default the result of integers has 64 bits, and the accumulator of floats is f64 (f32 of f16
    and bf16).
    """

    dtype: ElementType | None = None
    acc_dtype: ElementType | None = None

    constraints = (
        *Reduction.constraints,
        C(
            6,
            "accumulator loses no precision of element(x)",
            lambda o: keeps_precision(o.x.element, o.accumulator()),
            at="acc_dtype",
        ),
    )

    def accumulator(self: "TypedReduction[Any]") -> ElementType:
        element = self.x.element
        return self.acc_dtype or {F16: F32, BF16: F32, F32: F64, C64: C128}.get(
            element, default_dtype(element)
        )

    def result(self: "TypedReduction[Any]") -> ElementType:
        return self.dtype or default_dtype(self.x.element)


@operator
class CareduceDtype(TypedReduction[T]):
    """A reduction by `scalar_op`, in types of its own.   (CAReduceDtype)"""

    scalar_op: str = field(kw_only=True)

    constraints = (
        REDUCIBLE,
        *TypedReduction.constraints,
        C(
            5,
            "accumulator can be reduced by scalar_op",
            lambda o: is_reducible(o.scalar_op, o.accumulator()),
        ),
        NONEMPTY,
    )
    example = '%x {scalar_op = "add", axis = [1], dtype = f32}', "%x: 2x3xi8", "2xf32"

    function = BY_ATTRIBUTE


@operator
class Prod(TypedReduction[T]):
    """The product of the elements; of none, 1.   (Prod)

    `no_zeros_in_input` says that no element is 0, which makes the derivative simpler.
    """

    no_zeros_in_input: bool = False

    function = "mul"
    example = "%x {axis = [1]}", "%x: 2x3xi8", "2xi64"


declare(
    "Sum",
    TypedReduction,
    "The sum of the elements; of none, 0.   (Sum)",
    function="add",
    example=("%x {axis = [1]}", "%x: 2x3xf32", "2xf32"),
)
declare(
    "ProdWithoutZeros",
    TypedReduction,
    "The product of the elements that are not 0; 0 where there is none.   (ProdWithoutZeros)",
    function=MUL_WITHOUT_ZEROS,
    example=("%x", "%x: 2x3xf32", "f32"),
)
