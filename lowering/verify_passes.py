"""Verify the results of passes: definitions, types, signatures and kernels.

A mistake is a diagnostic at the operation or kernel at fault. It names the pass and its package,
and where the pass is declared. Computed values are not compared; `cvm diff` does that. MLIR's pass
manager verifies between passes, too.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..dialect.ir.function import Function, Literal, Value
from ..dialect.ir.verify import Verification, check_function
from ..dialect.ir.verify_inplace import check_destroyed
from ..dialect.kernel_ir.execution_plan import Kernels, Loop, Plan, viewed
from ..dialect.kernel_ir.expressions import Read, Tensor
from ..dialect.kernel_ir.formulas import Formula, Formulas, View
from ..dialect.kernel_ir.kernel_printer import statement_text
from ..dialect.kernel_ir.loops import Kernel, Statement
from ..dialect.kernel_ir.traverse import walk
from ..dialect.spec.foreign_operators import attributed, source_place, source_span
from ..dialect.support.diagnostics import NOWHERE, Diagnostic, Error, Note
from ..dialect.types.sizes import product, same_size
from ..dialect.types.tensor_types import Type
from .analysis.verify_kernel import LoweringError, check_kernel, races
from .analysis.written import FILLED, unwritten_in
from .clocked_plan import StepPlan
from .pass_context import Context
from .passes import Pass

Signature = tuple[object, tuple[Type | None, ...], tuple[Type | None, ...]]


def verified(step: Pass[..., object]) -> Pass[..., Any]:
    """The pass, whose result is verified after each run; Error if it is illegal or the pass
    fails.
    """

    def run(item: Any, context: Context) -> Any:
        before = _signature(item)  # of now: types are attributes of values, which a pass may change
        try:
            result = step.run(item, context)
        except Error as e:
            if step.package == "cvm":
                raise
            raise type(e)([_named(step, d) for d in e.diagnostics]) from e
        try:
            mistakes = [*_mistakes(step, item, before, item if result is None else result, context)]
        except Error as e:  # of an operator that the pass makes
            mistakes = [*e.diagnostics]
        except Exception as e:
            said = f"its result cannot be verified: {type(e).__name__}: {e}"
            mistakes = [Diagnostic(said, getattr(item, "span", NOWHERE), "pass.form")]
        if mistakes:
            raise Error([_named(step, d) for d in mistakes])
        return result

    return replace(step, run=run)


def _named(step: Pass[..., object], mistake: Diagnostic) -> Diagnostic:
    """The mistake with the name of the pass, its package, and the place where it is declared."""
    place = source_span(*source_place(step.function))
    return attributed(mistake, f"pass {step.name} of {step.package}", place)


def _signature(item: object) -> Signature | None:
    if not isinstance(item, Function):
        return None
    return item.name, tuple(a.type for a in item.arguments), tuple(r.type for r in item.results)


def _mistakes(
    step: Pass[..., object], item: Any, before: Signature | None, after: Any, context: Context
) -> Iterator[Diagnostic]:
    match after:
        case Function():
            found = [*undefined(after, context)] or [*_mistyped(after, context)]
            if not found and before is not None and not step.changes_signature:
                found = [*_changed_signature(item, before, after)]
            yield from found
        case Formulas():
            yield from _undefined_arrays(after)
        case Loop() | Plan() | StepPlan():
            plan = after.plan if isinstance(after, Loop) else after
            for kernel in (k for p in _plans(plan) for k in p.all_kernels):
                yield from illegal(kernel, kernel)
        case Kernel() | Kernels():
            kernels = [after] if isinstance(after, Kernel) else [*after.kernels]
            found = [
                d for k in kernels for d in illegal(k, item if isinstance(item, Kernel) else k)
            ]
            if not found and isinstance(item, Kernel):
                views = after.views if isinstance(after, Kernels) else {}
                found = [*_changed_arrays(item, after, kernels, views)]
                if not found and step.package != "cvm":
                    found = [d for k in kernels for d in less_certain(k, item)]
            yield from found


def _plans(item: Plan | StepPlan) -> list[Plan]:
    return [item] if isinstance(item, Plan) else item.plans


# Functions


def undefined(function: Function, context: Context) -> Iterator[Diagnostic]:
    """The uses of values and functions without a definition, and the values defined twice."""
    defined: dict[Value, Any] = {}
    later = {r for o in function.operations for r in o.results}
    said: set[Value] = set()

    def define(value: Value, span: Any) -> Iterator[Diagnostic]:
        if value in defined:
            note = Note("defined first here", defined[value])
            yield Diagnostic(f"%{value.name} is defined twice", span, "pass.definition", (note,))
        defined.setdefault(value, span)

    def use(value: Value, verb: str, span: Any) -> Iterator[Diagnostic]:
        if not isinstance(value, Literal) and value not in defined and value not in said:
            said.add(value)
            why = "before its definition" if value in later else "but nothing defines it"
            message = f"%{value.name} is {verb}{' ' if value in later else ', '}{why}"
            yield Diagnostic(message, span, "pass.definition", (Note("it was here", value.span),))

    for argument in function.arguments:
        yield from define(argument, argument.span)
    for operation in function.operations:
        for name, value in operation.operator.operands():
            yield from use(value, "used", operation.at(name))
        for field, callee in operation.operator.callees:
            if callee not in context.module.functions:
                message = f"@{callee} is called, but the program has no such function"
                yield Diagnostic(message, operation.at(field), "pass.definition")
        for result in operation.results:
            yield from define(result, operation.span)
    spans = function.return_spans
    for n, value in enumerate(function.results):
        yield from use(value, "returned", spans[n] if n < len(spans) else function.span)


def _mistyped(function: Function, context: Context) -> Iterator[Diagnostic]:
    """The broken constraints of operations, and the values that have not their inferred types."""
    types = {a: a.known_type for a in function.arguments if a.type is not None}
    module = context.module.with_functions({**context.module.functions, function.name: function})
    scope = Verification(module, {**types}, [])
    check_function(scope, function)
    if found := [*scope.diagnostics, *check_destroyed(module, function)]:
        yield from found
        return
    for operation in function.operations:
        for value in operation.results:
            inferred = scope.types.get(value)
            if value.type is None or inferred is None or value.type.key != inferred.key:
                stated = "no type" if value.type is None else str(value.type)
                message = f"%{value.name} is {inferred}, but the pass states {stated}"
                yield Diagnostic(message, operation.span, "pass.type")
                return  # what follows from it may be wrong, too


def _changed_signature(item: Function, before: Signature, after: Function) -> Iterator[Diagnostic]:
    names = "the name", "the arguments", "the results"
    for what, old, new in zip(names, before, _signature(after) or (), strict=True):
        if _key(old) != _key(new):
            message = f"{what} of @{before[0]} may not change from {_listed(old)} to {_listed(new)}"
            yield Diagnostic(message, item.span, "pass.signature")


def _key(part: object) -> object:
    if isinstance(part, tuple):
        return tuple(None if t is None else t.key for t in part)
    return part


def _listed(part: object) -> str:
    return f"({', '.join(map(str, part))})" if isinstance(part, tuple) else f"@{part}"


# Formulas and kernels


def _undefined_arrays(formulas: Formulas) -> Iterator[Diagnostic]:
    """The arrays that formulas read, or that are results, before anything computes them."""
    defined = {*formulas.arguments, *formulas.constants}
    for step in formulas.steps:
        formula = step.formula if isinstance(step, View) else step
        operands: Iterable[Tensor] = getattr(step, "operands", ())
        if isinstance(formula, Formula):
            operands = (e.tensor for e in walk(formula.value) if isinstance(e, Read))
        for tensor in dict.fromkeys(operands):
            if tensor not in defined:
                message = f"%{tensor.name} is read, but nothing computes it before"
                yield Diagnostic(message, formula.span, "pass.definition")
        defined |= {formula.tensor} if isinstance(formula, Formula) else {*formula.tensors}
    for tensor in formulas.results:
        if tensor not in defined:
            yield Diagnostic(
                f"%{tensor.name} is returned, but nothing computes it", code="pass.definition"
            )


def illegal(kernel: Kernel, before: Kernel) -> Iterator[Diagnostic]:
    """The mistake of a kernel that is not legal, or that has lost the guard of an access."""
    try:
        unproved = {*check_kernel(kernel)}
    except LoweringError as e:
        note = () if e.statement is None else (_line(e),)
        yield Diagnostic(e.message, kernel.span, "pass.kernel", note)
        return
    if (
        kernel is before
        or not unproved
        or not all(isinstance(p.bytes, int) for p in kernel.parameters)
    ):
        return  # of open sizes, facts that calls check are not known here
    known = {f"%{p.name}" for p in before.parameters}
    for place in sorted(unproved - {*check_kernel(before)}):
        if any(f"{name} " in place for name in known):
            message = f"kernel @{kernel.name}: {place}, which could not be before the pass"
            yield Diagnostic(message, kernel.span, "pass.kernel")
            return


def less_certain(kernel: Kernel, before: Kernel) -> Iterator[Diagnostic]:
    """Properties that another package's pass has lost: iterations of loops are independent, and
    elements are written before they are read.
    """
    for _, e in races(kernel, {name for name, _ in races(before)}):
        yield Diagnostic(e.message, kernel.span, "pass.kernel", (_line(e),))
        return
    known = {u.tensor.name for u in unwritten_in(before, before.outputs)}
    for u in unwritten_in(kernel, kernel.outputs):
        if u.tensor.name not in known:
            place = () if u.statement is None else (Note(f"in `{_text(u.statement)}`"),)
            message = f"{u.message.removesuffix(FILLED)}, which it was before the pass"
            yield Diagnostic(message, kernel.span, "pass.kernel", place)


def _line(e: LoweringError) -> Note:
    assert e.statement is not None
    return Note(f"in `{_text(e.statement)}`")


def _text(statement: Statement) -> str:
    return statement_text(statement).partition("\n")[0].strip()


def _changed_arrays(
    before: Kernel, after: object, kernels: list[Kernel], views: Mapping[Tensor, Tensor]
) -> Iterator[Diagnostic]:
    """The mistake of kernels that have not the arrays of the kernel that they replace."""
    if isinstance(after, Kernel):
        old, new = before.parameters, after.parameters
        same = len(old) == len(new) and before.results == after.results
        same = same and all(
            same_size(product(o.shape) * o.element.bytes, product(n.shape) * n.element.bytes)
            for o, n in zip(old, new, strict=True)
        )
    else:
        written = {viewed(t, views) for k in kernels for t in k.outputs}
        old = before.outputs
        new = tuple(written)
        same = {*old} <= written
    if not same:
        change = f"from {_arrays(old)} to {_arrays(new)}"
        message = f"the arrays of kernel @{before.name} may not change {change}"
        yield Diagnostic(message, before.span, "pass.signature")


def _arrays(tensors: tuple[Tensor, ...]) -> str:
    return f"({', '.join(f'%{t.name}: {_shape(t)}' for t in tensors)})"


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, (*tensor.shape, tensor.element)))
