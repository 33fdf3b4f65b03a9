"""Patterns of rewrites: match the operations of the first program, and add those of the second.

    rewrite @f(%a: t, %b: t) { %s = add %a, %b  return %s } => { %s = add %b, %a  return %s }

Operators, attributes and constants are equal, types fit those of the arguments, sizes of one name
are one size, and ranges of arguments hold.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from ...dialect.builtin import Const
from ...dialect.ir.function import Function, Literal, Operation, Rewrite, Value
from ...dialect.spec.operator import OURS, Operator
from ...dialect.support.diagnostics import VerifyError
from ...dialect.support.entry_points import SOURCES
from ...dialect.types.attributes import attribute_text
from ...dialect.types.sizes import Dim, same_size
from ...dialect.types.tensor_types import Type
from ..analysis.integer_ranges import declared_range
from .patterns import PATTERNS, Pattern, digest_of_package
from .rewrite import Builder


def declare_rewrite(rewrite: Rewrite) -> None:
    """Add a rewrite to the patterns of every compilation."""
    pattern = pattern_of(rewrite)
    PATTERNS[pattern.package, pattern.name] = pattern
    SOURCES[f"{pattern.package}.{pattern.name}"] = sha256(
        rewrite.span.source.text.encode()
    ).hexdigest()
    for program in (rewrite.before, rewrite.after):
        for module in {type(o.operator).__module__ for o in program.operations}:
            if not module.startswith(OURS):
                SOURCES[module] = digest_of_package(module.partition(".")[0], module)


def pattern_of(rewrite: Rewrite) -> Pattern:
    """The rewrite as a pattern, whose root is the last operation of the first program."""
    before, after = rewrite.before, rewrite.after
    owners = {r: o for o in before.operations for r in o.results}

    def match(op: Operator[Value], b: Builder) -> tuple[Value, ...] | None:
        found = _Match(owners, b)
        if not found.operator(before.operations[-1].operator, op):
            return None
        return _replacement(after, [found.bound[a] for a in before.arguments], b)

    kind = type(before.operations[-1].operator)
    where = rewrite.span.source.filename
    return Pattern(rewrite.name, where, (kind,), match, rewrite.span, rewrite=rewrite)


def _replacement(
    program: Function, arguments: Sequence[Value], b: Builder
) -> tuple[Value, ...] | None:
    """The results of the second program for these arguments; None where it does not take them."""
    values = dict(zip(program.arguments, arguments, strict=True))
    for operation in program.operations:
        try:
            results = b.add(operation.operator.map(lambda v: values.get(v, v)))
        except VerifyError:  # of sizes that only the first program takes
            return None
        values.update(zip(operation.results, results, strict=True))
    return tuple(values[r] for r in program.results)


class _Match:
    """Values of the first program, each with the one that it stands for."""

    def __init__(self, owners: dict[Value, Operation], b: Builder) -> None:
        self.owners = owners
        self.b = b
        self.bound: dict[Value, Value] = {}
        self.sizes: dict[Any, Dim] = {}

    def operator(self, wanted: Operator[Value], found: Operator[Value]) -> bool:
        """Test whether an operator and all that it depends on match."""
        pending = [(wanted, found)]
        while pending:
            wanted, found = pending.pop()
            if not _alike(wanted, found):
                return False
            pairs = zip(wanted.operands(), found.operands(), strict=True)
            for (_, expected), (_, value) in pairs:
                if expected in self.bound:
                    if not _same(self.bound[expected], value):
                        return False
                    continue
                self.bound[expected] = value
                if (owner := self.owners.get(expected)) is None:
                    if not self.argument(expected, value):
                        return False
                    continue
                other = self.b.definition(value)
                place = owner.results.index(expected)
                if other is None or [*other.results].index(value) != place:
                    return False
                pending.append((owner.operator, other.operator))
        return True

    def argument(self, expected: Value, value: Value) -> bool:
        """Test whether a value may stand for an argument, or for a literal."""
        if isinstance(expected, Literal):
            return _same(expected, value)
        if not self.type(expected.known_type, value.known_type):
            return False
        if (declared := declared_range(expected)) is None:
            return True
        low, high = self.b.range(value) or (declared.low - 1, declared.high)
        return declared.low <= low and high <= declared.high

    def type(self, expected: Type, found: Type) -> bool:
        shape, sizes = expected.array_shape, found.array_shape
        if type(expected) is not type(found) or len(shape) != len(sizes):
            return False
        if expected.with_array_shape(sizes).key != found.key:
            return False
        return all(
            same_size(n if isinstance(n, int) else self.sizes.setdefault(n.key, m), m)
            for n, m in zip(shape, sizes, strict=True)
        )


def _same(expected: Value, value: Value) -> bool:
    """Test whether values are one, or equal literals."""
    if not isinstance(expected, Literal) or not isinstance(value, Literal):
        return expected is value
    return expected.known_type.key == value.known_type.key and (
        expected.array.tobytes() == value.array.tobytes()
    )


def _alike(wanted: Operator[Value], found: Operator[Value]) -> bool:
    """Test whether operators are equal, whatever their operands."""
    if type(wanted) is not type(found):
        return False
    if isinstance(wanted, Const) and isinstance(found, Const):
        a, b = wanted.data.array, found.data.array
        return wanted.type.key == found.type.key and a.tobytes() == b.tobytes()
    names = [[name for name, _ in o.operands()] for o in (wanted, found)]
    return names[0] == names[1] and all(
        attribute_text(v) == attribute_text(w)
        for (_, v), (_, w) in zip(wanted.attributes(), found.attributes(), strict=True)
    )
