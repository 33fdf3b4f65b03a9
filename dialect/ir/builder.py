"""Build programs operation by operation, in graph passes and derivative rules.

A `Builder` records operations over typed values; a `Node` is one of its values with Theano's
elemwise arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ..builtin import Const, Data, View
from ..spec.broadcasting import may_repeat
from ..spec.operator import OPERATORS, NoRule, Operator
from ..support.diagnostics import NOWHERE, Span, counted
from ..support.suggest import did_you_mean
from ..types.attributes import conform
from ..types.literal_types import literal_type
from ..types.sizes import Shape, Size, same_size
from ..types.tensor_types import BY_DTYPE, ElementType, FieldType, TensorType, Type
from .function import Literal, Operation, Value
from .verify import type_operation


@dataclass
class Builder:
    """Operations in order. New ones are verified, and have the source location `span`."""

    operations: list[Operation] = field(default_factory=list)
    span: Span = NOWHERE
    prefix: str = "d"

    def add(
        self, operator: Operator[Value], span: Span | None = None, names: Sequence[str] = ()
    ) -> tuple[Value, ...]:
        """Record an operation and return its results."""
        where = span or self.span
        types = type_operation(Operation(operator, (), where, spans={"op": where}))
        given = names or [
            f"{self.prefix}{len(self.operations)}" + (f"_{n}" if n else "")
            for n in range(len(types))
        ]
        results = tuple(Value(n, t, where) for n, t in zip(given, types, strict=True))
        self.operations.append(Operation(operator, results, where, spans={"op": where}))
        return results

    def node(self, value: Value) -> Node:
        """The value with arithmetic; of a field, its array."""
        if isinstance(type := value.known_type, FieldType):
            (value,) = self.add(View(value, TensorType(type.array_shape, type.element)))
        return Node(self, value)

    def of_type(self, node: Node, type: Type) -> Node:
        """The node as a value of this type, which may be a field type."""
        return (
            Node(self, self.add(View(node.value, type))[0]) if isinstance(type, FieldType) else node
        )

    def apply(self, name: str, *operands: Node, **attributes: Any) -> Node:
        """An operator of one result, applied. Variadic operands are given one by one."""
        operator = OPERATORS[name]
        for value in attributes.values():
            if any(isinstance(n, Size) for n in (value if isinstance(value, tuple) else (value,))):
                raise NotImplementedError(
                    f"what goes back through {name} with sizes that are not known"
                )
        return self.node(self.add(applied(operator, [o.value for o in operands], attributes))[0])


def applied(
    operator: type[Operator[Any]], operands: Sequence[Value], attributes: Mapping[str, Any]
) -> Operator[Value]:
    """An operator over values, in the order of the text; ValueError where it takes other operands
    or attributes.
    """
    fields = [f for f in operator.fields if f.is_operand]
    least = sum(f.kind == "operand" for f in fields)
    most = None if any(f.kind == "variadic" for f in fields) else len(fields)
    if len(operands) < least or (most is not None and len(operands) > most):
        expected = counted(least, "operand") if least == most else f"{least} or more operands"
        raise ValueError(f"{operator.name}: expected {expected}, got {len(operands)}")
    given, made = list(operands), {}
    for f in fields:
        if f.kind == "variadic":
            count = len(operands) - least
            made[f.name], given = tuple(given[:count]), given[count:]
        elif given:
            made[f.name] = given.pop(0)
    annotations = {f.name: f.annotation for f in operator.fields if not f.is_operand}
    for name, value in attributes.items():
        if name not in annotations:
            known = did_you_mean(name, annotations)
            raise ValueError(f"{operator.name} has no attribute {name}{known}")
        try:
            made[name] = conform(value, annotations[name])
        except ValueError as e:
            raise ValueError(f"{operator.name}: {name}: {e}") from None
    if missing := [f.name for f in operator.fields if f.required and f.name not in made]:
        raise ValueError(f"{operator.name}: expected the attribute {missing[0]}")
    return operator(**made)


Operand: TypeAlias = "Node | int | float"


def _operator(name: str) -> Callable[[Any, Operand], Node]:
    return lambda self, other: self.scalar(name, other)


def _reflected(name: str) -> Callable[[Any, Operand], Node]:
    return lambda self, other: self.literal(other).scalar(name, self)


@dataclass(frozen=True, eq=False)
class Node:
    """A value of a program being built. Numbers beside it become literals: floats of its own type,
    where that is a float.
    """

    builder: Builder
    value: Value

    @property
    def array_type(self) -> TensorType:
        type = self.value.known_type
        assert isinstance(type, TensorType)
        return type

    @property
    def element(self) -> ElementType:
        return self.array_type.element

    @property
    def shape(self) -> Shape:
        return self.array_type.shape

    @property
    def rank(self) -> int:
        return self.array_type.rank

    def literal(self, number: Operand) -> Node:
        if isinstance(number, Node):
            return number
        own = isinstance(number, float) and self.element.kind == "float"
        type = TensorType((), self.element) if own else literal_type("theano", number)
        assert isinstance(type, TensorType)
        return Node(self.builder, Literal(number, type, self.builder.span, explicit=True))

    def constant(self, array: np.ndarray) -> Node:
        type = TensorType(array.shape, BY_DTYPE[array.dtype])
        return self.builder.node(self.builder.add(Const(Data(array), type))[0])

    def apply(self, name: str, *others: Node, **attributes: Any) -> Node:
        """An operator of one result with this as its first operand."""
        return self.builder.apply(name, self, *others, **attributes)

    def scalar(self, name: str, *others: Operand, **attributes: Any) -> Node:
        """A scalar operation of Theano with this as its first operand."""
        return self.apply(
            "theano.elemwise", *map(self.literal, others), scalar_op=name, **attributes
        )

    def switched(self, condition: Node) -> tuple[Node, Node]:
        """The node where the condition holds and 0 elsewhere, and the other way round."""
        return condition.scalar("switch", self, 0), condition.scalar("switch", 0, self)

    def cast(self, element: ElementType) -> Node:
        return self if element is self.element else self.scalar("cast", dtype=element)

    def into(self, element: ElementType) -> Node:
        """The node as a tangent of values of an element type: for real elements, the real part."""
        if self.element.kind == "complex" != element.kind:
            return self.scalar("real").cast(element)
        return self.cast(element)

    def like(self, other: Node) -> Node:
        """The node repeated to the shape of another node."""
        if self.array_type.key == other.array_type.with_element(self.element).key:
            return self
        return other.scalar("second", self)

    def dimshuffle(self, order: Sequence[int | str]) -> Node:
        if list(order) == list(range(self.rank)):
            return self
        return self.apply("theano.dimshuffle", new_order=tuple(order))

    def sum(self, axis: Sequence[int], **types: ElementType) -> Node:
        return self.apply("theano.sum", axis=tuple(axis), **types) if axis else self

    def reduce(self, name: str, axis: Sequence[int], **attributes: Any) -> Node:
        return self.apply(f"theano.{name}", axis=tuple(axis), **attributes)

    def with_ones(self, axis: Sequence[int]) -> Node:
        """The node with dimensions of size 1 inserted at these axes of the result."""
        kept = iter(range(self.rank))
        return self.dimshuffle(
            ["x" if j in axis else next(kept, self.rank) for j in range(self.rank + len(axis))]
        )

    def sum_to(self, operand: Node) -> Node:
        """The sum over the dimensions along which an operand, known to have size 1 there, was
        repeated to this shape.
        """
        padded = self.rank - operand.rank
        ones = (n + padded for n, m in enumerate(operand.shape) if same_size(m, 1))
        repeated = [n for n in ones if not same_size(self.shape[n], 1)]
        total = self.sum([*range(padded), *repeated], dtype=self.element, acc_dtype=self.element)
        return total.with_ones([n - padded for n in repeated])

    def stretched(self, whole: Node) -> Node:
        """The node repeated to the shape of another node, also where a size is found to be 1 at run
        time only.
        """
        return (
            self.apply("builtin.broadcast_like", whole)
            if may_repeat(self.shape, whole.shape)
            else self
        )

    def gathered(self, operand: Node) -> Node:
        """The sum over the dimensions along which an operand was stretched."""
        repeated = may_repeat(operand.shape, self.shape)
        return self.apply("builtin.sum_like", operand) if repeated else self.sum_to(operand)

    def gradient_of(self, name: str, operands: Sequence[Node], y: Node) -> Tangents:
        """The cotangents of a scalar operation's operands, where this node is its result's
        cotangent.
        """
        if not name:
            raise NotImplementedError  # the operator has no derivative
        operator: Any = OPERATORS["theano.elemwise"]
        found: Cotangents = operator(tuple(operands), scalar_op=name).op.pulled(self, operands, y)
        known = [d for d in found if not isinstance(d, NoRule)]
        if len(known) < len(found):
            raise NotImplementedError(f"theano.elemwise of {name}")
        return known

    __add__ = __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__ = __rmul__ = _operator("mul")
    __floordiv__ = _operator("floor_div")
    __truediv__, __rtruediv__ = _operator("true_div"), _reflected("true_div")

    def __neg__(self) -> Node:
        return self.scalar("neg")


Nodes: TypeAlias = Sequence[Node]
Tangents: TypeAlias = Sequence[Node | None]  # None is zero


Cotangents: TypeAlias = Sequence[Node | NoRule | None]
