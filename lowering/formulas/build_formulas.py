"""Lower a verified function to formulas: index notation that defines every element of each result.

    %y = cvm.dense %x, %w  =>  y[i, j] = sum over k of x[i, k] * w[j, k]

An operation with a hand-written nest stays a list of statements; constants become data; an operator
that keeps the row-major order of its operand's elements becomes a view, which shares its storage.
TVM: compute definitions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np

from ...dialect.builtin import Calling, Const, Data
from ...dialect.builtin.control_flow import If
from ...dialect.ir.function import Function, Literal, Operation, Value, unique_name
from ...dialect.ir.module import Module
from ...dialect.ir.verify import called
from ...dialect.kernel_ir.expressions import (
    Check,
    Const as Number,
    Expr,
    Index,
    Read,
    Tensor,
    apply,
    axes,
    constant,
)
from ...dialect.kernel_ir.formulas import Formula, Formulas, LoopNest, Nest, Step, View
from ...dialect.kernel_ir.loops import (
    Assert,
    Fail,
    Steps,
    is_aligned,
    located,
    map_expressions,
    nodes,
    statements,
)
from ...dialect.kernel_ir.traverse import children, walk
from ...dialect.spec.operator import OURS
from ...dialect.support.diagnostics import Diagnostic, Span, TargetError
from ...dialect.support.limits import LIMITS, excess
from ...dialect.types.tensor_types import I1, TensorType
from ...dialect.types.unify import with_sizes
from ..analysis.equal_sizes import equal_sizes
from ..math import in_primitives
from ..pass_context import Context
from ..passes import declare
from .propagate_constants import propagate_constants

GraphPass: TypeAlias = Callable[[Function, Context], Function | None]
Verifier: TypeAlias = Callable[[Formula | Nest, Any], Formula | Nest]


@declare("formulas", Function)
def build_formulas(
    function: Function,
    context: Context,
    body: Sequence[GraphPass] = (),
    slices: Steps | None = None,
    verified: Verifier = lambda step, _: step,
) -> Formulas:
    """The formulas of a function; `body` are passes for the bodies of its loops, `slices` the steps
    if it is one. Formulas and nests of other packages' operators are `verified`.
    """
    equal = {} if all(a.known_type.is_static for a in function.arguments) else equal_sizes(function)
    tensors: dict[Value, Tensor] = {}
    constants: dict[Tensor, np.ndarray] = {}
    used: dict[str, int] = {}
    sliced = () if slices is None else slices.sliced(function.arguments, function.results)

    def tensor(value: Value, space: str) -> Tensor:
        type = with_sizes(value.known_type, equal)
        space = (
            "slice"
            if value in sliced and not is_aligned(type.array_shape, type.element.storage)
            else space
        )
        tensors[value] = Tensor(
            unique_name(value.name, used, "."), type.array_shape, type.element.storage, space
        )
        return tensors[value]

    def operand(value: Value) -> Tensor:
        if value not in tensors:
            assert isinstance(value, Literal)
            constants[tensor(value, "constant")] = value.array
        return tensors[value]

    def checked(step: Formula | Nest, operation: Operation) -> Formula | Nest:
        ours = type(operation.operator).__module__.startswith(OURS)
        if ours and not operation.operator.is_given:
            return step
        return verified(step, operation.operator)

    arguments = tuple(tensor(a, "argument") for a in function.arguments)
    steps: list[Step] = []
    for operation in function.operations:
        if isinstance(operation.operator, Const):
            constants[tensor(operation.results[0], "constant")] = operation.operator.data.array
            continue
        typed = operation.operator.map(operand)
        results = tuple(tensor(r, "heap") for r in operation.results)
        operands = tuple(t for _, t in typed.operands())
        if isinstance(typed, Calling):  # calls are inlined and derivatives expanded by now
            is_branch = isinstance(typed, If)
            program = partial(_body, function.name, context.module, body, verified, is_branch)
            callees = called(context.module, cast(Any, operation.operator))
            if is_branch:
                steps += _branches(results, typed, callees, operation.span, program)
            else:
                loop = LoopNest(results, operands, (), operation.span)
                trips = typed.steps()
                steps.append(replace(loop, program=program(callees[0], trips), steps=trips))
        elif typed.has_nest():
            nest = located(map_expressions(typed.nest(*results), in_primitives), operation.span)
            read = {
                e.tensor for e in nodes(nest) if isinstance(e, Read)
            }  # only the shape of others is used
            read_operands = tuple(t for t in operands if t in read)
            steps.append(checked(Nest(results, read_operands, nest, operation.span), operation))
        else:
            element = typed.element(results[0])
            value = propagate_constants(element.value, constants, operation.span)
            formula = Formula(results[0], element.indices, value, operation.span)
            steps.append(
                View(results[0], operands[0], formula)
                if typed.view
                else checked(formula, operation)
            )
    results = tuple(operand(r) for r in function.results)
    requirements = tuple(r for s in steps for r in requirements_of(s))
    if (size := sum(array.nbytes for array in constants.values())) > LIMITS.get().constant_bytes:
        raise TargetError(
            Diagnostic(excess("constant_bytes", size), function.span, "limit.constant_bytes")
        )
    return Formulas(
        function.name, arguments, results, constants, tuple(steps), requirements, slices=slices
    )


def _body(
    caller: str,
    module: Module,
    body: Sequence[GraphPass],
    verified: Verifier,
    is_branch: bool,
    callee: Function,
    steps: Steps,
) -> Formulas:
    """The formulas of the function that a loop of the caller steps over, or of a branch."""
    context = Context(module)
    for change in body:
        callee = change(callee, context) or callee
    if is_branch:
        callee = _once(callee)
    own = callee.name.removeprefix(f"{caller}.")  # the name of a region's body begins with it
    named = replace(callee, name=f"{caller}.{own}")
    return build_formulas(named, context, body, steps, verified)


def _branches(
    results: tuple[Tensor, ...],
    branch: If[Tensor],
    callees: Sequence[Function],
    span: Span,
    program: Callable[[Function, Steps], Formulas],
) -> Iterator[Step]:
    """A branch as two loops of one step or none: while the condition holds, and while it does not.

    y = if c { f(k) } else { g(k) }  =>  u = 0; t = while c, u { f(k) }; y = while not c, t { g(k) }
    """
    condition, *rest = branch.arguments
    opposite = replace(condition, name=f"{condition.name}.not", space="heap")
    steps, holds, before = Steps(len(results)), condition, _named(results, "unset")
    for t in before:
        yield Formula(t, axes(t.shape), constant(0, t.element), span)
    for callee, after in zip(callees, (_named(results, "then"), results), strict=True):
        operands = (holds, *before, *rest)
        yield LoopNest(after, operands, (), span, program(callee, steps), steps)
        if after is not results:
            yield Formula(opposite, (), apply("not", condition[()]), span)
        holds, before = opposite, after


def _named(tensors: Sequence[Tensor], word: str) -> tuple[Tensor, ...]:
    return tuple(replace(t, name=f"{t.name}.{word}") for t in tensors)


def _once(callee: Function) -> Function:
    """A function as the step of a loop that has no other: of which the results of the step before
    are the first arguments, and false the first result.
    """
    again = Value("again", TensorType((), I1), callee.span)
    stop = Operation(Const(Data(np.array(False)), again.known_type), (again,), callee.span)
    carried = tuple(Value(f"{r.name}.before", r.known_type, r.span) for r in callee.results)
    return replace(
        callee,
        arguments=(*carried, *callee.arguments),
        operations=(*callee.operations, stop),
        results=(again, *callee.results),
    )


def requirements_of(step: Step) -> Sequence[tuple[str, Span]]:
    """The message of each check of a step, with its place."""
    match step:
        case LoopNest():
            return step.program.requirements
        case Formula():
            return [(e.message, e.span) for e in walk(step.value) if isinstance(e, Check)]
        case Nest(body=body):
            return [(s.message, s.span) for s in statements(body) if isinstance(s, (Assert, Fail))]
    return ()


def reads(value: Expr) -> set[Tensor]:
    return {e.tensor for e in walk(value) if isinstance(e, Read)}


def cost(value: Expr, most: int | None = None) -> int:
    """The operations of a formula per element, without index arithmetic, counted up to `most`."""
    seen: set[Expr] = set()
    stack = [value]
    count = 0
    while stack and (most is None or count <= most):
        if (e := stack.pop()) not in seen and not isinstance(e, Read):
            seen.add(e)
            count += not isinstance(e, (Number, Index))
            stack += children(e)
    return count
