"""Expand derivatives by reverse and forward mode (JAX's vjp and jvp).

    %gx = theano.l_op(%x, %gy) {callee = @f}  =>  the operations of @f, and those that pull %gy back

Each operator defines its pullback, from cotangents of results to cotangents of operands; this pass
composes the pullbacks. Callees are expanded first, derivatives included, so derivatives of
derivatives need no rule of their own. `builtin.scan` is pulled back by a scan in the other
direction, over the carried values that the first one keeps, `builtin.if` by a branch.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, NoReturn, TypeVar

from ...dialect.builtin import Call, Calling
from ...dialect.builtin.control_flow import If, Scan
from ...dialect.ir.builder import Builder, Cotangents, Node
from ...dialect.ir.function import Function, Literal, Operation, Value
from ...dialect.ir.module import Module
from ...dialect.ir.verify import called
from ...dialect.spec.operator import Operator
from ...dialect.support.diagnostics import Diagnostic, Note, Span, VerifyError
from ...dialect.theano.grad_lop_rop import Derivative, Grad, ROp, tangent_type
from ...dialect.types.attributes import Symbol
from ...dialect.types.sizes import Undecided
from ...dialect.types.tensor_types import Type
from ..pass_context import Context
from ..passes import graph_pass
from .dce import live_operations
from .inline import has_derivatives

Nodes = dict[Value, Node]
Paths = dict[
    Value, Value | None
]  # the values that depend on some, each with the operand through which it does


@graph_pass
def differentiate(function: Function, context: Context) -> Function:
    context.module = expand_derivatives(context.module, function)
    return context.module.functions[function.name]


def expand_derivatives(module: Module, function: Function) -> Module:
    """The module with a function's derivatives and calls expanded; steps of loops run backwards are
    new functions.
    """
    if not has_derivatives(module, function):
        return module.with_functions({**module.functions, function.name: function})
    builder = Builder(prefix="g")
    module = module.with_functions(dict(module.functions))
    results = _replay(builder, module, function, function.arguments)
    effects = Module(module.functions).effects  # with the new steps of loops
    live = tuple(live_operations(builder.operations, results, effects=effects))
    module.functions[function.name] = replace(function, operations=live, results=tuple(results))
    return module


def _replay(
    builder: Builder,
    module: Module,
    function: Function,
    arguments: Sequence[Value],
    acts: bool = True,
) -> list[Value]:
    """Record the function's operations on these arguments and return its results; of those with
    an effect the operands, unless it `acts`.
    """
    known: dict[Value, Value] = dict(zip(function.arguments, arguments, strict=True))

    def value(v: Value) -> Value:
        return v if isinstance(v, Literal) else known[v]

    for operation in _derivable(function, module).operations:
        operator = operation.operator.map(value)
        match operator:
            case Derivative():
                results = _derive(builder, module, operator, operation)
            case Call():
                results = _replay(
                    builder, module, module.functions[operator.callee], operator.arguments, acts
                )
            case Operator(has_effect=True) if not acts:
                results = [v for _, v in operator.operands()][: len(operation.results)]
            case _:
                if isinstance(operator, Calling):
                    callees = called(module, operator)
                    types = [f.result_types for f in callees]
                    operator = operator.with_signature(callees[0].argument_types, *types)
                results = builder.add(operator, operation.span, [r.name for r in operation.results])
        known.update(zip(operation.results, results, strict=True))
    return [value(r) for r in function.results]


def _derivable(function: Function, module: Module) -> Function:
    """The function with operators that have a lowering, and neither formula nor pullback,
    stated by others.
    """

    def is_replaced(op: Operator[object]) -> bool:
        return (
            op.is_expanded and type(op).pullback is Operator.pullback and not isinstance(op, Call)
        )

    if not any(is_replaced(o.operator) for o in function.operations):
        return function
    from .convert import stated_by_others

    return stated_by_others(function, Context(module), is_replaced)


def _derive(
    builder: Builder, module: Module, operator: Derivative[Value], operation: Operation
) -> list[Value]:
    callee = module.functions[operator.callee]
    count = len(callee.arguments)
    outer = builder.span
    builder.span = operation.span
    arguments = list(operator.arguments[:count])
    for n, a in enumerate(arguments):
        if (
            isinstance(a, Literal) or a in arguments[:n]
        ):  # distinct from the same value in another position
            arguments[n] = builder.of_type(builder.node(a).scalar("identity"), a.known_type).value
    first = len(builder.operations)
    results = _replay(builder, module, callee, arguments)
    operations = builder.operations[first:]
    by = [arguments[n] for n in operator.positions(count)]
    seeds = [builder.node(s) for s in operator.seeds(count)]
    seed = seeds if not isinstance(operator, Grad) else [builder.node(results[0]).literal(1.0)]
    rules = Rules(builder, operator.name, operation.at("callee"), module)
    rules.check_types([*by, *results])
    if isinstance(operator, ROp):
        found = rules.forward(operations, dict(zip(by, seed, strict=True)), results)
        of = results
    else:
        found = rules.reverse(operations, by, results, seed)
        of = by
    derivatives = [
        builder.of_type(node, v.known_type).value for node, v in zip(found, of, strict=True)
    ]
    builder.span = outer
    return derivatives


D = TypeVar("D")  # derivatives


class Rules:
    """Pullbacks over recorded operations, of a `derivative` at `span`; loops that run backwards
    join the module.
    """

    def __init__(self, builder: Builder, derivative: str, span: Span, module: Module) -> None:
        self.builder = builder
        self.derivative = derivative
        self.span = span
        self.module = module

    def reverse(
        self,
        operations: Sequence[Operation],
        by: Sequence[Value],
        results: Sequence[Value],
        seeds: Sequence[Node],
    ) -> list[Node]:
        """The cotangents of `by`, from those of the results."""
        active = reached(operations, by)
        cotangents: Nodes = {}
        for value, seed in zip(results, seeds, strict=True):
            if value in active and not value.known_type.element.is_discrete:
                self._accumulate(cotangents, value, seed)
        for operation in reversed(operations):
            if any(r in cotangents for r in operation.results):
                self._pull(operation, active, cotangents)
        return [cotangents[v] if v in cotangents else self.zeros(v) for v in by]

    def check_types(self, values: Sequence[Value]) -> None:
        """Refuse derivatives by values, and of values, whose element type has no tangents."""
        for v in values:
            if v.known_type.element.tangent is None:
                message = f"%{v.name} has no derivative: {v.known_type.element} declares no tangent"
                code = f"{self.derivative}.rule"
                raise VerifyError([Diagnostic(message, self.span, code)])

    def _pull(self, operation: Operation, active: Paths, found: Nodes) -> None:
        operands = [v for _, v in operation.operator.operands()]
        if not any(v in active for v in operands):
            return
        cotangents = [found.get(r) or self.zeros(r) for r in operation.results]
        for value, cotangent in zip(
            operands, self._pulled(operation, active, cotangents), strict=True
        ):
            if cotangent is not None and value in active:
                if not isinstance(cotangent, Node):
                    scalar_op = getattr(operation.operator, "scalar_op", None)
                    which = operation.operator.name + (f" of {scalar_op}" if scalar_op else "")
                    self._missing(operation, active, f"{which} by %{value.name}")
                self._accumulate(found, value, cotangent)

    def _pulled(
        self, operation: Operation, active: Paths, cotangents: Sequence[Node]
    ) -> Cotangents:
        """The cotangents of the operands."""
        nodes, results = self._nodes(operation)
        if isinstance(operation.operator, Scan):
            return self._rule(
                operation, active, lambda: self._of_scan(operation, active, cotangents)
            )
        if isinstance(operation.operator, If):
            return self._rule(operation, active, lambda: self._of_if(operation, active, cotangents))
        return self._rule(operation, active, lambda: nodes.pullback(results, cotangents))

    def _of_scan(
        self, operation: Operation, active: Paths, cotangents: Sequence[Node]
    ) -> list[Node | None]:
        """By a scan from the last step to the first, whose step pulls back cotangents through the
        callee.
        """
        scan: Any = operation.operator
        carry = scan.carry
        shared = scan.carry + scan.scan
        floats = [not v.known_type.element.is_discrete for v in scan.arguments]
        given = [
            n for n in range(carry) if floats[n]
        ]  # the cotangents that steps pass on, of carried values
        sums = [n for n in range(shared, len(floats)) if floats[n] and scan.arguments[n] in active]
        slices = [n for n in range(carry, shared) if floats[n]]
        seeded = [
            n
            for n, r in enumerate(operation.results)
            if n >= carry and not r.known_type.element.is_discrete
        ]
        (callee,) = called(self.module, scan)
        saved = self._keep_carried(operation, scan, callee)

        def step(inner: Builder, arguments: Sequence[Value]) -> list[Value]:
            rest = iter(arguments)
            seeds = {n: inner.node(next(rest)) for n in given}
            totals = [inner.node(next(rest)) for _ in sums]
            values = [next(rest) for _ in range(shared)]
            seeds.update({n: inner.node(next(rest)) for n in seeded})
            values += rest
            results = _replay(inner, self.module, callee, values, acts=False)  # they have acted
            rules = Rules(inner, self.derivative, self.span, self.module)
            by = [values[n] for n in (*given, *sums, *slices)]
            found = rules.reverse(
                [*inner.operations], by, [results[n] for n in seeds], [*seeds.values()]
            )
            pulled = iter(n.value for n in found)
            passed = [next(pulled) for _ in given]
            return [*passed, *((t + inner.node(next(pulled))).value for t in totals), *pulled]

        scanned = [*saved, *scan.arguments[carry:shared], *(cotangents[n].value for n in seeded)]
        start = [
            *(cotangents[n].value for n in given),
            *(self.zeros(scan.arguments[n]).value for n in sums),
        ]
        operands = [*start, *scanned, *scan.arguments[shared:]]
        sliced = [v.known_type.with_shape(*v.known_type.array_shape[1:]) for v in scanned]  # type: ignore[union-attr]
        types = [
            *(v.known_type for v in start),
            *sliced,
            *(v.known_type for v in scan.arguments[shared:]),
        ]
        back = self._function(f"{callee.name}.vjp", types, step)
        trips = None if scanned else scan.trips
        reverse_scan = Scan(
            tuple(operands), Symbol(back.name), len(start), len(scanned), trips, not scan.reverse
        )
        found = self.builder.add(
            reverse_scan.with_signature(back.argument_types, back.result_types)
        )
        places = dict(zip((*given, *sums, *slices), found, strict=True))
        return [self.builder.node(places[n]) if n in places else None for n in range(len(floats))]

    def _of_if(
        self, operation: Operation, active: Paths, cotangents: Sequence[Node]
    ) -> list[Node | None]:
        """By a branch on the same condition, whose functions pull the cotangents back."""
        branch: Any = operation.operator
        values = branch.arguments[1:]
        by = [
            n for n, v in enumerate(values) if v in active and not v.known_type.element.is_discrete
        ]
        seeded = [
            n for n, r in enumerate(operation.results) if not r.known_type.element.is_discrete
        ]
        operands = [*(cotangents[n].value for n in seeded), *values]
        backs: dict[str, Function] = {}
        for field, callee in zip(branch.callees, called(self.module, branch), strict=True):

            def pulled(
                inner: Builder, arguments: Sequence[Value], callee: Function = callee
            ) -> list[Value]:
                seeds, given = arguments[: len(seeded)], arguments[len(seeded) :]
                results = _replay(inner, self.module, callee, given, acts=False)
                rules = Rules(inner, self.derivative, self.span, self.module)
                found = rules.reverse(
                    [*inner.operations],
                    [given[n] for n in by],
                    [results[n] for n in seeded],
                    [inner.node(s) for s in seeds],
                )
                return [node.value for node in found]

            types = [v.known_type for v in operands]
            backs[field[0]] = self._function(f"{callee.name}.vjp", types, pulled)
        names = {field: Symbol(f.name) for field, f in backs.items()}
        back = If((branch.arguments[0], *operands), **names)
        arguments, *_ = types = [f.argument_types for f in backs.values()]
        found = self.builder.add(
            back.with_signature(arguments, *(f.result_types for f in backs.values()))
        )
        places = dict(zip(by, found, strict=True))
        return [
            None,
            *(self.builder.node(places[n]) if n in places else None for n in range(len(values))),
        ]

    def _keep_carried(self, operation: Operation, scan: Any, callee: Function) -> tuple[Value, ...]:
        """The carried values before each step, which become further results of the operation."""
        if not scan.carry:
            return ()

        def step(inner: Builder, arguments: Sequence[Value]) -> list[Value]:
            kept = [inner.node(a).scalar("identity").value for a in arguments[: scan.carry]]
            return [*_replay(inner, self.module, callee, arguments), *kept]

        keeps = self._function(f"{callee.name}.kept", callee.argument_types, step)
        keeping = replace(scan, callee=Symbol(keeps.name)).with_signature(
            keeps.argument_types, keeps.result_types
        )
        results = self.builder.add(keeping, operation.span)
        new = self.builder.operations.pop()
        count = len(operation.results)
        at = next(
            n for n, o in enumerate(self.builder.operations) if o.results == operation.results
        )
        self.builder.operations[at] = replace(new, results=(*operation.results, *results[count:]))
        return results[count:]

    def _function(
        self,
        name: str,
        types: Sequence[Type],
        step: Callable[[Builder, Sequence[Value]], list[Value]],
    ) -> Function:
        """A new function of the module, of the operations that `step` records."""
        inner = Builder(prefix="g", span=self.builder.span)
        arguments = tuple(Value(f"a{n}", t) for n, t in enumerate(types))
        results = step(inner, arguments)
        name = next(n for k in count() if (n := f"{name}{k or ''}") not in self.module.functions)
        effects = Module(self.module.functions).effects
        live = tuple(live_operations(inner.operations, results, effects=effects))
        function = self.module.functions[name] = Function(
            name, arguments, live, tuple(results), span=self.builder.span
        )
        return function

    def _accumulate(self, cotangents: Nodes, value: Value, cotangent: Node) -> None:
        self.check_types([value])
        whole = cotangent.like(self.builder.node(value)).into(
            tangent_type(value.known_type).element
        )
        cotangents[value] = cotangents[value] + whole if value in cotangents else whole

    def forward(
        self, operations: Sequence[Operation], seeds: Nodes, results: Sequence[Value]
    ) -> list[Node]:
        """The tangents of the results, from those of the values they depend on."""
        active = reached(operations, list(seeds))
        found = {
            v: s.like(self.builder.node(v)).into(tangent_type(v.known_type).element)
            for v, s in seeds.items()
        }
        for operation in operations:
            operands = [v for _, v in operation.operator.operands()]
            discrete = all(r.known_type.element.is_discrete for r in operation.results)
            if discrete or not any(v in found for v in operands):
                continue
            tangents = [found.get(v) for v in operands]
            for value, tangent in zip(
                operation.results, self._push(operation, active, tangents), strict=True
            ):
                if tangent is not None and not value.known_type.element.is_discrete:
                    self.check_types([value])
                    found[value] = tangent.like(self.builder.node(value)).into(
                        tangent_type(value.known_type).element
                    )
        return [found[v] if v in found else self.zeros(v) for v in results]

    def _push(
        self, operation: Operation, active: Paths, tangents: list[Node | None]
    ) -> Sequence[Node | None]:
        if type(operation.operator).pushforward is not Operator.pushforward:
            nodes, results = self._nodes(operation)
            return self._rule(operation, active, lambda: nodes.pushforward(results, tangents))
        # the pullback is linear in the cotangents, so the pullback of the pullback maps tangents to
        # tangents
        seeds = [self.zeros(r) for r in operation.results]
        first = len(self.builder.operations)
        pulled = self._pulled(operation, active, seeds)
        pairs: list[tuple[Node, Node]] = []
        for p, t in zip(pulled, tangents, strict=True):
            if p is not None and t is not None:
                assert isinstance(p, Node)
                pairs.append((p, t))
        inner = self.builder.operations[first:]
        return self.reverse(
            inner, [s.value for s in seeds], [p.value for p, _ in pairs], [t for _, t in pairs]
        )

    def zeros(self, value: Value) -> Node:
        node = self.builder.node(value)
        return node.scalar("second", 0.0).cast(tangent_type(node.array_type).element)

    def _nodes(self, operation: Operation) -> tuple[Operator[Node], list[Node]]:
        self.builder.span = operation.span
        return operation.operator.map(self.builder.node), [
            self.builder.node(r) for r in operation.results
        ]

    def _rule(
        self, operation: Operation, active: Paths, rule: Callable[[], Sequence[D]]
    ) -> Sequence[D]:
        try:
            return rule()
        except NotImplementedError as e:
            self._missing(operation, active, str(e) or operation.operator.name)
        except Undecided:
            self._missing(
                operation, active, f"{operation.operator.name} of sizes that are not known"
            )

    def _missing(self, operation: Operation, active: Paths, what: str) -> NoReturn:
        message = f"{what} has no derivative; it is on the path {path(operation, active)}"
        code = f"{self.derivative}.rule"
        raise VerifyError(
            [Diagnostic(message, self.span, code, (Note("the operation", operation.span),))]
        ) from None


def reached(operations: Sequence[Operation], by: Sequence[Value]) -> Paths:
    """The values that depend on `by`, each with the operand through which it does."""
    paths: Paths = dict.fromkeys(by)
    for operation in operations:
        if (
            through := next((v for _, v in operation.operator.operands() if v in paths), None)
        ) is not None:
            paths.update((r, through) for r in operation.results)
    return paths


def path(operation: Operation, active: Paths) -> str:
    """The path from the argument to the operation, in the values' names, for diagnostics."""
    names: list[str] = []
    value: Value | None = operation.results[0]
    while value is not None:
        names.append(f"%{value.name}")
        value = active.get(value)
    return " -> ".join(reversed(names))
