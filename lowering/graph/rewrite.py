"""Rewrite a function by patterns until none matches (MLIR's greedy pattern rewrite driver).

A worklist holds the operations to try, the earliest first. After a match it gets the added
operations, and those that use a changed value. Definitions and uses are indexed, so that the time
is that of the operations visited.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from ...dialect.builtin import Calling, Const, Data
from ...dialect.ir.builder import applied
from ...dialect.ir.function import Function, Literal, Operation, Value
from ...dialect.ir.module import Module
from ...dialect.ir.verify import called, type_operation
from ...dialect.kernel_ir.expressions import Check, Expr, Tensor
from ...dialect.kernel_ir.integer_interval import Interval, whole
from ...dialect.kernel_ir.traverse import walk
from ...dialect.spec.foreign_operators import attributed
from ...dialect.spec.operator import OPERATORS, Operator, violated
from ...dialect.support.compilation_context import check_time
from ...dialect.support.diagnostics import Diagnostic, Error, Note, counted
from ...dialect.support.suggest import did_you_mean
from ...dialect.types.literal_types import literal_type
from ...dialect.types.sizes import Dim
from ...dialect.types.tensor_types import BY_DTYPE, TensorType
from ...dialect.types.unify import with_sizes
from ..analysis.equal_sizes import equal_sizes
from ..analysis.integer_ranges import declared_range, interval, range_of
from .dce import live_operations, may_fail, tensor
from .patterns import Pattern, of_simplified

MOST_REWRITES = 64  # for each original operation, at most; ends patterns that undo each other
SPACING = 1 << 512  # between neighbours: 512 insertions at one place before all are spread again


@dataclass(eq=False, slots=True)
class Slot:
    """The place of an operation in its function, by a number that is larger for later ones."""

    operation: Operation
    number: int
    before: "Slot | None" = None
    after: "Slot | None" = None


def rewritten(function: Function, patterns: Sequence[Pattern], is_called: bool = True) -> Function:
    """The function after the patterns, and the method `simplified` of each operator.

    The ranges that it declares hold if it `is_called` from outside, which checks them.
    """
    rewriting = Rewriting(function, sorted(patterns, key=lambda p: p.order), is_called)
    return rewriting.run() if rewriting.waiting else function


class Builder:
    """A pattern's view of the program around its root, and the operations that it adds before it.

    `b.dialect.operator(*operands, **attributes)` adds an operation and returns its result, or a
    tuple of several. Numbers among the operands are literals, as in the text of a program. Added
    operations have the location of the root, and stay if the pattern matches.
    """

    def __init__(self, rewriting: "Rewriting", root: Slot) -> None:
        self._rewriting = rewriting
        self._root = root
        self.operations: list[Operation] = []
        self.added: dict[Value, Operator[Value]] = {}  # the operators of added results
        self.undecided = ""  # the name of one that may reject sizes that the function takes

    def __repr__(self) -> str:
        return f"<Builder before {self._root.operation.operator.name}>"

    def owner(self, value: Value) -> Operator[Value] | None:
        """The operator whose result a value is; None for an argument or a literal."""
        slot = self._rewriting.owners.get(value)
        return self.added.get(value) if slot is None else slot.operation.operator

    def definition(self, value: Value) -> Operation | None:
        """The operation whose result a value is; None for an argument or a literal."""
        slot = self._rewriting.owners.get(value)
        return None if slot is None else slot.operation

    def uses(self, value: Value) -> tuple[Operator[Value] | None, ...]:
        """The operators that take a value, once for each operand; None for each result of the
        function that it is.
        """
        return self._rewriting.uses(value)

    def range(self, value: Value) -> tuple[int, int] | None:
        """The least and the greatest value that elements may have; None where they are floats."""
        element = value.known_type.element.storage
        if not element.is_discrete or value in self.added:
            return element.limits if element.is_discrete else None
        found = self._rewriting.interval(value)
        return found.low, found.high

    def array(self, value: Value) -> np.ndarray | None:
        """The elements of a constant or a literal, read-only; None of another value."""
        if isinstance(value, Literal):
            return value.array
        owner = self.owner(value)
        return owner.data.array if isinstance(owner, Const) else None

    def constant(self, array: Any) -> Value:
        """A constant of an array's elements and type."""
        array = np.asarray(array)
        return self.add(Const(Data(array), TensorType(array.shape, BY_DTYPE[array.dtype])))[0]

    def add(self, operator: Operator[Value]) -> tuple[Value, ...]:
        """Add an operation, given its operator over values, and return its results."""
        for _, value in operator.operands():
            if wrong := self._rewriting.out_of_place(value, self._root, self.added):
                raise ValueError(wrong)
        if isinstance(operator, Calling) and self._rewriting.module is not None:
            operator = self._with_signature(operator, self._rewriting.module)
        elif isinstance(operator, Calling) or operator.placement or operator.afterwards:
            raise ValueError(f"a pattern adds no {operator.name}, which depends on its function")
        if operator.destroys():
            raise ValueError(f"a pattern adds no {operator.name} in place")
        root = self._root.operation
        spans = {"op": root.at(None)}
        types = type_operation(Operation(operator, (), root.span, spans=spans))
        name, count = root.results[0].name, len(self.added)
        results = tuple(Value(f"{name}.{count + n}", t, root.span) for n, t in enumerate(types))
        self.operations.append(Operation(operator, results, root.span, spans=spans))
        self.added.update(dict.fromkeys(results, operator))
        if not self._rewriting.takes_all_sizes(operator):
            self.undecided = operator.name
        return results

    def _with_signature(self, operator: Calling[Value], module: Module) -> Calling[Value]:
        """The operator with the types of the functions of the program that it calls."""
        for _, name in operator.callees:
            if name not in module.functions:
                raise ValueError(f"{operator.name}: there is no function @{name}")
        callees = called(module, operator)
        types = [f.result_types for f in callees]
        return operator.with_signature(callees[0].argument_types, *types)

    def __getattr__(self, dialect: str) -> Any:
        if dialect.startswith("_"):
            raise AttributeError(dialect)
        return _Dialect(self, dialect)


@dataclass(frozen=True)
class _Dialect:
    """The operators of one dialect as functions that add an operation."""

    builder: Builder
    name: str

    def __getattr__(self, operator: str) -> Callable[..., Any]:
        name = f"{self.name}.{operator.removesuffix('_')}"  # of a word of Python, as in `if_`
        if (found := OPERATORS.get(name)) is None:
            raise AttributeError(f"there is no operator {name}{did_you_mean(name, OPERATORS)}")

        def add(*operands: Any, **attributes: Any) -> Any:
            values = [self._value(o) for o in operands]
            results = self.builder.add(applied(found, values, attributes))
            return results[0] if len(results) == 1 else results

        return add

    def _value(self, operand: Any) -> Value:
        if isinstance(operand, Value):
            return operand
        if isinstance(operand, np.generic):
            return Literal(operand.item(), TensorType((), BY_DTYPE[operand.dtype]), explicit=True)
        type: Any = literal_type(self.name, operand)
        return Literal(operand, type)


class Rewriting:
    """A function being rewritten: its operations in order, with an index of owners and uses."""

    module: Module | None = None  # with the functions that added operations may call

    def __init__(self, function: Function, patterns: Sequence[Pattern], is_called: bool) -> None:
        self.function = function
        self.is_called = is_called
        self.patterns = patterns
        self.tried: dict[type[Operator[object]], list[Pattern]] = {}  # by operator, in order
        self.budget = MOST_REWRITES * len(function.operations)
        self.owners: dict[Value, Slot] = {}
        self.users: defaultdict[Value, Counter[Slot]] = defaultdict(Counter)
        self.results = [*function.results]
        self.returned: defaultdict[Value, list[int]] = defaultdict(list)
        self.intervals: dict[Value, Interval] = {}
        self.waiting: dict[Slot, None] = {}  # the next one last
        self.applied: dict[Pattern, int] = {}  # how often each pattern has matched
        self.first = last = Slot(cast(Any, None), 0)
        for operation in function.operations:
            last.after = Slot(operation, last.number + SPACING, last)
            last = last.after
            self.owners.update(dict.fromkeys(operation.results, last))
        self.push(self.slots())

    def slots(self) -> list[Slot]:
        slots, slot = [], self.first.after
        while slot is not None:
            slots.append(slot)
            slot = slot.after
        return slots

    def push(self, slots: Iterable[Slot]) -> None:
        """Have operations tried next, the first one first, unless they wait already."""
        for slot in [*slots][::-1]:
            if self.patterns_of(slot.operation.operator):
                self.waiting.setdefault(slot)

    def patterns_of(self, operator: Operator[Value]) -> list[Pattern]:
        """The patterns whose root may be such an operator, in the order in which they are tried."""
        kind = type(operator)
        if kind not in self.tried:
            patterns = [p for p in self.patterns if issubclass(kind, p.roots)]
            own = of_simplified(kind)
            self.tried[kind] = sorted([*patterns, *filter(None, [own])], key=lambda p: p.order)
        return self.tried[kind]

    def run(self) -> Function:
        for slot in self.slots():
            self.count_uses(slot)
        for n, result in enumerate(self.results):
            self.returned[result].append(n)
        before = self.budget
        while self.waiting:
            self.visit(self.waiting.popitem()[0])
            if not self.waiting and self.patterns and self.budget < before:
                before = self.budget
                self.push(self.slots())  # a match may depend on operations far from its root
        if not self.applied:
            return self.function
        operations = tuple(s.operation for s in self.slots())
        return replace(self.function, operations=operations, results=tuple(self.results))

    def is_passed_over(self, slot: Slot) -> bool:
        """Test whether no pattern rewrites an operation."""
        return bool(slot.operation.operator.destroys()) or not self.is_used(slot)

    def is_kept(self, root: Operation) -> bool:
        """Test whether an operation stays beside what replaces it: its error is to be reported."""
        return self.may_fail(root)

    def visit(self, slot: Slot) -> None:
        """Replace an operation by the first pattern that matches."""
        operation = slot.operation
        if self.is_passed_over(slot):
            return
        for pattern in self.patterns_of(operation.operator):
            builder = Builder(self, slot)
            try:
                found = pattern.match(operation.operator, builder)
                values = found if isinstance(found, tuple) else (found,)
                matches = found is not None and not self.misfit(slot, values, builder)
                if matches and not self.budget:
                    raise self.mistake(slot, self.too_many())
            except Error as e:
                raise type(e)(
                    [self.attributed(d, pattern, operation) for d in e.diagnostics]
                ) from e
            if matches:
                self.budget -= 1
                self.applied[pattern] = self.applied.get(pattern, 0) + 1
                check_time()
                self.replace(slot, values, builder)
                return

    def too_many(self) -> str:
        """The message where a match would be beyond the budget."""
        n = counted(len(self.function.operations), "operation")
        return f"more than {MOST_REWRITES} rewrites for each of {n}"

    def misfit(self, slot: Slot, values: tuple[Any, ...], builder: Builder) -> str:
        """A message if values are not of the types of the root's results, for all sizes."""
        results = slot.operation.results
        if len(values) != len(results) or None in values:
            given = ", ".join("None" if v is None else f"%{v.name}" for v in values)
            expected = counted(len(results), "value")
            raise self.mistake(slot, f"expected {expected} or None, got ({given})")
        for value in values:
            if wrong := self.out_of_place(value, slot, builder.added):
                raise self.mistake(slot, wrong)
        if builder.undecided:
            return f"it adds {builder.undecided}, which may reject sizes that the operation takes"
        for value, result in zip(values, results, strict=True):
            if isinstance(value, Literal) or value.known_type.key != result.known_type.key:
                return f"%{value.name} is {value.type}, but %{result.name} is {result.type}"
        return ""

    def mistake(self, slot: Slot, message: str) -> Error:
        return Error(Diagnostic(message, slot.operation.at(None), "pattern.match"))

    def attributed(self, mistake: Diagnostic, pattern: Pattern, operation: Operation) -> Diagnostic:
        """The mistake of a pattern, with its name, and where it stands in either program."""
        if mistake.span != operation.at(None):
            here = Note("it rewrites this operation", operation.at(None))
            mistake = replace(mistake, notes=(*mistake.notes, here))
        return attributed(mistake, pattern.who, pattern.place)

    # what a pattern reads

    def uses(self, value: Value) -> tuple[Operator[Value] | None, ...]:
        """The operators that take a value, once for each operand; None for each result of the
        function that it is.
        """
        users = [u.operation.operator for u in self.users.get(value, Counter()).elements()]
        return *users, *[None] * len(self.returned.get(value, ()))

    def out_of_place(self, value: Value, root: Slot, added: Container[Value]) -> str:
        """A message if a value is not there before the root; else nothing."""
        owner = self.owners.get(value)
        if owner is None:
            known = isinstance(value, Literal) or value in added or value in self.arguments
            return "" if known else f"%{value.name} is no value of the function"
        return "" if owner.number < root.number else f"%{value.name} is not computed before it"

    @cached_property
    def arguments(self) -> set[Value]:
        return set(self.function.arguments)

    @cached_property
    def equal(self) -> Mapping[Any, Dim]:
        """The sizes that calls check to be equal to others."""
        return equal_sizes(self.function)

    def takes_all_sizes(self, operator: Operator[Value]) -> bool:
        """Test whether no call that the function takes breaks a constraint of an operator."""
        if all(v.known_type.is_static for _, v in operator.operands()):
            return True
        typed = operator.map(lambda v: with_sizes(v.known_type, self.equal))
        return violated(typed, typed.constraints) == (None, False)

    def interval(self, value: Value) -> Interval:
        """The interval of a value of a discrete type."""
        pending = [value]
        while pending:
            v = pending[-1]
            slot = self.owners.get(v)
            operands = [] if slot is None else [x for _, x in slot.operation.operator.operands()]
            discrete = [x for x in operands if x.known_type.element.storage.is_discrete]
            if missing := [x for x in discrete if x not in self.intervals]:
                pending += missing
                continue
            if v not in self.intervals:
                self.intervals[v] = self.interval_over_operands(v)
            pending.pop()
        return self.intervals[value]

    def interval_over_operands(self, value: Value) -> Interval:
        """The interval of a value, given those of the operands of its owner."""
        element = value.known_type.element.storage
        if isinstance(value, Literal):
            return range_of(value.array)
        if (slot := self.owners.get(value)) is None:
            return (declared_range(value) if self.is_called else None) or whole(element)
        if isinstance(slot.operation.operator, Const):
            return range_of(slot.operation.operator.data.array)
        formula, known = self.formula(slot.operation)
        return whole(element) if formula is None else interval(formula, known)

    def formula(self, operation: Operation) -> tuple[Expr | None, dict[Tensor, Interval]]:
        """The formula of an operation, None where it has none, and the intervals that it reads."""
        operator = operation.operator
        if isinstance(operator, Calling) or operator.has_nest() or operator.is_expanded:
            return None, {}
        tensors = {v: tensor(v) for _, v in operator.operands()}
        typed: object = operator.map(tensors.__getitem__)
        known = {t: self.intervals[v] for v, t in tensors.items() if v in self.intervals}
        return typed.element(tensor(operation.results[0])).value, known

    def may_fail(self, operation: Operation) -> bool:
        """Test whether an operation may report an error, by the ranges of its operands."""
        if not may_fail(operation):
            return False
        for _, value in operation.operator.operands():
            if value.known_type.element.storage.is_discrete:
                self.interval(value)
        formula, known = self.formula(operation)
        checks = [] if formula is None else [e for e in walk(formula) if isinstance(e, Check)]
        return formula is None or any(interval(c.condition, known).low < 1 for c in checks)

    # what a match changes

    def replace(self, slot: Slot, values: Sequence[Value], builder: Builder) -> None:
        """Insert the operations that a pattern added, and use values in place of its root's."""
        root = slot.operation
        added = live_operations(builder.operations, values)
        new: dict[Value, Value] = {}  # added results that become the root's
        for value, result in zip(values, root.results, strict=True):
            if value in builder.added:
                new.setdefault(value, result)
        slots: list[Slot] = []
        affected = [u for r in root.results for u in self.users[r]]
        if self.is_kept(root):
            unused = tuple(Value(r.name, r.type, r.span) for r in root.results)
            slot.operation = replace(root, results=unused)
            self.owners.update(dict.fromkeys(unused, slot))
        for operation in added:
            operator = operation.operator.map(lambda v: new.get(v, v))
            results = tuple(new.get(r, r) for r in operation.results)
            slots.append(self.insert(slot, replace(operation, operator=operator, results=results)))
        for result, value in zip(root.results, values, strict=True):
            if new.get(value, value) is not result:
                self.substitute(result, new.get(value, value))
        self.push([*slots, *affected])
        if slot.operation is root:
            self.remove(slot)

    def insert(self, root: Slot, operation: Operation) -> Slot:
        """Insert an operation before another one."""
        before = cast(Slot, root.before)
        if root.number - before.number < 2:
            for n, slot in enumerate(self.slots(), 1):
                slot.number = n * SPACING
        slot = Slot(operation, (before.number + root.number) // 2, before, root)
        before.after = root.before = slot
        self.owners.update(dict.fromkeys(operation.results, slot))
        self.count_uses(slot)
        return slot

    def count_uses(self, slot: Slot) -> None:
        for _, value in slot.operation.operator.operands():
            self.users[value][slot] += 1

    def substitute(self, old: Value, new: Value) -> None:
        """Use one value in place of another one."""
        for user, count in self.users.pop(old, Counter()).items():
            operator = user.operation.operator.map(lambda v: new if v is old else v)
            user.operation = replace(user.operation, operator=operator)
            self.users[new][user] += count
        for n in self.returned.pop(old, ()):
            self.results[n] = new
            self.returned[new].append(n)

    def is_used(self, slot: Slot) -> bool:
        return any(self.users.get(r) or self.returned.get(r) for r in slot.operation.results)

    def remove(self, slot: Slot) -> None:
        """Remove an operation, and those that only it used and that cannot fail."""
        removed = [slot]
        while removed:
            slot = removed.pop()
            self.waiting.pop(slot, None)
            for result in slot.operation.results:
                if self.owners.get(result) is slot:
                    del self.owners[result]
            cast(Slot, slot.before).after = slot.after
            if slot.after is not None:
                slot.after.before = slot.before
            for value in dict.fromkeys(v for _, v in slot.operation.operator.operands()):
                users = self.users[value]
                del users[slot]
                owner = self.owners.get(value)
                if owner is None or self.is_used(owner):
                    self.push(filter(None, [owner, *users]) if len(users) == 1 else ())
                elif not owner.operation.operator.destroys() and not self.may_fail(owner.operation):
                    removed.append(owner)
