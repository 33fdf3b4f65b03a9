"""`cvm.vmap`: a function of arrays as one of stacks of arrays, as in JAX.

The function is traced for one element of the stack, and each operation becomes one on stacks:
elementwise ones, reductions and those that move elements get a further first axis, cheap branches
become a select, and any other operation runs once for each element, in a loop (`builtin.scan`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cvm.dialect.builtin import Calling
from cvm.dialect.builtin.control_flow import If, Scan
from cvm.dialect.ir.function import Function, Literal, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.spec.operator import Operator
from cvm.dialect.types.attributes import Symbol
from cvm.dialect.types.tensor_types import TensorType
from cvm.lowering.graph.inline import is_cheap

from ..numpy.axes import whole_axis
from ..numpy.shapes import broadcast, moveaxis
from ..numpy.subscripts import FAR
from ..tracing.diagnose import caller, fail
from ..tracing.trace import TracedArray, Tracer, apply, tracer_of
from .derivatives import derived_function
from .traced_function import flatten_results, unflatten

ELEMENTWISE = ("numpy.elementwise", "theano.elemwise")
SHIFTED = {  # attributes that number axes
    **{f"theano.{n}": "axis" for n in ("sum", "prod", "max", "min", "any", "all")},
    **{f"builtin.{n}": "axis" for n in ("argmax", "argmin", "argsort", "cumulative")},
    **{
        "cvm.expand_dims": "axis",
        "cvm.squeeze": "axes",
        "cvm.repeat": "axis",
        "cvm.concatenate": "axis",
    },
}
LISTED: dict[
    str, dict[str, Callable[[object], object]]
] = {  # attributes with an entry for each axis; the first one's
    "theano.dimshuffle": {"new_order": lambda _: 0},
    "cvm.transpose": {"axes": lambda _: 0},
    "cvm.reshape": {"target_shape": lambda n: n},
    "cvm.slice": {"begin": lambda _: 0, "end": lambda _: FAR, "strides": lambda _: 1},
}
NUMBERING = ("new_order", "axes")  # of these, those whose entries number axes


def vmap(fun: object, in_axes: object = 0, out_axes: object = 0) -> Any:
    """Return the function over stacks of arrays: it applies `fun` to each element of the stacks.

    Each element has the bits of a call of `fun`.

    Args:
        fun: A function of arrays.
        in_axes: The axis along which each argument is stacked; None for an argument that is the
            same
            for every element. A tuple has an entry for each argument, and tuples, lists and
            dictionaries of axes follow the structure of an argument or of a part of it.
        out_axes: The axis along which results are stacked, in the same form.

    Raises:
        TraceError: Stacks differ in length, or an argument has no such axis.
    """
    return derived_function(fun, lambda f, *args: _Batch(f, in_axes, out_axes).of(args))


class _Batch:
    """The operations of a function of one element, as operations on stacks."""

    def __init__(self, function: Callable[..., object], in_axes: object, out_axes: object) -> None:
        self.function, self.in_axes, self.out_axes = function, in_axes, out_axes
        self.values: dict[
            Value, Value
        ] = {}  # of the function: those of the stacks, or those that are not stacked
        self.stacked: set[Value] = set()

    def of(self, args: Sequence[Any]) -> Any:
        arrays = [
            isinstance(x, (np.ndarray, tuple, list, dict)) or getattr(x, "weak", 0) is None
            for x in args
        ]
        axes = [
            self.in_axes if a else None for a in arrays
        ]  # numbers, as defaults are, are the same for all elements
        if isinstance(self.in_axes, (tuple, list)):
            axes = [*self.in_axes, *(None for a in arrays[len(self.in_axes) :] if not a)]
        if len(axes) != len(args):
            fail(f"in_axes has an axis for each of the {len(args)} arguments, got {len(axes)}")
        forms = [
            (("static", x), []) if a is None else _along(a, x, "in_axes")
            for a, x in zip(axes, args, strict=True)
        ]
        given = [(x, a) for _, pairs in forms for x, a in pairs if a is not None]
        if (tracer := tracer_of([x for x, _ in given])) is None:
            fail("cvm.vmap stacks arrays: in_axes names none of the arguments")
        found = (
            x if isinstance(x, TracedArray) else tracer.constant(np.asarray(x)) for x, _ in given
        )
        stacks = [
            moveaxis(x, whole_axis(a, x.ndim), 0) for x, (_, a) in zip(found, given, strict=True)
        ]
        if len(sizes := list(dict.fromkeys(s.shape[0] for s in stacks))) != 1:
            fail(f"the stacks of cvm.vmap have one size, got {' and '.join(map(str, sizes))}")
        self.tracer, self.size, self.span = tracer, sizes[0], caller()
        inner = Tracer(f"{tracer.name}.vmap{len(tracer.functions)}", tracer.rules, outer=tracer)
        for n, stack in enumerate(stacks):
            one = inner.argument(f"x{n}", TensorType(stack.shape[1:], stack.type.element))
            self._enter(one.value, tracer.operand(stack, tracer.rules, self.span))
        elements = iter([TracedArray(inner, a) for a in inner.arguments])
        leaves = iter([x if a is None else next(elements) for _, pairs in forms for x, a in pairs])
        inner.span = self.span
        with inner:
            passed = [unflatten(form, leaves) for form, _ in forms]
            form, results = _along(self.out_axes, self.function(*passed), "out_axes")
        found = [(inner.operand(x, tracer.rules, self.span), a) for x, a in results]
        self.values |= {mine: outer for outer, mine in inner.captured.items()}
        self.module = Module(inner.functions)
        self._add_all(inner.operations)
        return unflatten(form, iter([self._result(v, a) for v, a in found]))

    def _add_all(self, operations: Sequence[Operation]) -> None:
        """Add the operations on stacks that stand for those on elements."""
        for operation in operations:
            if operation.acts(self.module.effects):
                fail(f"cvm.vmap takes no operation with an effect, got {operation.operator.name}")
            operands = list(dict.fromkeys(v for _, v in operation.operator.operands()))
            if any(v in self.stacked for v in operands):
                if isinstance(operation.operator, If) and is_cheap(self.module, operation):
                    stacked = self._by_select(operation.operator)
                else:
                    stacked = self._by_rule(operation.operator, operands) or self._by_loop(
                        operation, operands
                    )
                for one, stack in zip(operation.results, stacked, strict=True):
                    self._enter(one, stack)
            else:
                self.values |= zip(
                    operation.results, self._add(operation.operator, self._now), strict=True
                )

    def _enter(self, one: Value, stack: Value) -> None:
        self.values[one] = stack
        self.stacked.add(one)

    def _now(self, value: Value) -> Value:
        return value if isinstance(value, Literal) else self.values[value]

    def _result(self, value: Value, axis: Any) -> Any:
        found = TracedArray(self.tracer, self._now(value))
        if axis is None:
            return (
                fail("out_axes is None of a result that depends on the element")
                if value in self.stacked
                else found
            )
        if value not in self.stacked:
            found = broadcast(found, (self.size, *found.shape))
        return moveaxis(found, 0, whole_axis(axis, found.ndim))

    def _add(self, operator: Any, change: Callable[[Value], Value]) -> list[Value]:
        mapped = operator.map(change)
        mapped = (
            mapped.with_signature(*operator.signature) if isinstance(operator, Calling) else mapped
        )
        return [a.value for a in self.tracer.add(mapped, self.span)]

    def _by_rule(self, operator: Any, operands: Sequence[Value]) -> list[Value]:
        """The results of the operator on stacks; none where there is no rule for it."""
        rank = max(len(v.known_type.array_shape) for v in operands)
        if operator.name in ELEMENTWISE:
            return self._add(operator, lambda v: self._of_rank(v, rank))
        changes: dict[str, object] = {}
        if (name := SHIFTED.get(operator.name)) is not None:
            axis = getattr(operator, name)
            axis = (
                tuple(range(rank)) if axis is None and operator.name.startswith("theano.") else axis
            )
            if axis is None or min(axis if isinstance(axis, tuple) else (axis,), default=0) < 0:
                return []
            changes[name] = tuple(a + 1 for a in axis) if isinstance(axis, tuple) else axis + 1
        for name, first in LISTED.get(operator.name, {}).items():
            entries = getattr(operator, name)
            if not isinstance(self.size, int) or (
                operator.name == "cvm.slice" and len(entries) != rank
            ):
                return []
            if name in NUMBERING:
                entries = tuple(a + 1 if isinstance(a, int) and a >= 0 else a for a in entries)
            changes[name] = (first(self.size), *entries)
        return self._add(replace(operator, **changes), self._stack) if changes else []

    def _by_select(self, branch: If[Value]) -> list[Value]:
        """The results of both functions of a branch on stacks, selected for each element."""
        sides: list[Sequence[Value]] = []
        for _, name in branch.callees:
            callee = self.module.functions[name]
            for argument, value in zip(callee.arguments, branch.arguments[1:], strict=True):
                self.values[argument] = self._now(value)
                if value in self.stacked:
                    self.stacked.add(argument)
            self._add_all(callee.operations)
            sides.append(callee.results)
        flags = TracedArray(self.tracer, self._stack(branch.arguments[0]))
        found: list[Value] = []
        for pair in zip(*sides, strict=True):
            order = (0, *["x"] * len(pair[0].known_type.array_shape))
            flag = apply("theano.dimshuffle", flags, new_order=order)
            given = (TracedArray(self.tracer, self._stack(v)) for v in pair)
            found.append(apply("theano.elemwise", flag, *given, scalar_op="switch").value)
        return found

    def _of_rank(self, value: Value, rank: int) -> Value:
        """An operand whose stacked axis comes before those of operands of higher rank."""
        own = len(value.known_type.array_shape)
        if value not in self.stacked or own == rank:
            return self._now(value)
        order = (0, *["x"] * (rank - own), *range(1, own + 1))
        return apply(
            "theano.dimshuffle", TracedArray(self.tracer, self._now(value)), new_order=order
        ).value

    def _stack(self, value: Value) -> Value:
        if value in self.stacked:
            return self._now(value)
        return broadcast(
            x := TracedArray(self.tracer, self._now(value)), (self.size, *x.shape)
        ).value

    def _by_loop(self, operation: Operation, operands: Sequence[Value]) -> list[Value]:
        """The results of the operation on one element after the other."""
        order = sorted(
            [v for v in operands if not isinstance(v, Literal)], key=lambda v: v not in self.stacked
        )
        copies = {v: Value(f"a{n}", v.known_type, self.span) for n, v in enumerate(order)}
        copied: Operator[Value] = operation.operator.map(lambda v: copies.get(v, v))
        name, results = f"{self.tracer.name}.each{len(self.tracer.functions)}", operation.results
        each = Function(
            name,
            tuple(copies.values()),
            (replace(operation, operator=copied),),
            results,
            span=self.span,
        )
        self.tracer.functions[name] = each
        scan = Scan(
            tuple(map(self._now, order)), Symbol(name), 0, sum(v in self.stacked for v in order)
        )
        return self._add(
            scan.with_signature(each.argument_types, [r.known_type for r in results]), lambda v: v
        )


def _along(spec: Any, value: Any, what: str) -> tuple[Any, list[tuple[Any, Any]]]:
    """The structure of a value, and its arrays, each with its axis."""
    form, leaves = flatten_results(value)
    if spec is None or isinstance(spec, int):
        return form, [(x, spec) for x in leaves]
    keyed = isinstance(spec, dict)
    if (
        type(spec) is not type(value)
        or len(spec) != len(value)
        or (keyed and spec.keys() != value.keys())
    ):
        fail(
            f"{what} of cvm.vmap has the structure of what it is for, or of a part of it, "
            f"got {spec!r}"
        )
    pairs = [(spec[k], v) for k, v in value.items()] if keyed else zip(spec, value, strict=True)
    return form, [found for s, v in pairs for found in _along(s, v, what)[1]]
