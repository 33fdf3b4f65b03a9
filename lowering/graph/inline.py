"""Inline calls, and branches whose condition is a constant or whose functions are cheap.

    %y = call @f(%x)                             =>  the operations of @f with %x for its argument
    %y = builtin.if @f(%c, %x) {otherwise = @g}  =>  those of both, and a select by %c

Legal for every call: a verified module has no recursion, and types agree. Operations keep their
source locations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from ...dialect.builtin import Call, Calling, Const
from ...dialect.builtin.control_flow import If
from ...dialect.ir.builder import applied
from ...dialect.ir.function import Function, Literal, Operation, Value
from ...dialect.ir.module import Module
from ...dialect.ir.verify import called, verify
from ...dialect.kernel_ir.expressions import Apply, Reduce
from ...dialect.kernel_ir.traverse import walk
from ...dialect.spec.operator import OPERATORS
from ..pass_context import Context
from ..passes import graph_pass
from .dce import may_fail, tensor


@graph_pass
def inline(function: Function, context: Context) -> Function:
    """The function with calls replaced by operations, types inferred again for the sizes of each
    call, and operators without formulas by their lowerings.
    """
    return (
        _expanded(function, context)
        if any(o.operator.is_expanded or isinstance(o.operator, If) for o in function.operations)
        else function
    )


def _expanded(function: Function, context: Context) -> Function:
    module = context.module
    expanded = _expand(module, function)
    callees = (
        module.functions
        if any(isinstance(o.operator, Calling) for o in expanded.operations)
        else {}
    )
    module = Module({**callees, function.name: expanded}, module.filename)
    from .convert import stated_by_others  # needed by functions with calls only

    return stated_by_others(verify(module).functions[function.name], context)


def _expand(module: Module, function: Function) -> Function:
    values: dict[Value, Value] = {}
    constants: dict[Value, Const[Value]] = {}

    def change(v: Value) -> Value:
        return values.get(v, v)

    operations: list[Operation] = []

    def add(name: str, arguments: Sequence[Value]) -> list[Value]:
        """Add the operations of a callee, and return its results."""
        callee = _expand(module, module.functions[name])
        inner: dict[Value, Value] = dict(zip(callee.arguments, arguments, strict=True))
        for o in callee.operations:
            results = tuple(Value(f"{name}.{r.name}", r.type, r.span) for r in o.results)
            inner.update(zip(o.results, results, strict=True))
            operator = o.operator.map(lambda v: v if isinstance(v, Literal) else inner[v])
            operations.append(replace(o, operator=operator, results=results, declared=None))
        return [r if isinstance(r, Literal) else inner[r] for r in callee.results]

    for operation in function.operations:
        operator = operation.operator.map(change)
        if isinstance(operator, Const):
            constants[operation.results[0]] = operator
        if isinstance(operator, Call):
            values.update(
                zip(operation.results, add(operator.callee, operator.arguments), strict=True)
            )
        elif isinstance(operator, If) and (known := _known(operator, constants)) is not None:
            taken = operator.callee if known else operator.otherwise
            values.update(zip(operation.results, add(taken, operator.arguments[1:]), strict=True))
        elif isinstance(operator, If) and is_cheap(module, operation):
            sides = [add(name, operator.arguments[1:]) for _, name in operator.callees]
            for result, *pair in zip(operation.results, *sides, strict=True):
                flag = operator.arguments[0]
                if rank := len(result.known_type.array_shape):
                    order = {"new_order": ("x",) * rank}
                    whole = applied(OPERATORS["theano.dimshuffle"], [flag], order)
                    flag = Value(f"{result.name}.if", None, operation.span)
                    operations.append(replace(operation, operator=whole, results=(flag,)))
                switch = {"scalar_op": "switch"}
                select = applied(OPERATORS["theano.elemwise"], [flag, *pair], switch)
                operations.append(replace(operation, operator=select, results=(result,)))
        else:
            operations.append(replace(operation, operator=operator))
    return replace(
        function, operations=tuple(operations), results=tuple(map(change, function.results))
    )


def _known(branch: If[Value], constants: Mapping[Value, Const[Value]]) -> bool | None:
    """The condition of a branch, if it is a constant."""
    condition = branch.arguments[0]
    if isinstance(condition, Literal):
        return bool(condition.value)
    found = constants.get(condition)
    return None if found is None else bool(found.data.array)


# the most operations for an element of both functions of a branch that are both computed; a branch
# fills and copies its results, which takes about as long as the arithmetic; tuned by hand (Zen 5)
MOST_SELECTED = 16


def is_cheap(module: Module, operation: Operation) -> bool:
    """Test whether both functions of a branch may be computed: a few formulas without reductions
    and checks, whose results have the same types.
    """
    callees = called(module, cast(Calling[Value], operation.operator))
    results = [[t.key for t in f.result_types] for f in callees]
    if results[0] != results[1] or any(
        t.element.kind == "declared" for f in callees for t in f.result_types
    ):
        return False
    total = 0
    for o in (o for f in callees for o in f.operations if not isinstance(o.operator, Const)):
        if o.operator.has_nest() or o.operator.has_effect or may_fail(o):
            return False
        value = o.operator.map(tensor).element(tensor(o.results[0])).value
        total += sum(isinstance(e, Apply) for e in walk(value))
        if total > MOST_SELECTED or any(isinstance(e, Reduce) for e in walk(value)):
            return False
    return True


def has_derivatives(module: Module, function: Function) -> bool:
    """Test whether the function, or one that it calls, takes a derivative."""
    return any(
        getattr(o.operator, "is_derivative", False)
        for f in reached(module, function)
        for o in f.operations
    )


def reached(module: Module, function: Function) -> list[Function]:
    """The function and those that it calls, or that these call; functions of which a derivative is
    taken are left out.
    """
    functions = [function]
    for f in functions:
        for operator in (o.operator for o in f.operations):
            if not getattr(operator, "is_derivative", False):
                callees = [module.functions[name] for _, name in operator.callees]
                functions += [f for f in callees if all(f is not g for g in functions)]
    return functions
