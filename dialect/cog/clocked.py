"""Operations of clocked programs: state, inputs, outputs, and the feedback that updates state at
every tick.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..builtin import Elements
from ..ir.function import Function, Graph, Operation, Value
from ..spec.operator import C, Operator, T, operator
from ..support.diagnostics import Diagnostic, Note
from ..types.sizes import Undecided
from ..types.tensor_types import FieldType, Type
from .cog_operator import CogOperator, is_field


@dataclass(frozen=True)
class _Register:
    """The operation of each value of a clocked program, the first of each label and the first
    feedback of each field.
    """

    definers: dict[Value, Operator[Value]]
    labels: dict[str, Operation]
    feedbacks: dict[Value, Operation]


@lru_cache(maxsize=8)
def _register(function: Function) -> _Register:
    register = _Register({}, {}, {})
    for operation in function.operations:
        register.definers.update(dict.fromkeys(operation.results, operation.operator))
        if isinstance(operation.operator, Feedback):
            register.feedbacks.setdefault(operation.operator.target, operation)
        elif isinstance(operation.operator, Clocked):
            register.labels.setdefault(operation.operator.label, operation)
    return register


def _own_label(operation: Operation, function: Function) -> bool:
    """Test whether no earlier operation has the label, or one does and a probe gives it to the same
    value.
    """
    first = _register(function).labels[getattr(operation.operator, "label")]  # noqa: B009
    if operation is first:
        return True
    if not isinstance(operation.operator, Probe) or isinstance(first.operator, Actuator):
        return False
    return operation.operator.x in (
        (first.operator.x,) if isinstance(first.operator, Probe) else first.results
    )


IN_GRAPH = C(10, "the operation stands in a graph", lambda o, f: isinstance(f, Graph))
LABEL = C(11, "a name stands for one value or actuator of the graph", _own_label, at="label")
IS_FIELD = C(
    1,
    "type: a field of f32 or complex<f32> of known sizes, of at most 3 dimensions, of "
    "tensors of order at most 2",
    lambda o: is_field(o.type) and o.type.is_static,
    at="type",
)


def _fits(initial: Type, field: Type) -> bool:
    """Test whether an initial value has the field's type, or is the tensor that MLIR's generic form
    writes for it.
    """
    plain = not isinstance(initial, FieldType) and initial.element is field.element
    return initial.key == field.key or (plain and initial.array_shape == field.array_shape)


class Clocked(CogOperator[T]):
    """An operation of a clocked program. `label`, written in quotes, is its name in the compiled
    program.
    """

    if TYPE_CHECKING:  # fields of each of the operators
        type: Type

    label: Any

    placement = (IN_GRAPH, LABEL)
    labelled = True

    def infer(self) -> Type | tuple[()]:
        return self.type if self.results else ()

    def element(self: "Clocked[Any]", y: Any) -> Any:
        raise NotImplementedError("a clocked operation is state, not a formula")


@operator
class Field(Clocked[T]):
    """A constant field; with feedback, state that starts as it.   (ComputeGraph, fields)"""

    label: str
    type: Type
    initial: Elements | None = None

    constraints = (
        IS_FIELD,
        C(
            2,
            "type: that of the initial value",
            lambda o: o.initial is None or _fits(o.initial.type, o.type),
            at="initial",
        ),
    )
    example = """
graph @main {
  %n = cog.field "n" init dense<0.0> : !cog.field<[], f32>
  %next = cog.add %n, 1
  cog.feedback %n, %next
  cog.probe "next" %next
}
"""


@operator
class Sensor(Clocked[T]):
    """An input field: zero until the caller writes it.   (ComputeGraph, sensors)"""

    label: str
    type: Type

    constraints = (IS_FIELD,)
    example = """
graph @main {
  %x = cog.sensor "x" : !cog.field<[4], f32>
  %sum = cog.field_reduce_sum %x
  cog.probe "sum" %sum
}
"""


@operator
class Feedback(Clocked[T]):
    """target <== driver: at every tick, together with all other feedback, the target takes what the
    driver had.

    A driver that is larger is trimmed at the origin.   (Field operators, feedback)
    """

    target: T
    driver: T

    labelled = False
    constraints = (
        C(
            2,
            "type(target) and type(driver) have as many dimensions",
            lambda o: o.target.rank == o.driver.rank,
        ),
        C(
            3,
            "type(target) and type(driver) have one tensor shape",
            lambda o: o.target.tensor.shape == o.driver.tensor.shape,
        ),
        C(
            4,
            "type(target) and type(driver) have one element type",
            lambda o: o.target.element is o.driver.element,
        ),
        C(
            5,
            "no size of type(target) is above that of type(driver)",
            lambda o: all(n <= m for n, m in zip(o.target.shape, o.driver.shape, strict=True)),
        ),
    )
    placement = (
        IN_GRAPH,
        C(
            1,
            "the target is a field that cog.field declares",
            lambda o, f: isinstance(_register(f).definers.get(o.operator.target), Field),
            at="target",
        ),
    )
    afterwards = (
        C(
            6,
            "a field has one feedback",
            lambda o, f: _register(f).feedbacks[o.operator.target] is o,
            at="target",
        ),
    )
    results = ()
    example = Field.example


@operator
class Probe(Clocked[T]):
    """A computed field that the caller may read by name.   (ComputeGraph, probes)"""

    label: str
    x: T

    constraints = (C(0, "type(x): a field", lambda o: isinstance(o.x, FieldType)),)
    results = ()
    example = Field.example


@operator
class Actuator(Clocked[T]):
    """An output, one tick late: zero, or its initial value, after a reset, and then what x was at
    the tick before.
    """

    label: str
    x: T
    initial: Elements | None = None

    constraints = (
        C(0, "type(x): a field", lambda o: isinstance(o.x, FieldType)),
        C(
            1,
            "type(x): that of the initial value",
            lambda o: o.initial is None or _fits(o.initial.type, o.x),
            at="initial",
        ),
    )
    results = ()
    example = """
graph @main {
  %n = cog.field "n" init dense<1.0> : !cog.field<[], f32>
  %twice = cog.mul %n, 2
  cog.feedback %n, %twice
  cog.actuator "out" %twice
}
"""


def initial_value(initial: Elements | None, type: Type) -> np.ndarray:
    """The value of a field, sensor or actuator after a reset."""
    value = np.zeros((), type.element.dtype) if initial is None else initial.data.array
    return np.broadcast_to(value, type.array_shape)  # type: ignore[arg-type]


def warnings(graph: Graph) -> list[Diagnostic]:
    """Warnings of a legal program: drivers that are trimmed."""
    diagnostics: list[Diagnostic] = []
    for operation in graph.operations:
        if isinstance(feedback := operation.operator, Feedback):
            target, driver = feedback.target.type, feedback.driver.type
            try:
                trims = (
                    isinstance(target, FieldType)
                    and isinstance(driver, FieldType)
                    and target.shape != driver.shape
                )
            except Undecided:
                trims = True
            if trims:
                ends = (("target", feedback.target), ("driver", feedback.driver))
                notes = tuple(Note(f"the {what} is {v.type}", v.span) for what, v in ends)
                message = "the driver is larger than its target and is trimmed at the origin"
                diagnostics.append(
                    Diagnostic(
                        message, operation.at("driver"), "cog.feedback.trimmed", notes, "warning"
                    )
                )
    return diagnostics
