"""The computation that a call with new sizes does instead of verifying the program again: the sizes
of results from those of arguments, and the checks that were left to calls.

`find_deferred_checks` finds them for the sizes of a call, or for all calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..types.sizes import Condition, Dim, Size
from ..types.tensor_types import MAX_SIZE, Type
from ..types.unify import bind

# operations of two steps' values, and checks of them, which end the computation where they fail
ARITHMETIC = ("+", "*", "//", "max", "min")
CHECKS = ("==", "!=", "<", ">=")
STEPS = ("number", "size", *ARITHMETIC, *CHECKS)
LARGEST = 1 << 62  # of a value; at it a computation ends, as in machine code


class SizeSteps:
    """A computation on sizes: steps of a name and two numbers, which are the places of earlier
    steps, but of `number` itself, and of `size` its place among `atoms`.

    Each step has a value, of checks 0. Equal steps are one.
    """

    def __init__(self, atoms: Sequence[object]) -> None:
        self.atoms = {atom: n for n, atom in enumerate(atoms)}
        self.places: dict[tuple[str, int, int], int] = {}

    def add(self, name: str, a: int, b: int = 0) -> int:
        return self.places.setdefault((name, a, b), len(self.places))

    def of(self, dim: Dim) -> int:
        """The place of a size's value."""
        if not isinstance(dim, Size):
            return self.add("number", dim)
        total = None if not dim.constant else self.add("number", dim.constant)
        for atom, factor in dim.terms:
            if len(atom) < 3:
                value = self.add("size", self.atoms[atom])
            else:
                value = self.add(atom[0], *map(self.of, atom[1:]))
            if factor != 1:
                value = self.add("*", value, self.of(factor))
            total = value if total is None else self.add("+", total, value)
        assert total is not None
        return total

    def elements(self, type: Type) -> int:
        """The place of the number of elements of a type, whose sizes are checked to be legal."""
        count, legal = self.of(1), self.of(1)
        for place in map(self.of, type.array_shape):
            self.add(">=", place, self.of(0))
            count = self.add("*", count, place)
            legal = self.add("*", legal, self.add("max", place, self.of(1)))
        self.add("<", legal, self.of(MAX_SIZE))
        return count

    def values(self, sizes: Sequence[int]) -> list[int] | None:
        """The value of every step for sizes in the order of the atoms; None if a check fails."""
        values: list[int] = []
        for name, a, b in self.places:
            if name == "number":
                values.append(a)
            elif name == "size":
                values.append(sizes[a])
            else:
                value = _COMPUTE[name](values[a], values[b])
                if value is False or not -LARGEST < value < LARGEST:
                    return None
                values.append(value)
        return values


_COMPUTE = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,
    "max": max,
    "min": min,
    "==": lambda a, b: a == b and 0,
    "!=": lambda a, b: a != b and 0,
    "<": lambda a, b: a < b and 0,
    ">=": lambda a, b: a >= b and 0,
}


@dataclass(frozen=True)
class DeferredChecks:
    """The types of arguments and results, every other type of the function with unknown sizes, once
    each, and the conditions under which these are the types.
    """

    arguments: tuple[Type, ...]
    results: tuple[Type, ...]
    others: tuple[Type, ...]
    conditions: tuple[Condition, ...] = ()

    def steps(self, atoms: Sequence[Any]) -> SizeSteps:
        """The checks, where the atoms have these places."""
        steps = SizeSteps(atoms)
        for relation, a, b in self.conditions:
            steps.add(relation, steps.of(a), steps.of(b))
        for t in (*self.results, *self.others):
            steps.elements(t)
        return steps

    @cached_property
    def _computed(self) -> tuple[SizeSteps, list[list[int]]]:
        steps = self.steps(list(bind(self.arguments, self.arguments)))
        return steps, [[steps.of(d) for d in t.array_shape] for t in self.results]

    def result_types(self, arguments: Sequence[Type]) -> list[Type] | None:
        """The result types of a call with arguments of these types; None if these checks do not
        suffice for it.
        """
        bound = bind(self.arguments, arguments)
        steps, places = self._computed
        if (values := steps.values([int(bound[atom]) for atom in steps.atoms])) is None:
            return None
        return [
            t.with_array_shape(tuple(values[n] for n in shape))
            for t, shape in zip(self.results, places, strict=True)
        ]
