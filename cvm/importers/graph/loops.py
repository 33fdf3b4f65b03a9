"""Loops and branches of the program over functions that are made of a model's bodies.

A body may read any value of the model: it becomes an operand shared by all steps, or a constant of
the function.
"""

from collections.abc import Callable, Sequence
from typing import Any

from cvm.dialect.builtin import Const, Data
from cvm.dialect.builtin.control_flow import If, Loop, Scan, While
from cvm.dialect.ir.builder import Node
from cvm.dialect.ir.function import Function, Literal, Operation, Value, with_shared
from cvm.dialect.types.attributes import Symbol
from cvm.dialect.types.sizes import Dim
from cvm.dialect.types.tensor_types import TensorType
from cvm.lowering.graph.dce import live_operations

from .importer import At, Importer
from .movement import at_step, stacked
from .rules import Known, Unsupported, known_size

Step = Callable[[list[Node]], Sequence[Any]]


def scan(
    to: Importer,
    name: str,
    carried: Sequence[Node],
    slices: Sequence[Node],
    step: Step,
    trips: int | None = None,
    reverse: bool = False,
) -> list[Node]:
    """`builtin.scan` of a step, from the carried values and a slice of each further one to its
    results.
    """
    types = [
        *(x.array_type for x in carried),
        *(x.array_type.with_shape(*x.shape[1:]) for x in slices),
    ]
    callee, captured = _function(to, name, types, step)
    operands = tuple(x.value for x in (*carried, *slices))
    loop = Scan(
        (*operands, *captured), Symbol(callee.name), len(carried), len(slices), trips, reverse
    )
    return _applied(to, loop, callee)


def iterated(
    at: At,
    carried: Sequence[Known],
    slices: Sequence[Node],
    step: Step,
    trips: Dim,
    reverse: bool = False,
) -> list[Node]:
    """The last carried values, and the stacked results of a step: by a loop of the program, or by a
    few steps unrolled.
    """
    if not isinstance(trips, int) or trips > at.importer.unrolled_steps:
        count = None if slices else known_size(trips, "a loop")
        return scan(
            at.importer, at.op.lower(), [at.node(c) for c in carried], slices, step, count, reverse
        )
    values, rows = [at.node(c) for c in carried], []
    for t in range(trips)[:: -1 if reverse else 1]:
        results = [at.node(v) for v in step([*values, *(at_step(at, x, 0, t) for x in slices)])]
        values, row = results[: len(values)], results[len(values) :]
        rows.append(row)
    return [
        *values,
        *(stacked(at, column[:: -1 if reverse else 1]) for column in zip(*rows, strict=True)),
    ]


def while_loop(
    to: Importer, name: str, condition: Node, carried: Sequence[Node], step: Step
) -> list[Node]:
    """`builtin.while` of a step, from the carried values to the next condition and carried
    values.
    """
    callee, captured = _function(to, name, [x.array_type for x in carried], step)
    operands = (condition.value, *(x.value for x in carried))
    return _applied(to, While((*operands, *captured), Symbol(callee.name), len(carried)), callee)


def branch(
    to: Importer, name: str, condition: Node, bodies: Sequence[Callable[[], Sequence[Any]]]
) -> list[Node]:
    """`builtin.if` of two bodies, of which only the one that is taken runs."""
    made = [_function(to, name, [], lambda _, body=body: body()) for body in bodies]
    functions, captured = with_shared(
        [f for f, _ in made],
        [dict(zip(values, f.arguments, strict=True)) for f, values in made],
    )
    to.bodies.update({f.name: f for f in functions})
    then, otherwise = functions
    operator = If((condition.value, *captured), Symbol(then.name), Symbol(otherwise.name))
    types = [f.result_types for f in functions]
    added = to.builder.add(operator.with_signature(then.argument_types, *types))
    return [to.builder.node(v) for v in added]


def _applied(to: Importer, loop: Loop[Value], callee: Function) -> list[Node]:
    return [
        to.builder.node(v)
        for v in to.builder.add(loop.with_signature(callee.argument_types, callee.result_types))
    ]


def _function(
    to: Importer, name: str, types: Sequence[TensorType], step: Step
) -> tuple[Function, list[Value]]:
    """A function of the program, and the values of the program that it takes after arguments of
    these types.
    """
    builder, outside, constants, refusals = (
        to.builder,
        to.builder.operations,
        to.constants,
        len(to.refusals),
    )
    arguments = [Value(f"a{n}", type) for n, type in enumerate(types)]
    builder.operations, to.constants = [], {}
    try:
        results = [to.node(v).value for v in step([builder.node(a) for a in arguments])]
        operations = live_operations(builder.operations, results)
    finally:
        builder.operations, to.constants = outside, constants
    if len(to.refusals) > refusals:
        raise Unsupported("its body")
    inside = {*arguments, *(r for o in operations for r in o.results)}
    read = dict.fromkeys(v for o in operations for _, v in o.operator.operands())
    free = [
        v
        for v in dict.fromkeys([*read, *results])
        if v not in inside and not isinstance(v, Literal)
    ]
    folded = [v for v in free if v in builder.constants]
    captured = [v for v in free if v not in builder.constants]
    copies = {v: Value(v.name, v.type) for v in captured}
    data = [Operation(Const(Data(builder.constants[v]), v.known_type), (v,)) for v in folded]
    body = (
        *data,
        *(
            Operation(o.operator.map(lambda v: copies.get(v, v)), o.results, o.span)
            for o in operations
        ),
    )
    final = tuple(copies.get(v, v) for v in results)
    number = sum(f.startswith(f"{name}_") for f in to.bodies)
    function = Function(f"{name}_{number}", (*arguments, *copies.values()), body, final)
    to.bodies[function.name] = function
    return function, captured
