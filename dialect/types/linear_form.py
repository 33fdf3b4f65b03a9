"""Linear forms: integer multiples of atoms plus a constant.

Sizes of arrays, index expressions and addresses are linear forms. They differ in their atoms: named
sizes, indices, emitted values, and whatever is not linear, such as quotients. The arithmetic is
exact: a linear form does not wrap.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Generic, Self, TypeAlias, TypeVar

Key: TypeAlias = object
Atom = TypeVar("Atom")
Bounds: TypeAlias = tuple[
    int | None, int | None
]  # the least and the greatest value, None where none is known


@dataclass(frozen=True, eq=False)
class LinearForm(Generic[Atom]):
    """constant + sum of factor * atom; `terms` maps the key of an atom, by which atoms are
    compared, to the atom and its factor.
    """

    terms: dict[Key, tuple[Atom, int]]
    constant: int = 0

    def __add__(self, other: Self) -> Self:
        return self._plus(other, 1)

    def __sub__(self, other: Self) -> Self:
        return self._plus(other, -1)

    def _plus(self, other: Self, times: int) -> Self:
        terms = dict(self.terms)
        for key, (atom, factor) in other.terms.items():
            add_term(terms, key, atom, factor * times)
        return type(self)(terms, self.constant + other.constant * times)

    def __mul__(self, factor: int) -> Self:
        terms = {k: (a, f * factor) for k, (a, f) in self.terms.items()} if factor else {}
        return type(self)(terms, self.constant * factor)

    def plus(self, number: int) -> Self:
        return type(self)(self.terms, self.constant + number)

    @property
    def divisor(self) -> int:
        """The greatest number that divides the constant and every factor; 0 for the form 0."""
        return gcd(self.constant, *(f for _, f in self.terms.values()))

    def bounds(self, of: Callable[[Atom], Bounds]) -> Bounds:
        """The bounds of the form, from those of its atoms; attained if the atoms attain theirs
        independently.
        """
        total: Bounds = self.constant, self.constant
        for atom, factor in self.terms.values():
            total = add_bounds(total, scale_bounds(of(atom), factor))
        return total


def add_term(terms: dict[Key, tuple[Atom, int]], key: Key, atom: Atom, factor: int) -> None:
    known = terms.get(key)
    if total := factor if known is None else known[1] + factor:
        terms[key] = atom, total
    elif known is not None:
        del terms[key]


def add_bounds(a: Bounds, b: Bounds) -> Bounds:
    return None if a[0] is None or b[0] is None else a[0] + b[0], None if a[1] is None or b[
        1
    ] is None else a[1] + b[1]


def scale_bounds(a: Bounds, factor: int) -> Bounds:
    low, high = (None if n is None else n * factor for n in a)
    return (low, high) if factor >= 0 else (high, low)
