"""Python functions to kernels of the loop language: statements and expressions, in their order."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, NoReturn, cast

import numpy as np

from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.kernel_ir.affine import Affine, affine, key
from cvm.dialect.kernel_ir.traverse import rewrite, walk
from cvm.dialect.support.diagnostics import Span, TraceError
from cvm.dialect.support.suggest import did_you_mean
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import BY_DTYPE, I1, I64, ElementType
from cvm.lowering.loops.build_loops import is_speculatable

from . import array_functions, calls, functions, parallel
from .array_expressions import ONE, ArrayExpressions, Operation
from .arrays import Along, Array, Elements, Known, Made, Masked, Method, Values
from .blocks import FAULT, one_bit
from .calls import Inlined
from .definitions import UNDEFINED, Definitions, arguments
from .hoist_tests import LoopValues, hoisted
from .iteration import loop_over, range_loop
from .numbers import BOOL, INT, MOST_BITS, Number, NumberType, common, exact, of_python
from .source import CompiledFunction, FunctionSource

STATEMENTS = "for, while, if, break, continue, assignments, assert, raise and return"
MOST_PASSES = 40  # over a function, until its types are known: each pass widens one


class Unready(Exception):
    """The type of a variable that is not known in this pass."""


@dataclass(frozen=True)
class ArrayType:
    """The type of an array, for which a version is compiled: elements, rank and contiguity."""

    element: ElementType
    rank: int
    contiguous: bool = True


@dataclass(frozen=True)
class ViewType:
    """A view of an array as a result: for each axis of the array the axis of the view along it and
    its step, or None where it is at an index.
    """

    array: str
    rank: int
    axes: tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True)
class IntegerType(NumberType):
    """The same of an integer, whether of Python's or NumPy's, that index arithmetic does not let
    overflow.
    """


@dataclass(frozen=True, eq=False)
class Built:
    """A kernel, and what a call of it passes and gives."""

    kernel: ir.Kernel
    inputs: tuple[
        ex.Tensor, ...
    ]  # in the order of arguments, captured arrays and made arrays, then of numbers
    results: tuple[ex.Tensor, ...]
    arrays: Mapping[str, Array]
    written: frozenset[str]
    made: tuple[Made, ...]
    numbers: Mapping[str, ex.Var]  # arguments
    lets: Mapping[ex.Expr, ex.Expr]
    returned: object  # NumberType, a name of an array, a tuple of these, or None
    captured: Mapping[str, np.ndarray]
    is_parallel: bool = False


@dataclass(frozen=True, eq=False)
class ArrayVariable:
    """The memory of a name that stands for several arrays, one after the other, and their sizes."""

    array: Array
    sizes: Sequence[ex.Tensor]
    made: int  # its place among the arrays that are made
    limits: list[list[ex.Expr]]  # sizes that its values have at most

    @property
    def extents(self) -> list[ex.Expr]:
        """The sizes of the memory."""
        shape = self.array.tensor.shape
        return [ex.as_index(d) for d in shape[len(shape) - self.array.rank :]]


class Builder(ArrayExpressions):
    """One pass over a function; `types` and `stored` are what passes before found of its
    variables.
    """

    def __init__(
        self,
        source: FunctionSource,
        definitions: Definitions,
        signature: Mapping[str, Any],
        checks: bool,
        types: dict[ast.AST, Any],
        stored: set[ast.AST],
        overlaps: bool = False,
        plain: bool = False,
        inlined: dict[ast.Call, Inlined] | None = None,
    ) -> None:
        super().__init__(source, checks, overlaps=overlaps)
        self.plain = plain
        self.parallel: list[tuple[ir.For, Span]] = []  # of a plain kernel
        # statements of a plain kernel by id, and where they are from
        self.places: dict[int, tuple[ir.Statement, Span]] = {}
        self.kept: list[ir.Statement] = []
        self.definitions, self.signature = definitions, signature
        self.types, self.stored = types, stored
        self.inlined = {} if inlined is None else inlined  # the functions of calls
        self.calling = False  # whether the statement has calls, which may change what it has read
        self.callers = [source.function]  # the function, and those whose calls it stands in
        self.changed = self.unready = False
        self.bound: dict[ast.AST, object] = {}
        self.registers: dict[ast.AST, ex.Tensor] = {}
        self.flags: dict[ast.AST, ex.Tensor] = {}
        self.head: list[ir.Statement] = []
        self.allocations: list[ir.Statement] = []
        self.numbers: dict[str, ex.Var] = {}
        self.ever: dict[ast.AST, object] = {}  # values of definitions, wherever they are known
        self.presumed: list[tuple[frozenset[ast.AST], Array]] = []  # definitions of one array
        self.variables: dict[ast.AST, ArrayVariable] = {}
        self.own_variables: list[ArrayVariable] = []  # of called functions
        # of the called function, the number of arrays made before, and definitions of its result
        self.own: tuple[int, frozenset[ast.AST]] = 0, frozenset()
        self.captured: dict[str, np.ndarray] = {}
        self.constants: dict[int, tuple[str, np.ndarray]] = {}  # by identity, their names
        self.results: list[ex.Tensor] = []
        # loops by id, their values, and the facts and small numbers around them
        self.hoistable: dict[int, tuple[ir.For, LoopValues, list[Affine], set[ex.Expr]]] = {}
        self.returned: object = Unready
        self.first_return: ast.AST | None = None
        self.around: list[
            ex.Tensor | None
        ] = []  # the flags of loops with an else, set where they are left

    def kernel(self) -> Built:
        function = self.source.tree
        for a in arguments(function):
            self.bound[a] = self.ever[a] = value = self._argument(a)
            if isinstance(value, Number):
                self.define(a, value, a)
        self.statements(function.body)
        self.settle_names()
        self.settle_arrays()
        if self.definitions.falls_off and self.returned not in (Unready, None):
            assert self.first_return is not None
            raise self.source.mistake(
                "this function may end without a return, and returns a value here",
                self.first_return,
            )
        none = [ir.Store(FAULT, (ex.as_index(n),), ex.ZERO) for n in range(2)]
        body = (*none, *self.head, *self.allocations, *self.out)
        if self.plain:
            parallel.check_races(self, body)
        if not self.changed:
            body = ir.rewrite_block(body, self.without_tests)
        written = [a.tensor for n, a in self.arrays.items() if n in self.written]
        views = {t: ex.Tensor(f"{t.name}.out", t.shape, t.element) for t in written}
        body = ir.replace_arrays(body, views)
        outputs = (*views.values(), *self.results, FAULT)
        span = self.source.span(function)
        kernel = ir.Kernel(
            function.name, (*self.tensors, *outputs), body, len(outputs), span, scheduled=True
        )
        returned = None if self.returned is Unready else self.returned
        return Built(
            kernel,
            tuple(self.tensors),
            outputs,
            self.arrays,
            frozenset(self.written),
            tuple(self.made),
            self.numbers,
            self.lets,
            returned,
            self.captured,
            any(
                d.parallel
                for d in [self.definitions, *(i.definitions for i in self.inlined.values())]
            ),
        )

    def without_tests(self, s: ir.Statement) -> ir.Block | None:
        """An innermost loop with its tests before it."""
        if id(s) not in self.hoistable:
            return None
        loop, values, self.facts, self.small = self.hoistable[id(s)]
        if any(isinstance(inner, (ir.For, ir.While)) for inner in ir.statements(loop.body)):
            return None
        return (hoisted(self, loop, values),)

    def _argument(self, a: ast.arg) -> object:
        kind = self.signature[a.arg]
        if isinstance(kind, ArrayType):
            return self.array_of(a.arg, kind)
        if not isinstance(kind, NumberType):
            return kind  # a constant
        tensor = ex.Tensor(a.arg, (), kind.element)
        self.tensors.append(tensor)
        var = ex.Var(f"{a.arg}", kind.element)
        self.head.append(ir.Let(var, tensor[()]))
        self.numbers[a.arg] = var
        self.rank(var)
        if isinstance(kind, IntegerType) and kind.element is I64:
            self.small.add(var)
            self.limits[var] = var
        return Number(var, kind.weak)

    def array_of(self, name: str, kind: ArrayType) -> Array:
        """An array that calls pass."""
        plain = name if name.isascii() else f"0a{len(self.arrays)}"
        axes = tuple(Along(n) for n in range(kind.rank))
        if kind.contiguous:
            shape = tuple(Size.named(f"{plain}_{n}") for n in range(kind.rank))
            tensor = ex.Tensor(name, shape, kind.element)
            array = Array(name, tensor, tuple(map(ex.as_index, shape)), axes)
            self.tensors.append(tensor)
        else:
            tensor = ex.Tensor(name, (Size.named(f"{plain}_span"),), kind.element)
            self.tensors.append(tensor)
            parts: list[list[ex.Expr]] = [[], []]
            for n in range(kind.rank):
                for part, what in zip(parts, ("size", "stride"), strict=True):
                    given = ex.Tensor(f"{name}.{what}{n}", (), I64)
                    var = ex.Var(given.name, I64)
                    self.tensors.append(given)
                    self.head.append(ir.Let(var, given[()]))
                    self.rank(var)
                    self.small.add(var)
                    self.numbers[given.name] = self.limits[var] = var
                    part.append(var)
            self.facts += [affine(v) for v in parts[0]]
            array = Array(name, tensor, tuple(parts[0]), axes, tuple(parts[1]))
        self.arrays[name] = array
        return array

    # statements

    def statements(self, block: Sequence[ast.stmt]) -> bool:
        """The statements of a block; whether what follows it is reached."""
        return all(self.statement(s) for s in block)

    @contextmanager
    def nested(self, *facts: Affine) -> Iterator[list[ir.Statement]]:
        """A block whose definitions are known only inside of it."""
        outer = dict(self.bound)
        with self.block(*facts) as block:
            yield block
        self.bound = outer

    def statement(self, s: ast.stmt) -> bool:
        block, first = self.out, len(self.out)
        outer, self.calling = self.calling, any(n in self.inlined for n in ast.walk(s))
        goes_on = self._statement(s)
        self.calling = outer
        if self.plain:
            for made in ir.statements(tuple(block[first:])):
                self.places.setdefault(id(made), (made, self.source.span(s)))
        return goes_on

    def _statement(self, s: ast.stmt) -> bool:
        match s:
            case ast.Assign(targets, value):
                self.attempt(lambda: self.assign(targets, value))
            case ast.AnnAssign(target, _, ast.expr() as value, _):
                self.attempt(lambda: self.assign([target], value))
            case ast.AugAssign():
                self.attempt(lambda: self.augmented(s))
            case ast.If(test, body, orelse):
                return self.branch(test, body, orelse)
            case ast.For():
                return self.for_loop(s)
            case ast.While():
                return self.while_loop(s)
            case ast.Break() | ast.Continue():
                if isinstance(s, ast.Break) and (flag := self.around[-1]) is not None:
                    self.out.append(ir.assign(flag, one_bit(True)))
                self.out.append(ir.Break() if isinstance(s, ast.Break) else ir.Continue())
                return False
            case ast.Return(value):
                self.attempt(lambda: self.give(value, s))
                self.out.append(ir.Return())
                return False
            case ast.Raise():
                self.raised(s)
                return False
            case ast.Assert(test, message):
                self.attempt(lambda: self.asserted(s, test, message))
            case ast.Pass() | ast.Expr(ast.Constant()) | ast.AnnAssign():
                pass
            case ast.Expr(value):
                self.attempt(lambda: self.value(value))
            case _:
                said = {
                    "FunctionDef": "def",
                    "ClassDef": "class",
                    "AsyncFunctionDef": "async def",
                }.get(type(s).__name__, type(s).__name__.lower())
                raise self.source.mistake(
                    f"kernels have no {said}; their statements are {STATEMENTS}", s
                )
        return True

    def attempt(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Unready:
            self.unready = True

    def condition(self, test: ast.expr) -> ex.Expr:
        try:
            return self.truth_of(test)
        except Unready:
            self.unready = True
            return ex.Read(ir.accumulator("unknown", I1), ())

    def branch(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> bool:
        condition = self.condition(test)
        if isinstance(condition, ex.Const):
            return self.statements(body if condition.value else orelse)
        with self.nested(*self.conditions(condition)) as then:
            goes_on = self.statements(body)
        with self.nested(*self.conditions(condition, False)) as otherwise:
            goes_on_otherwise = self.statements(orelse)
        self.out.append(ir.If(condition, tuple(then), tuple(otherwise)))
        if not goes_on:
            self.facts += self.conditions(condition, False)
        elif not goes_on_otherwise:
            self.facts += self.conditions(condition)
        return goes_on or goes_on_otherwise

    def asserted(self, s: ast.Assert, test: ast.expr, message: ast.expr | None) -> None:
        condition = self.truth_of(test)
        text = "" if message is None else self.text(message)
        bad = one_bit(not condition.value) if isinstance(condition, ex.Const) else ~condition
        self.fail_if(bad, "AssertionError", _literal(text), s)
        self.facts += self.conditions(condition)

    def raised(self, s: ast.Raise) -> None:
        match s.exc:
            case ast.Call(function, arguments, []) if len(arguments) <= 1:
                text = self.text(arguments[0]) if arguments else ""
            case ast.expr() as function:
                text = ""
            case _:
                raise self.source.mistake("kernels raise an exception with a constant message", s)
        kind = self.value(function)
        if not (
            isinstance(kind, Known)
            and isinstance(kind.value, type)
            and issubclass(kind.value, Exception)
            and kind.value.__module__ == "builtins"
        ):
            raise self.source.mistake(
                "kernels raise exceptions of Python's own, as in raise ValueError('message')", s
            )
        self.fail(kind.value.__name__, _literal(text), s)

    def text(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise self.source.mistake("messages are constant strings", node)

    # assignments

    def assign(self, targets: Sequence[ast.expr], node: ast.expr) -> None:
        value = self.value(node)
        if isinstance(value, Number) and not (
            len(targets) == 1 and isinstance(targets[0], ast.Subscript)
        ):
            value = Number(self.let(value.expr, _name(targets[0])), value.weak)
        if isinstance(value, Elements) and len(targets) > 1:
            value = self.in_memory(value, node)
        for target in targets:
            self.store(target, value, node)

    def store(self, target: ast.expr, value: object, node: ast.expr) -> None:
        match target:
            case ast.Name():
                self.define(target, value, target)
            case ast.Tuple(parts) | ast.List(parts):
                items = self.items(value, target)
                if len(items) != len(parts) or any(isinstance(p, ast.Starred) for p in parts):
                    raise self.source.mistake(f"{len(items)} values for {len(parts)} names", target)
                held = self.steady(Values(items), "v", node)
                for part, item in zip(parts, cast("Values", held).items, strict=True):
                    self.store(part, item, node)
            case ast.Subscript():
                self.store_at(self.target(target), value, node)
            case _:
                raise self.source.mistake("kernels assign to names and elements of arrays", target)

    def write(self, element: Array, value: Number, node: ast.AST) -> None:
        stored = self.to(value, NumberType(element.element), node)
        self.written.add(element.tensor.name)
        self.out.append(ir.Store(element.tensor, element.place(()), stored.expr))

    def augmented(self, s: ast.AugAssign) -> None:
        if isinstance(s.target, ast.Name):
            old = self.name(s.target)
            if isinstance(old, Array):
                self.update_array(old, s.op, self.value(s.value), s)
                self.bound[s.target] = self.ever[s.target] = old
                return
            old = self.number_of(old, s.target)
            value = self.binary(s.op, old, self.number_of(self.value(s.value), s.value), s)
            self.define(s.target, Number(self.let(value.expr, s.target.id), value.weak), s)
            return
        if not isinstance(s.target, ast.Subscript):
            raise self.source.mistake("kernels assign to names and elements of arrays", s)
        target = self.target(s.target)
        if isinstance(target, Array) and not target.rank:
            target = replace(target, axes=tuple(map(self.let, cast("Any", target.axes))))
            old = Number(self.let(target.read([])))
            value = self.binary(s.op, old, self.number_of(self.value(s.value), s.value), s)
            self.write(target, value, s)
        else:
            self.update_array(target, s.op, self.value(s.value), s)

    def define(self, definition: ast.AST, value: object, node: ast.AST) -> None:
        """Binds a name to a value, and its variable where several definitions meet."""
        value = self.steady(value, _name(definition), node)
        variable = self.definitions.variable(definition)
        if isinstance(value, Array):
            made, results = self.own
            if definition in results and self.is_made_since(value, made):
                value = replace(value, fresh=True)
            value = self.named(variable, value, node)
        elif isinstance(value, Values):
            self.check_lasting(value, node)
        self.bound[definition] = self.ever[definition] = value
        if variable not in self.stored or isinstance(self.types.get(variable), ArrayType):
            return
        if not isinstance(value, Number):
            same = self.definitions.variable
            others = [
                d for d in self.definitions.every if same(d) is variable and d is not definition
            ]
            notes = [(f"{_name(d)} is also assigned here", d) for d in others[:1]]
            said = f"{_name(definition)} is a {self.described(value)} here"
            rule = "a name with several values is a number, or each use of it is of one of them"
            raise self.source.mistake(f"{said}; {rule}", node, *notes)
        self.widen(variable, value.type, node)
        if (kind := self.types.get(variable)) is None:
            return
        self.out.append(ir.assign(self.register(variable, kind), self.to(value, kind, node).expr))
        if variable in self.definitions.may_be_undefined:
            self.out.append(ir.assign(self.flag(variable), one_bit(True)))

    def steady(self, value: object, name: str, node: ast.AST) -> object:
        """A value as it is now, whatever is stored later."""
        match value:
            case Number():
                return Number(self.let(value.expr, name), value.weak)
            case Values(items):
                return Values(tuple(self.steady(v, name, node) for v in items))
            case Elements(shared=function) if function:
                message = f"{function} may give a view in NumPy, which does not last in kernels"
                raise self.source.mistake(f"{message}: use flatten, or copy the result", node)
            case Elements():
                return self.in_memory(value, node)
            case Masked(array, mask):
                return self.compressed(array, mask, node)
        return value

    def widen(self, variable: ast.AST, kind: NumberType, node: ast.AST) -> None:
        old = self.types.get(variable)
        new = (
            NumberType(kind.element, kind.weak)
            if old is None
            else common(old, NumberType(kind.element, kind.weak))
        )
        if new != old:
            self.types[variable] = new
            self.changed = True

    def register(self, variable: ast.AST, kind: NumberType) -> ex.Tensor:
        if (known := self.registers.get(variable)) is None or known.element is not kind.element:
            self.registers[variable] = self.new_register(_name(variable), kind.element)
        return self.registers[variable]

    def new_register(self, name: str, element: ElementType) -> ex.Tensor:
        register = ir.accumulator(name, element)
        self.allocations += [ir.Alloc(register), ir.assign(register, ex.constant(0, element))]
        return register

    def flag(self, variable: ast.AST) -> ex.Tensor:
        if variable not in self.flags:
            self.flags[variable] = self.new_register(f"{_name(variable)}.set", I1)
        return self.flags[variable]

    def name(self, node: ast.Name) -> object:
        """The value of a name where it is used."""
        if node.id not in self.definitions.names:
            return self.outside(node)
        if reason := self.definitions.unknown.get(node):
            note = "reductions are n += x, also * & | ^, and n = min(n, x) or max, of n alone"
            raise self.source.mistake(f"{node.id} {reason}; {note}", node)
        found = self.definitions.reaching.get(node, frozenset({UNDEFINED}))
        if found == {UNDEFINED}:
            raise self.source.mistake(
                f"{node.id} has no value here: it is assigned only later", node
            )
        if len(found) == 1 and (value := self.bound.get(next(iter(found)))) is not None:
            return value
        known = [self.bound[d] for d in found if d in self.bound]
        if known and all(v is known[0] for v in known) and len(known) == len(found):
            return known[0]
        if (array := self.array_among(found, node)) is not None:
            return array
        kinds: dict[type, ast.AST] = {type(self.bound[d]): d for d in found if d in self.bound}
        if len(kinds) > 1 or (kinds and not issubclass(next(iter(kinds)), Number)):
            places = [
                (f"{node.id} is a {self.described(self.bound[d])} here", d) for d in kinds.values()
            ]
            raise self.source.mistake(
                f"{node.id} may be one of several values here, of which not all are numbers",
                node,
                *places,
            )
        variable = self.definitions.variable(next(iter(found - {UNDEFINED})))
        if variable not in self.stored:
            self.stored.add(variable)
            self.changed = True
        if (kind := self.types.get(variable)) is None:
            raise Unready
        if UNDEFINED in found:
            unset = ~self.flag(variable)[()]
            self.fail_if(unset, "UnboundLocalError", f"{node.id} has no value", node)
        return Number(self.register(variable, kind)[()], kind.weak)

    def outside(self, node: ast.Name) -> object:
        """The value of a name around the function, which is a constant."""
        values = self.source.values
        if node.id not in values:
            near = did_you_mean(node.id, [*self.definitions.names, *values])
            raise self.source.mistake(f"{node.id} is not defined{near}", node)
        return self.constant(node.id, values[node.id])

    def constant(self, name: str, value: object) -> object:
        if (number := of_python(value)) is not None:
            return number
        if isinstance(value, tuple):
            return Values(tuple(self.constant(f"{name}.{n}", v) for n, v in enumerate(value)))
        if isinstance(value, np.ndarray) and value.ndim and BY_DTYPE.get(value.dtype) is not None:
            if id(value) not in self.constants:
                name = name if name not in self.arrays else f"{name}.{len(self.constants)}"
                self.constants[id(value)] = name, value
                self.captured[name] = np.array(value, order="C")
                self.array_of(name, ArrayType(BY_DTYPE[value.dtype], value.ndim))
            return self.arrays[self.constants[id(value)][0]]
        return Known(value)

    # loops

    def for_loop(self, s: ast.For) -> bool:
        try:
            loop = loop_over(self, s)
        except Unready:
            self.unready = True
            zero = Number(ex.ZERO, True)
            loop = range_loop(self, zero, zero, Number(ex.constant(1, I64), True), s)
        if s in self.definitions.parallel:
            return parallel.build_loop(self, s, loop)
        flag = self.new_register("left", I1) if s.orelse and _breaks(s.body) else None
        if flag is not None:
            self.out.append(ir.assign(flag, one_bit(False)))
        self.around.append(flag)
        self.rank(loop.index)
        with self.nested(*loop.facts) as body:
            self.small.add(loop.index)
            target = loop.target()
            self.attempt(lambda: self.store(s.target, target, s.iter))
            self.statements(s.body)
        self.around.pop()
        found = loop.around(tuple(body))
        self.out.append(found)
        values = loop.values(target, loop.index, *loop.ends)
        self.hoistable[id(found)] = found, values, [*self.facts], {*self.small}
        return self.otherwise(s.orelse, flag)

    def otherwise(self, block: Sequence[ast.stmt], flag: ex.Tensor | None) -> bool:
        """The else of a loop, which runs unless the loop was left by break."""
        if not block:
            return True
        if flag is None:
            return self.statements(block)
        with self.nested() as body:
            self.statements(block)
        self.out.append(ir.If(~flag[()], tuple(body)))
        return True

    def while_loop(self, s: ast.While) -> bool:
        flag = self.new_register("left", I1) if s.orelse and _breaks(s.body) else None
        if flag is not None:
            self.out.append(ir.assign(flag, one_bit(False)))
        self.around.append(flag)
        with self.nested() as body:
            condition = self.condition(s.test)
            before = len(body)
            if before:
                self.out.append(
                    ir.If(
                        ~condition
                        if not isinstance(condition, ex.Const)
                        else one_bit(not condition.value),
                        (ir.Break(),),
                    )
                )
            self.facts += self.conditions(condition)
            if not (isinstance(condition, ex.Const) and not condition.value):
                self.statements(s.body)
        self.around.pop()
        self.out.append(ir.While(one_bit(True) if before else condition, tuple(body)))
        endless = isinstance(condition, ex.Const) and bool(condition.value)
        if endless and not _breaks(s.body):
            return False
        return True if endless else self.otherwise(s.orelse, flag)

    # calls of kernels

    @contextmanager
    def within(self, body: Inlined, function: CompiledFunction) -> Iterator[None]:
        """The statements of a called function, which has names of its own."""
        outer = self.source, self.definitions, self.checks, self.variables, self.presumed
        self.source, self.definitions = body.source, body.definitions
        self.checks = self.checks and function.checks
        self.variables, self.presumed = {}, []
        facts, self.facts = self.facts, [*self.facts]  # those of its values are of no use later
        own, self.own = self.own, (len(self.made), body.results)
        self.callers.append(function.py_func)
        try:
            yield
            self.settle_names()
        finally:
            self.callers.pop()
            self.own, self.facts = own, facts
            self.own_variables += self.variables.values()
            self.source, self.definitions, self.checks, self.variables, self.presumed = outer

    # results

    def give(self, node: ast.expr | None, s: ast.Return) -> None:
        value = (
            None
            if node is None or (isinstance(node, ast.Constant) and node.value is None)
            else self.value(node)
        )
        leaves: list[tuple[ex.Tensor, ex.Expr]] = []
        value = self.steady(value, "result", s)
        shape = self.shape_of(value, "return", s, leaves)
        if self.returned is not Unready and _plain(self.returned) != _plain(shape):
            assert self.first_return is not None
            raise self.source.mistake(
                f"a return of {self.described(value)} where another gives something else",
                s,
                ("the other return", self.first_return),
            )
        self.returned, self.first_return = shape, self.first_return or s
        self.out += [ir.Store(t, (), e) for t, e in leaves]

    def shape_of(
        self, value: object, name: str, node: ast.AST, leaves: list[tuple[ex.Tensor, ex.Expr]]
    ) -> object:
        match value:
            case None:
                return None
            case Number():
                place = self.result_key(name)
                self.widen(place, value.type, node)
                kind = self.types[place]
                tensor = next((t for t in self.results if t.name == name), None)
                if tensor is None:
                    tensor = ex.Tensor(name, (), kind.element)
                    self.results.append(tensor)
                if tensor.element is kind.element:
                    leaves.append((tensor, self.to(value, kind, node).expr))
                return kind
            case Array():
                whole = self.arrays[value.tensor.name]
                sizes = map(self.expanded, value.lengths)
                if value.is_plain and all(map(self.equal, sizes, whole.lengths)):
                    return value.tensor.name
                return self.view_of(value, name, leaves)
            case Values(items):
                return tuple(
                    self.shape_of(v, f"{name}.{n}", node, leaves) for n, v in enumerate(items)
                )
        raise self.source.mistake(
            f"kernels return numbers, arrays and tuples of these, not a {self.described(value)}",
            node,
        )

    def view_of(self, value: Array, name: str, leaves: list[tuple[ex.Tensor, ex.Expr]]) -> ViewType:
        """A view as a result: its numbers go to the caller, which makes it."""

        def passed(part: str, e: ex.Expr) -> None:
            tensor = next((t for t in self.results if t.name == f"{name}.{part}"), None)
            if tensor is None:
                tensor = ex.Tensor(f"{name}.{part}", (), I64)
                self.results.append(tensor)
            leaves.append((tensor, self.let(e)))

        axes: list[tuple[int, int] | None] = []
        for n, a in enumerate(value.axes):
            axes.append((a.axis, a.step) if isinstance(a, Along) else None)
            passed(f"start{n}", a.start if isinstance(a, Along) else a)
            if isinstance(a, Along):
                passed(f"count{n}", value.lengths[a.axis])
        return ViewType(value.tensor.name, value.rank, tuple(axes))

    def result_key(self, name: str) -> Any:
        return _RESULTS.setdefault(name, ast.Name(name))

    # expressions

    def described(self, value: object) -> str:
        if isinstance(value, Number):
            return f"number of type {value.type}"
        return f"value of type {value}" if isinstance(value, Known) else str(value)

    def number_of(self, value: object, node: ast.AST) -> Number:
        if isinstance(value, Number):
            return value
        if isinstance(value, (Array, Elements, Masked)):
            raise self.source.mistake(f"a number is needed here, not an {value}", node)
        raise self.source.mistake(f"expected a number, got a {self.described(value)}", node)

    def integer(self, value: object, node: ast.AST) -> Number:
        n = self.number_of(value, node)
        if n.kind in ("float", "complex"):
            raise self.source.mistake(f"expected an integer, got a {self.described(value)}", node)
        return Number(ex.cast(n.expr, I64), n.weak) if n.element is not I1 or n.weak else n

    def items(self, value: object, node: ast.AST) -> tuple[object, ...]:
        if isinstance(value, Values):
            return value.items
        raise self.source.mistake(f"expected a tuple, got a {self.described(value)}", node)

    def value(self, node: ast.expr) -> Any:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            said = {
                "ListComp": "comprehensions",
                "SetComp": "comprehensions",
                "DictComp": "comprehensions",
                "GeneratorExp": "comprehensions",
                "List": "lists",
                "Dict": "dictionaries",
                "Set": "sets",
                "JoinedStr": "strings",
                "Lambda": "lambda",
            }.get(type(node).__name__, f"expressions of this kind ({type(node).__name__})")
            raise self.source.mistake(
                f"kernels have no {said}: values are numbers, arrays and tuples, and loops "
                "are statements",
                node,
            )
        found = method(node)
        return self.steady(found, "v", node) if self.calling else found

    def _constant(self, node: ast.Constant) -> object:
        if isinstance(node.value, str):
            raise self.source.mistake(
                "kernels have no strings, but for messages of assert and raise", node
            )
        if (number := of_python(node.value)) is not None:
            return number
        if isinstance(node.value, int):
            raise self.source.mistake("the integer does not fit into 64 bits", node)
        return Known(node.value)

    def _name(self, node: ast.Name) -> object:
        return self.name(node)

    def _tuple(self, node: ast.Tuple) -> Values:
        found: list[object] = []
        for e in node.elts:
            if isinstance(e, ast.Starred):
                found += self.items(self.value(e.value), e)
            else:
                found.append(self.value(e))
        return Values(tuple(found))

    def operands(self, *given: object) -> list[Any]:
        """Operands of an operation: selections by a mask are arrays of their own."""
        return [
            self.compressed(v.array, v.mask, self.source.tree) if isinstance(v, Masked) else v
            for v in given
        ]

    def folded(self, node: ast.BinOp | ast.UnaryOp) -> object | None:
        """The number of an expression of integer literals, which Python's compiler folds."""
        try:
            found = exact(node)
        except OverflowError:
            found = 1 << MOST_BITS
        return (
            None if found is None else self._constant(ast.copy_location(ast.Constant(found), node))
        )

    def _binop(self, node: ast.BinOp) -> Any:
        if (number := self.folded(node)) is not None:
            return number
        a, b = self.operands(self.value(node.left), self.value(node.right))
        if isinstance(node.op, ast.MatMult):
            return self.matrix_product(a, b, node)
        return self.applied(
            lambda v: self.binary(node.op, v[0], v[1], node), (a, b), (node.left, node.right), node
        )

    def matrix_product(self, a: Any, b: Any, node: ast.AST) -> Any:
        if not all(isinstance(v, (Array, Elements)) for v in (a, b)):
            raise self.source.mistake("@ is of arrays of rank 1 and 2", node)
        return self.product(a, b, node)

    def applied(
        self,
        operation: Operation,
        values: Sequence[Any],
        nodes: Sequence[ast.AST],
        node: ast.AST,
    ) -> Any:
        """An operation on numbers, or on the elements of arrays."""
        if not any(isinstance(v, (Array, Elements)) for v in values):
            return operation([self.number_of(v, n) for v, n in zip(values, nodes, strict=True)])
        for v, n in zip(values, nodes, strict=True):
            if not isinstance(v, (Array, Elements)):
                self.number_of(v, n)
        return self.elementwise(operation, values, node)

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        if (number := self.folded(node)) is not None:
            return number
        (value,) = self.operands(self.value(node.operand))
        if isinstance(node.op, ast.Not):
            value = self.number_of(value, node.operand)
        return self.applied(
            lambda v: self.unary(node.op, v[0], node), (value,), (node.operand,), node
        )

    def _compare(self, node: ast.Compare) -> Any:
        first = self.value(node.left)
        if len(node.ops) == 1:
            a, b = self.operands(first, self.value(node.comparators[0]))
            return self.applied(
                lambda v: self.compared(node.ops[0], v[0], v[1], node),
                (a, b),
                (node.left, node.comparators[0]),
                node,
            )
        left = self.held(self.number_of(first, node.left), True)
        tests: list[Callable[[], Number]] = []

        def test(op: ast.cmpop, right: ast.expr, last: bool) -> Number:
            nonlocal left
            other = self.held(self.number_of(self.value(right), right), not last)
            found, left = self.compared(op, left, other, node), other
            return found

        for n, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True), 1):
            tests.append(partial(test, op, right, n == len(node.ops)))
        return self.short_circuit(True, tests, node)

    def held(self, value: Number, hold: bool) -> Number:
        return Number(self.let(value.expr), value.weak) if hold else value

    def _boolop(self, node: ast.BoolOp) -> Number:
        def part(e: ast.expr) -> Callable[[], Number]:
            return lambda: self.number_of(self.value(e), e)

        return self.short_circuit(
            isinstance(node.op, ast.And), [part(e) for e in node.values], node
        )

    def short_circuit(
        self, conjunction: bool, parts: Sequence[Callable[[], Number]], node: ast.AST
    ) -> Number:
        """a and b: b is evaluated where a holds."""
        first = parts[0]()
        if len(parts) == 1:
            return first
        test = self.truth(first)
        if isinstance(test, ex.Const):
            return (
                first
                if bool(test.value) is not conjunction
                else self.short_circuit(conjunction, parts[1:], node)
            )
        if first.element is not I1:
            first = self.held(first, True)
            test = self.truth(first)
        with self.nested(*self.conditions(test, conjunction)) as inner:
            second = self.short_circuit(conjunction, parts[1:], node)
            kind = common(first.type, second.type)
            value = self.to(second, kind, node).expr
        whole = self.to(first, kind, node).expr
        if not inner and is_speculatable_number(value):
            if kind.element is I1:
                return Number(test & value if conjunction else test | value, kind.weak)
            return Number(
                ex.select(test, *((value, whole) if conjunction else (whole, value))), kind.weak
            )
        register = self.new_register("chosen", kind.element)
        self.out.append(ir.assign(register, whole))
        inner.append(ir.assign(register, value))
        self.out.append(ir.If(test if conjunction else ~test, tuple(inner)))
        return Number(self.let(register[()]), kind.weak)

    def truth_of(self, node: ast.expr) -> ex.Expr:
        """A condition."""
        match node:
            case ast.UnaryOp(ast.Not(), operand):
                test = self.truth_of(operand)
                return one_bit(not test.value) if isinstance(test, ex.Const) else ~test
        return self.truth(self.number_of(self.value(node), node))

    def _ifexp(self, node: ast.IfExp) -> Number:
        test = self.truth_of(node.test)
        if isinstance(test, ex.Const):
            return self.value(node.body if test.value else node.orelse)
        sides: list[tuple[list[ir.Statement], Number]] = []
        for side, holds in ((node.body, True), (node.orelse, False)):
            with self.nested(*self.conditions(test, holds)) as block:
                sides.append((block, self.number_of(self.value(side), side)))
        kind = common(sides[0][1].type, sides[1][1].type)
        values: list[ex.Expr] = []
        for block, value in sides:
            outer, self.out = self.out, block
            values.append(self.to(value, kind, node).expr)
            self.out = outer
        if not sides[0][0] and not sides[1][0] and all(map(is_speculatable_number, values)):
            return Number(ex.select(test, *values), kind.weak)
        register = self.new_register("chosen", kind.element)
        for (block, _), value in zip(sides, values, strict=True):
            block.append(ir.assign(register, value))
        self.out.append(ir.If(test, tuple(sides[0][0]), tuple(sides[1][0])))
        return Number(self.let(register[()]), kind.weak)

    def _attribute(self, node: ast.Attribute) -> object:
        (of,) = self.operands(self.value(node.value))
        if isinstance(of, (Array, Elements)):
            match node.attr:
                case "shape":
                    return Values(tuple(Number(n, True) for n in of.lengths))
                case "ndim":
                    return Number(ex.constant(of.rank, I64), True)
                case "dtype":
                    return Known(of.elements.type.element.dtype)
                case "T":
                    return self.in_memory(of, node).transposed(range(of.rank)[::-1])
                case "size":
                    total: ex.Expr = ex.constant(1, I64)
                    for n in of.lengths:
                        total = total * n
                    return Number(self.let(total), True)
            if node.attr in array_functions.METHODS:
                return Method(of, node.attr)
            near = did_you_mean(node.attr, array_functions.METHODS)
            raise self.source.mistake(
                f"arrays in kernels have shape, size, ndim, dtype, T and methods such as sum and "
                f"copy, not {node.attr}{near}",
                node,
            )
        if isinstance(of, Known):
            try:
                return self.constant(
                    f"{_name(node.value)}.{node.attr}", getattr(of.value, node.attr)
                )
            except AttributeError as e:
                raise self.source.mistake(str(e), node) from None
        if isinstance(of, Number) and node.attr in ("real", "imag"):
            if of.kind == "complex":
                return Number(ex.apply(node.attr, of.expr), of.weak)
            return of if node.attr == "real" else Number(ex.constant(0, of.element), of.weak)
        if isinstance(of, Number) and node.attr == "conjugate":
            return Method(of, node.attr)
        raise self.source.mistake(f"a {self.described(of)} has no {node.attr}", node)

    def _subscript(self, node: ast.Subscript) -> object:
        of = self.value(node.value)
        if isinstance(of, Values):
            n = self.number_of(self.value(node.slice), node.slice).constant
            if not isinstance(n, int) or not -len(of.items) <= n < len(of.items):
                raise self.source.mistake(
                    f"a tuple's index is a constant below {len(of.items)}", node
                )
            return of.items[n]
        if isinstance(of, (Elements, Masked)):
            of = self.steady(of, "v", node)
        if not isinstance(of, Array):
            raise self.source.mistake(f"a {self.described(of)} has no elements", node)
        return self.view(of, node.slice, node)

    def part(self, array: Array, index: ex.Expr) -> object:
        """The element, or the view, at an index of the first axis that is in range."""
        axes: list[Any] = []
        for a in array.axes:
            if isinstance(a, Along):
                a = a.at(index) if a.axis == 0 else replace(a, axis=a.axis - 1)
            axes.append(a)
        view = replace(array, lengths=array.lengths[1:], axes=tuple(axes), fresh=False)
        return view if view.rank else Number(view.read([]))

    def target(self, node: ast.Subscript) -> Any:
        """The element, or the view, or the elements by a mask, that is assigned to."""
        array = self.value(node.value)
        if not isinstance(array, Array):
            raise self.source.mistake(
                f"a {self.described(array)} has no elements to assign to", node
            )
        found = self.view(array, node.slice, node, element=False)
        if isinstance(found, Elements):
            message = "stores at arrays of indices are not offered in kernels; loop over them"
            raise self.source.mistake(message, node)
        return found

    def store_at(self, target: Any, value: Any, node: ast.AST) -> None:
        if isinstance(target, Array) and not target.rank:
            self.write(target, self.number_of(value, node), node)
            return
        (value,) = self.operands(value)
        if not isinstance(value, (Array, Elements)):
            value = self.number_of(value, node)
        if isinstance(target, Masked):
            self.store_masked(target.array, target.mask, value, node)
        else:
            self.store_array(target, value, node)

    def update_array(self, target: Any, op: ast.operator, value: Any, node: ast.AugAssign) -> None:
        """target op= value, whose type NumPy converts only to one of its kind."""
        (value,) = self.operands(value)
        (old,) = self.operands(target)
        if isinstance(op, ast.MatMult):
            found = self.matrix_product(old, value, node)
        else:
            found = self.applied(
                lambda v: self.binary(op, v[0], v[1], node),
                (old, value),
                (node.target, node.value),
                node,
            )
        kind = found.elements.type.element.dtype
        own = old.element.dtype
        if not np.can_cast(kind, own, "same_kind"):
            message = f"the result is of {kind.name}, which an array of {own.name} does not take"
            raise self.source.mistake(message, node)
        self.store_at(target, found, node)

    def view(self, array: Array, at: ast.expr, node: ast.AST, element: bool = True) -> Any:
        """A subscript: an element, a view by slices, or elements by a mask or at indices."""
        parts = list(at.elts) if isinstance(at, ast.Tuple) else [at]
        values = {
            id(p): self.value(p)
            for p in parts
            if not isinstance(p, ast.Slice) and not _is_ellipsis(p)
        }
        parts = [p for p in parts]
        new = {i for i, v in values.items() if isinstance(v, Known) and v.value is None}
        count = sum(not _is_ellipsis(p) and id(p) not in new for p in parts)
        mask = values.get(id(parts[0])) if len(parts) == 1 else None
        if isinstance(mask, (Array, Elements)) and mask.elements.type.element is I1:
            return self.masked(array, mask.elements, node)
        if count > array.rank:
            raise self.source.mistake(
                f"{array.name} has {array.rank} axes, got {count} indices", node
            )
        n = next((k for k, p in enumerate(parts) if _is_ellipsis(p)), len(parts))
        parts[n : n + 1] = [ast.Slice()] * (array.rank - count)
        lengths: list[ex.Expr] = []
        places: list[Any] = []
        gathered: list[tuple[int, Elements, ast.expr]] = []
        for part in parts:
            if id(part) in new:
                lengths.append(ONE)
                continue
            axis = len(places)
            length = array.lengths[axis]
            if isinstance(part, ast.Slice):
                start, size, step = self.sliced(part, length)
                places.append((len(lengths), start, step))
                lengths.append(size)
                continue
            i = values[id(part)]
            if isinstance(i, (Array, Elements)) and i.elements.type.element.is_integer:
                gathered.append((len(lengths), i.elements, part))
                places.append((len(lengths), ex.ZERO, 1))
                lengths.append(length)
                continue
            if not isinstance(i, Number):
                raise self.source.mistake("an index is an integer or a slice", part)
            i = self.integer(i, part)
            if i.element is I1:
                raise self.source.mistake("an index is an integer or a slice, not a boolean", part)
            what = f"axis {axis} of {array.name}" if array.rank > 1 else array.name
            places.append(self.index(i.expr, length, what, node))
        axes: list[Any] = []
        for a in array.axes:
            if isinstance(a, Along):
                p = places[a.axis]
                a = Along(p[0], a.at(p[1]), a.step * p[2]) if isinstance(p, tuple) else a.at(p)
            axes.append(a)
        found = replace(array, lengths=tuple(lengths), axes=tuple(axes), fresh=False)
        if gathered:
            return self.gathered(found, gathered, node)
        return found if lengths or not element else Number(found.read([]))

    def gathered(
        self, of: Array, at: Sequence[tuple[int, Elements, ast.expr]], node: ast.AST
    ) -> Elements:
        """The elements at an array of indices along an axis."""
        if len(at) > 1 or at[0][1].rank != 1:
            message = "one array of indices, of rank 1, is taken beside slices and integers"
            raise self.source.mistake(message, node)
        ((axis, places, part),) = at
        places = self.in_memory(places, part).elements
        lengths = tuple(places.lengths[0] if n == axis else e for n, e in enumerate(of.lengths))
        what = f"axis {axis} of {of.name}" if of.rank > 1 else of.name

        def element(indices: Sequence[ex.Expr]) -> Number:
            i = self.integer(places.at([indices[axis]]), part)
            i = self.index(i.expr, of.lengths[axis], what, node)
            return Number(of.read([i if n == axis else e for n, e in enumerate(indices)]))

        return Elements(lengths, NumberType(of.element), element, (of, *places.reads))

    def masked(self, array: Array, mask: Elements, node: ast.AST) -> Masked:
        """A selection by a mask, which is of the array's sizes."""
        if mask.rank != array.rank:
            message = f"a mask of rank {mask.rank} for an array of rank {array.rank}"
            raise self.source.mistake(message, node)
        for a, b in zip(mask.lengths, array.lengths, strict=True):
            if not self.equal(a, b):
                message = "a mask of size {0} for an axis of size {1}"
                one = self.let(a)
                self.fail_if(one.ne(b), "IndexError", message, node, one, b)
        return Masked(array, self.in_memory(mask, node).elements)

    # names of arrays

    def named(self, variable: ast.AST, value: Array, node: ast.AST) -> Array:
        """The array that a name stands for: a variable's own one if several values meet."""
        if not isinstance(kind := self.types.get(variable), ArrayType):
            self.check_lasting(value, node)
            return replace(value, fresh=False)
        own = self.variables.get(variable)
        if (value.element, value.rank) != (kind.element, kind.rank):
            said = f"{_name(node)} is an {value} here"
            rule = f"and an array of {kind.element.dtype.name} with rank {kind.rank} elsewhere"
            raise self.source.mistake(f"{said}, {rule}", node)
        if own is not None and value.tensor is own.array.tensor and value.is_plain:
            return own.array
        if not value.fresh:
            message = (
                f"{_name(node)} has several arrays as its values: each of them is the result of an "
                "expression, or a copy, by .copy()"
            )
            raise self.source.mistake(message, node)
        if own is None:
            own = self.variables[variable] = self.array_variable(variable, kind, value, node)
        sizes = [self.limit(n) for n in value.lengths]
        own.limits.append(cast("Any", sizes))
        for register, size in zip(own.sizes, value.lengths, strict=True):
            self.out.append(ir.assign(register, size))
        found = self.variable_array(own)
        self.fill(found, value.elements)
        return found

    def check_lasting(self, value: object, node: ast.AST) -> None:
        """Refuse a further name of an array whose own name gets another value."""
        for item in value.items if isinstance(value, Values) else ():
            self.check_lasting(item, node)
        own = [v.array.tensor for v in self.variables.values()]
        if isinstance(value, Array) and value.tensor in own:
            message = "this array has a name that gets another value elsewhere: copy it, by .copy()"
            raise self.source.mistake(message, node)

    def array_variable(
        self, variable: ast.AST, kind: ArrayType, value: Array, node: ast.AST
    ) -> ArrayVariable:
        array = self.storage([ONE] * kind.rank, kind.element, node)  # until all values are known
        sizes = [self.new_register(f"{_name(variable)}.size", I64) for _ in range(kind.rank)]
        return ArrayVariable(array, sizes, len(self.made) - 1, [])

    def variable_array(self, own: ArrayVariable) -> Array:
        """The array with the sizes that it has now."""
        sizes = [self.measured(r[()]) for r in own.sizes]
        for size, most in zip(sizes, own.extents, strict=True):
            self.limits[size] = most
        return replace(own.array, lengths=tuple(sizes), fresh=False)

    def settle_arrays(self) -> None:
        """The sizes of variables."""
        most: dict[object, ex.Expr | None] = {}  # by the extent; None while it is computed
        variables = [*self.own_variables, *self.variables.values()]
        values = {
            key(e): (own, [sizes[n] for sizes in own.limits])
            for own in variables
            for n, e in enumerate(own.extents)
        }

        def known(e: ex.Expr) -> ex.Expr | None:
            return settled(key(e)) if isinstance(e, ex.Extent) and key(e) in values else None

        def leaves(extent: Any, seen: set[object]) -> Iterator[ex.Expr]:
            """The operands of a maximum, which a size that is one of its own does not change."""
            seen.add(extent)
            for e in (e for size in values[extent][1] for e in ex.flat_operands("max", size)):
                if key(e) not in values:
                    yield rewrite(e, known)
                elif key(e) not in seen:
                    yield from leaves(key(e), seen)

        def settled(extent: Any) -> ex.Expr:
            if extent not in most:
                most[extent] = None
                most[extent] = _greatest(list(leaves(extent, set())))
            if (found := most[extent]) is None:
                message = "this array has a size that is computed of itself"
                raise self.source.mistake(message, self.made[values[extent][0].made].place)
            return found

        for n, made in enumerate(self.made):
            sizes = tuple(rewrite(e, known) for e in made.sizes)
            self.made[n] = replace(made, sizes=sizes)
        for own in variables:
            slots = self.made[own.made].sizes[: -own.array.rank]
            sizes = (*slots, *(settled(key(e)) for e in own.extents))
            self.made[own.made] = replace(self.made[own.made], sizes=sizes)

    def settle_names(self) -> None:
        """Find names whose definitions are several arrays: they become variables."""
        for found, array in self.presumed:
            for d in found:
                value = self.ever.get(d)
                if value is not array and not (isinstance(value, Array) and _is_same(value, array)):
                    variable = self.definitions.variable(d)
                    kind = ArrayType(array.element, array.rank)
                    if self.types.get(variable) != kind:
                        self.types[variable] = kind
                        self.changed = True

    def is_made_since(self, array: Array, count: int) -> bool:
        """Test whether an array was made after a number of others."""
        return any(m.tensor is array.tensor for m in self.made[count:])

    def one_of(self, array: Array, values: Sequence[object], name: ast.Name) -> object:
        """The result of a called function that returns arrays at several places: one array, or a
        copy of what is made there.
        """
        if all(isinstance(v, Array) and _is_same(v, array) for v in values):
            seen = (v for v in self.bound.values() if isinstance(v, Array) and _is_same(v, array))
            if (found := next(seen, None)) is not None:
                return found
        kind = ArrayType(array.element, array.rank)
        variable = self.definitions.variable(next(iter(self.definitions.reaching[name])))
        if self.types.get(variable) != kind:
            self.types[variable], self.changed = kind, True
            raise Unready
        return self.name(name)

    def array_among(self, found: frozenset[ast.AST], node: ast.Name) -> Array | None:
        """The array that a name stands for where several definitions meet; None of numbers."""
        variable = self.definitions.variable(next(iter(found - {UNDEFINED})))
        if isinstance(self.types.get(variable), ArrayType):
            own = self.variables.get(variable)
            if UNDEFINED in found or (own is None and any(d in self.ever for d in found)):
                message = (
                    f"{node.id} may be one of several arrays here, of which some are no results of "
                    f"expressions: begin with a copy, as in {node.id} = {node.id}.copy()"
                )
                raise self.source.mistake(message, node)
            if own is None:
                raise Unready
            return self.variable_array(own)
        known = [self.bound.get(d, self.ever.get(d)) for d in found if d is not UNDEFINED]
        arrays = [v for v in known if isinstance(v, Array)]
        if not arrays or UNDEFINED in found or any(isinstance(v, (Number, Values)) for v in known):
            return None
        visible = next((self.bound[d] for d in found if isinstance(self.bound.get(d), Array)), None)
        if not isinstance(visible, Array):
            return None
        self.presumed.append((found, visible))
        return visible

    def sliced(self, s: ast.Slice, length: ex.Expr) -> tuple[ex.Expr, ex.Expr, int]:
        """The start, the length and the step of a slice of an axis."""
        step = 1
        if s.step is not None:
            found = self.integer(self.value(s.step), s.step).constant
            if not isinstance(found, int) or found == 0:
                raise self.source.mistake(
                    "the step of a slice is a constant integer that is not zero", s.step
                )
            step = found

        def bound(node: ast.expr | None, default: ex.Expr) -> ex.Expr:
            if node is None or (isinstance(node, ast.Constant) and node.value is None):
                return default
            i = self.let(self.integer(self.value(node), node).expr)
            low, high = (0, length) if step > 0 else (-1, length - 1)
            if (
                self.is_exact(i)
                and self.proves([affine(i), affine(ex.as_index(length)) - affine(i)])
                and step > 0
            ):
                return i
            from_end = (
                i
                if self.is_exact(i) and self.proves([affine(i)])
                else ex.select(i < 0, i + length, i)
            )
            return self.let(ex.maximum(low, ex.minimum(from_end, high)), "bound")

        if step > 0:
            start, stop = self.bounds(s, length)
            gap = stop - start
        else:
            start, stop = bound(s.lower, length - 1), bound(s.upper, ex.constant(-1, I64))
            gap = start - stop
        form = affine(gap)
        gap = form.expression() if self.is_exact(gap) else gap
        if not (self.is_exact(gap) and self.proves([affine(gap)])):
            gap = ex.maximum(0, gap)
        count = gap if abs(step) == 1 else (gap + (abs(step) - 1)) // abs(step)
        start, count = self.let(start), self.let(count)
        for e in (start, count):
            if isinstance(e, ex.Var):
                self.small.add(e)
            if e is count or step > 0:
                self.facts.append(affine(e))
            if isinstance(e, (ex.Var, ex.Apply)):
                self.limits.setdefault(e, length)
        return start, count, step

    def bounds(self, s: ast.Slice, length: ex.Expr) -> tuple[ex.Expr, ex.Expr]:
        """The ends of a slice with a step above 0, the start within the axis where it has
        elements.
        """

        def counted(node: ast.expr | None, default: ex.Expr) -> ex.Expr:
            if node is None or (isinstance(node, ast.Constant) and node.value is None):
                return default
            i = self.let(self.integer(self.value(node), node).expr)
            steady = self.is_exact(i) or isinstance(i, (ex.Var, ex.Index))
            if steady and self.proves([affine(i)]):
                return i
            if steady and self.proves([(affine(i) * -1).plus(-1)]):
                return length + i
            low, high = -length, length
            i = ex.maximum(low, ex.minimum(i, high))
            return self.let(ex.select(i < 0, i + length, i), "bound")

        def natural(e: ex.Expr) -> bool:
            return isinstance(e, ex.Var) or (self.is_exact(e) and self.proves([affine(e)]))

        start, stop = counted(s.lower, ex.ZERO), counted(s.upper, length)
        for e in (start, stop):
            if isinstance(e, ex.Var) and e in self.lets and e not in self.small:
                self.small.add(e)
                self.facts += [affine(e)]
        start = start if natural(start) else self.let(ex.maximum(0, start), "bound")
        inside = affine(length) - affine(stop)
        if not (self.is_exact(stop) and self.proves([inside])):
            stop = self.let(ex.minimum(stop, length), "bound")
        return start, stop

    # calls

    def _call(self, node: ast.Call) -> object:
        called = self.value(node.func)
        if isinstance(called, Method):
            return array_functions.method(self, called, node)
        if not isinstance(called, Known):
            raise self.source.mistake(f"a {self.described(called)} cannot be called", node)
        if (make := _MAKERS.get(called.value) if _hashable(called.value) else None) is not None:
            return self.make(make, node)
        if called.value is print:
            raise self.source.mistake("print is not offered in kernels", node)
        function = called.value.py_func if isinstance(called.value, CompiledFunction) else None
        if (function or called.value) in self.callers:
            raise self.source.mistake(
                "kernels have no recursion: a function that calls itself", node
            )
        if isinstance(called.value, CompiledFunction):
            return calls.call(self, called.value, node)
        if (outer := array_functions.found(called.value)) is not None:
            return outer(self, node)
        found = functions.FUNCTIONS.get(called.value) if _hashable(called.value) else None
        if found is None:
            name = getattr(called.value, "__name__", repr(called.value))
            near = did_you_mean(name, functions.NAMES)
            raise self.source.mistake(
                f"{name} cannot be called in kernels{near}; they have kernels, and functions of "
                "numbers of Python, math and NumPy",
                node,
            )
        count, call = found
        if (
            node.keywords
            or any(isinstance(a, ast.Starred) for a in node.args)
            or (count != "*" and str(len(node.args)) not in count.split())
        ):
            raise self.source.mistake(
                f"{getattr(called.value, '__name__', called.value)} takes {count} values "
                f"without names, got {len(node.args) + len(node.keywords)}",
                node,
            )
        given = self.operands(*map(self.value, node.args))
        elementwise = isinstance(called.value, (np.ufunc, type)) or called.value is abs
        if elementwise and any(isinstance(v, (Array, Elements)) for v in given):
            python = called.value in (int, float, bool, complex)
            if not python:
                return self.applied(lambda v: call(self, v, node), given, node.args, node)
        return call(self, given, node)

    def make(self, maker: str, node: ast.Call) -> Array:
        """np.zeros and the like: an array that the call allocates, of sizes that it knows."""
        named = {k.arg: k.value for k in node.keywords}
        names = {
            "full": ("shape", "fill_value", "dtype"),
            "full_like": ("shape", "fill_value", "dtype"),
            "arange": ("start", "stop", "step", "dtype"),
        }.get(maker, ("shape", "dtype"))
        given: dict[str, ast.expr] = dict(zip(names, node.args, strict=False))
        if (
            len(node.args) > len(names)
            or set(named) - set(names)
            or set(named) & set(given)
            or not node.args
        ):
            raise self.source.mistake(f"np.{maker} takes {', '.join(names)}", node)
        given |= {k: v for k, v in named.items() if k is not None}
        like: Elements | None = None
        fill: Number | None = None
        first: ex.Expr | None = None
        if maker == "ndarray":
            maker = "empty"
        if maker == "arange":
            if (
                ("dtype" in given and len(node.args) == 1)
                or "step" in given
                or set(named) - {"dtype"}
            ):
                raise self.source.mistake(
                    "np.arange takes an end, or a start and an end, in kernels", node
                )
            ends = [self.integer(self.value(a), a) for a in node.args]
            start, stop = (Number(ex.ZERO, True), ends[0]) if len(ends) == 1 else ends
            first = start.expr
            sizes: tuple[ex.Expr, ...] = (ex.maximum(0, stop.expr - first),)
        else:
            node_of = given["shape"]
            if isinstance(node_of, ast.List):
                node_of = ast.copy_location(ast.Tuple(node_of.elts, ast.Load()), node_of)
            shape = self.value(node_of)
            if maker.endswith("_like"):
                if not isinstance(shape, (Array, Elements)):
                    raise self.source.mistake(f"np.{maker} takes an array", node)
                like, sizes = shape.elements, shape.lengths
            else:
                items = shape.items if isinstance(shape, Values) else (shape,)
                sizes = tuple(self.integer(v, given["shape"]).expr for v in items)
        element = I64 if maker == "arange" else BY_DTYPE[np.dtype(float)]
        if "fill_value" in given:
            fill = self.number_of(self.value(given["fill_value"]), node)
            element = fill.element
        if like is not None:
            element = like.type.element
        if "dtype" in given:
            element = self.element_type(given["dtype"])
        return self.allocate(maker, sizes, element, fill, first, node)

    def element_type(self, node: ast.expr) -> ElementType:
        value = (
            node.value
            if isinstance(node, ast.Constant)
            else getattr(self.value(node), "value", None)
        )
        try:
            element = BY_DTYPE.get(np.dtype(value))  # type: ignore[arg-type]
        except TypeError:
            element = None
        if value is None or element is None:
            raise self.source.mistake("kernels have arrays of booleans and numbers", node)
        return element

    def allocate(
        self,
        maker: str,
        sizes: Sequence[ex.Expr],
        element: ElementType,
        fill: Number | None,
        start: ex.Expr | None,
        node: ast.Call,
    ) -> Array:
        lengths: list[ex.Expr] = []
        for e in sizes:
            if not self.is_exact(e) or not self.proves([affine(e)]):
                e = self.let(e, "size")
                self.fail_if(e < 0, "ValueError", "negative dimensions are not allowed", node)
                if isinstance(e, ex.Var) and self.limit(e) is not None:
                    self.small.add(e)
                if self.is_exact(e):
                    self.facts.append(affine(e))
            lengths.append(e)
        array = self.storage(lengths, element, node)
        if self.around or not maker.startswith(("zeros", "empty")):
            value = Number(
                ex.constant(maker.startswith("ones"), element)
                if element.kind != "bool"
                else one_bit(maker.startswith("ones"))
            )
            if fill is not None:
                value = self.held(self.to(fill, NumberType(element), node), True)
            if start is None:
                self.fill(array, value)
            else:
                first, kind = self.let(start), NumberType(element)

                def counted(at: Sequence[ex.Expr]) -> Number:
                    return self.to(Number(first + at[0], True), kind, node)

                self.fill(array, Elements(array.lengths, kind, counted, ()))
        return array

    def expanded(self, e: ex.Expr) -> ex.Expr:
        """An expression with the values of its variables in their places."""
        return rewrite(e, lambda n: self.expanded(self.lets[n]) if n in self.lets else None)


_RESULTS: dict[str, ast.Name] = {}
_MAKERS: dict[Any, str] = {
    getattr(np, n): n
    for n in (
        "zeros",
        "empty",
        "ndarray",
        "ones",
        "full",
        "arange",
        "zeros_like",
        "empty_like",
        "ones_like",
        "full_like",
    )
}


def is_speculatable_number(e: ex.Expr) -> bool:
    """Test whether a value may be computed where it is not used."""
    return all(
        isinstance(n, ex.Var) or is_speculatable(n) for n in walk(e) if not isinstance(n, ex.Apply)
    ) and all(
        is_speculatable(
            ex.Apply(n.function, tuple(ex.constant(1, o.type) for o in n.operands), n.type)
        )
        for n in walk(e)
        if isinstance(n, ex.Apply)
    )


def build(
    source: FunctionSource, signature: Mapping[str, Any], checks: bool, overlaps: bool = False
) -> Built:
    """The kernel of a function for arguments of these types: passes over it until the types of its
    variables are known.
    """
    definitions = Definitions(source.tree, parallel.parallel_loops(source))
    types: dict[ast.AST, Any] = {}
    stored: set[ast.AST] = set()
    inlined: dict[ast.Call, Inlined] = {}
    for _ in range(MOST_PASSES):
        builder = Builder(
            source, definitions, signature, checks, types, stored, overlaps, inlined=inlined
        )
        found = builder.kernel()
        if not builder.changed:
            if builder.unready:
                raise source.mistake(
                    "the type of a variable of this function is not known", source.tree
                )
            if found.is_parallel:
                _check_races(source, definitions, signature, types, stored, inlined)
            return found
    _unstable(source)


def _check_races(
    source: FunctionSource,
    definitions: Definitions,
    signature: Mapping[str, Any],
    types: dict[ast.AST, Any],
    stored: set[ast.AST],
    inlined: dict[ast.Call, Inlined],
) -> None:
    """Check the accesses of parallel loops, by the indices of arrays whatever their strides."""
    whole = {
        n: replace(t, contiguous=True) if isinstance(t, ArrayType) else t
        for n, t in signature.items()
    }
    Builder(source, definitions, whole, False, types, stored, plain=True, inlined=inlined).kernel()


def _greatest(sizes: Sequence[ex.Expr]) -> ex.Expr:
    """The maximum of sizes, each once."""
    different = {key(e): e for e in sizes}
    return reduce(ex.maximum, different.values())


def _is_same(a: Array, b: Array) -> bool:
    """Test whether two arrays are the same elements by the same indices."""
    return (
        a.tensor is b.tensor
        and a.axes is b.axes
        and len(a.lengths) == len(b.lengths)
        and all(x is y for x, y in zip(a.lengths, b.lengths, strict=True))
    )


def _unstable(source: FunctionSource) -> NoReturn:
    raise source.mistake("the types of this function's variables do not settle", source.tree)


def _name(node: ast.AST) -> str:
    found = getattr(node, "id", None) or getattr(node, "arg", None) or "v"
    return str(found)


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _plain(shape: object) -> object:
    """The structure of a result, whatever the types of its numbers."""
    if isinstance(shape, tuple):
        return tuple(map(_plain, shape))
    return NumberType if isinstance(shape, NumberType) else shape


def _breaks(block: Sequence[ast.stmt]) -> bool:
    """Test whether a loop's body has a break of this loop."""
    for s in block:
        if isinstance(s, ast.Break):
            return True
        inner = (
            [*s.body, *s.orelse]
            if isinstance(s, ast.If)
            else s.orelse
            if isinstance(s, (ast.For, ast.While))
            else []
        )
        if _breaks(inner):
            return True
    return False


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


__all__ = ["BOOL", "INT", "ArrayType", "Built", "IntegerType", "TraceError", "build", "field"]
