"""Lower formulas to loop nests, one kernel each (TVM's create_prim_func).

    y[i] = sum over k of f(i, k)  =>  for i { acc = 0; for k { acc += f(i, k) }; y[i] = acc }

A reduction becomes an accumulator with its loops, a guarded value a branch, a check an `Assert`;
the rest is pure.
"""

from collections.abc import Collection
from dataclasses import replace
from itertools import count

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.execution_plan import Loop, Plan, viewed
from ...dialect.kernel_ir.formulas import Formula, Formulas, LoopNest, Nest, View
from ...dialect.kernel_ir.scalar_functions import DIVISIONS
from ...dialect.kernel_ir.traverse import children, walk, with_children
from ...dialect.types.tensor_types import F32, F64
from ..formulas.build_formulas import reads
from ..formulas.share_subexpressions import share_subexpressions
from ..math import in_primitives
from ..passes import declare

LOWERED = (ex.Reduce, ex.When, ex.Check)  # to statements, as "rarely" is


@declare("loops", Formulas)
def build_loops(program: Formulas) -> Plan:
    """The kernels of the formulas. A result that is not computed, or given back twice, is
    copied.
    """
    slices = program.slices
    kernels: list[ir.Kernel] = []
    views: dict[ex.Tensor, ex.Tensor] = {}
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
                parameters = (*sorted_tensors(set(operands)), *tensors)
                jumps = ir.may_jump(body)  # which no pass reorders
                kernels.append(
                    ir.Kernel(
                        name, parameters, body, len(tensors), span, spans=(span,), scheduled=jumps
                    )
                )
    results: list[ex.Tensor] = []
    owned = {*program.arguments, *program.constants}
    for result in program.results:
        root = viewed(result, views)
        if root in owned or result in results or (slices is not None and result in views):
            space = "heap" if slices is None else "slice"
            copy = ex.Tensor(
                f"{result.name}.copy{len(results)}", result.shape, result.element, space
            )
            kernels.append(copied(result, copy, f"{program.name}.{len(kernels)}"))
            result = copy
        else:
            owned.add(root)
        results.append(result)
    if (
        slices is not None and slices.trips is None
    ):  # what is carried lies where the next step reads it
        for argument, result in zip(program.arguments[: slices.carry], results[1:], strict=True):
            kernels.append(copied(result, argument, f"{program.name}.{len(kernels)}"))
    ranges = {
        t: r for t, r in program.ranges.items() if t not in results
    }  # the caller may give results other storage
    sides = program.name, program.arguments, tuple(results), program.constants
    return Plan(*sides, tuple(kernels), views, ranges, program.requirements)


def copied(source: ex.Tensor, to: ex.Tensor, name: str) -> ir.Kernel:
    """The kernel that copies one array to another."""
    at = ex.axes(to.shape)
    return build_nest(Formula(to, at, source[at]), name)


def _loop(nest: LoopNest, name: str) -> list[ir.Kernel]:
    """The kernel of a loop, after copies of what it carries where its results are what it works
    on.
    """
    steps = nest.steps
    operands = nest.operands
    carried = nest.tensors[: nest.steps.carry]
    copies: list[ir.Kernel] = []
    if steps.trips is None:
        initial = operands[1 : 1 + steps.carry]
        operands = (operands[0], *operands[1 + steps.carry :])
        copies = [copied(x, y, f"{name}.start") for x, y in zip(initial, carried, strict=True)]
    read = sorted_tensors({*operands, *(carried if copies else ())})
    plan = nest.program
    assert isinstance(plan, Plan)
    places = tuple(map(read.index, operands))
    loop = Loop(
        name,
        (*read, *nest.tensors),
        (),
        len(nest.tensors),
        nest.span,
        spans=(nest.span,),
        scheduled=True,
    )
    return [*copies, replace(loop, steps=steps, operands=places).with_plan(plan)]


def build_nest(formula: Formula, name: str) -> ir.Kernel:
    """The kernel that computes one formula, its loops in the order of the indices."""
    lower = StatementLowering()
    body: list[ir.Statement] = []
    body.append(
        ir.Store(
            formula.tensor, formula.indices, lower.value(in_primitives(formula.value), body, {})
        )
    )
    parameters = (*sorted_tensors(reads(formula.value)), formula.tensor)
    nest = ir.nested(formula.indices, tuple(body))
    spans = formula.spans or (formula.span,)
    return share_subexpressions(ir.Kernel(name, parameters, nest, 1, formula.span, spans=spans))


def sorted_tensors(tensors: Collection[ex.Tensor]) -> list[ex.Tensor]:
    return sorted(tensors, key=lambda t: t.name)


class StatementLowering:
    """Lowers expressions to statements and pure expressions; numbers the accumulators."""

    def __init__(self) -> None:
        self.names = count()

    def value(self, e: ex.Expr, out: list[ir.Statement], done: dict[int, ex.Expr]) -> ex.Expr:
        """The expression without reductions, guards and checks; statements that compute those go to
        `out`, in order.
        """
        if isinstance(e, (ex.Const, ex.Extent, ex.Index)):
            return e
        if id(e) in done:
            return done[id(e)]
        if not any(
            isinstance(c, LOWERED) or getattr(c, "function", "") == "rarely" for c in walk(e)
        ):
            return e
        match e:
            case ex.Reduce():
                new = self.reduction(e, out, done)
            case ex.When():
                new = self.branch(e, out, done)
            case ex.Apply("rarely", (condition, then, usual), _):
                new = self.rarely(condition, then, usual, out, done)
            case ex.Check(condition, value, message, span):
                out.append(ir.Assert(self.value(condition, out, done), message, span))
                new = self.value(value, out, done)
            case _:
                new = with_children(e, tuple(self.value(c, out, done) for c in children(e)))
        done[id(e)] = new
        return new

    def reduction(self, e: ex.Reduce, out: list[ir.Statement], done: dict[int, ex.Expr]) -> ex.Expr:
        acc = ir.accumulator(f"acc{next(self.names)}", e.type)
        start = ir.identity(e.function, e.type)
        inner: list[ir.Statement] = []
        match e.body:
            case ex.When(condition, then, ex.Const(value)) if value == start.value:
                # outside the guard the reduced value is the identity: skip the update there
                inner.append(
                    ir.If(
                        self.value(condition, inner, dict(done)),
                        self.update(e, then, acc, [], done),
                    )
                )
                body = tuple(inner)
            case _:
                body = self.update(e, e.body, acc, inner, done)
        out += [ir.Alloc(acc), ir.assign(acc, start), *ir.nested(e.indices, body)]
        return acc[()]

    def update(
        self,
        e: ex.Reduce,
        value: ex.Expr,
        acc: ex.Tensor,
        out: list[ir.Statement],
        done: dict[int, ex.Expr],
    ) -> ir.Block:
        reduced = self.value(value, out, dict(done))
        return (*out, accumulate(e.function, acc, reduced))

    def branch(self, e: ex.When, out: list[ir.Statement], done: dict[int, ex.Expr]) -> ex.Expr:
        condition = self.value(e.condition, out, done)
        if all(map(is_speculatable, (e.then, e.otherwise))):
            return ex.select(
                condition, self.value(e.then, out, done), self.value(e.otherwise, out, done)
            )
        chosen = ir.accumulator(f"acc{next(self.names)}", e.type)
        out.append(ir.Alloc(chosen))
        sides: list[ir.Block] = []
        for side in (e.then, e.otherwise):
            inner: list[ir.Statement] = []
            inner.append(ir.assign(chosen, self.value(side, inner, dict(done))))
            sides.append(tuple(inner))
        out.append(ir.If(condition, *sides))
        return chosen[()]

    def rarely(
        self,
        condition: ex.Expr,
        then: ex.Expr,
        usual: ex.Expr,
        out: list[ir.Statement],
        done: dict[int, ex.Expr],
    ) -> ex.Expr:
        """The usual value, and a select with the rare one if its condition holds for an element."""
        test = self.value(condition, out, done)
        chosen = ir.accumulator(f"acc{next(self.names)}", usual.type)
        out += [ir.Alloc(chosen), ir.assign(chosen, self.value(usual, out, done))]
        inner: list[ir.Statement] = []
        inner.append(
            ir.assign(chosen, ex.select(test, self.value(then, inner, dict(done)), chosen[()]))
        )
        out.append(ir.If(ex.apply("any", test), tuple(inner)))
        return chosen[()]


def accumulate(function: str, acc: ex.Tensor, value: ex.Expr) -> ir.Statement:
    """acc = function(acc, value); a product summed in f32 or f64 becomes a fused multiply-add,
    rounded once.
    """
    match value:
        case ex.Apply("mul", (a, b), _) if function == "add" and acc.element in (F32, F64):
            return ir.Store(acc, (), ex.apply("fma", a, b, acc[()]))
    return ir.update(function, acc, value)


def is_speculatable(e: ex.Expr) -> bool:
    """Test whether evaluation is defined and cheap even if unused (LLVM's
    isSafeToSpeculativelyExecute).
    """
    for node in walk(e):
        match node:
            case ex.Apply(function, _, type):
                if function in DIVISIONS and type.kind != "float":
                    return False
            case ex.Const() | ex.Index() | ex.Extent() | ex.Cast() | ex.Bitcast():
                pass
            case ex.Read(tensor, _):
                if tensor.space != "register":
                    return False
            case _:
                return False
    return True
