"""Lower formulas to loop nests, one kernel each (TVM's create_prim_func).

    y[i] = sum over k of f(i, k)  =>  for i { acc = 0; for k { acc += f(i, k) }; y[i] = acc }

A reduction becomes an accumulator with its loops, a guarded value a branch, and a check an `Assert`; the rest is a pure
expression.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count

from ...dialect.ir.types import F32, F64, UI8
from ...dialect.notation.expressions import (
    Apply,
    Bitcast,
    Cast,
    Check,
    Const,
    Expr,
    Extent,
    Index,
    Read,
    Reduce,
    Tensor,
    When,
    apply,
    axes,
    select,
)
from ...dialect.notation.formulas import Formula, Formulas, LoopNest, Nest, View
from ...dialect.notation.loops import (
    Alloc,
    Assert,
    Block,
    For,
    If,
    Kernel,
    Loop,
    Statement,
    accumulator,
    assign,
    identity,
    update,
)
from ...dialect.notation.loops import Store as StoreStatement
from ...dialect.notation.plan import Plan, viewed
from ...dialect.notation.traverse import children, walk, with_children
from ..formulas.build_formulas import reads
from ..formulas.share_subexpressions import share_subexpressions
from ..math import in_primitives


def build_loops(program: Formulas) -> Plan:
    """The kernels of the formulas. A result that is not computed, or given back twice, is copied."""
    slices = program.slices
    kernels: list[Kernel] = []
    views: dict[Tensor, Tensor] = {}
    for step in program.steps:
        name = f"{program.name}.{len(kernels)}"
        match step:
            case Formula():
                kernels.append(build_nest(step, name))
            case View(tensor, of, _):
                views[tensor] = of
            case LoopNest():
                kernels += _loop(step, name)
            case Nest(tensors, operands, body, span):
                kernels.append(
                    Kernel(name, (*sorted_tensors(set(operands)), *tensors), body, len(tensors), span, spans=(span,))
                )
    results: list[Tensor] = []
    owned = {*program.arguments, *program.constants}
    for result in program.results:
        root = viewed(result, views)
        if root in owned or result in results or (slices is not None and result in views):
            space = "heap" if slices is None else "slice"
            copy = Tensor(f"{result.name}.copy{len(results)}", result.shape, result.element, space)
            kernels.append(_copy(result, copy, f"{program.name}.{len(kernels)}"))
            result = copy
        else:
            owned.add(root)
        results.append(result)
    if slices is not None and slices.trips is None:  # what is carried lies where the next step reads it
        for argument, result in zip(program.arguments[: slices.carry], results[1:], strict=True):
            kernels.append(_copy(result, argument, f"{program.name}.{len(kernels)}"))
    ranges = {t: r for t, r in program.ranges.items() if t not in results}  # the caller may give results other storage
    sides = program.name, program.arguments, tuple(results), program.constants
    return Plan(*sides, tuple(kernels), views, ranges, program.requirements)


def _copy(source: Tensor, to: Tensor, name: str) -> Kernel:
    at = axes(to.shape)
    return build_nest(Formula(to, at, source[at]), name)


def _loop(nest: LoopNest, name: str) -> list[Kernel]:
    """The kernel of a loop, after copies of what it carries where its results are what it works on."""
    steps, operands, carried = nest.steps, nest.operands, nest.tensors[: nest.steps.carry]
    copies: list[Kernel] = []
    if steps.trips is None:
        given, operands = operands[1 : 1 + steps.carry], (operands[0], *operands[1 + steps.carry :])
        copies = [_copy(x, y, f"{name}.start") for x, y in zip(given, carried, strict=True)]
    read = sorted_tensors({*operands, *(carried if copies else ())})
    plan = nest.program
    assert isinstance(plan, Plan)
    spares = tuple(
        Tensor(f"{r.name}.next", r.shape, r.element, "heap")
        for r in plan.results[: len(plan.results) if copies else steps.carry]
    )
    places = tuple(map(read.index, operands))
    loop = Loop(
        name,
        (*read, *nest.tensors),
        (),
        len(nest.tensors),
        nest.span,
        spans=(nest.span,),
        scheduled=True,
        steps=steps,
        operands=places,
        scratch=(*spares, Tensor("workspace", (0,), UI8, "heap")),
    )
    return [*copies, loop.with_plan(plan)]


def build_nest(formula: Formula, name: str) -> Kernel:
    """The kernel that computes one formula, its loops in the order of the indices."""
    lower = _Lowering()
    body: list[Statement] = []
    value = lower.value(in_primitives(formula.value), body, {})
    body.append(StoreStatement(formula.tensor, formula.indices, value))
    block: Block = tuple(body)
    for index in reversed(formula.indices):
        block = (For(index, block),)
    return share_subexpressions(
        Kernel(
            name,
            (*sorted_tensors(reads(formula.value)), formula.tensor),
            block,
            1,
            formula.span,
            spans=formula.spans or (formula.span,),
        )
    )


def sorted_tensors(tensors: Collection[Tensor]) -> list[Tensor]:
    return sorted(tensors, key=lambda t: t.name)


class _Lowering:
    """The lowering of one formula; numbers its accumulators."""

    def __init__(self) -> None:
        self.names = count()

    def value(self, e: Expr, out: list[Statement], done: dict[int, Expr]) -> Expr:
        """The expression without reductions, guards and checks; the statements that compute those are appended to
        `out`, in order.
        """
        if isinstance(e, (Const, Extent, Index)):
            return e
        if id(e) in done:
            return done[id(e)]
        if not any(isinstance(c, (Reduce, When, Check)) or _is_rare(c) for c in walk(e)):
            return e
        match e:
            case Reduce():
                new = self.reduction(e, out, done)
            case When():
                new = self.branch(e, out, done)
            case Apply("rarely", (condition, then, usual), _):
                new = self.rarely(condition, then, usual, out, done)
            case Check(condition, value, message, span):
                out.append(Assert(self.value(condition, out, done), message, span))
                new = self.value(value, out, done)
            case _:
                new = with_children(e, tuple(self.value(c, out, done) for c in children(e)))
        done[id(e)] = new
        return new

    def reduction(self, e: Reduce, out: list[Statement], done: dict[int, Expr]) -> Expr:
        acc = accumulator(f"acc{next(self.names)}", e.type)
        out += [Alloc(acc), assign(acc, identity(e.function, e.type))]
        out.append(self.loops(e, acc, done))
        return acc[()]

    def loops(self, e: Reduce, acc: Tensor, done: dict[int, Expr]) -> Statement:
        inner: list[Statement] = []
        match e.body:
            case When(condition, then, Const(value)) if value == _value(identity(e.function, e.type)):
                # outside the guard the reduced value is the identity: skip the update there
                test = self.value(condition, inner, dict(done))
                guarded: list[Statement] = []
                reduced = self.value(then, guarded, dict(done))
                guarded.append(accumulate(e.function, acc, reduced))
                inner.append(If(test, tuple(guarded)))
            case _:
                reduced = self.value(e.body, inner, dict(done))
                inner.append(accumulate(e.function, acc, reduced))
        block: Block = tuple(inner)
        for index in reversed(e.indices):
            block = (For(index, block),)
        return block[0]

    def branch(self, e: When, out: list[Statement], done: dict[int, Expr]) -> Expr:
        condition = self.value(e.condition, out, done)
        if all(map(is_speculatable, (e.then, e.otherwise))):
            return select(condition, self.value(e.then, out, done), self.value(e.otherwise, out, done))
        chosen = accumulator(f"acc{next(self.names)}", e.type)
        out.append(Alloc(chosen))
        sides: list[Block] = []
        for side in (e.then, e.otherwise):
            inner: list[Statement] = []
            inner.append(assign(chosen, self.value(side, inner, dict(done))))
            sides.append(tuple(inner))
        out.append(If(condition, *sides))
        return chosen[()]

    def rarely(self, condition: Expr, then: Expr, usual: Expr, out: list[Statement], done: dict[int, Expr]) -> Expr:
        """The usual value, and a select with the rare one if its condition holds for an element."""
        test = self.value(condition, out, done)
        chosen = accumulator(f"acc{next(self.names)}", usual.type)
        out += [Alloc(chosen), assign(chosen, self.value(usual, out, done))]
        inner: list[Statement] = []
        inner.append(assign(chosen, select(test, self.value(then, inner, dict(done)), chosen[()])))
        out.append(If(apply("any", test), tuple(inner)))
        return chosen[()]


def _is_rare(e: Expr) -> bool:
    return isinstance(e, Apply) and e.function == "rarely"


def accumulate(function: str, acc: Tensor, value: Expr) -> Statement:
    """acc = function(acc, value); a product summed in f32 or f64 becomes a fused multiply-add, rounded once."""
    match value:
        case Apply("mul", (a, b), _) if function == "add" and acc.element in (F32, F64):
            return StoreStatement(acc, (), apply("fma", a, b, acc[()]))
    return update(function, acc, value)


def _value(e: Expr) -> object:
    return e.value if isinstance(e, Const) else None


_PARTIAL = ("div", "rem", "floordiv", "floormod")  # undefined for integers where the divisor is zero


def is_speculatable(e: Expr) -> bool:
    """Test whether evaluating the expression is defined and cheap even if its value is not used (LLVM:
    isSafeToSpeculativelyExecute).
    """
    for node in walk(e):
        match node:
            case Apply(function, _, type):
                if function in _PARTIAL and type.kind != "float":
                    return False
            case Const() | Index() | Extent() | Cast() | Bitcast():
                pass
            case Read(tensor, _):
                if tensor.space != "register":
                    return False
            case _:
                return False
    return True
