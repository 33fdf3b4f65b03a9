"""Split a clocked program into functions of its state (Mealy machine: transition and output).

    graph { state, operations, feedback }
    =>  advance: state -> next state,  observe: state -> probes

All feedback is applied at once: every next state is a function of the current ones. Probes are
functions of the state, computed when they are read.
"""

from dataclasses import dataclass

import numpy as np

from ...dialect.cog.clocked import Actuator, Feedback, Field, Probe, Sensor, initial_value
from ...dialect.cog.slice_shift_stack import Subfield
from ...dialect.ir.builder import Builder
from ...dialect.ir.function import Function, Graph, Operation, Value
from ...dialect.ir.module import Module
from ...dialect.ir.verify import verify
from ...dialect.types.tensor_types import FieldType


@dataclass(frozen=True, eq=False)
class State:
    """A state variable; constants and sensors have no `driver`; the caller may replace a `writable`
    one.
    """

    name: str
    value: Value
    initial: np.ndarray
    driver: Value | None
    writable: bool


@dataclass(frozen=True, eq=False)
class StepAndObserve:
    """A clocked program as two functions over the values of all its states, in order."""

    states: tuple[State, ...]
    advance: Function
    observe: Function
    probes: tuple[str, ...]

    @property
    def moving(self) -> tuple[State, ...]:
        """The states that a tick changes: the results of `advance`, in order."""
        return tuple(s for s in self.states if s.driver is not None)


def split_step_and_observe(module: Module, graph: Graph) -> StepAndObserve:
    """The functions of a verified clocked program."""
    drivers = {
        o.operator.target: o.operator.driver
        for o in graph.operations
        if isinstance(o.operator, Feedback)
    }
    states: list[State] = []
    probes: list[tuple[str, Value]] = []
    computed: list[Operation] = []
    for operation in graph.operations:
        match operation.operator:
            case Field(label=label, initial=initial, type=type):
                value = operation.results[0]
                states.append(
                    State(label, value, initial_value(initial, type), drivers.get(value), True)
                )
            case Sensor(label=label, type=type):
                states.append(
                    State(label, operation.results[0], initial_value(None, type), None, True)
                )
            case Actuator(label=label, x=x, initial=initial):
                value = Value(label, x.known_type, operation.span)
                states.append(State(label, value, initial_value(initial, x.known_type), x, False))
            case Probe(label=label, x=x):
                probes.append((label, x))
            case Feedback():
                pass
            case _:
                computed.append(operation)
    trims = Builder()
    next_values = [_trimmed(trims, s, s.driver) for s in states if s.driver is not None]

    def function(does: str, operations: list[Operation], results: list[Value]) -> Function:
        """A verified function of the states, under a name that no function of the module has."""
        name = f"{graph.name}.{does}"
        while name in module.functions:
            name += "_"
        new = Function(
            name, tuple(s.value for s in states), tuple(operations), tuple(results), span=graph.span
        )
        functions = {name: f for name, f in module.functions.items() if not isinstance(f, Graph)}
        return verify(module.with_functions({**functions, name: new})).functions[name]

    advance = function("advance", [*computed, *trims.operations], next_values)
    observe = function("observe", computed, [v for _, v in probes])
    return StepAndObserve(tuple(states), advance, observe, tuple(n for n, _ in probes))


def _trimmed(builder: Builder, state: State, driver: Value) -> Value:
    """The driver, sliced at the origin to the state's field shape if it is larger."""
    type = state.value.known_type
    driven = driver.known_type
    assert isinstance(type, FieldType) and isinstance(driven, FieldType)
    if type.shape == driven.shape:
        return driver
    begin = (0,) * type.rank
    end = tuple(n for n in type.shape if isinstance(n, int))
    return builder.add(Subfield(driver, begin, end), driver.span, [f"{state.name}.trimmed"])[0]
