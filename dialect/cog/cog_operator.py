"""Common parts of the dialect's operators: fields as operands, the four kinds of compatibility, and
operand indices.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernel_ir.expressions import Element, Expr, Index, Tensor, apply, axes, constant
from ..spec.broadcasting import same_shape
from ..spec.operator import C, Operator, T
from ..types.tensor_types import C64, F32, FieldType, TensorType


class CogOperator(Operator[T]):
    """An operator on fields. Derivative rules use the arrays of fields, and return to fields
    through `field`.
    """

    if TYPE_CHECKING:

        @property
        def types(self) -> Mapping[str, FieldType]: ...

    def field(
        self: "CogOperator[object]", node: Any, shape: tuple[Any, ...], name: str = "x"
    ) -> Any:
        """An array as a field of this shape, of an operand's tensors."""
        return node.builder.of_type(node, FieldType(shape, self.types[name].tensor))

    def spread(self, name: str, y: Any) -> Any:
        """An operand of a pointwise operator with dimensions of size 1 where the result has more
        axes.
        """
        operand = getattr(self, name)
        own = self.types[name]
        grid = max(t.rank for t in self.types.values())
        tensor = y.rank - grid
        points = range(own.rank) if own.rank else ["x"] * grid
        return operand.dimshuffle(
            [*points, *(range(own.rank, operand.rank) if own.tensor.rank else ["x"] * tensor)]
        )

    def gathered(self, name: str, d: Any) -> Any:
        """The cotangent of a pointwise operator's operand: summed over the axes it lacks."""
        own = self.types[name]
        grid = max(t.rank for t in self.types.values())
        over = [
            *(range(grid) if not own.rank else ()),
            *(range(grid, d.rank) if not own.tensor.rank else ()),
        ]
        return d.sum(over, dtype=d.element)

    def grid(self, name: str) -> int:
        """The number of axes of an operand's array that are the field's; the others are the
        tensors'.
        """
        return self.types[name].rank


def fields(*names: str) -> C:
    """Constraint 0 of every operator: its operands are fields."""
    listed = ", ".join(f"type({n})" for n in names)
    text = (
        f"{listed}: a field of f32 or complex<f32>, of at most 3 dimensions, of tensors of "
        "order at most 2"
    )
    return C(0, text, lambda o: all(is_field(t) for _, t in o.operands()))


def is_field(t: object) -> bool:
    return (
        isinstance(t, FieldType) and t.element in (F32, C64) and t.rank <= 3 and t.tensor.rank <= 2
    )


def real(number: int, *names: str) -> C:
    listed = ", ".join(f"type({n})" for n in names)
    return C(
        number,
        f"{listed}: of real numbers",
        lambda o: all(getattr(o, n).element is F32 for n in names),
    )


def scalar_field(number: int, *names: str) -> C:
    listed = ", ".join(f"type({n})" for n in names)
    return C(
        number,
        f"{listed}: a scalar field",
        lambda o: all(getattr(o, n).tensor.rank == 0 for n in names),
    )


def compatible(a: FieldType, b: FieldType) -> bool:
    """The specification's four conditions, element types left out: they are made equal first."""
    same_tensor = a.tensor.shape == b.tensor.shape
    if (same_tensor and 0 in (a.rank, b.rank)) or any(
        f.rank == 0 and f.tensor.rank == 0 for f in (a, b)
    ):
        return True
    return (same_tensor or a.tensor.rank == 0 or b.tensor.rank == 0) and same_shape(
        a.shape, b.shape
    )


COMPATIBLE = C(
    1,
    "type(a) and type(b) are equal, or their tensors are and one field is 0-dimensional, "
    "or their field shapes are and one is a scalar field, or one is a 0-dimensional scalar field",
    lambda o: compatible(o.a, o.b),
)


def joined(a: FieldType, b: FieldType) -> FieldType:
    """The result type of two compatible fields: complex if one of them is."""
    element = C64 if C64 in (a.element, b.element) else F32
    return FieldType(a.shape or b.shape, TensorType(a.tensor.shape or b.tensor.shape, element))


def result_axes(y: Tensor, grid: int) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
    """The result's indices: the field's, and the tensor's."""
    at = axes(y.shape)
    return at[:grid], at[grid:]


def read(op: CogOperator[Any], name: str, grid: tuple[Expr, ...], tensor: tuple[Expr, ...]) -> Expr:
    """An operand at a point of the result's field and a place in its tensors; axes that it lacks
    are skipped.
    """
    operand: Tensor = getattr(op, name)
    own = op.grid(name)
    return operand[(*(grid if own else ()), *(tensor if operand.rank > own else ()))]


def spread(op: CogOperator[Any], name: str, grid: int, tensor: int) -> np.ndarray:
    """An operand's array with axes of length 1 where the result has axes that it lacks."""
    array: np.ndarray = getattr(op, name)
    own = op.grid(name)
    return array.reshape(
        (*(array.shape[:own] or (1,) * grid), *(array.shape[own:] or (1,) * tensor))
    )


def spread_both(op: Any) -> tuple[np.ndarray, np.ndarray]:
    """The arrays of the operands a and b, as NumPy broadcasts them to the result."""
    grid = max(op.grid("a"), op.grid("b"))
    tensor = max(op.a.ndim - op.grid("a"), op.b.ndim - op.grid("b"))
    return spread(op, "a", grid, tensor), spread(op, "b", grid, tensor)


def pointwise(op: Any, y: Tensor, value: Callable[[Expr, Expr], Expr]) -> Element:
    """The formula  y[p, t] = value(a[p, t], b[p, t])  of a binary operator."""
    grid, tensor = result_axes(y, max(op.grid("a"), op.grid("b")))
    return Element(
        (*grid, *tensor), value(read(op, "a", grid, tensor), read(op, "b", grid, tensor))
    )


# Complex numbers through their parts


def parts(z: Expr) -> tuple[Expr, Expr]:
    """The real and the imaginary part; of a real number, itself and zero."""
    return (z, constant(0, F32)) if z.type is F32 else (apply("real", z), apply("imag", z))


def pair(re: Expr, im: Expr) -> Expr:
    return apply("complex", re, im)
