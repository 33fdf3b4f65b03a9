"""Give a function a further result for each argument that it overwrites without returning the
elements.

    func @f(%x {inplace}) { %v = dimshuffle %x; %d = add %v in place; return %d }
      =>  ...; %x_after = dimshuffle %d; return %d, %x_after

The caller copies such a result into the argument's array and does not show it.
"""

from collections.abc import Sequence
from dataclasses import replace

from ..builtin import Call, View
from ..builtin.shape_like import ReshapeLike
from ..types.tensor_types import TensorType
from .builder import Builder
from .function import Function, Operation, Value
from .module import Module
from .verify_inplace import arguments_overwritten, results_stated

Place = tuple[
    Value, tuple[Operation, ...]
]  # an argument, and the views that lead from it to a value


def donate(function: Function, donated: Sequence[int]) -> Value | None:
    """Let a result of the same type overwrite each argument at these positions: one that is the
    argument with updates, or else the first one; the argument that no result is left for, or None.
    """
    made = {r: o for o in function.operations for r in o.results}

    def start(value: Value) -> Value:
        while value in made and (operands := made[value].operator.operands()):
            value = operands[0][1]
        return value

    starts = [start(r) for r in function.results]
    free = [n for n, r in enumerate(function.results) if r not in function.results[:n]]
    for updated in (True, False):
        for argument in (function.arguments[k] for k in donated):
            found = (
                n
                for n in free
                if function.results[n].type == argument.type
                and (starts[n] is argument or not updated)
            )
            if "inplace" in argument.attributes:
                continue
            if (n := next(found, None)) is not None:
                argument.attributes["inplace"] = n
                free.remove(n)
            elif not updated:
                return argument
    return None


def with_contents_returned(module: Module, function: Function) -> tuple[Function, dict[int, int]]:
    """The function with the further results last, and for each result that overwrites an argument
    the argument's position.
    """
    overwritten = arguments_overwritten(function)
    builder = Builder(list(function.operations), prefix="after")
    results = list(function.results)
    for argument, (value, views) in contents_after(module, function).items():
        if (k := function.arguments.index(argument)) not in overwritten.values():
            for view in reversed(views):
                value = _undone(builder, view, value)
            overwritten[len(results)] = k
            results.append(value)
    if len(results) == len(function.results):
        return function, overwritten
    return replace(
        function, operations=tuple(builder.operations), results=tuple(results), declared=None
    ), overwritten


def contents_after(
    module: Module, function: Function
) -> dict[Value, tuple[Value, tuple[Operation, ...]]]:
    """The value that each overwritten argument holds in the end, and the views of the argument that
    lead to its shape.
    """
    places: dict[Value, Place] = {
        a: (a, ()) for a in function.arguments if "inplace" in a.attributes
    }
    stated = results_stated(function).items()
    contents: dict[Value, tuple[Value, tuple[Operation, ...]]] = {
        function.arguments[k]: (function.results[n], ()) for k, n in stated
    }
    for operation in function.operations:
        for target, result in _stores(module, operation):
            if target in places:
                argument, views = places[result] = places[target]
                contents[argument] = result, views
        operator = operation.operator
        operands = operator.operands()
        if (
            (operator.view or operator.rearranges)
            and operands
            and (seen := operands[0][1]) in places
        ):
            argument, views = places[seen]
            places[operation.results[0]] = argument, (*views, operation)
    return contents


def _stores(module: Module, operation: Operation) -> list[tuple[Value, Value]]:
    """The operands that an operation overwrites, each with the result that is stored there."""
    if isinstance(operator := operation.operator, Call):
        callee = module.functions.get(operator.callee)
        stored = {} if callee is None else arguments_overwritten(callee)
        return [(operator.arguments[k], operation.results[n]) for n, k in stored.items()]
    return [(target, operation.results[0]) for target in operator.destroys()]


def _undone(builder: Builder, view: Operation, value: Value) -> Value:
    """The elements of a view in the places of its operand."""
    operand = view.operator.operands()[0][1]
    type = operand.known_type
    if (order := getattr(view.operator, "new_order", None)) is not None:
        back = {j: i for i, j in enumerate(order) if j != "x"}
        return (
            builder.node(value)
            .dimshuffle([back.get(j, "x") for j in range(len(type.array_shape))])
            .value
        )
    undo = ReshapeLike(value, operand) if isinstance(type, TensorType) else View(value, type)
    return builder.add(undo, view.span)[0]
