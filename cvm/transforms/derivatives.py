"""Derivatives of Python functions and of compiled ones: `grad`, `value_and_grad`, `vjp` and `jvp`.

A derivative is an ordinary function: called with arrays it is compiled for their signature, and
called inside a compiled function it is traced into it. Its operations follow from the function's by
the operators' pullbacks.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import Any

import numpy as np

from cvm.dialect.builtin import Call
from cvm.dialect.ir.builder import Builder, Node
from cvm.dialect.ir.function import Function, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import verify
from cvm.dialect.spec.operator import Operator
from cvm.dialect.theano.grad_lop_rop import Grad, LOp, ROp, fits
from cvm.dialect.types.attributes import Symbol
from cvm.dialect.types.sizes import Undecided
from cvm.jit.compile import compile_function
from cvm.jit.functions.compiled_function import CompiledFunction
from cvm.lowering.graph.differentiate import Rules

from ..tracing.diagnose import caller, fail
from ..tracing.trace import TracedArray, Tracer, apply, tracer_of
from .traced_function import (
    DEFAULT,
    TracedFunction,
    flatten_results,
    signature_of,
    traced,
    unflatten,
)

Wrt = int | Sequence[int]


def grad(function: object, wrt: Wrt = 0) -> Any:
    """Return the function of the gradient of a function whose only result is a float of rank 0.

    Args:
        function: A Python function, a traced one, or a compiled function of a program.
        wrt: The positions of the arguments to differentiate by. A number gives one gradient, a
            sequence a tuple of gradients; each has the structure and the shapes of its argument.

    Raises:
        TraceError: An operator on the way has no derivative, or the result is not a scalar.
    """
    if isinstance(function, CompiledFunction):
        return _of_program(function, Grad, wrt, value=False)
    return derived_function(function, lambda f, *args: _value_and_grad(f, wrt, args)[1])


def value_and_grad(function: object, wrt: Wrt = 0) -> Any:
    """Return the function of a pair: the result of a function and its gradient, computed together.

    Args:
        function: A function whose only result is a float of rank 0, as for `grad`.
        wrt: The positions of the arguments to differentiate by, as for `grad`.
    """
    if isinstance(function, CompiledFunction):
        return _of_program(function, Grad, wrt, value=True)
    return derived_function(function, lambda f, *args: _value_and_grad(f, wrt, args))


def stop_gradient(x: Any) -> Any:
    """Return a value whose derivatives are 0: in derivatives it is a constant.

    Args:
        x: An array, a number, or tuples, lists and dictionaries of these.
    """
    structure, leaves = flatten_results(x)
    constants = (
        apply("theano.elemwise", n, scalar_op="stop_gradient") if isinstance(n, TracedArray) else n
        for n in leaves
    )
    return unflatten(structure, constants)


def vjp(function: Any, *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the result of a function and its pullback: from cotangents of the result to cotangents
    of
    all arguments.

    Args:
        function: A Python function, a traced one, or a compiled function of a program.
        primals: The arguments.

    Raises:
        TraceError: An operator on the way has no derivative.
    """
    if isinstance(function, CompiledFunction):
        return function(*primals), lambda *g: _of_program(
            function, LOp, range(len(primals)), value=False
        )(*primals, *g)
    value = derived_function(function, lambda f, *args: f(*args))(*primals)

    def pulled(*args: object) -> Any:
        recorded = _Recorded(function, args[: len(primals)], range(len(primals)))
        return tuple(
            recorded.pulled(
                recorded.seeds(args[len(primals) :], recorded.results, "cotangent", "result")
            )
        )

    def pull(*cotangents: object) -> Any:
        return derived_function(None, pulled)(*primals, *cotangents)

    return value, pull


def jvp(function: object, primals: Sequence[object], tangents: Sequence[object]) -> tuple[Any, Any]:
    """Return the result of a function and its tangent, given tangents of all arguments.

    Args:
        function: A Python function, a traced one, or a compiled function of a program.
        primals: The arguments.
        tangents: A tangent for each argument, of its shape.

    Raises:
        TraceError: An operator on the way has no derivative.
    """
    count = len(primals)
    if isinstance(function, CompiledFunction):
        return function(*primals), _of_program(function, ROp, range(count), value=False)(
            *primals, *tangents
        )

    def pushed(*args: object) -> Any:
        recorded = _Recorded(function, args[:count], range(count))
        by = [n.value for n in recorded.by]
        seeds = dict(zip(by, recorded.seeds(args[count:], by, "tangent", "argument"), strict=True))
        found = recorded.rules.forward(recorded.operations, seeds, recorded.results)
        return recorded.value, unflatten(recorded.form, iter(recorded.arrays(found)))

    return derived_function(None, pushed)(*primals, *tangents)


def plain_function(function: Any) -> Callable[..., Any]:
    return function.function if isinstance(function, TracedFunction) else function


def derived_function(function: object, derived: Callable[..., object]) -> Any:
    """The derived function: compiled where it is called with arrays, traced where it is called
    while tracing.
    """
    if function is None:
        derived.__name__ = "derivative"
        return traced(derived)
    plain, options = (
        plain_function(function),
        function.options if isinstance(function, TracedFunction) else DEFAULT,
    )
    if not callable(plain):
        fail(f"expected a function to differentiate, got {type(plain).__name__}")
    signature = signature_of(plain)

    @wraps(plain)
    def named(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return derived(partial(plain, **bound.kwargs), *bound.args)

    return traced(named, options)


# While tracing


class _Recorded:
    """A function recorded again on copies of some arguments."""

    def __init__(self, function: object, args: Sequence[object], wrt: Sequence[int]) -> None:
        flat = [flatten_results(a) if n in wrt else (("static", a), []) for n, a in enumerate(args)]
        leaves = [x for _, xs in flat for x in xs]
        if (tracer := tracer_of([*leaves, *args])) is None:
            fail("a derivative is taken of a function of arrays")
        self.tracer: Tracer = tracer
        self.builder = Builder(tracer.operations, caller())
        self.by = [self.node(x).scalar("identity") for x in leaves]
        copies = iter([self._copy(n, x) for n, x in zip(self.by, leaves, strict=True)])
        self.forms = [flat[n][0] for n in sorted(wrt)]
        first = len(tracer.operations)
        self.value = plain_function(function)(*[unflatten(form, copies) for form, _ in flat])
        self.operations = tracer.operations[first:]
        self.form, results = flatten_results(self.value)
        self.results = [self.node(r).value for r in results]
        self.rules = Rules(self.builder, "cvm.grad", self.builder.span, Module(tracer.functions))
        self.rules.check_types([*(n.value for n in self.by), *self.results])

    def _copy(self, node: Node, given: object) -> TracedArray:
        found = TracedArray(self.tracer, node.value)
        found.is_scalar &= not isinstance(given, np.ndarray) and getattr(given, "is_scalar", True)
        return found

    def node(self, given: Any) -> Node:
        return self.builder.node(self.tracer.operand(given, self.tracer.rules, self.builder.span))

    def arrays(self, nodes: Sequence[Node]) -> list[TracedArray]:
        return [TracedArray(self.tracer, n.value) for n in nodes]

    def seeds(
        self, given: Sequence[Any], values: Sequence[Value], what: str, each: str
    ) -> list[Node]:
        """The seeds of the derivative: numbers for values of rank 0, and arrays of the values'
        shapes.
        """
        if len(seeds := [self.node(g) for g in flatten_results(list(given))[1]]) != len(values):
            fail(f"expected {len(values)} {what}s, one of each {each}, got {len(seeds)}")
        for seed, value in zip(seeds, values, strict=True):
            expected, got = value.known_type, seed.value.known_type
            with suppress(Undecided):
                if not fits(got, expected):
                    fail(f"a {what} has the shape of its value, {expected}, got {got}")
        return seeds

    def pulled(self, seeds: Sequence[Node]) -> list[Any]:
        """The cotangents, each in its argument's structure."""
        leaves = iter(
            self.arrays(
                self.rules.reverse(self.operations, [n.value for n in self.by], self.results, seeds)
            )
        )
        return [unflatten(f, leaves) for f in self.forms]


def _value_and_grad(function: object, wrt: Wrt, args: Sequence[object]) -> tuple[Any, Any]:
    places = (wrt,) if isinstance(wrt, int) else tuple(wrt)
    if any(not isinstance(n, int) or not 0 <= n < len(args) for n in places) or len(
        set(places)
    ) != len(places):
        fail(f"wrt names arguments 0 to {len(args) - 1}, each once, got {wrt!r}")
    recorded = _Recorded(function, args, places)
    result = recorded.builder.node(recorded.results[0]) if recorded.form == ("array",) else None
    if result is None or result.rank or result.element.kind != "float":
        fail("the gradient is that of a function with one result, a float of rank 0")
    pulled = recorded.pulled([result.literal(1.0)])
    ordered = [pulled[sorted(places).index(n)] for n in places]
    return recorded.value, ordered[0] if isinstance(wrt, int) else tuple(ordered)


# Derivatives of compiled programs


def _of_program(function: CompiledFunction, derivative: Any, wrt: Wrt, value: bool) -> Any:
    """The derivative of a compiled function of a program, as a function of the same module."""
    source, module = function.function, function.module
    name = f"{source.name}.{derivative.name.partition('.')[2]}"
    places = (wrt,) if isinstance(wrt, int) else tuple(wrt)
    arguments = [Value(a.name, a.type, a.span) for a in source.arguments]
    if derivative is LOp:
        arguments += [Value(f"g_{r.name}", r.type, r.span) for r in source.results]
    elif derivative is ROp:
        arguments += [
            Value(f"d_{source.arguments[n].name}", source.arguments[n].type, source.span)
            for n in places
        ]
    count = len(source.arguments)
    calls: list[tuple[Operator[Value], int]] = []
    if value:
        calls.append((Call(tuple(arguments[:count]), Symbol(source.name)), len(source.results)))
    results = len(source.results) if derivative is ROp else len(places)
    calls.append((derivative(tuple(arguments), Symbol(source.name), wrt=places), results))
    operations = []
    for n, (operator, many) in enumerate(calls):
        values = tuple(Value(f"r{n}_{k}", None, source.span) for k in range(many))
        operations.append(Operation(operator, values, source.span, spans={"op": source.span}))
    returned = tuple(r for o in operations for r in o.results)
    derived = Function(name, tuple(arguments), tuple(operations), returned, span=source.span)
    module = verify(Module({**module.functions, name: derived}, module.filename))
    return compile_function(module, name, function.target, function.options)
