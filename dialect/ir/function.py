"""Functions: operations over SSA values, built by the parser or in Python."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from ..support.diagnostics import NOWHERE, Span
from ..types.cast_arrays import converted
from ..types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    from ..spec.operator import Operator


class Value:
    """An SSA value, compared by identity: an argument or an operation's result. `type` is None
    until verified.
    """

    __slots__ = ("attributes", "name", "span", "type")

    def __init__(
        self,
        name: str,
        type: Type | None,
        span: Span = NOWHERE,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.type = type
        self.span = span
        self.attributes = attributes or {}

    @property
    def known_type(self) -> Type:
        assert self.type is not None, f"%{self.name} has not been verified"
        return self.type

    @property
    def range(self) -> tuple[Any, Any] | None:  # declared of an argument, or of its element type
        return self.attributes.get("range", self.known_type.element.range)

    def __repr__(self) -> str:
        return f"%{self.name}"


class Literal(Value):
    """A literal operand; its type is decided by the dialect or by `: type`."""

    __slots__ = ("explicit", "value")

    def __init__(
        self, value: Any, type: TensorType, span: Span = NOWHERE, explicit: bool = False
    ) -> None:
        super().__init__(str(value), type, span)
        self.value = value
        self.explicit = explicit

    @property
    def array(self) -> np.ndarray:
        """The literal as a rank 0 array of its type."""
        assert isinstance(self.type, Type)
        with np.errstate(all="ignore"):
            return converted(np.array(self.value), self.type.element)


def unique_name(name: str, used: dict[str, int], mark: str) -> str:
    """The name itself, or with a number after the mark; `used` maps each name to its last
    number.
    """
    unique = name
    n = used.get(name, 0)
    while unique in used:
        n += 1
        unique = f"{name}{mark}{n}"
    used[name] = n
    used.setdefault(unique, 0)
    return unique


@dataclass(frozen=True, eq=False)
class Operation:
    """An operator applied to values. `declared` are the result types in the text,
    `declared_operands` those of operands.

    `spans` maps "op", attribute names and operand names (as `Operator.operands` names them) to
    source locations.
    """

    operator: "Operator[Value]"
    results: tuple[Value, ...]
    span: Span = NOWHERE
    declared: tuple[Type, ...] | None = None
    spans: dict[str, Span] = field(default_factory=dict)
    declared_operands: tuple[Type, ...] | None = None

    def at(self, name: str | None) -> Span:
        """The source location of a part of the operation; that of the operator if the part was not
        written.
        """
        return self.spans.get(name or "op") or self.spans.get("op") or self.span

    def acts(self, effects: Container[str]) -> bool:
        """Test whether the operation has an effect, or calls one of these functions."""
        return self.operator.has_effect or any(name in effects for _, name in self.operator.callees)


@dataclass(frozen=True, eq=False)
class Function:
    """`func @name(arguments) -> declared { operations; return results }`.

    The body of a region is a function, too: `captured` is the number of its last arguments that
    stand for values around the region, and None of any other function.
    """

    name: str
    arguments: tuple[Value, ...]
    operations: tuple[Operation, ...]
    results: tuple[Value, ...]
    declared: tuple[Type, ...] | None = None
    span: Span = NOWHERE
    return_spans: tuple[Span, ...] = ()
    captured: int | None = None

    is_graph: ClassVar[bool] = False

    @property
    def argument_types(self) -> tuple[Type, ...]:
        return tuple(a.known_type for a in self.arguments)

    @property
    def result_types(self) -> tuple[Type, ...]:
        return tuple(r.known_type for r in self.results)

    def values(self) -> Iterator[Value]:
        yield from self.arguments
        for operation in self.operations:
            yield from operation.results


class Graph(Function):
    """`graph @name { operations }`: a clocked program of state and its update per tick, without
    arguments and results.
    """

    is_graph = True


def with_shared(
    functions: Sequence[Function], captured: Sequence[Mapping[Value, Value]]
) -> tuple[list[Function], list[Value]]:
    """The functions with the same last arguments: one for each value around them that one of them
    captures, of which `captured` has the argument; and these values.
    """
    values = list(dict.fromkeys(v for own in captured for v in own))
    found: list[Function] = []
    for function, own in zip(functions, captured, strict=True):
        inside = {*own.values()}
        taken = [own.get(v) or Value(v.name, v.type, v.span) for v in values]
        arguments = [a for a in function.arguments if a not in inside]
        found.append(replace(function, arguments=(*arguments, *taken)))
    return found, values


@dataclass(frozen=True, eq=False)
class Rewrite:
    """A pair of programs with arguments of the same types: the second may stand for the first."""

    name: str
    before: Function
    after: Function
    span: Span = NOWHERE


class Functions(Protocol):
    """A mapping of functions by name, as a module has it."""

    @property
    def functions(self) -> Mapping[str, Function]: ...
