"""Check the rules of an operator beside its formula: `pullback`, `pushforward` and `simplified`.

Derivatives are held against finite differences where these agree for two steps; simplified
operations against the plain ones, bit for bit, on random and extreme values.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from textwrap import dedent, indent
from typing import Any

import numpy as np

import cvm
from cvm.dialect.builtin import Calling, Const, Data
from cvm.dialect.ir.function import Function, Literal, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.program_printer import print_module
from cvm.dialect.ir.verify import instantiated, verify
from cvm.dialect.spec.foreign_operators import source_place
from cvm.dialect.spec.operator import OPERATORS, Operator
from cvm.dialect.theano.grad_lop_rop import LOp, ROp, tangent_type
from cvm.dialect.types.attributes import Symbol
from cvm.dialect.types.sizes import atoms_of
from cvm.dialect.types.tensor_types import TensorType
from cvm.dialect.types.unify import with_sizes
from cvm.jit.compile import prepared
from cvm.jit.functions.reference_function import ReferenceFunction
from cvm.lowering.graph.patterns import PATTERNS, Pattern, of_simplified
from cvm.lowering.graph.rewrite import Rewriting
from cvm.terminal.arguments import random_arrays
from cvm.testing.differences import distance, smallest

SEEDS = 9
Arrays = list[np.ndarray]
DOMAINS = ((-1.0, 1.0), (0.25, 0.75), (1.25, 3.0))  # some functions are defined on one of these
STEPS = {"f": 2.0**-6, "d": 2.0**-10}  # of differences of fourth order
CLOSE = {"f": 5e-3, "d": 1e-6}  # relative to the terms of a derivative
FILLS = (0, 1, -1, 2, 0.5, -0.0, np.inf, np.nan)  # constants in place of an operand
MOST_PROGRAMS = 200  # in which an operator is simplified


def copies(arrays: Arrays) -> Arrays:
    return [a.copy() for a in arrays]


def arguments(arrays: Arrays) -> str:
    return f"the arguments are {', '.join(str(a.tolist()) for a in arrays)}"


def place(item: Any) -> str:
    return ":".join(map(str, source_place(item)))


def _outcome(f: ReferenceFunction, arrays: Arrays) -> Arrays:
    found = f(*copies(arrays))
    return [*found] if isinstance(found, tuple) else [found]


# Derivatives


def wrong_derivative(op: type[Operator[Any]], module: Module, function: Function) -> str:
    """The first derivative of the operator's example that finite differences do not confirm."""
    if op.pullback is Operator.pullback or any(
        isinstance(o.operator, Calling) for o in function.operations
    ):
        return ""
    types = [v.known_type for v in (*function.arguments, *function.results)]
    wrt = [n for n, a in enumerate(function.arguments) if a.known_type.element.dtype.char in STEPS]
    if not wrt or not all(isinstance(t, TensorType) and t.is_static for t in types):
        return ""
    if any(r.known_type.element.dtype.char not in STEPS for r in function.results):
        return ""
    rules: dict[str, Any] = {"pullback": LOp}
    if op.pushforward is not Operator.pushforward:
        rules["pushforward"] = ROp
    for method, kind in rules.items():
        try:
            slopes = _Slopes(module, function, wrt, kind)
        except cvm.Error as e:
            if e.diagnostics[0].code.endswith(".rule"):  # there is no derivative, which it says
                continue
            raise
        for seed in range(SEEDS):
            random = np.random.default_rng(seed)
            arrays = random_arrays(function, seed)
            low, high = DOMAINS[seed % len(DOMAINS)]
            for n in wrt:
                arrays[n] = random.uniform(low, high, arrays[n].shape).astype(arrays[n].dtype)
            along = [random.normal(size=arrays[n].shape).astype(arrays[n].dtype) for n in wrt]
            if slopes.wrong(arrays, along) is None:
                continue
            few = smallest(function, arrays, lambda x, s=slopes, a=along: s.wrong(x, a))
            at, stated, found = slopes.wrong_by_element(few, along)
            return (
                f"its `{method}` ({place(getattr(op, method))}) gives {stated:.6g} as the "
                f"derivative{at} of the sum of its results, finite differences {found:.6g}; "
                f"{arguments(few)}"
            )
    return ""


class _Slopes:
    """Slopes of the sum of a function's results, by a derivative and by finite differences."""

    def __init__(
        self, module: Module, function: Function, wrt: Sequence[int], kind: type[LOp] | type[ROp]
    ) -> None:
        self.wrt, self.reverse, self.names = wrt, kind is LOp, [a.name for a in function.arguments]
        seeded = function.results if self.reverse else [function.arguments[n] for n in wrt]
        seeds = [Value(f"seed{n}", tangent_type(v.known_type)) for n, v in enumerate(seeded)]
        values = [*(Value(a.name, a.type) for a in function.arguments), *seeds]
        count = len(wrt) if self.reverse else len(function.results)
        found = tuple(Value(f"derivative{n}", None) for n in range(count))
        operator = kind(tuple(values), Symbol(function.name), wrt=tuple(wrt))
        name = f"{function.name}.derivative"
        made = Function(name, tuple(values), (Operation(operator, found),), found)
        derived = verify(module.with_functions({**module.functions, name: made}))
        self.derivative = ReferenceFunction(*prepared(derived, name))
        self.function = ReferenceFunction(module, function)

    def wrong(self, arrays: Arrays, along: Arrays) -> tuple[float, float] | None:
        """The slopes by the derivative and by differences; None where they agree or are unclear."""
        with np.errstate(all="ignore"):
            results = _outcome(self.function, arrays)
            seeds = [np.ones_like(r) for r in results] if self.reverse else along
            parts = _outcome(self.derivative, [*arrays, *seeds])
            if self.reverse:
                parts = [p * t for p, t in zip(parts, along, strict=True)]
            stated = _sum(parts)
            floats = [*results, *(arrays[n] for n in self.wrt)]
            step = max(STEPS[a.dtype.char] for a in floats)
            close = max(CLOSE[a.dtype.char] for a in floats)
            near, far = (self._difference(arrays, along, h) for h in (step / 2, step))
            eps = max(float(np.finfo(a.dtype).eps) for a in floats)
            size = _sum([np.abs(r) for r in results])
            bound = close * (_sum([np.abs(p) for p in parts]) + abs(near)) + 8 * eps * size / step
        if not np.isfinite([near, far, size]).all() or abs(near - far) > bound / 4:
            return None  # outside of the domain, or where the function is not smooth
        return None if abs(stated - near) <= bound else (stated, near)

    def _difference(self, arrays: Arrays, along: Arrays, step: float) -> float:
        """The slope by central differences of the fourth order."""

        def at(distance: float) -> float:
            moved = [*arrays]
            for n, t in zip(self.wrt, along, strict=True):
                moved[n] = arrays[n] + t * t.dtype.type(distance)
            return _sum(_outcome(self.function, moved))

        return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)

    def wrong_by_element(self, arrays: Arrays, along: Arrays) -> tuple[str, float, float]:
        """The first element by which the slope is wrong, or a direction; with the slopes."""
        for k, n in enumerate(self.wrt):
            for at in np.ndindex(arrays[n].shape):
                unit = [np.zeros_like(t) for t in along]
                unit[k][at] = 1
                if (found := self.wrong(arrays, unit)) is not None:
                    return f" by %{self.names[n]}{list(at)}", *found
        found = self.wrong(arrays, along)
        assert found is not None
        return f" along {', '.join(str(t.tolist()) for t in along)}", *found


def _sum(arrays: Arrays) -> float:
    return float(sum(a.astype(np.float64).sum() for a in arrays))


# Simplifications


def rewritten_programs(
    op: type[Operator[object]], function: Function
) -> Iterator[tuple[Function, Function, Sequence[Pattern]]]:
    """Programs that patterns, or the operator's `simplified`, rewrite at an operation of the
    example's operator; each with the rewritten program and these patterns.
    """
    patterns = [*PATTERNS.values()]
    if of_simplified(op) is None and not any(issubclass(op, p.roots) for p in patterns):
        return
    for program in _programs(op, function):
        rewriting = Rewriting(program, patterns, is_called=True)
        simpler = rewriting.run()
        if simpler is not program and all(issubclass(op, p.roots) for p in rewriting.applied):
            yield program, simpler, [*rewriting.applied]  # others are of other operators


def wrong_simplification(op: type[Operator[object]], module: Module, function: Function) -> str:
    """The first program to which patterns, or the operator's `simplified`, give another result."""
    texts = ((p, p.rewrite) for p in PATTERNS.values() if p.rewrite and op in p.roots)
    stated = ((_of_sizes(r.before), _of_sizes(r.after), [p]) for p, r in texts)
    for program, simpler, applied in chain(stated, rewritten_programs(op, function)):
        try:
            functions = [ReferenceFunction(Module({"main": f}), f) for f in (program, simpler)]
        except cvm.Error:
            continue
        random = (random_arrays(program, seed) for seed in range(SEEDS))
        for arrays in chain(samples(program), random):
            if (said := _changed(functions, arrays)) is None:
                continue
            few = smallest(program, arrays, lambda tried, f=functions: _changed(f, tried))
            said = _changed(functions, few) or said
            text = indent(print_module(Module({"main": program})).rstrip(), "  ")
            by = ", ".join(_shown(p, op) for p in applied)
            return f"{by} changes the result {said}; {arguments(few)}, of the program\n{text}"
    return ""


def _of_sizes(function: Function) -> Function:
    """A program of a rewrite for sizes that are known."""
    types = function.argument_types
    atoms = sorted(atoms_of(d for t in types for d in t.array_shape), key=str)
    sizes = {atom: n for n, atom in enumerate(atoms, 2)}
    return instantiated(Module({}), function, [with_sizes(t, sizes) for t in types])


def _shown(pattern: Pattern, op: type[Operator[Any]]) -> str:
    if pattern.rewrite is not None:
        span = pattern.rewrite.span
        return f"rewrite @{pattern.name} ({span.source.filename}:{span.line})"
    own = "its `simplified`" if pattern is of_simplified(op) else pattern.who
    return f"{own} ({place(pattern.declared)})"


def _changed(functions: Sequence[ReferenceFunction], arrays: Arrays) -> str | None:
    """The first element that differs; None where none does, or the operation rejects the call."""
    try:
        with np.errstate(all="ignore"):
            x, y = (_outcome(f, arrays)[0] for f in functions)
    except cvm.CallError:
        return None
    if not (wrong := distance(x, y) > 0).any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"at {list(at)} from {x[at].item()!r} to {y[at].item()!r}"


def _programs(op: type[Operator[Any]], function: Function) -> Iterator[Function]:
    """Functions whose last operation is that of the example.

    Its operands are arguments, constants, each other, or results of operations of the dialect.
    """
    own = [o for o in function.operations if isinstance(o.operator, op)]
    if len(own) != 1 or len(own[0].results) != 1:
        return
    operands = [v for _, v in own[0].operator.operands()]
    static = all(isinstance(v.type, TensorType) and v.type.is_static for v in operands)
    if not static or any(isinstance(v, Literal) for v in operands):
        return
    changes: list[dict[Value, Operation | Value]] = [{}]
    for v in dict.fromkeys(operands):
        type: Any = v.type
        changes.extend({v: o} for o in _constants(type))
        changes.extend({v: w} for w in operands if w is not v and w.type == type)
        changes.extend({v: o} for o in _producers(op.dialect, type))
    for change in changes[:MOST_PROGRAMS]:
        with suppress(cvm.Error):  # an operator that does not take this constant
            yield _program(own[0], operands, change)


def _program(
    operation: Operation, operands: Sequence[Value], change: dict[Value, Operation | Value]
) -> Function:
    before: list[Operation] = []
    new: dict[Value, Value] = {}
    for v in dict.fromkeys(operands):
        changed = change.get(v, v)
        if isinstance(changed, Operation):
            before.append(changed)
            changed = changed.results[0]
        new[v] = changed
    last = replace(operation, operator=operation.operator.map(lambda v: new[v]), declared=None)
    operated = [v for o in before for _, v in o.operator.operands()]
    inside = {r for o in before for r in o.results}
    given = tuple(v for v in dict.fromkeys([*new.values(), *operated]) if v not in inside)
    program = Function("main", given, (*before, last), last.results)
    return verify(Module({"main": program})).functions["main"]


def _constants(type: TensorType) -> Iterator[Operation]:
    for fill in FILLS:
        with suppress(ValueError, OverflowError), np.errstate(all="ignore"):
            array = np.full(type.array_shape, fill, type.element.dtype)
            if array.size and (fill != fill or array.flat[0] == fill):
                constant = Const(Data(array, splat=array.size > 1), type)
                yield Operation(constant, (Value("c", type),))


def _producers(dialect: str, type: TensorType) -> Iterator[Operation]:
    """The operations of the dialect's examples that give a value of this type."""
    for op in [o for o in OPERATORS.values() if o.dialect == dialect and o.example]:
        try:
            example = [*cvm.parse(dedent(op.example)).functions.values()][-1]
        except cvm.Error:
            continue
        for o in example.operations:
            values = [v for _, v in o.operator.operands()]
            known = all(v in example.arguments for v in values)
            if isinstance(o.operator, op) and known and [r.type for r in o.results] == [type]:
                yield o


def samples(function: Function) -> Iterator[Arrays]:
    """Extreme values, each for all arguments and in turns."""
    edges = [_edges(a.known_type.element.dtype) for a in function.arguments]
    shapes = [a.known_type.array_shape for a in function.arguments]
    for shift in range(max(map(len, edges), default=0)):
        for turn in (0, 1):
            yield [
                np.resize(np.roll(e, -shift - turn * n * 3), s).astype(e.dtype)
                for n, (e, s) in enumerate(zip(edges, shapes, strict=True))
            ]


def _edges(dtype: Any) -> np.ndarray:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.array([0, 1, limits.max, limits.min, -1 if limits.min else 2, 3], dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    tiny = (
        [1e-45, 1e-40, 3e38] if dtype.itemsize * (1 + (dtype.kind == "c")) < 8 else [5e-324, 1e308]
    )
    values = [1.0, 0.0, -0.0, -1.5, np.inf, -np.inf, np.nan, *tiny]
    with np.errstate(all="ignore"):
        return np.array(values).astype(dtype)
