"""Inline calls.

    %y = call @f(%x)  =>  the operations of @f with %x for its argument

Legal for every call: a verified module has no recursion, and types agree. Operations keep their
source locations.
"""

from dataclasses import replace

from ...dialect.builtin import Call, Calling
from ...dialect.ir.function import Function, Literal, Operation, Value
from ...dialect.ir.module import Module
from ...dialect.ir.verify import verify
from ..pass_context import Context
from ..passes import graph_pass


@graph_pass
def inline(function: Function, context: Context) -> Function:
    """The function with calls replaced by operations, types inferred again for the sizes of each
    call, and operators without formulas by their lowerings.
    """
    return (
        _expanded(function, context)
        if any(o.operator.is_expanded for o in function.operations)
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

    def change(v: Value) -> Value:
        return values.get(v, v)

    operations: list[Operation] = []
    for operation in function.operations:
        if isinstance(call := operation.operator, Call):
            callee = _expand(module, module.functions[call.callee])
            inner: dict[Value, Value] = dict(
                zip(callee.arguments, map(change, call.arguments), strict=True)
            )
            for o in callee.operations:
                results = tuple(Value(f"{call.callee}.{r.name}", r.type, r.span) for r in o.results)
                inner.update(zip(o.results, results, strict=True))
                operator = o.operator.map(
                    lambda v, inner=inner: v if isinstance(v, Literal) else inner[v]
                )
                operations.append(replace(o, operator=operator, results=results, declared=None))
            for mine, theirs in zip(operation.results, callee.results, strict=True):
                values[mine] = theirs if isinstance(theirs, Literal) else inner[theirs]
        else:
            operations.append(replace(operation, operator=operation.operator.map(change)))
    return replace(
        function, operations=tuple(operations), results=tuple(map(change, function.results))
    )


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
            if isinstance(operator, Calling) and not operator.is_derivative:
                callee = module.functions[operator.callee]
                functions += [callee] if all(callee is not g for g in functions) else []
    return functions
